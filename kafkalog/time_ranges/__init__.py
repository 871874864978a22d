"""Smallest and largest times of the pieces of each segment, so that a query with an upper bound of time skips them."""
