"""Spark reading a log, beside Spark's own Kafka source and a source of ready-made Arrow batches."""
