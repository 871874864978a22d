"""The transaction coordinator: its decisions, its log, and the markers it writes into partitions."""
