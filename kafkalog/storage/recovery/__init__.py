"""Opening a partition directory: what is recovered, rebuilt, kept and removed."""
