"""Several processes that serve one node: each has data directories, a port, and the partitions that lie there."""
