"""Committed reading: last stable offset, aborted transactions, and every file beside the log missing or damaged."""


import errno
import os
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kafkalog.config.topic import LogConfig
from kafkalog.errors import CorruptIndex, CorruptSnapshot, FormatError, KafkalogError, StorageError
from kafkalog.reading.chunks import records
from kafkalog.storage.log import UnifiedLog
from kafkalog.storage.readonly.view import LogView
from tests.counting import Counting
from tests.memory import memory
from tests.mock_time import MockClock
from tests.transactional import Event, Log, index_path, made, marker, snapshot, snapshot_path, txn_index

PRODUCERS = st.integers(1, 3)
EVENTS: st.SearchStrategy[Event] = st.tuples(
    st.sampled_from(["plain", "data", "data", "data", "abort", "commit", "roll"]), PRODUCERS, st.integers(1, 3)
)
SPANNING: list[Event] = [
    ("data", 1, 2), ("data", 2, 1), ("plain", 0, 1), ("roll", 0, 0),  # 0-3
    ("commit", 2, 0), ("data", 1, 1), ("data", 2, 1), ("roll", 0, 0),  # 4-6
    ("plain", 0, 2), ("abort", 1, 0), ("commit", 2, 0), ("roll", 0, 0),  # 7-10
    ("data", 3, 2), ("plain", 0, 1), ("data", 1, 1), ("commit", 1, 0),  # 11-15
]  # fmt: skip


@contextmanager
def write_to_directory(log: Log) -> Iterator[Path]:
    with tempfile.TemporaryDirectory(dir=memory()) as folder:
        directory = Path(folder) / "t-0"
        log.write(directory)
        yield directory


def committed(view: LogView | UnifiedLog, start: int = 0) -> list[int]:
    read = records(view, start, max(start, view.last_stable_offset), committed=True)
    return [record.offset for record in read]


def check(directory: Path, log: Log) -> None:
    """Both kinds of open log see what the oracle sees, from the start and from other offsets on."""
    with LogView(directory) as view:
        assert view.last_stable_offset == log.stable
        assert committed(view) == log.committed()
        for start in range(1, log.end + 1, max(1, log.end // 6)):
            assert committed(view, start) == log.committed(start)
    own = UnifiedLog.open(directory, LogConfig())
    try:
        assert own.last_stable_offset == log.stable
        assert committed(own) == log.committed()
    finally:
        own.close()


def damage(path: Path, how: str) -> None:
    if how == "remove":
        path.unlink(missing_ok=True)
    elif path.exists():
        path.write_bytes({"empty": b"", "cut": path.read_bytes()[:-3], "version": b"\x07" + path.read_bytes()[1:]}[how])


@given(st.lists(EVENTS, max_size=30))
def test_a_broker_s_directory(events: list[Event]) -> None:
    """TXN-2, LOG-30: the files say what the oracle found by following the log from its start."""
    log = made(events)
    with write_to_directory(log) as directory:
        check(directory, log)


@given(st.lists(EVENTS, max_size=30), st.data())
def test_with_any_files_beside_the_log_missing_or_damaged(events: list[Event], data: st.DataObject) -> None:
    """A scan finds transactions that are missing from the files: the records stay the same."""
    log = made(events)
    with write_to_directory(log) as directory:
        for path in [*(index_path(directory, base) for base in log.segments), *directory.glob("*.snapshot")]:
            how = data.draw(st.sampled_from(["keep", "remove", "empty", "version", "cut"]))
            if how == "cut" and path.suffix == ".txnindex":
                how = "remove"  # a partial entry is left alone: the file is as good as one that ends earlier
            if how != "keep":
                damage(path, how)
        for offset in data.draw(st.sets(st.sampled_from(sorted(log.snapshots) or [0]), max_size=3)):
            log.write_snapshot(directory, offset)  # brokers also write them amid a segment
        check(directory, log)


@given(st.lists(EVENTS, min_size=1, max_size=20), st.data())
def test_any_byte_of_the_files_changed_or_cut(events: list[Event], data: st.DataObject) -> None:
    """Records that were written, in order, then perhaps a typed error; nothing else, whatever the bytes say."""
    log = made(events)
    with write_to_directory(log) as directory:
        files = sorted(path for path in directory.iterdir() if path.stat().st_size)
        path = data.draw(st.sampled_from(files))
        content = bytearray(path.read_bytes())
        at = data.draw(st.integers(0, len(content) - 1))
        if data.draw(st.booleans()):
            content[at] ^= data.draw(st.integers(1, 255))
        else:
            del content[at:]
        path.write_bytes(bytes(content))
        known = {b"v%d" % offset for offset in [*log.plain, *(offset for _, offset, _ in log.data)]}
        seen: list[int] = []
        try:
            with LogView(directory, clock=MockClock()) as view:
                for record in records(view, view.log_start_offset, view.last_stable_offset, committed=True):
                    assert record.value in known
                    seen.append(record.offset)
                for problem in view.problems:
                    assert isinstance(problem, KafkalogError) and problem.path
        except KafkalogError as error:
            assert error.path
        assert seen == sorted(set(seen))


def test_transactions_that_span_segments(tmp_path: Path) -> None:
    """TXN-2: the ABORT marker of a record may lie segments later, and so does its index entry."""
    log = made(SPANNING)
    directory = tmp_path / "t-0"
    log.write(directory)
    assert log.committed() == [2, 3, 6, 7, 8]
    assert log.stable == 11
    check(directory, log)
    for base in log.segments:
        index_path(directory, base).unlink(missing_ok=True)
    check(directory, log)


def test_aborted_ranges_are_those_of_every_segment_asked_about(tmp_path: Path) -> None:
    """A chunk of one segment lies in two once that segment was split."""
    events: list[Event] = [("data", 1, 1), ("abort", 1, 0), ("plain", 0, 1), ("roll", 0, 0)]
    made([*events, *events, *events, ("plain", 0, 1)]).write(tmp_path / "t-0")
    with LogView(tmp_path / "t-0") as view:
        assert [segment.base_offset for segment in view.segments] == [0, 3, 6, 9]
        asked = [(0, 3), (3, 6), (6, 9), (0, 4), (0, 6), (3, 7), (0, 9), (0, 10), (9, 10)]
        assert [len(view.aborted_ranges(*one)) for one in asked] == [1, 1, 1, 2, 2, 2, 3, 3, 0]


# name: events, snapshots that are there, entries left in each segment's index (None: no file)
ODD_TAILS: dict[str, tuple[list[Event], list[int], dict[int, int | None]]] = {
    "a later transaction of the same producer is aborted in the next segment": (
        [("data", 1, 1), ("roll", 0, 0), ("commit", 1, 0), ("data", 1, 1), ("abort", 1, 0), ("plain", 0, 1)],
        [1, 5], {1: 1},
    ),
    "the tail begins amid a segment whose index is gone": (
        [("plain", 0, 1), ("data", 1, 1), ("abort", 1, 0), ("data", 2, 1), ("abort", 2, 0), ("plain", 0, 1)],
        [3], {0: None},
    ),
    "the index of a segment that is written to lags behind": (
        [("plain", 0, 1), ("data", 1, 1), ("abort", 1, 0), ("data", 2, 1), ("abort", 2, 0), ("plain", 0, 1)],
        [3], {0: 1},
    ),
    "the marker lies in the tail": (
        [("data", 1, 1), ("data", 2, 1), ("roll", 0, 0), ("abort", 1, 0), ("commit", 2, 0), ("plain", 0, 1)],
        [2], {2: 1},
    ),
    "an index file is empty": ([("data", 1, 1), ("abort", 1, 0), ("plain", 0, 1)], [3], {0: 0}),
    "a transaction goes through a segment into the tail": (
        [("data", 1, 1), ("roll", 0, 0), ("data", 2, 1), ("abort", 2, 0), ("plain", 0, 1), ("abort", 1, 0)],
        [1, 4], {1: 1},
    ),
    "a transaction goes through a segment without index": (
        [("data", 1, 1), ("roll", 0, 0), ("data", 2, 1), ("abort", 2, 0), ("plain", 0, 1), ("abort", 1, 0),
         ("data", 1, 1), ("commit", 1, 0)],
        [1, 4], {1: None},
    ),
    "no snapshot says what goes on behind the first segment": (
        [("data", 1, 1), ("data", 2, 1), ("abort", 2, 0), ("roll", 0, 0), ("plain", 0, 1), ("abort", 1, 0),
         ("roll", 0, 0), ("plain", 0, 1)],
        [6], {0: 1, 3: 1},
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", ODD_TAILS)
def test_odd_tails(tmp_path: Path, name: str) -> None:
    events, snapshots, entries = ODD_TAILS[name]
    log = made(events)
    directory = tmp_path / "t-0"
    log.write(directory)
    for path in directory.glob("*.snapshot"):
        path.unlink()
    for offset in snapshots:
        log.write_snapshot(directory, offset)
    for base, count in entries.items():
        path = index_path(directory, base)
        if count is None:
            path.unlink()
        else:
            path.write_bytes(txn_index(log.indexes[base][:count]))
    check(directory, log)


def test_an_open_transaction_hides_what_follows_until_it_ends(tmp_path: Path) -> None:
    """LOG-30, FLOW-16: the last stable offset is the first offset of the oldest open transaction; a marker moves it."""
    log = made([("plain", 0, 2), ("data", 5, 2), ("plain", 0, 1)])
    directory = tmp_path / "t-0"
    log.write(directory)
    file = directory / f"{0:020d}.log"
    with LogView(directory) as view:
        assert (view.last_stable_offset, committed(view)) == (2, [0, 1])
        with file.open("ab") as writer:
            writer.write(marker(5, 5, 0))
        view.refresh()
        assert (view.last_stable_offset, committed(view)) == (6, [0, 1, 4])
        for event in [("data", 5, 1), ("plain", 0, 1)]:
            log.end = max(log.end, 6)
            log.add(event)
        with file.open("ab") as writer:
            writer.write(b"".join(log.segments[0][-2:]))
        view.refresh()
        assert (view.last_stable_offset, committed(view)) == (6, [0, 1, 4])
        with file.open("ab") as writer:
            writer.write(marker(8, 5, 1))
        view.refresh()
        assert (view.last_stable_offset, committed(view)) == (9, [0, 1, 4, 6, 7])


def test_a_log_cut_and_written_anew_is_followed_anew(tmp_path: Path) -> None:
    log = made([("plain", 0, 2), ("data", 5, 2), ("plain", 0, 1)])
    directory = tmp_path / "t-0"
    log.write(directory)
    file = directory / f"{0:020d}.log"
    with LogView(directory) as view:
        assert view.last_stable_offset == 2
        other = made([("plain", 0, 3), ("plain", 0, 2), ("plain", 0, 4)])
        file.write_bytes(b"".join(other.segments[0]))
        snapshot_path(directory, 5).unlink()
        view.refresh()
        assert (view.last_stable_offset, committed(view)) == (9, list(range(9)))


def test_a_read_of_committed_data_says_what_was_aborted(tmp_path: Path) -> None:
    """LOG-21: up to the last stable offset and not further; an empty list where nothing was aborted, none otherwise."""
    log = made(SPANNING)
    directory = tmp_path / "t-0"
    log.write(directory)
    with LogView(directory) as view:
        found = view.read(0, 1 << 20, "committed")
        assert found.aborted_transactions == ((1, 0, 9),)
        assert sum(len(table) for table in found.records.tables()) == 3
        found = view.read(7, 1 << 20, "committed")
        assert found.aborted_transactions == ((1, 0, 9),)
        assert view.read(10, 1 << 20, "committed").aborted_transactions == ()
        assert view.read(11, 1 << 20, "committed").records.size == 0
        assert view.read(12, 1 << 20, "committed").records.size == 0
        assert view.read(11, 1 << 20, "log_end").aborted_transactions is None
        assert view.read(11, 1 << 20, "log_end").records.size > 0


def test_an_own_log_says_what_was_aborted_too(tmp_path: Path) -> None:
    """LOG-21, FLOW-16: a superset for the range is sound: the filter checks offsets."""
    log = made(SPANNING)
    directory = tmp_path / "t-0"
    log.write(directory)
    own = UnifiedLog.open(directory, LogConfig())
    try:
        assert own.read(0, 1 << 20, "committed").aborted_transactions == ((1, 0, 9),)
        assert own.read(10, 1 << 20, "committed").aborted_transactions == ()
        assert own.read(12, 1 << 20, "committed").aborted_transactions == ()
        assert own.read(12, 1 << 20, "high_watermark").aborted_transactions is None
        found = own.offset_for_time(-1, "committed")
        assert found is not None and found.offset == 11
        assert own.offset_for_time(1011, "committed") is None
    finally:
        own.close()


def test_a_read_ends_at_the_last_stable_offset_amid_a_segment(tmp_path: Path) -> None:
    log = made([("plain", 0, 2), ("data", 5, 2), ("plain", 0, 1)])
    directory = tmp_path / "t-0"
    log.write(directory)
    with LogView(directory) as view:
        found = view.read(0, 1 << 20, "committed").records
        assert [batch.base_offset for batch in found.batches()] == [0]
        assert view.offset_for_time(1001, "committed") is not None
        assert view.offset_for_time(1002, "committed") is None
        assert view.offset_for_time(-1, "committed") == (2, -1, 3)
        assert view.offset_for_time(-3, "committed") is None


@pytest.mark.parametrize(
    ("entries", "kind"),
    [
        ([(1, 0, 9, 10), (1, 3, 9, 10)], CorruptIndex),  # ends that do not go up
        ([(1, 9, 3, 4)], CorruptIndex),  # an end before the beginning
        ([(1, 0, 99, 10)], CorruptIndex),  # an end in a later segment
        ([(1, 0, 2, 10)], CorruptIndex),  # TXN-5: an end before the segment
    ],
)
def test_an_index_that_cannot_be_right_is_a_problem_and_not_used(
    tmp_path: Path, entries: list[tuple[int, int, int, int]], kind: type[Exception]
) -> None:
    log = made(SPANNING)
    directory = tmp_path / "t-0"
    log.write(directory)
    path = index_path(directory, 7)
    path.write_bytes(txn_index(entries))
    with LogView(directory, clock=MockClock()) as view:
        assert committed(view) == log.committed()
        (problem,) = view.problems
        assert isinstance(problem, kind) and problem.path == str(path)


@pytest.mark.parametrize("has_index", [True, False])
def test_a_snapshot_of_an_offset_that_a_clean_took_away(tmp_path: Path, has_index: bool) -> None:
    """Its place is that of the next batch."""
    log = made([("plain", 0, 1), ("data", 1, 1), ("plain", 0, 2), ("plain", 0, 1), ("abort", 1, 0), ("plain", 0, 1)])
    del log.segments[0][2]
    log.plain = [0, 4, 6]
    log.snapshots[3] = log.snapshots[2]
    directory = tmp_path / "t-0"
    log.write(directory)
    for path in [*directory.glob("*.snapshot"), *([] if has_index else directory.glob("*.txnindex"))]:
        path.unlink()
    log.write_snapshot(directory, 3)
    check(directory, log)
    with LogView(directory) as view:
        assert committed(view) == [0, 4, 6] and not view.problems


@pytest.mark.parametrize("version", [b"\1\0", b"\0\1"])
def test_damage_of_the_other_files_is_a_problem_and_nothing_more(tmp_path: Path, version: bytes) -> None:
    """TXN-7: of an entry's version the first byte counts before Kafka 4.4; here, as since then, both do."""
    log = made(SPANNING)
    directory = tmp_path / "t-0"
    log.write(directory)
    index_path(directory, 7).write_bytes(version + txn_index(log.indexes[7])[2:])
    bad = snapshot_path(directory, 16)
    bad.write_bytes(bad.read_bytes()[:-1] + b"\x55")
    with LogView(directory, clock=MockClock()) as view:
        assert committed(view) == log.committed()
        kinds = {type(problem) for problem in view.problems}
        assert kinds == {FormatError, CorruptSnapshot}


def test_a_damaged_marker_ends_nothing(tmp_path: Path) -> None:
    """Reading stops with an error where it lies; what is behind it is not given as committed."""
    log = made([("plain", 0, 1), ("data", 5, 2), ("commit", 5, 0), ("plain", 0, 1)])
    directory = tmp_path / "t-0"
    log.write(directory)
    for path in directory.glob("*.snapshot"):
        path.unlink()
    path = directory / f"{0:020d}.log"
    data = bytearray(path.read_bytes())
    data[data.index(marker(3, 5, 1)) + 77] ^= 1
    path.write_bytes(bytes(data))
    with LogView(directory) as view:
        assert (view.last_stable_offset, view.log_end_offset) == (1, 5)


def test_markers_of_later_versions_and_other_control_batches(tmp_path: Path) -> None:
    log = made([("plain", 0, 1), ("data", 5, 2)])
    odd = marker(3, 5, 9)  # an unknown type
    longer = marker(4, 5, 0)
    directory = tmp_path / "t-0"
    log.segments[0] += [odd, longer]
    log.end = 5
    log.write(directory)
    for path in directory.glob("*.snapshot"):
        path.unlink()
    with LogView(directory) as view:
        assert (view.last_stable_offset, committed(view)) == (5, [0])


def test_snapshots_outside_the_log_are_not_used(tmp_path: Path) -> None:
    log = made([("data", 1, 2), ("commit", 1, 0), ("plain", 0, 1)])
    directory = tmp_path / "t-0"
    log.write(directory)
    for path in directory.glob("*.snapshot"):
        path.unlink()
    snapshot_path(directory, 900).write_bytes(snapshot({1: 0}))
    with LogView(directory) as view:
        assert (view.last_stable_offset, committed(view)) == (4, [0, 1, 3])


def test_an_index_longer_than_its_log_has_markers_for_is_not_read(tmp_path: Path) -> None:
    """A sparse file of two gigabytes costs nothing to make; its entries would take many more as objects."""
    from tests.faults import FaultFS

    log = made(SPANNING)
    directory = tmp_path / "t-0"
    log.write(directory)
    path = index_path(directory, 7)
    os.truncate(path, (1 << 31) - 1)
    fs = FaultFS()
    with LogView(directory, fs=fs, clock=MockClock()) as view:
        assert committed(view) == log.committed()
        (problem,) = view.problems
        assert isinstance(problem, StorageError) and problem.errno == errno.EFBIG and problem.path == str(path)
    assert not any(call.path == str(path) for call in fs.named("pread"))


def test_nothing_but_the_tail_is_scanned_for_the_last_stable_offset(tmp_path: Path) -> None:
    """The newest snapshot stands for what lies before it: a lie in it is believed."""
    log = made([("data", 1, 2), ("commit", 1, 0), ("plain", 0, 1)])
    directory = tmp_path / "t-0"
    log.write(directory)
    snapshot_path(directory, 4).write_bytes(snapshot({8: 2}))
    with LogView(directory) as view:
        assert view.last_stable_offset == 2


def reads_of(fs: Any, suffix: str) -> int:
    return sum(1 for call in fs.calls if str(call).count(suffix))


def test_without_transactions_no_index_is_opened(tmp_path: Path) -> None:
    from tests.faults import FaultFS

    log = made([("plain", 0, 2), ("roll", 0, 0), ("plain", 0, 2), ("roll", 0, 0), ("plain", 0, 1)])
    directory = tmp_path / "t-0"
    log.write(directory)
    fs = FaultFS()
    with LogView(directory, fs=fs) as view:
        assert committed(view) == [0, 1, 2, 3, 4]
    assert reads_of(fs, ".txnindex") == 0


def test_the_log_start_bounds_the_last_stable_offset(tmp_path: Path) -> None:
    """LOG-30: never below the log start, even where a transaction began before it."""
    log = made([("data", 1, 4), ("plain", 0, 4)])
    directory = tmp_path / "t-0"
    log.write(directory)
    (tmp_path / "log-start-offset-checkpoint").write_text("0\n1\nt 0 4\n")
    with LogView(directory) as view:
        assert (view.log_start_offset, view.last_stable_offset) == (4, 4)


def test_a_transaction_index_longer_than_its_segment_is_not_read(tmp_path: Path) -> None:
    """Each entry has a batch in the segment: a file that is longer is no index, and the segment is scanned instead."""
    log = made(SPANNING)
    directory = tmp_path / "t-0"
    log.write(directory)
    for path in directory.glob("*.txnindex"):
        with path.open("r+b") as file:
            file.truncate(1 << 31)
    fs = Counting()
    with LogView(directory, fs=fs, clock=MockClock()) as view:
        assert committed(view) == log.committed()
        assert any("at most" in str(problem) for problem in view.problems)
    assert max(fs.reads) < 1 << 20
