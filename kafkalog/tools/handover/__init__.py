"""Handing the topics of data directories over to a broker."""
