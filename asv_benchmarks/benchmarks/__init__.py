"""Benchmarks for asv, which knows only this folder: the rest of `asv_benchmarks` is added to the module path, last."""

import sys
from pathlib import Path

sys.path.append(str(Path(__file__).resolve().parents[2]))
