"""Jobs over trees of directories: each a function, a command (`kafkalog spark ...`), and a step of a Spark program.

A job takes a session, the paths, and `tell`, which is called with how far it is (`kafkalog.spark.progress`). It gives
the report that the command of the same name gives on one machine. `python -m kafkalog.spark.jobs verify ...` is the
same as `kafkalog spark verify ...`, and `__main__.py` is what spark-submit takes.
"""
