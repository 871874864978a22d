"""A reader that is kept while its log is truncated and written again, deleted from and compacted: mode "a" and "r"."""

from __future__ import annotations

import asyncio
import gc
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import kafkalog
import kafkalog.aio
from kafkalog import control
from kafkalog.errors import OffsetOutOfRange
from kafkalog.log.log import Log
from kafkalog.records.builder import RecordsBuilder
from kafkalog.storage.readonly import view, watch

pytestmark = pytest.mark.in_memory
COMMITTED = "read_committed"


@pytest.fixture
def writer(tmp_path: Path) -> Iterator[Log]:
    with kafkalog.open(tmp_path / "data" / "t-0", "a", cleanup_policy="compact", index_interval_bytes=200) as log:
        yield log


@pytest.fixture(params=["a", "r"])
def reader(writer: Log, request: Any, monkeypatch: Any) -> Iterator[Log]:
    """The writer's log itself, or another one in mode "r", which looks at all files for each read."""
    if request.param == "a":
        yield writer
        return
    monkeypatch.setattr(watch, "LISTING_MS", 0)
    monkeypatch.setattr(view, "LOOK_MS", 0)
    with kafkalog.open(writer.path) as log:
        yield log


def batch_of(base_offset: int, values: list[bytes], producer_id: int = -1) -> bytes:
    """A batch, of a transaction if it has a producer."""
    made = RecordsBuilder(
        base_offset, producer_id=producer_id, producer_epoch=-1 if producer_id < 0 else 0,
        base_sequence=-1 if producer_id < 0 else 0, is_transactional=producer_id >= 0, leader_epoch=0,
    )  # fmt: skip
    for value in values:
        made.append(1000, b"k", value)
    return bytes(made.build())


def marker(offset: int, producer_id: int, kind: control.ControlType) -> bytes:
    return control.marker_batch(
        kind, base_offset=offset, producer_id=producer_id, producer_epoch=0, coordinator_epoch=1, leader_epoch=0,
        timestamp=1000,
    )  # fmt: skip


def offsets(records: Any) -> list[int]:
    return [record.offset for record in records]


def test_a_look_up_by_offset_or_time_sees_the_log_as_it_is(writer: Log, reader: Log) -> None:
    """A record that was deleted or cleaned away since the last look is not found."""
    for number in range(10):
        writer.append((b"k%d" % (number % 3), b"v", number))
    assert (reader[4].offset, reader.offset_for_time(1).offset) == (4, 1)
    writer.delete_before(3)
    with pytest.raises(OffsetOutOfRange):
        reader[2]
    assert reader.offset_for_time(1).offset == 3
    writer.compact(roll=True)
    with pytest.raises(OffsetOutOfRange, match="the next record has 7"):
        reader[4]
    assert reader.offset_for_time(4).offset == 7
    writer.truncate_to(8)
    assert reader.offset_for_time(8) is None


def test_a_committed_read_gives_no_record_of_a_transaction_written_since(writer: Log, reader: Log) -> None:
    """Its end was the last stable offset of the log before: of the log that is there now, it may be undecided."""
    writer.append([(b"k", b"old")] * 10)
    records = reader.records(isolation=COMMITTED)
    writer.truncate_to(2)
    writer.replicate(batch_of(2, [b"committed"], 7) + marker(3, 7, control.ControlType.COMMIT))
    writer.replicate(batch_of(4, [b"open"] * 20, 8))
    found = []
    with pytest.raises(OffsetOutOfRange, match="truncated during the read, .* not decided from 4 on") as error:
        found.extend(record.offset for record in records)
    assert error.value.offset == 4
    assert found == [2]


def test_a_committed_read_leaves_out_what_was_aborted_since(writer: Log, reader: Log) -> None:
    """Also where the markers lie behind what was the log's end."""
    for offset in range(10):
        writer.replicate(batch_of(offset, [b"old"]))
    records = reader.records(isolation=COMMITTED)
    writer.truncate_to(2)
    writer.replicate(batch_of(2, [b"aborted" * 9] * 30, 7))
    writer.replicate(marker(32, 7, control.ControlType.ABORT) + batch_of(33, [b"new"] * 10))
    assert offsets(records) == [0, 1]
    assert offsets(reader.records(isolation=COMMITTED)) == [0, 1, *range(33, 43)]


def test_a_scan_for_transactions_of_what_was_cut_meanwhile_is_forgotten(writer: Log) -> None:
    """Written again and longer, the file still has what was the last batch then; what follows is another log's."""
    writer.replicate(batch_of(0, [b"open"], 7))
    for offset in range(1, 6):
        writer.replicate(batch_of(offset, [b"old" * 60]))
    with kafkalog.open(writer.path) as view:
        source = view._source
        writer.truncate_to(3)
        assert source.open_transactions == {7: 0}  # a scan of the log as of the last look
        writer.replicate(batch_of(3, [b"aborted"], 9) + marker(4, 9, control.ControlType.ABORT))
        for offset in range(5, 10):
            writer.replicate(batch_of(offset, [b"newer" * 60]))
        writer.replicate(marker(10, 7, control.ControlType.COMMIT))
        assert offsets(view.records(isolation=COMMITTED)) == [0, 1, 2, *range(5, 10)]
        assert view.problems == ()


def test_the_end_of_a_segment_is_no_gap_if_other_records_are_in_its_place(writer: Log, reader: Log) -> None:
    """As many bytes as before, but fewer offsets: those behind them are in the next segments."""
    large, values = [b"a" * 300_000], [b"b" * 40_000] * 9
    size = len(batch_of(1, values))
    other = [b"c" * (size - len(batch_of(1, [b""])) - 4)]  # its two sizes are longer, too
    assert len(batch_of(1, other)) == size
    writer.replicate(batch_of(0, large))
    writer.replicate(batch_of(1, values))
    writer.roll()
    writer.append([(b"k", b"old")] * 5)
    records = reader.records()
    found = [next(records).offset]
    writer.truncate_to(1)
    writer.replicate(batch_of(1, other))
    writer.roll()
    for _ in range(20):
        writer.append((b"k", b"new"))
    assert found + offsets(records) == [*range(15)]


def test_a_segment_that_was_truncated_away_is_not_read_behind_a_new_one(writer: Log, reader: Log) -> None:
    writer.replicate(batch_of(0, [b"a" * 300_000]))
    for _ in range(3):
        writer.append((b"k", b"old" * 20_000))
    writer.roll()
    writer.append([(b"k", b"old")] * 5)
    assert reader[6].value == b"old"
    records = reader.records()
    found = [next(records)]
    writer.truncate_to(2)
    for _ in range(10):
        writer.append((b"k", b"new" * 20_000))
    found.extend(records)
    assert offsets(found) == [*range(9)]
    assert [record.value[:3] for record in found[2:]] == [b"new"] * 7


def test_a_cursor_in_a_reference_cycle_is_released(writer: Log, tmp_path: Path, monkeypatch: Any) -> None:
    """A garbage collection may finalize its files before it."""
    failures: list[object] = []
    monkeypatch.setattr(sys, "unraisablehook", failures.append)
    cursor = writer.cursor("billing", store=tmp_path / "cursors")
    cycle: list[object] = [cursor]
    cycle.append(cycle)
    del cursor, cycle
    with pytest.warns(ResourceWarning):
        gc.collect()
    assert not failures
    writer.cursor("billing", store=tmp_path / "cursors").close()


def test_a_tail_notices_a_log_that_was_truncated_and_has_grown_beyond_it(writer: Log, reader: Log) -> None:
    writer.append([(b"k", b"old")] * 10)
    tail = reader.tail(start=0)
    assert [next(tail).offset for _ in range(10)] == [*range(10)]
    writer.append((b"k", b"more"))
    writer.truncate_to(11)  # nothing
    assert next(tail).value == b"more"
    writer.truncate_to(5)
    writer.append([(b"k", b"new")] * 10)
    with pytest.raises(OffsetOutOfRange, match="record 10 differs from the one that was read: the log was truncated"):
        next(tail)


def test_an_asynchronous_tail_notices_it_too(writer: Log, reader: Log) -> None:
    async def follow() -> None:
        writer.append([(b"k", b"old")] * 10)
        tail = kafkalog.aio.wrap(reader).tail(start=0)
        assert [(await anext(tail)).offset for _ in range(10)] == [*range(10)]
        writer.truncate_to(5)
        writer.append([(b"k", b"new")] * 10)
        with pytest.raises(OffsetOutOfRange, match="record 9 differs"):
            await anext(tail)
        await tail.aclose()

    asyncio.run(follow())


@pytest.mark.parametrize("how", ["scan", "records"])
def test_a_condition_on_times_is_looked_up_again_after_a_truncation(writer: Log, reader: Log, how: str) -> None:
    """Where matching records begin was found in the log before."""
    where = "timestamp >= 500"
    for number in range(20):
        writer.append((b"k", b"old", number * 100))
    scan, records = reader.scan(["offset"], where=where), reader.records(where=where)
    writer.truncate_to(2)
    for number in range(2, 20):
        writer.append((b"k", b"new", number * 1000))
    found = scan.table()["offset"].to_pylist() if how == "scan" else offsets(records)
    assert found == [*range(2, 20)]


def test_a_condition_on_times_meets_what_a_truncation_has_removed(writer: Log, reader: Log) -> None:
    """No record of the shorter log is late enough: the range that was asked for is gone all the same."""
    for number in range(20):
        writer.append((b"k", b"old", number * 100))
    scan = reader.scan(["offset"], where="timestamp >= 500")
    writer.truncate_to(2)
    for number in range(2, 6):
        writer.append((b"k", b"new", number))
    with pytest.raises(OffsetOutOfRange, match="truncated to 6"):
        scan.table()
