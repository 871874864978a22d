"""Cleaning the compacted topics of data directories without a running broker."""
