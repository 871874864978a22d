"""Jobs over trees of directories: each is a function, a command (`kafkalog spark ...`) and a step in Spark programs.

A job takes a session, the paths, and `tell`, which is called with its progress (`kafkalog.spark.progress`). It returns
the report of the single-machine command of the same name. `python -m kafkalog.spark.jobs verify ...` equals
`kafkalog spark verify ...`; spark-submit takes `__main__.py`.
"""
