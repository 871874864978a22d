"""Places where schemas are found by the id before a value: files, a registry, its topic on this disk."""
