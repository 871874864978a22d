"""The registry with every noun's file read."""

from importlib import import_module

from asv_benchmarks.hot_paths import NOUNS
from asv_benchmarks.hot_paths.path import PATHS

__all__ = ["PATHS"]

for noun in NOUNS:  # each enters its paths
    import_module(f"asv_benchmarks.hot_paths.{noun}")
