"""Kafka's log on Spark: the data source `kafkalog`, and jobs over trees of directories.

Only this package and its command import it. Importing it alone imports nothing of Spark.
"""
