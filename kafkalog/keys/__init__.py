"""Key indexes of a log's segments, and look-ups of records by key (docs/keys.md)."""
