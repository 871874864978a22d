"""Reading records of an open log or of another process's files: ranges, single offsets, and the end."""
