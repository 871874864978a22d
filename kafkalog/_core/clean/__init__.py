"""The decisions and the writing of a clean: the offset map, the records kept, the transactions that can go."""
