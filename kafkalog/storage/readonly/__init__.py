"""Mode "r": a partition directory, read while another process may own it."""
