"""UnifiedLog: appending as leader and follower, and in groups (LOG-1 to LOG-11, LOG-77)."""

from collections.abc import Callable
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kafkalog._core.batch.scan import scan
from kafkalog.errors import (
    CorruptRecord,
    IllegalArgument,
    InvalidRecord,
    InvalidTimestamp,
    OffsetsOutOfOrder,
    RecordBatchTooLarge,
    RecordTooLarge,
    SegmentOffsetOverflow,
    UnexpectedAppendOffset,
)
from kafkalog.storage.log import UnifiedLog
from tests.builder import message_v1
from tests.mock_time import MockClock
from tests.raw_batches import batch
from tests.storage.logs import NOW, append_batches, bases, files, log, offset_entries, run, sized_batch, time_entries

NAME = f"{0:020d}"


def content(a_log: UnifiedLog) -> bytes:
    return b"".join(segment.records.read(0, segment.size) for segment in a_log.segments)


def test_a_new_log(tmp_path: Path) -> None:
    """LOG-1: everything at 0, one empty segment; indexes at full size and an empty epoch file from the start."""
    made = log(tmp_path)
    assert (made.log_start_offset, made.log_end_offset, made.high_watermark, made.last_stable_offset) == (0, 0, 0, 0)
    assert made.recovery_point == 0 and made.size == 0 and bases(made) == [0]
    assert files(tmp_path / "topic-0") == {
        f"{NAME}.index": 1000,
        f"{NAME}.log": 0,
        f"{NAME}.timeindex": 996,
        "leader-epoch-checkpoint": 0,
    }


def test_a_new_log_at_an_offset(tmp_path: Path) -> None:
    """LOG-1, LOG-20: its first segment begins there."""
    made = log(tmp_path, log_start_offset=1024)
    assert (made.log_start_offset, made.log_end_offset, made.high_watermark) == (1024, 1024, 1024)
    assert bases(made) == [1024]


def test_a_leader_assigns_offsets_and_epoch(tmp_path: Path) -> None:
    """LOG-2: from the log end on; the result says which, and that no time was stamped."""
    a_log = log(tmp_path, leader_epoch=7)
    append_batches(a_log, 100, 3)
    data = bytearray(sized_batch(120, 5, timestamp=NOW + 9))
    info = a_log.append_as_leader(data)
    assert (info.first_offset, info.last_offset, info.log_append_time, info.log_start_offset) == (3, 7, -1, 0)
    assert (info.max_timestamp, info.offset_of_max_timestamp) == (NOW + 9, 7)
    assert (info.valid_bytes, info.shallow_count) == (120, 1)
    assert (info.source_compression, info.target_compression, info.offsets_monotonic) == (0, 0, True)
    assert a_log.log_end_offset == 8 and a_log.leader_epochs == ((7, 0),)
    table = scan(content(a_log))
    assert [(b.base_offset, b.last_offset, b.leader_epoch) for b in table] == [(0, 2, 7), (3, 7, 7)]
    assert table.first_invalid < 0


def test_an_epoch_may_begin_before_its_first_append(tmp_path: Path) -> None:
    """A new leader (LOG-59): the epoch is in its file, and the append that follows starts none."""
    a_log = log(tmp_path)
    a_log.append_as_leader(bytearray(sized_batch(100, 3)))
    a_log.begin_epoch(4)
    assert a_log.leader_epochs == ((0, 0), (4, 3))
    assert (tmp_path / "topic-0" / "leader-epoch-checkpoint").read_text() == "0\n2\n0 0\n4 3\n"
    a_log.begin_epoch(4)
    a_log.begin_epoch(2)
    assert a_log.leader_epochs == ((0, 0), (4, 3))
    a_log.append_as_leader(bytearray(sized_batch(100)), leader_epoch=4)
    assert a_log.leader_epochs == ((0, 0), (4, 3)) and a_log.end_offset_for_epoch(0) == (0, 3)


def test_a_new_leader_epoch_is_kept_with_its_first_offset(tmp_path: Path) -> None:
    """LOG-2: in memory at once, in the checkpoint before the append returns."""
    a_log = log(tmp_path)
    append_batches(a_log, times=3)
    a_log.append_as_leader(bytearray(sized_batch(100)), leader_epoch=4)
    assert a_log.leader_epochs == ((0, 0), (4, 3))
    assert (tmp_path / "topic-0" / "leader-epoch-checkpoint").read_text() == "0\n2\n0 0\n4 3\n"


def test_a_follower_keeps_offsets_and_gaps(tmp_path: Path) -> None:
    """LOG-3: and refuses what begins below the log end, naming first and last offset."""
    a_log = log(tmp_path)
    info = a_log.append_as_follower(run(5, 2) + run(100, 1), 0)
    assert (info.first_offset, info.last_offset, info.last_leader_epoch) == (5, 100, 0)
    assert a_log.log_end_offset == 101
    with pytest.raises(UnexpectedAppendOffset) as caught:
        a_log.append_as_follower(run(100, 3), 0)
    assert (caught.value.first_offset, caught.value.last_offset) == (100, 102)
    assert a_log.log_end_offset == 101 and a_log.size == 300


@pytest.mark.parametrize("order", [(5, 4), (5, 5), (1, 2, 2)])
def test_a_follower_refuses_batches_out_of_order(tmp_path: Path, order: tuple[int, ...]) -> None:
    """LOG-4."""
    a_log = log(tmp_path)
    with pytest.raises(OffsetsOutOfOrder):
        a_log.append_as_follower(b"".join(run(base, 1) for base in order), 0)
    assert a_log.log_end_offset == 0 and a_log.size == 0


def test_a_follower_refuses_batches_that_overlap(tmp_path: Path) -> None:
    """LOG-4: also where each ends above the one before it."""
    with pytest.raises(OffsetsOutOfOrder):
        log(tmp_path).append_as_follower(sized_batch(120, 5, epoch=0) + sized_batch(120, 5, base=3, epoch=0), 0)


def test_segments_roll_so_that_relative_offsets_fit(tmp_path: Path) -> None:
    """LOG-4: offsets 0, 1, 2^31-1, 2^31 give the bases 0 and 2^31."""
    a_log = log(tmp_path)
    for offset in (0, 1, 2**31 - 1, 2**31):
        a_log.append_as_follower(run(offset, 1), 0)
    assert bases(a_log) == [0, 2**31]
    assert a_log.log_end_offset == 2**31 + 1


def test_a_batch_over_the_border_rolls_to_its_base(tmp_path: Path) -> None:
    """LOG-4: 2^31-1 .. 2^31 rolls to 2^31-1."""
    a_log = log(tmp_path)
    a_log.append_as_follower(run(0, 1), 0)
    a_log.append_as_follower(sized_batch(100, 2, base=2**31 - 1, epoch=0), 0)
    assert bases(a_log) == [0, 2**31 - 1]


def test_an_append_too_wide_for_any_segment_is_refused(tmp_path: Path) -> None:
    """LOG-4, SEG-2: nothing is written, the log goes on."""
    a_log = log(tmp_path)
    with pytest.raises(SegmentOffsetOverflow):
        a_log.append_as_follower(run(3, 1) + run(3 + 2**31, 1), 0)
    assert a_log.size == 0
    a_log.append_as_follower(run(a_log.log_end_offset, 1), 0)
    assert a_log.size == 100


@pytest.mark.parametrize("left", [0, 1, 11, 16, 17, 60, 99])
def test_nothing_whole_is_no_append(tmp_path: Path, left: int) -> None:
    """LOG-5: an empty buffer or a part of a batch: first offset -1, and no roll though the time has passed."""
    clock = MockClock(NOW)
    a_log = log(tmp_path, clock=clock, segment_ms=10)
    append_batches(a_log)
    clock.advance(1000)
    part = bytearray(sized_batch(100)[:left])
    for info in (a_log.append_as_leader(part), a_log.append_as_follower(run(1, 1)[:left], 0)):
        assert (info.first_offset, info.last_offset, info.valid_bytes) == (-1, -1, 0)
    assert bases(a_log) == [0] and a_log.log_end_offset == 1


@pytest.mark.parametrize("left", [1, 11, 12, 50, 99])
def test_a_partial_batch_at_the_end_is_cut(tmp_path: Path, left: int) -> None:
    """LOG-6: leader, follower and group write the whole batches only."""
    a_log = log(tmp_path)
    tail = sized_batch(100, base=77, epoch=0)[:left]
    assert a_log.append_as_leader(bytearray(sized_batch(100) + tail)).valid_bytes == 100
    assert a_log.append_as_follower(run(1, 1) + tail, 0).valid_bytes == 100
    assert a_log.append_batches(bytearray(run(0, 2) + tail)).valid_bytes == 200
    assert a_log.size == 400 and a_log.log_end_offset == 4


def test_what_lies_behind_a_table_is_not_written(tmp_path: Path) -> None:
    """LOG-5: a table of a part of the buffer says how much of it is the append."""
    one = sized_batch(100)
    with_more = bytearray(one + b"not of this append")
    a_log = log(tmp_path)
    assert a_log.append_as_leader(with_more, table=scan(with_more, 0, len(one))).valid_bytes == 100
    assert content(a_log) == bytes(with_more[:100]) and a_log.size == 100
    append_batches(a_log)
    assert a_log.log_end_offset == 2


def test_a_batch_over_max_message_bytes(tmp_path: Path) -> None:
    """LOG-7: refused from a client, taken from a leader; exactly as large fits."""
    a_log = log(tmp_path, max_message_bytes=100)
    append_batches(a_log, 100)
    with pytest.raises(RecordTooLarge):
        append_batches(a_log, 101)
    with pytest.raises(RecordTooLarge):
        a_log.append_batches(bytearray(run(0, 2) + sized_batch(101)))
    assert a_log.log_end_offset == 1
    a_log.append_as_follower(sized_batch(101, base=1, epoch=0), 0)
    assert a_log.log_end_offset == 2


def test_an_append_larger_than_a_segment(tmp_path: Path) -> None:
    """LOG-9: the whole buffer counts, for followers too; exactly equal fits."""
    a_log = log(tmp_path, internal_segment_bytes=200)
    with pytest.raises(RecordBatchTooLarge):
        append_batches(a_log, 201)
    with pytest.raises(RecordBatchTooLarge):
        a_log.append_as_follower(run(0, 3), 0)
    assert a_log.size == 0
    append_batches(a_log, 200)
    a_log.append_as_follower(run(1, 2), 0)
    assert (a_log.log_end_offset, a_log.size) == (3, 400)


def test_each_batch_of_a_group_must_fit_a_segment(tmp_path: Path) -> None:
    """LOG-9: but the group need not, since each batch is an append of its own."""
    a_log = log(tmp_path, internal_segment_bytes=200)
    a_log.append_batches(bytearray(run(0, 5)))
    assert bases(a_log) == [0, 2, 4]
    with pytest.raises(RecordBatchTooLarge):
        a_log.append_batches(bytearray(run(0, 1) + sized_batch(201)))
    assert a_log.log_end_offset == 5


@pytest.mark.parametrize("at", [17, 21, 23, 57, 61, 99])
def test_a_wrong_checksum(tmp_path: Path, at: int) -> None:
    """LOG-10: CorruptRecord for leader, follower and group; nothing is written, not even the batch before it."""
    a_log = log(tmp_path)
    good, bad = sized_batch(100, epoch=0), bytearray(sized_batch(100, base=1, epoch=0))
    bad[at] ^= 1
    for append in (
        lambda: a_log.append_as_leader(bytearray(b"\0" * 8 + bad[8:])),
        lambda: a_log.append_as_follower(good + bad, 0),
        lambda: a_log.append_batches(bytearray(good + bad)),
    ):
        with pytest.raises(CorruptRecord) as caught:
            append()
        assert caught.value.position is not None
    assert a_log.log_end_offset == 0 and a_log.size == 0


@pytest.mark.parametrize(("field", "value"), [(8, b"\0\0\0\0"), (8, b"\x80\0\0\0"), (16, b"\x03"), (16, b"\xff")])
def test_a_size_or_format_that_is_none(tmp_path: Path, field: int, value: bytes) -> None:
    """LOG-10: a size field below the smallest batch, an unknown magic."""
    a_log = log(tmp_path)
    bad = bytearray(sized_batch(100, epoch=0))
    bad[field : field + len(value)] = value
    for append in (a_log.append_as_leader, a_log.append_batches, lambda data: a_log.append_as_follower(data, 0)):
        with pytest.raises(CorruptRecord):
            append(bytearray(bad))
    assert a_log.size == 0


def test_origins(tmp_path: Path) -> None:
    """LOG-11: a raft leader's epoch must fit, a client's batch begins at 0; coordinators may write control batches."""
    a_log = log(tmp_path)
    with pytest.raises(InvalidRecord):
        a_log.append_as_leader(bytearray(sized_batch(100, epoch=3)), origin="raft_leader", leader_epoch=4)
    a_log.append_as_leader(bytearray(sized_batch(100, epoch=4)), origin="raft_leader", leader_epoch=4)
    with pytest.raises(InvalidRecord):
        a_log.append_as_leader(bytearray(sized_batch(100, base=1)))
    a_log.append_as_leader(bytearray(sized_batch(100, base=1)), origin="coordinator")
    control = sized_batch(100, attributes=0x20)
    with pytest.raises(InvalidRecord):
        a_log.append_as_leader(bytearray(control))
    a_log.append_as_leader(bytearray(control), origin="coordinator")
    with pytest.raises(IllegalArgument):
        a_log.append_as_leader(bytearray(sized_batch(100)), origin="stranger")  # type: ignore[arg-type]
    assert a_log.log_end_offset == 3


def test_one_batch_per_client_append(tmp_path: Path) -> None:
    """LOG-2: several are refused before anything is written."""
    a_log = log(tmp_path)
    with pytest.raises(InvalidRecord):
        a_log.append_as_leader(bytearray(sized_batch(100) + sized_batch(100)))
    assert a_log.size == 0


@pytest.mark.parametrize(
    ("timestamp", "fine"), [(NOW - 50, True), (NOW - 51, False), (NOW + 20, True), (NOW + 21, False)]
)
def test_times_out_of_bounds(tmp_path: Path, timestamp: int, fine: bool) -> None:
    """LOG-2: the topic's limits count from the log's clock."""
    a_log = log(tmp_path, message_timestamp_before_max_ms=50, message_timestamp_after_max_ms=20)
    if fine:
        append_batches(a_log, timestamp=timestamp)
    else:
        with pytest.raises(InvalidTimestamp) as caught:
            append_batches(a_log, timestamp=timestamp)
        assert [index for index, _ in caught.value.record_errors] == [0]
    assert a_log.log_end_offset == fine


def test_log_append_time_stamps_every_batch(tmp_path: Path) -> None:
    """LOG-77: the clock's time on all records, whatever they said; the checksum is right."""
    clock = MockClock(NOW)
    a_log = log(tmp_path, clock=clock, message_timestamp_type="LogAppendTime")
    info = a_log.append_as_leader(bytearray(sized_batch(100, 3, timestamp=5)))
    assert info.log_append_time == info.max_timestamp == NOW
    clock.advance(7)
    a_log.append_batches(bytearray(sized_batch(100, 2) + sized_batch(100)))
    table = scan(content(a_log))
    assert [(b.max_timestamp, b.timestamp_type) for b in table] == [(NOW, 1), (NOW + 7, 1), (NOW + 7, 1)]
    assert table.first_invalid < 0
    found = a_log.offset_for_time(NOW + 1)
    assert found is not None and (found.offset, found.timestamp) == (3, NOW + 7)


def test_a_follower_stops_at_a_newer_epoch(tmp_path: Path) -> None:
    """LOG-3: LOG-81's rule: epochs 5, 9, 5 with epoch 5 write the first; 9 first writes nothing."""
    a_log = log(tmp_path)
    info = a_log.append_as_follower(run(0, 1, epoch=5) + run(1, 1, epoch=9) + run(2, 1, epoch=5), 5)
    assert (info.last_offset, info.valid_bytes, a_log.log_end_offset) == (0, 100, 1)
    assert a_log.append_as_follower(run(1, 1, epoch=9), 5).first_offset == -1
    assert a_log.leader_epochs == ((5, 0),)
    with pytest.raises(IllegalArgument):
        a_log.append_as_follower(run(1, 1, epoch=-1), 5)


def test_a_follower_records_each_new_epoch(tmp_path: Path) -> None:
    """LOG-3: at the first offset of the first batch that has it."""
    a_log = log(tmp_path)
    a_log.append_as_follower(run(3, 2, epoch=1) + run(9, 2, epoch=4), 10)
    assert a_log.leader_epochs == ((1, 3), (4, 9))


def test_a_follower_copies_old_formats(tmp_path: Path) -> None:
    """LOG-3: v1 messages keep their bytes; reading their records is another matter."""
    a_log = log(tmp_path)
    data = message_v1(50, b"a") + message_v1(51, b"b")
    assert a_log.append_as_follower(data, 0).last_offset == 51
    assert content(a_log) == data and a_log.log_end_offset == 52


def same_layout(one: UnifiedLog, other: UnifiedLog) -> None:
    assert content(one) == content(other)
    assert bases(one) == bases(other)
    for a, b in zip(one.segments, other.segments, strict=True):
        assert (offset_entries(a), time_entries(a)) == (offset_entries(b), time_entries(b))
    assert (one.log_end_offset, one.active_segment.tail) == (other.log_end_offset, other.active_segment.tail)


batches = st.lists(
    st.tuples(st.integers(0, 100), st.integers(1, 3), st.integers(-1, 5000)), min_size=1, max_size=25
)


@pytest.mark.slow
@given(batches, st.integers(400, 1500), st.integers(0, 300), st.integers(24, 80), st.integers(1, 3000))
@settings(max_examples=60)
def test_a_group_comes_out_as_single_appends(
    new_path: Callable[[str], Path],
    made: list[tuple[int, int, int]],
    segment_bytes: int,
    interval: int,
    index_bytes: int,
    segment_ms: int,
) -> None:
    """LOG-13, LOG-14, LOG-56, SEG-3: the same bytes, segments and index entries, whatever made them roll."""
    path = new_path("group")
    more = {
        "internal_segment_bytes": segment_bytes, "index_interval_bytes": interval,
        "segment_index_bytes": index_bytes, "segment_ms": segment_ms,
    }  # fmt: skip
    (path / "a").mkdir()
    (path / "b").mkdir()
    single, group = log(path / "a", **more), log(path / "b", **more)
    parts = [batch(0, [(time, b"k", b"." * size)] * count, epoch=-1) for size, count, time in made]
    for part in parts:
        single.append_as_leader(bytearray(part))
    group.append_batches(bytearray(b"".join(parts)))
    same_layout(single, group)
    single.close()
    group.close()
    assert files(path / "a" / "topic-0") == files(path / "b" / "topic-0")


def test_a_follower_s_batch_that_leaves_no_offset_for_the_log_end_is_refused(tmp_path: Path) -> None:
    last = 2**63 - 1
    a_log = log(tmp_path, log_start_offset=last - 3)
    before = content(a_log)
    with pytest.raises(UnexpectedAppendOffset, match=f"ends at offset {last}, which leaves none") as caught:
        a_log.append_as_follower(sized_batch(100, 2, base=last - 1, epoch=0), 0)
    assert (caught.value.first_offset, caught.value.last_offset) == (last - 1, last)
    assert content(a_log) == before and a_log.log_end_offset == last - 3
    a_log.append_as_follower(sized_batch(100, 3, base=last - 3, epoch=0), 0)
    assert a_log.log_end_offset == last
