"""The transaction coordinator: what it decides, how it keeps that, and what it writes into partitions."""
