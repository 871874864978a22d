"""Where schemas are found by the id that stands before a value: files, a registry's server, its topic on this disk."""
