"""The compiled part of a log: checks, offsets, producers, transactions, index entries, the append in one call."""
