"""Promises of a clean, for random histories: keys, tombstones, transactions, producers, all codecs and formats."""

from __future__ import annotations

import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from random import Random

import hypothesis
import pytest
from hypothesis import given
from hypothesis import strategies as st

import kafkalog
from kafkalog.log.log import Log
from tests.cleaner.histories import NOW, RETENTION_MS, History, folded, histories, opened, random_history
from tests.memory import memory
from tests.mock_time import MockClock

HISTORIES = hypothesis.settings(max_examples=30)
Shown = tuple[object, ...]


@contextmanager
def write_log(history: History) -> Iterator[tuple[Log, MockClock]]:
    """The log of a history, and its clock; whole, and closed well at the end."""
    with tempfile.TemporaryDirectory(dir=memory()) as directory:
        clock = MockClock(NOW)
        with history.written(Path(directory) / "t-0", clock) as log:
            yield log, clock
        report = log.verify(deep=True)
        assert report.ok, str(report)


def list_records(log: Log, isolation: str = "log_end") -> list[Shown]:
    found = log.records(isolation=isolation)  # type: ignore[arg-type]
    return [(r.offset, r.timestamp, r.key, r.value, tuple(r.headers)) for r in found]


def committed_fold(log: Log) -> dict[bytes, bytes]:
    return folded((r.key, r.value) for r in log.records(isolation="read_committed"))


def read_files(log: Log) -> dict[str, bytes]:
    return {segment.path: Path(segment.path).read_bytes() for segment in log.segments}


@HISTORIES
@given(histories())
def test_a_first_clean_leaves_the_last_record_of_each_key_and_nothing_else_changes(history: History) -> None:
    """CLN-3, CLN-6, CLN-7, CLN-9, CLN-14, CLN-15: no less and no more; offsets, order, times and headers stay."""
    with write_log(history) as (log, _):
        done = log.compact()
        assert done.end_offset <= history.stable
        assert list_records(log) == [row.shown for row in history.kept(done.end_offset)]
        assert committed_fold(log) == history.folded()
        assert (log.start_offset, log.end_offset) == (0, history.end)
        assert log.last_stable_offset == history.stable


@HISTORIES
@given(histories())
def test_what_a_clean_reaches_is_all_below_the_last_stable_offset(history: History) -> None:
    """CLN-15, CLN-30: up to the segment that holds it, and never the active one."""
    with write_log(history) as (log, _):
        bases = [segment.base_offset for segment in log.segments]
        done = log.compact()
        assert done.end_offset == max(base for base in bases if base <= history.stable)


@HISTORIES
@given(histories(), st.integers(0, RETENTION_MS - 1))
def test_a_reader_that_is_in_time_sees_every_delete(history: History, late_ms: int) -> None:
    """CLN-8, CLN-50: a tombstone stays until its horizon, however often the log is cleaned meanwhile."""
    with write_log(history) as (log, clock):
        end = log.compact().end_offset
        clock.sleep(late_ms)
        log.append([(b"other", b"v", NOW)])
        log.roll()
        log.compact()
        offsets = {record.offset for record in log}
        deletes = [row.offset for row in history.latest(end).values() if row.value is None]
        assert offsets.issuperset(deletes)


@HISTORIES
@given(histories(old_formats=False, close_all=True))
def test_tombstones_go_at_their_horizon(history: History) -> None:
    """CLN-8, CLN-50."""
    with write_log(history) as (log, clock):
        end = log.compact().end_offset
        clock.sleep(RETENTION_MS)
        log.append([(b"other", b"v", NOW)])
        log.roll()
        log.compact()
        kept = [row.offset for row in history.kept(end) if row.value is not None or row.offset >= end]
        assert [record.offset for record in log] == [*kept, history.end]


@HISTORIES
@given(histories(), st.integers(0, 2**31))
def test_a_reader_in_the_dirty_part_sees_every_record(history: History, seed: int) -> None:
    """Records past the end of the clean remain, byte for byte, wherever a reader was when it began."""
    with tempfile.TemporaryDirectory(dir=memory()) as directory:
        clock = MockClock(NOW)
        log = opened(Path(directory) / "t-0", clock, internal_segment_bytes=history.segment_bytes)
        with log:
            first = Random(seed).randint(0, len(history.events))
            history.append(log, 0, first)
            log.roll()
            history.append(log, first)
            dirty = log.segments[-1].base_offset
            before = read_files(log)
            end = log.compact().end_offset
            assert end <= dirty
            after = read_files(log)
            untouched = [name for name in before if int(Path(name).stem) >= end]
            assert untouched and {name: after[name] for name in untouched} == {name: before[name] for name in untouched}
            assert [one for one in list_records(log) if one[0] >= end] == [  # type: ignore[operator]
                row.shown for row in history.rows if row.offset >= end
            ]


@HISTORIES
@given(histories())
def test_a_second_clean_changes_nothing(history: History) -> None:
    """No record goes or comes; and the one after that, which finds every horizon set, changes no byte."""
    with write_log(history) as (log, _):
        log.compact()
        after = list_records(log)
        log.compact()
        assert list_records(log) == after
        before = read_files(log)
        log.compact()
        assert read_files(log) == before


@HISTORIES
@given(histories())
def test_codecs_and_batches_stay_what_they_were(history: History) -> None:
    """CLN-10, CLN-44: each record is in a batch of the codec that it was written with."""
    codecs = {row.offset: row.codec for row in history.rows}
    with write_log(history) as (log, _):
        log.compact()
        for batch in log.batches():
            header = batch.header
            for record in () if header.is_control else batch:
                assert header.compression == codecs[record.offset]
                assert header.magic < 2 or header.base_offset <= record.offset <= header.last_offset


@HISTORIES
@given(histories())
def test_producers_are_known_as_before(history: History) -> None:
    """CLN-11: also where only the cleaned files show them."""
    with tempfile.TemporaryDirectory(dir=memory()) as directory:
        path = Path(directory) / "t-0"
        with history.written(path, MockClock(NOW)) as log:
            log.compact()
        for snapshot in path.glob("*.snapshot"):
            snapshot.unlink()
        (path.parent / ".kafka_cleanshutdown").unlink()
        with opened(path, MockClock(NOW)) as log:
            known = {state.producer_id: state.last_sequence for state in log.opened_for_append().log.producers}
            assert {producer: known.get(producer) for producer in history.last_sequences} == history.last_sequences
            assert log.last_stable_offset == history.stable


@HISTORIES
@given(histories())
def test_another_reader_finds_the_same(history: History) -> None:
    """In mode "r", in another view, and by offset: also by one that was there before the clean."""
    with write_log(history) as (log, _):
        path = Path(log.segments[0].path).parent
        with kafkalog.open(path) as early:
            len(list(early))
            done = log.compact()
            kept = [row.shown for row in history.kept(done.end_offset)]
            assert list_records(early) == kept
            with kafkalog.open(path) as late:
                assert list_records(late) == kept
                assert [late[one[0]].offset for one in kept] == [one[0] for one in kept]


@pytest.mark.parametrize("count", [1, 7])
def test_a_history_in_pieces(count: int) -> None:
    """CLN-22: cleaned after each few events, transactions cut apart, the log has the same content in the end."""
    for seed in range(15):
        history = random_history(Random(f"pieces {seed}"))
        with tempfile.TemporaryDirectory(dir=memory()) as directory:
            clock = MockClock(NOW)
            with opened(Path(directory) / "t-0", clock, internal_segment_bytes=history.segment_bytes) as log:
                for first in range(0, len(history.events), count):
                    history.append(log, first, first + count)
                    log.roll()
                    log.compact()
                assert committed_fold(log) == history.folded()
                rows = {row.offset: row.shown for row in history.rows}
                assert all(one == rows[one[0]] for one in list_records(log))  # type: ignore[index]
                assert log.end_offset == history.end

