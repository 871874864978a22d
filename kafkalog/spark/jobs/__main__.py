"""`python -m kafkalog.spark.jobs JOB ...`, also for spark-submit: the same as `kafkalog spark JOB ...`."""

from __future__ import annotations

import os
import sys


def main() -> int:
    """Run the job that the command line names and return its exit status."""
    here = os.path.dirname(os.path.abspath(__file__))
    if sys.path and os.path.abspath(sys.path[0]) == here:
        del sys.path[0]  # run as a file: this package's modules must not be importable as top-level ones
    from kafkalog.cli.main import run

    return run(["spark", *sys.argv[1:]])


if __name__ == "__main__":
    sys.exit(main())
