"""Topics as tables of a lakehouse: Iceberg and Delta tables that each commit of a sync extends exactly once."""
