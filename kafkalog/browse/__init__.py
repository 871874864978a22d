"""Terminal browser for data directories, partitions, segments, batches and records (docs/browse.md)."""
