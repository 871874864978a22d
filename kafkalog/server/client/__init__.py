"""The client's side of Kafka's protocol: what a node asks of another one, or of a broker."""
