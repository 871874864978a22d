"""What a cleaner decides and writes: the offset map, the records kept, the transactions that can go."""
