"""Compacted logs beside the reference: the oracle agrees with its Cleaner; it opens and cleans what we cleaned."""

from pathlib import Path
from random import Random

import pytest

from kafkalog.util.clock import MockClock
from tests.cleaner.histories import NOW, RETENTION_MS, History, random_history
from tests.interop import ours
from tests.interop.reference import Reference

SEEDS = range(25)


def settings(history: History) -> dict[str, object]:
    return {
        "cleanup.policy": "compact",
        "delete.retention.ms": RETENTION_MS,
        "internal.segment.bytes": history.segment_bytes,
        "index.interval.bytes": 150,
    }


def made(directory: Path, seed: int) -> tuple[History, Path]:
    """A random history, written and closed well, and the directory of its partition."""
    history = random_history(Random(seed), most=60)
    path = directory / f"t{seed}" / "t-0"
    history.written(path, MockClock(NOW)).close()
    return history, path


@pytest.mark.parametrize("seed", SEEDS)
def test_the_oracle_is_what_the_cleaner_of_the_reference_leaves(
    reference: Reference, tmp_path: Path, seed: int
) -> None:
    """CLN-3, CLN-6, CLN-7, CLN-9, CLN-14, CLN-15: the rows that must stay, by rule and by the reference."""
    history, path = made(tmp_path, seed)
    with reference.open(path, settings(history), clean=True) as log:
        told = log.compact(0, history.stable, NOW)
    assert ours.records(path) == [row.shown for row in history.kept(told["end_offset"])]
