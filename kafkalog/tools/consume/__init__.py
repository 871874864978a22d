"""Records as text."""
