"""Export of records from logs and import into logs: exports resume where they stopped, imports write once."""
