"""Records from text, JSON lines and whole files."""
