"""Data directories for the job `compact`."""

from pathlib import Path

from tests.tools.test_compact import TWICE, make

LONGER = [(b"%d" % (n % 7), b"%d" % n) for n in range(40)]


def make_tree(root: Path) -> Path:
    """Make three data directories with compacted topics, some partitions clean, one topic that is not compacted."""
    root.mkdir()
    make(root / "a" / "t-0", TWICE[:4])
    make(root / "a" / "t-1", LONGER)
    make(root / "a" / "u-0", LONGER[:20], per_segment=3)
    make(root / "b" / "t-2", LONGER[5:])
    make(root / "b" / "empty-0", [])
    make(root / "c" / "plain-0", TWICE, cleanup_policy="delete")
    return root
