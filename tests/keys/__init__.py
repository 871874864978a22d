"""Key indexes: their files, and look-ups by key with and without them."""
