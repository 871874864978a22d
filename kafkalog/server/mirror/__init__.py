"""A standby copy of topics of a real cluster, in directories of our own."""
