"""Tiered topics (KIP-405): segments in a remote store and on local disk, read as one log."""
