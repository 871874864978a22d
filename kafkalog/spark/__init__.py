"""Kafka's log on Spark: the data source `kafkalog`, and jobs over trees of directories.

Nothing outside this package and its command imports it, and importing it alone imports nothing of Spark.
"""
