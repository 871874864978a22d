"""The registry with every noun's file read."""

from asv_benchmarks.hot_paths import (  # noqa: F401  # each enters its paths
    appending,
    batches,
    checksums,
    cleaning,
    codecs,
    columns,
    indexes,
    opening,
    producers,
    reading,
)
from asv_benchmarks.hot_paths.path import PATHS

__all__ = ["PATHS"]
