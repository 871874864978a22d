"""The offset map of a log's dirty part: what goes in, how far it reaches, what stops it."""

from collections.abc import Callable
from pathlib import Path
from random import Random
from typing import Any, NamedTuple

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kafkalog._core.clean.offset_map import SkimpyOffsetMap
from kafkalog.cleaner.map_build import build_map
from kafkalog.cleaner.segment_reader import SegmentReader
from kafkalog.cleaner.types import CleanerStats
from kafkalog.errors import CleaningAborted, CorruptRecord, InvalidRecord
from kafkalog.records.builder import RecordsBuilder
from kafkalog.records.format import CompressionType
from kafkalog.records.tables import record_tables
from kafkalog.storage.log import UnifiedLog
from kafkalog.util.fileio import OS
from tests.builder import R, batch, seal
from tests.cleaner.histories import KEYS, NOW, History, random_history
from tests.cleaner.logs import append, open_log
from tests.faults import FaultFS
from tests.mock_time import MockClock

SMALL_BUFFER = 4096


class Built(NamedTuple):
    """Result of a build: the offsets of the keys asked, the map's end, and the counts."""

    found: dict[bytes, int]
    latest_offset: int
    size: int
    is_whole: bool
    messages: int
    bytes_read: int
    throttled: int


def do_nothing(*_: Any) -> None:
    pass


def build(
    log: UnifiedLog,
    start: int,
    end: int,
    keys: Any = KEYS,
    *,
    slots: int = 1000,
    load_factor: float = 1.0,
    reader: SegmentReader | None = None,
    check_done: Callable[[], None] = do_nothing,
) -> Built:
    offset_map = SkimpyOffsetMap(24 * slots)
    offset_map.put(b"of the last clean", 5) if slots else None
    stats, throttled_bytes = CleanerStats(0.0), [0]
    is_whole = build_map(
        log, start, end, offset_map, stats, reader=reader or SegmentReader(SMALL_BUFFER, OS), load_factor=load_factor,
        check_done=check_done, throttled=throttled_bytes.append,
    )  # fmt: skip
    assert offset_map.get(b"of the last clean") == -1
    found = {key: offset for key in keys if (offset := offset_map.get(key)) >= 0}
    counts = stats.map_messages_read, stats.map_bytes_read, sum(throttled_bytes)
    return Built(found, offset_map.latest_offset, offset_map.size, is_whole, *counts)


def build_reference_map(log: UnifiedLog, history: History, start: int, end: int, most: int) -> Built:
    """The reference's way, record by record: CLN-3, CLN-4, CLN-6, CLN-7, CLN-14, CLN-18, CLN-46."""
    aborted = {row.offset for row in history.rows if history.aborted(row)}
    found: dict[bytes, int] = {}
    latest, messages, size = -1, 0, 0
    dirty = log.state.segments.values(start, end)
    for segment, following in zip(dirty, [*[one.base_offset for one in dirty[1:]], end], strict=False):
        position = segment.offset_index.lookup(start).position
        for header in segment.records.batches(position):
            data = segment.records.read(header.position, header.size)
            table = next(iter(segment.records.slice(header.position, header.size).tables()))
            for records in [] if header.is_control else record_tables(data, table, base_position=header.position):
                for i, offset in enumerate(records.offsets):
                    key = records.key(i)
                    if key is not None and offset >= start and offset not in aborted:
                        if len(found) == most:
                            return Built(found, latest, len(found), False, messages, size, 0)
                        found[key] = latest = offset
                    messages += 1
            messages += header.is_control
            if header.last_offset >= start:
                latest = header.last_offset
        size += segment.size - position
        latest = following - 1
    return Built(found, latest, len(found), True, messages, size, size)


@settings(max_examples=60, deadline=None)
@given(seed=st.integers(0, 2**32), most=st.sampled_from([1, 2, 4, 5, 1000]))
def test_any_log(seed: int, most: int, tmp_path_factory: pytest.TempPathFactory) -> None:
    """CLN-3, CLN-4, CLN-6, CLN-14, CLN-18, CLN-46: every format and codec, from any offset on, maps of any size."""
    rng = Random(seed)
    history = random_history(rng, close_all=True)
    with history.written(tmp_path_factory.mktemp("log") / "topic-0", MockClock(NOW)) as opened:
        log = opened._source
        start = rng.randint(0, history.end)
        end = rng.choice([base for base in log.state.segments.base_offsets if base >= start])
        expected = build_reference_map(log, history, start, end, most)
        built = build(log, start, end, slots=most, reader=SegmentReader(rng.choice([SMALL_BUFFER, 1 << 20]), OS))
    assert built._replace(throttled=0, bytes_read=0) == expected._replace(throttled=0, bytes_read=0)
    if built.is_whole:
        assert built.throttled == built.bytes_read == expected.bytes_read


def append_keys(log: UnifiedLog, *keys: int) -> None:
    for key in keys:
        append(log, (b"%d" % key, b"v"))


def roll_log(log: UnifiedLog) -> int:
    log.roll()
    return log.log_end_offset


@pytest.fixture
def log(tmp_path: Path) -> Any:
    made = open_log(tmp_path)
    yield made
    made.close()


@pytest.mark.parametrize(
    ("start", "found", "latest"), [(2, {b"0": 2}, 2), (3, {b"1": 3}, 3), (4, {b"0": 4}, 4)]
)
def test_two_slots_hold_one_key(log: UnifiedLog, start: int, found: dict[bytes, int], latest: int) -> None:
    """CLN-4: the load factor is 0.75."""
    append_keys(log, 0, 1, 0, 1, 0)
    built = build(log, start, roll_log(log), found, slots=2, load_factor=0.75)
    assert (built.found, built.latest_offset, built.size) == (found, latest, 1)


def test_the_map_ends_inside_a_segment_and_says_where(log: UnifiedLog) -> None:
    """CLN-4, CLN-5: two usable slots hold two keys of a segment's five; what did not fit was not counted."""
    append_keys(log, 0, 1, 2, 3, 4)
    keys = [b"%d" % i for i in range(5)]
    built = build(log, 2, roll_log(log), keys, slots=3, load_factor=0.75)
    assert built == Built({b"2": 2, b"3": 3}, 3, 2, False, 4, 0, built.throttled)


def test_a_full_map_ends_inside_a_batch(log: UnifiedLog) -> None:
    """CLN-4: before the record that did not fit; a key that is in the map already needs no room only before that."""
    append(log, (b"a", b"1"), (b"a", b"2"), (b"b", b"3"), (b"a", b"4"), (b"c", b"5"))
    built = build(log, 0, roll_log(log), [b"a", b"b", b"c"], slots=2)
    assert built == Built({b"a": 1, b"b": 2}, 2, 2, False, 3, 0, log.size)


def test_a_map_without_room_reaches_nowhere(log: UnifiedLog) -> None:
    """CLN-5: no error; the clean that follows has nothing to do."""
    append_keys(log, 0, 1)
    end = roll_log(log)
    for slots in (0, 1):
        built = build(log, 0, end, slots=slots, load_factor=0.75)
        assert (built.size, built.latest_offset, built.is_whole, built.messages) == (0, -1, False, 0)


def test_batches_without_a_key_count_for_how_far_a_full_map_reaches(log: UnifiedLog) -> None:
    """CLN-4, CLN-6"""
    append(log, (b"a", b"1"))
    log.append_as_follower(bytearray(batch([R(b"2"), R(b"3")], base_offset=1, leader_epoch=0)), 0)
    append(log, (b"b", b"4"))
    built = build(log, 0, roll_log(log), [b"a", b"b"], slots=1)
    assert (built.found, built.latest_offset, built.messages, built.is_whole) == ({b"a": 0}, 2, 3, False)


def test_the_end_of_the_map_passes_gaps(log: UnifiedLog) -> None:
    """CLN-3, CLN-46: to the next segment's base, and in the last one to the first uncleanable offset."""
    append(log, (b"a", b"1"))
    log.append_as_follower(bytearray(batch([R(b"2", b"b")], base_offset=100, leader_epoch=0)), 0)
    log.roll()
    log.append_as_follower(bytearray(batch([R(b"2", b"b")], base_offset=5000, leader_epoch=0)), 0)
    log.roll()
    assert build(log, 0, 101, [b"a", b"b"]).latest_offset == 100
    assert build(log, 0, 4000, [b"a", b"b"])[:2] == ({b"a": 0, b"b": 100}, 3999)
    assert build(log, 101, 5001, [b"a", b"b"])[:2] == ({b"b": 5000}, 5000)


def test_an_empty_range_leaves_an_empty_map(log: UnifiedLog) -> None:
    append_keys(log, 0, 1)
    end = roll_log(log)
    for start in (0, 1, end, end + 5):
        assert build(log, start, start)[:4] == ({}, -1, 0, True)
    assert build(log, end, 0)[:4] == ({}, -1, 0, True)


def test_records_at_or_above_the_end_stay_out(log: UnifiedLog) -> None:
    """CLN-15: where the end lies inside a batch; what is not stable yet must not hide what is."""
    append(log, (b"a", b"1"), (b"b", b"2"), (b"a", b"3"))
    append(log, (b"b", b"4"))
    roll_log(log)
    assert build(log, 0, 2, [b"a", b"b"])[:2] == ({b"a": 0, b"b": 1}, 1)


@pytest.mark.parametrize("codec", CompressionType)
def test_a_batch_larger_than_the_buffer(tmp_path: Path, codec: CompressionType) -> None:
    """CLN-27: the buffer grows for it, is read once all the same, and shrinks back behind the segment."""
    log, reader = open_log(tmp_path, internal_segment_bytes=20_000), SegmentReader(SMALL_BUFFER, OS)
    rng = Random(codec)
    for number in range(3):
        builder = RecordsBuilder(compression=codec)
        for i in range(30):
            builder.append(NOW, b"%d" % i, rng.randbytes(300), offset=i)
        log.append_as_leader(bytearray(builder.build()))
        append(log, (b"small", b"%d" % number))
    seen: list[int] = []
    end = roll_log(log)
    built = build(
        log, 0, end, [b"0", b"29", b"small"], reader=reader, check_done=lambda: seen.append(reader.capacity)
    )
    assert built.found == {b"0": 62, b"29": 91, b"small": 92}
    assert built.throttled == built.bytes_read == log.size
    assert max(seen) > 9000 and reader.capacity == SMALL_BUFFER
    log.close()


def damaged_log(path: Path, change: Callable[[bytearray], Any], **more: Any) -> tuple[UnifiedLog, str]:
    """A log of three sealed batches whose second one was changed on disk."""
    log = open_log(path, **more)
    for key in (b"a", b"b", b"c"):
        append(log, (key, b"value"))
    roll_log(log)
    file = Path(log.state.segments.first.records.path)
    data = bytearray(file.read_bytes())
    size = len(data) // 3
    second = data[size : 2 * size]
    change(second)
    data[size : 2 * size] = second
    file.write_bytes(data)
    return log, str(file)


def write_size(size: int) -> Callable[[bytearray], Any]:
    return lambda data: data.__setitem__(slice(8, 12), (size - 12 & 0xFFFFFFFF).to_bytes(4, "big"))


@pytest.mark.parametrize(
    ("change", "what"),
    [
        (lambda data: data.__setitem__(-3, data[-3] ^ 1), "does not match its CRC"),
        (lambda data: data.__setitem__(16, 9), "the unknown format 9"),
        (write_size(12 + 13), "size field is 13"),
        (write_size(-1), "size field is -13"),
        (write_size(1 << 30), "claims 1073741824 bytes, but only 148 are left"),
    ],
)
@pytest.mark.parametrize("buffer_bytes", [SMALL_BUFFER, 1 << 16])
def test_damage_is_an_error_with_its_place(
    tmp_path: Path, change: Callable[[bytearray], Any], what: str, buffer_bytes: int
) -> None:
    """CLN-28"""
    log, path = damaged_log(tmp_path, change)
    third = log.state.segments.first.size // 3
    before = Path(path).read_bytes()
    reader = SegmentReader(buffer_bytes, OS)
    with pytest.raises(CorruptRecord, match=what) as raised:
        build(log, 0, log.log_end_offset, reader=reader)
    assert (raised.value.path, raised.value.position) == (path, third)
    assert reader.capacity == buffer_bytes
    assert Path(path).read_bytes() == before
    log.close()


def test_a_record_that_is_damaged_under_a_good_checksum(tmp_path: Path) -> None:
    """CLN-28: the record is named, with the batch's offset and its own position."""

    def change(data: bytearray) -> None:
        data[61] = 126
        data[:] = seal(data)

    log, path = damaged_log(tmp_path, change)
    third = log.state.segments.first.size // 3
    with pytest.raises(InvalidRecord, match="record 0 of the batch") as raised:
        build(log, 0, log.log_end_offset)
    assert (raised.value.path, raised.value.offset, raised.value.position) == (path, 1, third + 61)
    log.close()


def test_a_batch_that_ends_below_its_base_offset(tmp_path: Path) -> None:
    """CLN-28: under a good checksum, too; a map without its keys would be one of another log."""

    def change(data: bytearray) -> None:
        data[23:27] = (-5).to_bytes(4, "big", signed=True)
        data[:] = seal(data)

    log, path = damaged_log(tmp_path, change)
    third = log.state.segments.first.size // 3
    for start in (0, 1):
        with pytest.raises(CorruptRecord, match="^the batch ends at offset -4, below its base offset") as raised:
            build(log, start, log.log_end_offset)
        assert (raised.value.path, raised.value.offset, raised.value.position) == (path, 1, third)
    log.close()


@pytest.mark.parametrize(("cut", "what"), [(3, "3 bytes too short"), (70, "70 bytes too short"), (71, "71 bytes")])
def test_a_file_that_is_shorter_than_its_segment(log: UnifiedLog, cut: int, what: str) -> None:
    """CLN-28: no clean goes on with a part."""
    append_keys(log, 0, 1)
    end = roll_log(log)
    segment = log.state.segments.first
    with open(segment.records.path, "r+b") as file:
        file.truncate(segment.size - cut)
    with pytest.raises(CorruptRecord, match=what) as raised:
        build(log, 0, end)
    assert raised.value.path == segment.records.path


def test_a_clean_that_is_told_to_end_ends_between_two_chunks(log: UnifiedLog) -> None:
    """CLN-34"""
    append_keys(log, *range(200))
    end = roll_log(log)
    calls = iter(range(3))

    def check() -> None:
        if next(calls, None) is None:
            raise CleaningAborted("told to")

    reader = SegmentReader(SMALL_BUFFER, OS)
    with pytest.raises(CleaningAborted):
        build(log, 0, end, reader=reader, check_done=check)
    assert build(log, 0, end, reader=reader).is_whole


def test_a_buffer_reads_each_byte_once(tmp_path: Path) -> None:
    """Build 3: also where batches lie across the ends of chunks; counted by the file system."""
    fs = FaultFS()
    log = open_log(tmp_path, fs=fs)
    append_keys(log, *range(500))
    end = roll_log(log)
    fs.calls.clear()
    build(log, 0, end, reader=SegmentReader(SMALL_BUFFER, fs))
    read = [call for call in fs.named("preadv") + fs.named("pread") if str(log.path) in str(call)]
    assert len(read) <= log.size // (SMALL_BUFFER - 100) + 2
    log.close()
