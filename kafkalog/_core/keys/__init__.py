"""Key indexes: hashes of the keys of a segment, where their records are, and the search in both."""
