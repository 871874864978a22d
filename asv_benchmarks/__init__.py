"""Speed: asv classes in `benchmarks/`, and `python -m asv_benchmarks`, the table with ratios against peers."""
