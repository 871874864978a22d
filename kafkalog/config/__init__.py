"""Settings of topics and of whole stores: names, types, ranges, defaults, and their text."""
