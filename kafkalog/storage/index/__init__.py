"""The index files of a segment: of offsets, times and aborted transactions."""
