"""The client side of Kafka's protocol, for requests to other nodes or brokers."""
