"""The object that `kafkalog.open_dirs` returns: the topics of data directories as one Python object."""
