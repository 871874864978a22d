"""The object that `kafkalog.open` returns: one partition as a Python object."""
