"""Redaction: records emptied in place, or made tombstones, by key, by condition or by offset."""
