"""Topics as tables of query engines: which records a query's filter can match, and reading only those."""
