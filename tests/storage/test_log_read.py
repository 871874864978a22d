"""UnifiedLog: reading by offset within a bound (LOG-20 to LOG-26)."""

import threading
from pathlib import Path
from typing import Literal

import pytest

from kafkalog._core.batch.scan import scan
from kafkalog.errors import IllegalArgument, LogClosed, OffsetOutOfRange
from kafkalog.storage.read import read_state
from kafkalog.types import FetchDataInfo, LogOffsetMetadata
from tests.raw_batches import batch
from tests.storage.logs import NOW, append_batches, bases, log, run, sized_batch


def position_of(found: FetchDataInfo) -> tuple[int, int, int]:
    where = found.fetch_offset_metadata
    return where.message_offset, where.segment_base_offset, where.relative_position_in_segment


def test_reads_outside_the_log_are_out_of_range(tmp_path: Path) -> None:
    """LOG-20: 1024 is empty, 1026 and 0 are out of range; the error names the offset and what there is."""
    a_log = log(tmp_path, log_start_offset=1024)
    found = a_log.read(1024, 1000)
    assert found.records.size == 0 and position_of(found) == (1024, 1024, 0)
    for offset in (1025, 1026, 0, -1):
        with pytest.raises(OffsetOutOfRange, match="1024") as caught:
            a_log.read(offset, 1000)
        assert caught.value.offset == offset


@pytest.mark.parametrize("isolation", ["log_end", "high_watermark", "committed"])
def test_read_at_the_log_end_is_empty_with_its_place(tmp_path: Path, isolation: str) -> None:
    """LOG-20, SEG-10."""
    a_log = log(tmp_path)
    append_batches(a_log, times=3)
    found = a_log.read(3, 1000, isolation)  # type: ignore[arg-type]
    assert found.records.size == 0 and not found.first_entry_incomplete
    assert position_of(found) == (3, 0, 300)


def test_read_below_the_log_start(tmp_path: Path) -> None:
    """LOG-20: though the bytes are still there."""
    a_log = log(tmp_path)
    append_batches(a_log, times=5)
    a_log.maybe_increment_log_start_offset(3)
    with pytest.raises(OffsetOutOfRange):
        a_log.read(2, 1000)
    assert a_log.read(3, 1000).records.size == 200


def test_a_consumer_reads_up_to_the_high_watermark_a_follower_up_to_the_log_end(tmp_path: Path) -> None:
    """LOG-21: at 9 and 11 a consumer gets offsets 0 to 8, and nothing at 9, where a follower gets 9 and 10."""
    a_log = log(tmp_path, high_watermark_follows_end=False)
    append_batches(a_log, times=11)
    a_log.update_high_watermark(9)
    assert (a_log.high_watermark, a_log.log_end_offset) == (9, 11)

    def offsets(start: int, isolation: Literal["log_end", "high_watermark"]) -> list[int]:
        found = a_log.read(start, 10_000, isolation)
        return [header.base_offset for header in found.records.batches()]

    assert offsets(0, "high_watermark") == list(range(9))
    assert offsets(9, "high_watermark") == []
    assert offsets(9, "log_end") == [9, 10]
    assert offsets(11, "log_end") == []
    a_log.update_high_watermark(11)
    assert offsets(9, "high_watermark") == [9, 10]


def test_isolation_bounds_what_is_seen(tmp_path: Path) -> None:
    """LOG-21: end, high watermark, last stable offset; above the bound empty data with the place of the batch."""
    a_log = log(tmp_path, high_watermark_follows_end=False)
    for _ in range(4):
        append_batches(a_log, 120, 5)
    a_log.update_high_watermark(10)
    assert a_log.read(0, 10_000).records.size == 480
    seen = a_log.read(0, 10_000, "high_watermark")
    assert seen.records.size == 240 and seen.aborted_transactions is None
    committed = a_log.read(0, 10_000, "committed")
    assert committed.records.size == 240 and committed.aborted_transactions == ()
    above = a_log.read(17, 10_000, "high_watermark")
    assert above.records.size == 0 and position_of(above) == (15, 0, 360)
    assert position_of(a_log.read(10, 10_000, "high_watermark")) == (10, 0, 240)
    assert a_log.read(17, 10_000).records.size == 120
    with pytest.raises(IllegalArgument):
        a_log.read(0, 10, "read_uncommitted")  # type: ignore[arg-type]


def test_bound_in_an_earlier_segment(tmp_path: Path) -> None:
    """LOG-21: a later segment shows nothing, an earlier one all it has."""
    a_log = log(tmp_path, internal_segment_bytes=200, high_watermark_follows_end=False)
    append_batches(a_log, times=6)
    a_log.update_high_watermark(3)
    assert bases(a_log) == [0, 2, 4]
    assert a_log.read(0, 10_000, "high_watermark").records.size == 200
    assert a_log.read(2, 10_000, "high_watermark").records.size == 100
    assert a_log.read(5, 10_000, "high_watermark").records.size == 0


def test_a_gap_at_the_end_of_a_segment_is_passed_over(tmp_path: Path) -> None:
    """LOG-22: the read goes on in the next segment."""
    a_log = log(tmp_path)
    a_log.append_as_follower(run(0, 2), 0)
    a_log.roll(10)
    a_log.append_as_follower(run(10, 2), 0)
    found = a_log.read(5, 1000)
    assert position_of(found) == (10, 10, 0) and found.records.size == 200


def test_a_gap_up_to_the_log_end(tmp_path: Path) -> None:
    """LOG-22: nothing follows: empty data at the log end."""
    a_log = log(tmp_path)
    append_batches(a_log, times=2)
    a_log.roll(10)
    found = a_log.read(5, 1000)
    assert found.records.size == 0 and position_of(found) == (10, 10, 0)


@pytest.mark.parametrize(
    ("length", "min_one", "size", "incomplete"),
    [(0, False, 0, False), (1, False, 1, True), (0, True, 100, False), (1, True, 100, False), (150, False, 150, False)],
)
def test_max_length_and_min_one_message(
    tmp_path: Path, length: int, min_one: bool, size: int, incomplete: bool
) -> None:
    """LOG-23."""
    a_log = log(tmp_path)
    append_batches(a_log, times=3)
    found = a_log.read(1, length, min_one_message=min_one)
    assert (found.records.size, found.first_entry_incomplete) == (size, incomplete)
    with pytest.raises(IllegalArgument):
        a_log.read(1, -1)


@pytest.mark.parametrize("attributes", [0, 1])
def test_the_middle_of_a_batch_gives_the_whole_batch(tmp_path: Path, attributes: int) -> None:
    """LOG-24: compressed or not; the reader leaves out what it did not ask for."""
    a_log = log(tmp_path)
    data = sized_batch(120, 5, epoch=0, attributes=attributes)
    a_log.append_as_follower(run(0, 1)[:0] + data, 0)
    found = a_log.read(3, 10)
    assert position_of(found) == (0, 0, 0) and found.records.read() == data


@pytest.mark.parametrize("length", [1, 99, 100, 250, 300, 5000])
def test_a_read_never_leaves_its_segment(tmp_path: Path, length: int) -> None:
    """LOG-25: and is never longer than asked for, one batch excepted."""
    a_log = log(tmp_path, internal_segment_bytes=300)
    append_batches(a_log, times=9)
    for start in range(9):
        found = a_log.read(start, length)
        assert found.records.size == max(100, min(length, 300 - start % 3 * 100))
        assert scan(found.records.read())[0].base_offset == start


def test_every_offset_of_a_gapped_log_is_found(tmp_path: Path) -> None:
    """LOG-22, SEG-6: against a plain search through all batches."""
    a_log = log(tmp_path, internal_segment_bytes=700, index_interval_bytes=150)
    ranges = [(base, base + 2) for base in range(0, 120, 4)]
    for first, _ in ranges:
        a_log.append_as_follower(sized_batch(110, 3, base=first, epoch=0), 0)
    for offset in range(ranges[-1][1] + 1):
        expected = next(first for first, last in ranges if last >= offset)
        assert a_log.read(offset, 1).fetch_offset_metadata.message_offset == expected


def test_readers_beside_a_writer_see_whole_batches_below_their_bound(tmp_path: Path) -> None:
    """LOG-26: appends, rolls and cuts while others read: never more than the bound, never a torn batch."""
    a_log = log(tmp_path, internal_segment_bytes=2000, index_interval_bytes=200)
    append_batches(a_log, times=5)
    stop, wrong = threading.Event(), []

    def reader() -> None:
        while not stop.is_set():
            try:
                end = a_log.log_end_offset
                start = max(a_log.log_start_offset, end - 15)
                found = a_log.read(start, 500)
                table = scan(found.records.read())
                if len(table) and table.first_invalid >= 0:
                    wrong.append(("checksum", start, table))
                if len(table) and table[0].last_offset < start:
                    wrong.append(("below", start, table))
            except OffsetOutOfRange:
                continue
            except BaseException as error:
                wrong.append(error)

    threads = [threading.Thread(target=reader) for _ in range(2)]
    for thread in threads:
        thread.start()
    data = sized_batch(100)
    for turn in range(150):
        for _ in range(7):
            a_log.append_as_leader(bytearray(data))
        if turn % 10 == 9:
            a_log.roll()
        if turn % 15 == 14:
            a_log.delete_before(a_log.log_end_offset - 40)
    stop.set()
    for thread in threads:
        thread.join()
    assert not wrong, wrong[:3]


def test_a_reader_of_a_deleted_segment_reads_on(tmp_path: Path) -> None:
    """LOG-26: for a reader that took the state, or a slice, before the delete."""
    a_log = log(tmp_path, internal_segment_bytes=300)
    append_batches(a_log, times=9)
    state, held = a_log.state, a_log.read(0, 300).records
    a_log.delete_before(-1)
    assert len(list(tmp_path.glob("topic-0/*.log"))) == 1
    again = read_state(state, 1, 100, state.end_metadata, True)
    assert position_of(again) == (1, 0, 100) and scan(again.records.read())[0].base_offset == 1
    assert len(held.read()) == 300


def test_a_cut_under_a_reader_is_out_of_range_or_shorter(tmp_path: Path) -> None:
    """LOG-26: a slice that was handed out keeps its bounds, and its bytes end where the file does."""
    a_log = log(tmp_path)
    append_batches(a_log, times=5)
    found = a_log.read(0, 10_000)
    a_log.truncate_to(2)
    assert found.records.size == 500 and len(found.records.read()) == 200
    with pytest.raises(OffsetOutOfRange):
        a_log.read(4, 100)


def test_a_closed_log_says_so(tmp_path: Path) -> None:
    a_log = log(tmp_path)
    append_batches(a_log)
    a_log.close()
    for call in (
        lambda: a_log.read(0, 100),
        lambda: a_log.offset_for_time(5),
        lambda: append_batches(a_log),
        a_log.roll,
        lambda: a_log.truncate_to(0),
        a_log.flush,
    ):
        with pytest.raises(LogClosed, match="log topic-0 is closed"):
            call()


def test_places_name_the_batch_that_holds_the_offset(tmp_path: Path) -> None:
    """SEG-10, LOG-29: 8 lies in the batch 5 to 9; the log end has its own place; outside the log only the offset."""
    a_log = log(tmp_path)
    for _ in range(2):
        a_log.append_as_leader(bytearray(batch(0, [(NOW, b"k", b"v")] * 5, epoch=-1)))
    size = a_log.size
    assert a_log.convert_to_offset_metadata(8) == LogOffsetMetadata(5, 0, size // 2)
    assert a_log.convert_to_offset_metadata(10) == LogOffsetMetadata(10, 0, size)
    assert a_log.convert_to_offset_metadata(11) == LogOffsetMetadata(11)
