"""Repair of data directories: a plan, a backup, and the changes."""
