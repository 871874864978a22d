"""Records out of logs and back in: exports that go on where they were, imports that land once."""
