"""Retention in data directories without a running broker."""
