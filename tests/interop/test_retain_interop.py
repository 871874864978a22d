"""kafkalog keeps the same bytes of a log's batches as the reference's Cleaner, round after round."""

from pathlib import Path
from random import Random
from typing import Any

import pytest

from kafkalog.records.batch import RecordBatch
from kafkalog.storage.index.aborted_txns import AbortedTxn, read_aborted_txns
from tests.cleaner.filtering import Cleaner, list_batches
from tests.cleaner.histories import NOW, RETENTION_MS, random_history
from tests.interop.reference import Reference
from tests.mock_time import MockClock

SEEDS = range(40)
ROUNDS = [(0, 1 << 20), (1, 8 * 24), (RETENTION_MS, 1 << 20), (2 * RETENTION_MS, 1 << 20)]


def segments(path: Path, below: int) -> list[Path]:
    """The logs of the segments that begin below an offset."""
    return sorted(one for one in path.glob("*.log") if int(one.stem) < below)


def content(path: Path, below: int) -> bytes:
    return b"".join(one.read_bytes() for one in segments(path, below))


def aborted(path: Path, below: int) -> list[AbortedTxn]:
    """All entries of the indexes, one after the other."""
    found = (one.with_suffix(".txnindex") for one in segments(path, below))
    return [txn for one in found if one.exists() for txn in read_aborted_txns(one)]


def last_records(path: Path) -> dict[int, tuple[int, int]]:
    """Producer id -> (last offset with data, epoch), as the log's own batches have it."""
    found: dict[int, tuple[int, int]] = {}
    for batch in list_batches(content(path, 1 << 62)):
        header = batch.header
        if header.producer_id >= 0:
            offset, _ = found.get(header.producer_id, (-1, -1))
            last = offset if header.is_control else batch.last_offset
            found[header.producer_id] = last, header.producer_epoch
    return found


def fields_of(batch: RecordBatch) -> Any:
    """A batch as bytes, or, where a codec's library decides about these, by its fields and records."""
    header = batch.header
    if not header.compression or not header.count:
        return bytes(batch)
    fields = ("magic", "attributes", "base_offset", "last_offset", "leader_epoch", "base_timestamp", "max_timestamp")
    fields += ("producer_id", "producer_epoch", "base_sequence", "count")
    rows = [(r.offset, r.timestamp, r.key, r.value, r.headers) for r in batch.records()]
    return {name: getattr(header, name) for name in fields}, rows


@pytest.mark.parametrize("seed", SEEDS)
def test_batches_are_kept_as_the_reference_keeps_them(reference: Reference, tmp_path: Path, seed: int) -> None:
    """CLN-3, CLN-4, CLN-6 to CLN-12, CLN-14, CLN-16 to CLN-22, CLN-44, CLN-48 to CLN-50."""
    history = random_history(Random(1000 + seed), most=80)
    path = tmp_path / "t-0"
    history.written(path, MockClock(NOW)).close()
    config = {
        "cleanup.policy": "compact",
        "delete.retention.ms": RETENTION_MS,
        "internal.segment.bytes": history.segment_bytes,
        "index.interval.bytes": 150,
    }
    last = last_records(path)
    bases = [int(one.stem) for one in segments(path, 1 << 62)]
    uncleanable = max(base for base in bases if base <= history.stable)
    for later, map_bytes in ROUNDS:
        known = aborted(path, 1 << 62)
        before = {int(one.stem): one.read_bytes() for one in segments(path, uncleanable)}
        with reference.open(path, config, clean=True, now_ms=NOW) as log:
            end = log.compact(0, uncleanable, NOW + later, map_bytes=map_bytes)["end_offset"]
        first_left = min((base for base in before if base >= end), default=uncleanable)
        data = b"".join(part for base, part in before.items() if base < end)
        if data:
            cleaner = Cleaner(last, delete_retention_ms=RETENTION_MS, most_keys=int(map_bytes // 24 * 0.9))
            ours = cleaner.clean(data, end=uncleanable, now=NOW + later, aborted=known, map_end=end)
            theirs = list_batches(content(path, first_left))
            assert [fields_of(batch) for batch in list_batches(ours.data)] == [fields_of(batch) for batch in theirs]
            assert ours.retained == aborted(path, first_left)
