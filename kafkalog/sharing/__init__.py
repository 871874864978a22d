"""Members of share groups, which run work queues: on open directories in this process, or of a cluster."""
