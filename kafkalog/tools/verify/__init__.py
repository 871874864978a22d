"""Verification of data directories, partitions and files."""
