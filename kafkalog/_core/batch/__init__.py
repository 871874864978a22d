"""Batches and records of every format: scanned, decoded, built, decompressed, rewritten."""
