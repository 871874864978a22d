"""A browser for the terminal: data directories, partitions, segments, batches, records (docs/browse.md)."""
