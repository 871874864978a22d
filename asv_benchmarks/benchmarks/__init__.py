"""What asv runs. It knows this folder alone, so the rest of `asv_benchmarks` is found by the folder above, last."""

import sys
from pathlib import Path

sys.path.append(str(Path(__file__).resolve().parents[2]))
