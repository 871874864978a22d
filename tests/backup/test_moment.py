"""`restore_backup(at=...)`: every partition as it was at a moment, against a plain model of what a log held."""

import struct
import tempfile
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import kafkalog
from kafkalog.backup import create_backup, restore_backup
from kafkalog.errors import IllegalArgument
from tests.backup.timed_logs import ABORT, COMMIT, DATA, PLAIN, Event, TimedLog, value_of
from tests.builder import crc32c
from tests.plain_reader import read_batch

FIRST, LAST = 1000, 1060
times = st.lists(st.integers(FIRST, LAST), min_size=1, max_size=5).map(tuple)
steady = st.integers(FIRST, LAST)


@st.composite
def histories(draw: st.DrawFn) -> list[Event]:
    """Batches whose times rise, but for some that lie anywhere."""
    events, now = [], FIRST
    for _ in range(draw(st.integers(1, 14))):
        now = min(LAST, now + draw(st.integers(0, 8)))
        kind = draw(st.sampled_from([PLAIN, DATA, DATA, COMMIT, ABORT]))
        count = 1 if kind in (COMMIT, ABORT) else draw(st.integers(1, 5))
        rising = tuple(min(LAST, now + n) for n in range(count))
        odd = draw(st.integers(0, 4)) == 0
        found = draw(st.lists(steady, min_size=count, max_size=count).map(tuple)) if odd else rising
        magic = draw(st.sampled_from([2, 2, 2, 1, 0]))
        events.append(Event(kind, draw(st.integers(1, 3)), found, draw(st.integers(0, 4)), magic))
    return events


def read(partition: Path, isolation: str) -> list[int]:
    """The offsets of a log's records; each has the value, the key and the headers that it was written with."""
    with kafkalog.open(partition) as log:
        found = list(log.records(isolation=isolation))
        assert not log.problems and log.last_stable_offset == log.end_offset
    assert all(record.value == value_of(record.offset) and record.key == b"k" for record in found)
    return [record.offset for record in found]


def read_plain(partition: Path) -> list[tuple[int, int, tuple[tuple[str, bytes | None], ...]]]:
    """Offset, time and headers of the records in uncompressed v2 batches, with every checksum compared bit by bit."""
    found = []
    for path in sorted(partition.glob("*.log")):
        data, at = path.read_bytes(), 0
        while at < len(data):
            size = struct.unpack_from(">i", data, at + 8)[0] + 12
            batch = data[at : at + size]
            at += size
            if batch[16] == 2:
                assert struct.unpack_from(">I", batch, 17)[0] == crc32c(batch[21:])
                if not struct.unpack_from(">h", batch, 21)[0] & 0x27:
                    records, is_sound = read_batch(batch)
                    assert is_sound
                    found += [(one.offset, one.timestamp, one.headers) for one in records]
    return found


def check(log: TimedLog, partition: Path, at: int, by: str) -> None:
    assert read(partition, "read_uncommitted") == log.all_offsets(at, by)
    assert read(partition, "read_committed") == log.committed_offsets(at, by)
    for offset, time, headers in read_plain(partition):
        assert time == log.rows[offset].time and headers == (("h\u00e9", b"x"),)
    assert kafkalog.verify(partition, deep=True).ok


@given(histories(), histories(), st.integers(FIRST - 2, LAST + 2), st.sampled_from(["append", "time"]), st.booleans())
@settings(max_examples=40, deadline=None)
def test_each_partition_is_what_it_was(
    left: list[Event], right: list[Event], at: int, by: str, is_clean: bool
) -> None:
    with tempfile.TemporaryDirectory() as name:
        where = Path(name)
        logs = [TimedLog(left), TimedLog(right)]
        for number, log in enumerate(logs):
            log.write(where / "data" / f"orders-{number}")
        if not is_clean:
            (where / "data" / ".kafka_cleanshutdown").unlink()
        create_backup(where / "data", where / "backups")
        if not any(log.all_offsets(at, by) for log in logs) and any(log.rows for log in logs):
            if any(row.time > at and row.kind in (PLAIN, DATA) for log in logs for row in log.rows):
                with pytest.raises(IllegalArgument, match="no record is as old"):
                    restore_backup(where / "backups", where / "restored", at=at, by=by)
                return
        restore_backup(where / "backups", where / "restored", at=at, by=by)
        for number, log in enumerate(logs):
            if log.rows:
                check(log, where / "restored" / f"orders-{number}", at, by)
                with kafkalog.open(where / "restored" / f"orders-{number}", "a") as opened:
                    assert opened.append([b"more"]).first_offset >= len(log.kept(at, by)) * (by == "append")
