"""Typed columns: bytes of keys and values decoded into nested Arrow columns, with no Python object for a row."""
