"""Instructions of each hot path, counted by callgrind, and held against those of another commit."""
