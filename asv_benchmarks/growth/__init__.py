"""Growth of six operations with processors, partitions and size: `python -m asv_benchmarks.growth`."""
