"""What a log does with batches: checks, offsets, producers, transactions, index entries, the append in one call."""
