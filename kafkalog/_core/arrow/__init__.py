"""Records as Arrow columns, and Arrow data as records."""
