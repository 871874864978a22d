"""Slowdowns planted on purpose, to see that the comparison of instruction counts names the hot path of each."""
