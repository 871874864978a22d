"""`restore_backup(at=...)`: every partition as it was at a moment, against a plain model of what a log held."""

import struct
import tempfile
from pathlib import Path

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

import kafkalog
from kafkalog.backup import create_backup, restore_backup, restore_directories
from kafkalog.errors import IllegalArgument
from kafkalog.records.encoder import encoded
from kafkalog.records.schemas.transactions import KEYS, VALUES
from tests.backup.timed_logs import ABORT, COMMIT, DATA, PLAIN, Event, TimedLog, value_of
from tests.builder import R, batch, crc32c
from tests.memory import memory
from tests.plain_reader import read_batch
from tests.redact.model import read_all

FIRST, LAST = 1000, 1060
times = st.lists(st.integers(FIRST, LAST), min_size=1, max_size=5).map(tuple)
steady = st.integers(FIRST, LAST)


@st.composite
def histories(draw: st.DrawFn) -> list[Event]:
    """Batches with rising times, except some at random."""
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
@example(
    left=[Event(PLAIN, 1, (1001,))], right=[Event(DATA, 1, (1001,)), Event(COMMIT, 1, (1000,))],
    at=1000, by="time", is_clean=False,
)  # fmt: skip
@example(
    left=[Event(PLAIN, 1, (1000,)), Event(PLAIN, 1, (1056,)), Event(PLAIN, 2, (1010,), 3, 1)],
    right=[Event(PLAIN, 1, (1019,))], at=1032, by="append", is_clean=True,
)  # fmt: skip
@settings(max_examples=40, deadline=None)
def test_each_partition_is_what_it_was(
    left: list[Event], right: list[Event], at: int, by: str, is_clean: bool
) -> None:
    with tempfile.TemporaryDirectory(dir=memory()) as name:
        where = Path(name)
        logs = [TimedLog(left), TimedLog(right)]
        for number, log in enumerate(logs):
            log.write(where / "data" / f"orders-{number}")
        if not is_clean:
            (where / "data" / ".kafka_cleanshutdown").unlink()
        create_backup(where / "data", where / "backups")
        if not any(log.all_offsets(at, by) for log in logs) and any(log.rows for log in logs):
            rows = [row for log in logs for row in log.rows]
            has_old_marker = by == "time" and any(row.kind in (COMMIT, ABORT) and row.time <= at for row in rows)
            if any(row.time > at and row.kind in (PLAIN, DATA) for row in rows) and not has_old_marker:
                with pytest.raises(IllegalArgument, match="no record is as old"):
                    restore_backup(where / "backups", where / "restored", at=at, by=by)
                return
        restore_backup(where / "backups", where / "restored", at=at, by=by)
        for number, log in enumerate(logs):
            if log.rows:
                check(log, where / "restored" / f"orders-{number}", at, by)
                with kafkalog.open(where / "restored" / f"orders-{number}", "a") as opened:
                    assert opened.append([b"more"]).first_offset >= len(log.kept(at, by)) * (by == "append")


@pytest.mark.parametrize("by", ["append", "time"])
@pytest.mark.parametrize("rest", [[], [Event(PLAIN, 1, (1030,))]])
def test_a_later_batch_of_an_old_format_costs_no_leader_epoch(tmp_path: Path, rest: list[Event], by: str) -> None:
    """Such a batch clears the epochs of a log; those of the batches before it are known again without it."""
    first = [Event(PLAIN, 1, (1000,)), Event(DATA, 2, (1001, 1002))]
    TimedLog([*first, Event(PLAIN, 1, (1020,), magic=1), *rest]).write(tmp_path / "data" / "orders-0")
    create_backup(tmp_path / "data", tmp_path / "backups")
    restore_backup(tmp_path / "backups", tmp_path / "restored", at=1010, by=by)
    partition = tmp_path / "restored" / "orders-0"
    assert (partition / "leader-epoch-checkpoint").read_text() == "0\n1\n3 0\n"
    assert kafkalog.verify(partition, deep=True).ok
    assert read(partition, "read_committed") == [0]
    assert {one.fixed[1] for one in read_all(partition)} == {3}, "that of the marker, too"


def transaction_state(state: int, time: int) -> tuple[bytes, bytes, int]:
    """A coordinator's record of producer 5, with its time."""
    fields = {
        "producerId": 5, "producerEpoch": 0, "transactionTimeoutMs": 60_000, "transactionStatus": state,
        "transactionPartitions": [{"topic": "orders", "partitionIds": [0, 1]}],
        "transactionLastUpdateTimestampMs": time, "transactionStartTimestampMs": time,
    }  # fmt: skip
    key = struct.pack(">h", 0) + encoded(KEYS[0], {"transactionalId": "one"}, 0)
    return key, struct.pack(">h", 0) + encoded(VALUES[0], fields, 0), time


@pytest.mark.parametrize("by", ["append", "time"])
@pytest.mark.parametrize(("at", "is_committed"), [(1008, False), (1009, True), (1011, True), (1013, True)])
def test_a_decided_commit_is_completed_in_every_partition(tmp_path: Path, at: int, is_committed: bool, by: str) -> None:
    """The coordinator prepared the commit at 1009, and its markers came at 1010 and at 1012."""
    for number, time in enumerate((1010, 1012)):
        log = TimedLog([Event(PLAIN, 0, (1000,)), Event(DATA, 5, (1001, 1002)), Event(COMMIT, 5, (time,))])
        log.write(tmp_path / "data" / f"orders-{number}")
    with kafkalog.open(tmp_path / "data" / "__transaction_state-0", "a") as states:
        for state, time in ((1, 1001), (2, 1009), (4, 1013)):
            states.append([transaction_state(state, time)])
    create_backup(tmp_path / "data", tmp_path / "backups")
    restore_backup(tmp_path / "backups", tmp_path / "restored", at=at, by=by)
    for number in range(2):
        found = read(tmp_path / "restored" / f"orders-{number}", "read_committed")
        assert found == ([0, 1, 2] if is_committed else [0])


def test_what_was_empty_then_stays_and_is_noted(tmp_path: Path) -> None:
    TimedLog([Event(PLAIN, 0, (1000 + number,)) for number in range(40)]).write(tmp_path / "data" / "orders-0")
    TimedLog([Event(PLAIN, 0, (1030,))]).write(tmp_path / "data" / "orders-1")
    TimedLog([Event(PLAIN, 0, (1035,))]).write(tmp_path / "data" / "later-0")
    TimedLog([Event(PLAIN, 0, (1000 + 2 * number, 1001 + 2 * number)) for number in range(20)]).write(
        tmp_path / "data" / "cut-0"
    )
    with kafkalog.open(tmp_path / "data" / "cut-0", "a") as log:
        log.delete_before(25)  # inside a batch
    create_backup(tmp_path / "data", tmp_path / "backups")
    manifest = restore_backup(tmp_path / "backups", tmp_path / "restored", at=1020)
    ends = {str(one.topic_partition): (one.start_offset, one.end_offset) for one in manifest.partitions}
    assert ends == {"orders-0": (0, 21), "orders-1": (0, 0), "later-0": (0, 0), "cut-0": (25, 25)}
    assert [note.partition(":")[0] for note in manifest.notes] == ["cut", "later", "orders-1"]
    assert all("kept without records" in note for note in manifest.notes)
    with kafkalog.open(tmp_path / "restored" / "cut-0", "a") as log:
        assert log.append([b"more"]).first_offset == 25 and log.start_offset == 25
    found = restore_backup(tmp_path / "backups", tmp_path / "within", at=1026)
    assert [(one.start_offset, one.end_offset) for one in found.partitions if one.topic == "cut"] == [(25, 27)]
    with kafkalog.open(tmp_path / "within" / "cut-0") as log:
        assert [record.offset for record in log.records()] == [25, 26]


@pytest.mark.parametrize(("at", "is_noted"), [(1020, True), (1050, False)])
def test_segments_that_were_tiered_later_are_noted(tmp_path: Path, at: int, is_noted: bool) -> None:
    TimedLog([Event(PLAIN, 0, (1000 + number,)) for number in range(40)]).write(tmp_path / "data" / "orders-0")
    TimedLog([Event(PLAIN, 0, (1035,))]).write(tmp_path / "data" / "__remote_log_metadata-0")
    create_backup(tmp_path / "data", tmp_path / "backups")
    notes = restore_backup(tmp_path / "backups", tmp_path / "restored", at=at).notes
    assert [note.startswith("__remote_log_metadata: cut before 1970-01-01T00:00:01.035Z") for note in notes] == (
        [True] if is_noted else []
    )


@pytest.mark.parametrize("by", ["append", "time"])
def test_a_batch_that_is_larger_than_a_segment_may_be_today(tmp_path: Path, by: str) -> None:
    events = [Event(PLAIN, 0, (1000,)), Event(PLAIN, 0, tuple(range(1001, 1101))), Event(PLAIN, 0, (1200,))]
    log = TimedLog(events)
    with kafkalog.open_dirs(tmp_path / "data", "a") as dirs:
        dirs.create_topic("orders", 1)
        for batch in log.batches:
            dirs["orders", 0].replicate(batch)
        dirs.alter_topic("orders", {"internal.segment.bytes": 1000})
    create_backup(tmp_path / "data", tmp_path / "backups")
    restore_backup(tmp_path / "backups", tmp_path / "restored", at=1099, by=by)
    check(log, tmp_path / "restored" / "orders-0", 1099, by)


def test_a_cut_behind_a_gap_leaves_nothing_that_is_ahead_of_the_log(tmp_path: Path) -> None:
    """The cut is at the first later batch, and the records before it were compacted away; the log is in use."""
    with kafkalog.open_dirs(tmp_path / "data", "a", log_cleaner_enable=False) as dirs:
        dirs.create_topic("t", 1, {"retention.ms": "-1"})
        for base in (0, 6):
            fields = {"producer_id": 7, "producer_epoch": 0, "base_sequence": base}
            dirs["t", 0].replicate(batch([R(b"v", timestamp=1000 + base)], base_offset=base, leader_epoch=0, **fields))
        restore_directories(tmp_path / "data", tmp_path / "restored", at=1003)
    assert kafkalog.verify(tmp_path / "restored", deep=True).ok
    with kafkalog.open_dirs(tmp_path / "restored", "a", log_cleaner_enable=False) as dirs:
        assert dirs["t", 0].end_offset == 1
