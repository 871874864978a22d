"""Decoders of keys and values: plain callables from bytes to values."""
