"""A standby copy of topics of a real cluster, in local directories."""
