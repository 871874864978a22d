"""Every hot path, by noun: what `asv`, the counting of instructions and `make bench` run."""
