"""The broker side of Kafka's protocol: a server for Kafka clients."""
