"""The broker's side of Kafka's protocol: what a client sends, and what it is answered."""
