"""Bytes without a format: checksums, hashes, varints, bounds-checked reads, buffers, pages of files."""
