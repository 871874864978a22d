"""FileRecords and FileSlice: sizes, ranges, searches and walks over a segment's `.log` file."""

import os
import struct
from collections.abc import Callable
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kafkalog.errors import (
    CorruptRecord,
    FormatError,
    IllegalArgument,
    InvalidRecord,
    LogClosed,
    ReadOnlyLog,
    UnsupportedForFormat,
)
from kafkalog.records.builder import RecordsBuilder
from kafkalog.records.format import CompressionType
from kafkalog.records.memory import MemoryRecords
from kafkalog.storage.file_records import FileRecords
from kafkalog.storage.file_slice import MAX_FILE_SIZE
from kafkalog.types import OffsetAndTimestamp, TimestampOffset
from tests import raw_batches
from tests.builder import R, batch, message_v1
from tests.faults import FaultFS

Open = Callable[..., FileRecords]


def v2(base: int, count: int = 2, size: int = 10, time: int | None = None) -> bytes:
    start = 1000 + base if time is None else time
    return raw_batches.batch(base, [(start + i, None, bytes(size)) for i in range(count)], epoch=3)


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "00000000000000000000.log"


def write_records(path: Path, parts: list[bytes]) -> FileRecords:
    records = FileRecords.open(path)
    for part in parts:
        records.append(part)
    return records


def list_headers(records: FileRecords, start: int = 0, end: int | None = None) -> list[tuple[int, int, int]]:
    return [(b.base_offset, b.position, b.size) for b in records.batches(start, end)]


def test_size_is_what_was_appended_and_iteration_repeats(path: Path) -> None:
    """FILE-1: v1 messages and v2 batches come back in the order of the appends, however often."""
    parts = [message_v1(0, b"one"), message_v1(1, b"two", b"k"), v2(2, 3), message_v1(5, None), v2(6)]
    records = FileRecords.open(path)
    for part in parts:
        before = records.size
        assert records.append(part) == len(part)
        assert records.size == before + len(part)
    assert records.size == sum(map(len, parts)) == os.path.getsize(path)
    positions = [sum(map(len, parts[:i])) for i in range(len(parts))]
    expected = list(zip([0, 1, 2, 5, 6], positions, map(len, parts), strict=True))
    assert list_headers(records) == list_headers(records) == expected
    assert [b.magic for b in records.batches()] == [1, 1, 2, 1, 2]
    assert list_headers(records, positions[2]) == expected[2:]
    assert list_headers(records, positions[2], positions[4]) == expected[2:4]
    found = [record for batch in MemoryRecords(records.read(0, records.size)).batches() for record in batch]
    assert [record.offset for record in found] == list(range(8))
    assert [record.value for record in found[:2]] == [b"one", b"two"]
    assert (found[1].key, found[5].value) == (b"k", None)


def test_the_file_pointer_plays_no_part(path: Path) -> None:
    """FILE-1: reads and appends are by position."""
    records = write_records(path, [v2(0), v2(2)])
    expected = list_headers(records)
    os.lseek(records._fd, 7, os.SEEK_SET)
    assert list_headers(records) == expected
    records.append(v2(4))
    assert list_headers(records)[:2] == expected
    assert len(list_headers(records)) == 3


@pytest.mark.parametrize("kind", [bytes, bytearray, memoryview])
def test_append_takes_any_bytes(path: Path, kind: Callable[[bytes], bytes]) -> None:
    records = FileRecords.open(path)
    records.append(kind(v2(0)))
    records.append(kind(b""))
    assert path.read_bytes() == v2(0)


def test_a_bound_reader_does_not_see_what_comes_later(path: Path) -> None:
    """FILE-2: neither a slice nor a FileRecords sees bytes that another process adds."""
    records = write_records(path, [v2(0), v2(2)])
    piece = records.slice(0, 10**9)
    whole = records.read(0, 10**9)
    with open(path, "ab") as other:
        other.write(v2(4))
    assert piece.read() == whole == v2(0) + v2(2)
    assert len(list(piece.batches())) == len(list_headers(records)) == 2
    assert len(list_headers(FileRecords.open(path, mutable=False))) == 3


@pytest.mark.parametrize("size", [10, 200_000])
def test_a_file_cut_inside_its_last_batch(path: Path, size: int) -> None:
    """FILE-3: iteration ends at the last whole batch, with no error, wherever the cut is."""
    parts = [v2(0, 1, size), v2(1, 1, size), v2(2, 1, size)]
    records = write_records(path, parts)
    whole = list_headers(records)
    for keep in {1, 11, 12, 16, 17, 60, 61, len(parts[2]) // 2, len(parts[2]) - 1}:
        path.write_bytes(b"".join(parts))
        cut = FileRecords.open(path, file_already_exists=True)
        cut.truncate_to(len(parts[0]) + len(parts[1]) + keep)
        assert list_headers(cut) == whole[:2]
        assert cut.search_for_offset(2) is None
        assert cut.search_for_timestamp(1002) is None
        # the same when the file is cut under a reader that does not know
        os.truncate(path, cut.size)
        assert list_headers(records) == whole[:2]


def test_reads_are_cut_at_the_end(path: Path) -> None:
    """FILE-4: also where position + size passes 2^31-1."""
    data = v2(0) + v2(2)
    records = write_records(path, [data])
    assert records.read(5, 20) == records.slice(5, 20).read() == data[5:25]
    for size in (len(data), 2**31 - 1, 2**63):
        assert records.read(5, size) == data[5:]
        assert (records.slice(5, size).size, records.slice(5, size).read()) == (len(data) - 5, data[5:])
    buffer = bytearray(10)
    assert records.read_into(buffer, len(data) - 4) == 4
    assert buffer == data[-4:] + bytes(6)
    assert records.slice(2, 3).read_into(buffer) == 3


def test_ranges_that_do_not_exist(path: Path) -> None:
    """FILE-5."""
    records = write_records(path, [v2(0)])
    for call in (records.slice, records.read, records.slice(0, records.size).slice):
        for position, size in ((-1, 5), (0, -1), (records.size + 1, 0), (records.size + 1, 5)):
            with pytest.raises(IllegalArgument) as caught:
                call(position, size)
            assert caught.value.path == str(path)
    assert records.read(records.size, 5) == b""
    assert len(records.slice(records.size, 5)) == 0
    with pytest.raises(IllegalArgument):
        records.search_for_offset(0, -1)
    with pytest.raises(IllegalArgument):
        records.search_for_offset(0, records.size + 1)


def test_a_slice_of_a_slice_stays_inside(path: Path) -> None:
    """FILE-6: its position counts from the parent's, its end is at most the parent's."""
    data = v2(0) + v2(2) + v2(4)
    records = write_records(path, [data])
    outer = records.slice(10, 100)
    inner = outer.slice(20, 1000)
    assert (inner.position, inner.size, inner.end) == (30, 80, 110)
    assert inner.read() == data[30:110]
    assert inner.slice(80, 5).read() == b""
    one = len(v2(0))
    tail = records.slice(one, 2 * one).slice(one, 10**6)
    assert [(b.base_offset, b.position) for b in tail.batches()] == [(4, 2 * one)]
    assert repr(inner) == f"<FileSlice [30, 110) of {path}>"


def test_a_slice_outlives_close_rename_and_delete(path: Path) -> None:
    records = write_records(path, [v2(0)])
    piece = records.slice(0, 1000)
    records.rename_to(f"{path}.deleted")
    assert records.path == piece.path == f"{path}.deleted"
    assert records.delete_if_exists()
    assert not records.delete_if_exists()
    assert os.listdir(path.parent) == []
    with open(path.parent / "other", "wb") as other:  # takes the descriptor's number if it is free
        other.write(b"x" * 500)
    assert piece.read() == v2(0)


def test_search_by_offset(path: Path) -> None:
    """FILE-7: first batch that ends at or above the target, from a position on, else None."""
    parts = [v2(0, 5), v2(5, 1), v2(10, 10), message_v1(20, b"x"), v2(25, 2)]
    records = write_records(path, parts)
    at = {b: (b, position, size) for b, position, size in list_headers(records)}
    for target, base in ((-1, 0), (0, 0), (4, 0), (5, 5), (6, 10), (15, 10), (19, 10), (20, 20), (21, 25), (26, 25)):
        assert records.search_for_offset(target) == at[base]
    assert records.search_for_offset(27) is None
    assert records.search_for_offset(0, at[10][1]) == at[10]
    assert records.search_for_offset(0, records.size) is None


def test_a_compressed_batch_matches_on_any_offset_in_it(path: Path) -> None:
    """FILE-7: the range is in the header, so no decoding is needed; a v1 wrapper has its last offset there."""
    gzip = batch([b"not really compressed"], base_offset=10, attributes=1, count=5, last_delta=4)
    wrapper = bytearray(message_v1(30, b"a set, compressed"))
    wrapper[17] |= 1
    records = write_records(path, [v2(0, 10), gzip, bytes(wrapper)])
    at = {b: (b, position, size) for b, position, size in list_headers(records)}
    for target in (10, 12, 14):
        assert records.search_for_offset(target) == at[10]
    for target in (15, 30):
        assert records.search_for_offset(target) == at[30]


@given(st.data())
def test_search_finds_what_a_walk_finds(tmp_path_factory: pytest.TempPathFactory, data: st.DataObject) -> None:
    """FILE-7 over any sizes: batches smaller and larger than what one read of the search takes."""
    path = tmp_path_factory.mktemp("r") / "0.log"
    shapes = data.draw(
        st.lists(st.tuples(st.integers(1, 3), st.sampled_from([1, 60, 4000, 9000, 300_000])), max_size=8)
    )
    repeat = data.draw(st.sampled_from([1, 1, 120]))
    records, base = FileRecords.open(path), 0
    for count, size in shapes * (repeat if all(size <= 60 for _, size in shapes) else 1):
        records.append(v2(base, count, size))
        base += count
    found = list(records.batches())
    for target in {-1, 0, base // 2, base - 1, base}:
        start = data.draw(st.sampled_from([0, *(b.position for b in found)]))
        walked = next((b for b in found if b.position >= start and b.last_offset >= target), None)
        expected = None if walked is None else (walked.base_offset, walked.position, walked.size)
        assert records.search_for_offset(target, start) == expected
        later = [
            OffsetAndTimestamp(offset, 1000 + offset, 3)
            for b in found
            if b.position >= start
            for offset in range(max(target, b.base_offset), b.next_offset)
        ]
        assert records.search_for_timestamp(1000 + target, start) == (later[0] if later else None)
    records.close()


def test_search_by_time_takes_the_first_record_in_file_order(path: Path) -> None:
    """Two producers whose clocks differ: the first record at or after the time, wherever later ones lie."""
    parts = [
        batch([R(timestamp=t) for t in (100, 50, 300, 60)], base_offset=0, leader_epoch=1),
        batch([R(timestamp=t) for t in (200, 400)], base_offset=4, leader_epoch=2),
    ]
    records = write_records(path, parts)
    assert records.search_for_timestamp(0) == OffsetAndTimestamp(0, 100, 1)
    assert records.search_for_timestamp(150) == OffsetAndTimestamp(2, 300, 1)
    assert records.search_for_timestamp(301) == OffsetAndTimestamp(5, 400, 2)
    assert records.search_for_timestamp(150, 0, 3) == OffsetAndTimestamp(4, 200, 2)
    assert records.search_for_timestamp(150, len(parts[0])) == OffsetAndTimestamp(4, 200, 2)
    assert records.search_for_timestamp(150, 0, 5) == OffsetAndTimestamp(5, 400, 2)
    assert records.search_for_timestamp(401) is None
    assert records.search_for_timestamp(0, 0, 6) is None


def test_search_by_time_under_log_append_time(path: Path) -> None:
    """Every record of such a batch has the batch's largest timestamp."""
    records = write_records(path, [batch([R(timestamp=t) for t in (5, 6)], attributes=8, max_timestamp=900)])
    assert records.search_for_timestamp(7) == OffsetAndTimestamp(0, 900, -1)
    assert records.search_for_timestamp(900, 0, 1) == OffsetAndTimestamp(1, 900, -1)


def test_search_by_time_names_what_it_cannot_read(path: Path) -> None:
    broken = batch([R(timestamp=10), R(timestamp=20)], count=3)
    records = write_records(path, [v2(0, 1, time=1), broken])
    assert records.search_for_timestamp(20, len(v2(0, 1))) == OffsetAndTimestamp(1, 20, -1)
    bad = batch([R(b"x" * 5, timestamp=10)], base_offset=1, max_timestamp=99, count=2)
    path.write_bytes(v2(0, 1, time=1) + bad)
    with pytest.raises(InvalidRecord) as caught:
        FileRecords.open(path, mutable=False).search_for_timestamp(50)
    assert (caught.value.path, caught.value.position, caught.value.offset) == (str(path), len(v2(0, 1)) + len(bad), 1)


def test_search_by_time_reads_every_format_and_codec(path: Path) -> None:
    packed = RecordsBuilder(8, compression=CompressionType.LZ4)
    for time in (60, 70, 65):
        packed.append(time, None, b"v")
    parts = [message_v1(7, b"old", timestamp=50), bytes(packed.build()), message_v1(11, b"late", timestamp=90)]
    path.write_bytes(b"".join(parts))
    records = FileRecords.open(path, mutable=False)
    found = [records.search_for_timestamp(time) for time in (1, 50, 51, 61, 71, 91)]
    assert [f and (f.offset, f.timestamp) for f in found] == [(7, 50), (7, 50), (8, 60), (9, 70), (11, 90), None]
    assert records.search_for_timestamp(61, 0, 10) == OffsetAndTimestamp(10, 65, -1)


def test_largest_timestamp_after(path: Path) -> None:
    records = write_records(path, [v2(0, 2, time=10), v2(2, 2, time=50), v2(4, 1, time=51), v2(5, 3, time=1)])
    starts = [b.position for b in records.batches()]
    assert records.largest_timestamp_after(0) == TimestampOffset(51, 3)
    assert records.largest_timestamp_after(starts[2]) == TimestampOffset(51, 4)
    assert records.largest_timestamp_after(starts[3]) == TimestampOffset(3, 7)
    assert records.largest_timestamp_after(records.size) == TimestampOffset(-1, -1)


def test_truncate_to(path: Path) -> None:
    """FILE-8."""
    parts = [v2(0), v2(2), v2(4)]
    records = write_records(path, parts)
    size = records.size
    assert records.truncate_to(size) == 0
    assert path.read_bytes() == b"".join(parts)
    for bad in (size + 1, -1):
        with pytest.raises(IllegalArgument, match=f"cannot truncate to {bad}"):
            records.truncate_to(bad)
    assert records.truncate_to(len(parts[0])) == len(parts[1]) + len(parts[2])
    assert [b.next_offset for b in records.batches()] == [2]
    records.append(v2(2))
    assert path.read_bytes() == parts[0] + parts[1]
    assert records.truncate_to(0) == len(parts[0]) + len(parts[1])
    assert list_headers(records) == []


def test_truncate_leaves_a_file_of_the_right_length_alone(path: Path) -> None:
    """FILE-9: no system call, so no new file time; a preallocated tail is still cut."""
    fs = FaultFS()
    records = FileRecords.open(path, fs=fs)
    records.append(v2(0))
    os.utime(path, (1, 1))
    records.truncate_to(records.size)
    records.trim()
    assert fs.named("ftruncate") == []
    assert os.stat(path).st_mtime == 1
    assert records.last_modified_ms() == 1000
    os.truncate(path, 1000)
    records.truncate_to(records.size)
    assert len(fs.named("ftruncate")) == 1
    assert path.read_bytes() == v2(0)


def test_a_file_above_the_limit_is_not_opened(path: Path) -> None:
    """FILE-10."""
    with open(path, "wb") as sparse:
        sparse.truncate(MAX_FILE_SIZE + 1)
    for mutable in (True, False):
        with pytest.raises(FormatError, match=r"2\^31-1") as caught:
            FileRecords.open(path, mutable=mutable, file_already_exists=True)
        assert caught.value.path == str(path)
    os.truncate(path, MAX_FILE_SIZE)
    assert FileRecords.open(path, file_already_exists=True).size == MAX_FILE_SIZE


def test_an_append_that_would_pass_the_limit_writes_nothing(path: Path) -> None:
    """FILE-10: exactly at the limit it fits."""
    data = v2(0)
    with open(path, "wb") as sparse:
        sparse.truncate(MAX_FILE_SIZE - len(data))
    fs = FaultFS()
    records = FileRecords.open(path, fs=fs, file_already_exists=True)
    with pytest.raises(IllegalArgument, match=r"2\^31-1"):
        records.append(data + b"\0")
    assert fs.named("pwrite") == []
    assert os.path.getsize(path) == records.size == MAX_FILE_SIZE - len(data)
    records.append(data)
    assert records.size == MAX_FILE_SIZE


@pytest.mark.on_disk
def test_preallocated(path: Path) -> None:
    """FILE-11: length at once, size from zero, trimmed at close; without it the length is what was written."""
    records = FileRecords.open(path, preallocated_bytes=512 * 1024)
    assert (os.path.getsize(path), records.size) == (524288, 0)
    assert os.stat(path).st_blocks * 512 >= 524288
    records.append(v2(0))
    assert (os.path.getsize(path), records.size) == (524288, len(v2(0)))
    assert list_headers(records) == [(0, 0, len(v2(0)))]
    records.close()
    assert path.read_bytes() == v2(0)
    other = FileRecords.open(path.with_suffix(".other"))
    other.append(v2(0))
    assert os.path.getsize(other.path) == len(v2(0))


def test_preallocating_keeps_a_file_that_has_content(path: Path) -> None:
    path.write_bytes(v2(0))
    records = FileRecords.open(path, preallocated_bytes=4096)
    records.append(v2(2))
    assert path.read_bytes() == v2(0) + v2(2)


def test_reopened_after_an_unclean_stop(path: Path) -> None:
    """FILE-12: the zero tail counts until recovery cuts it, and reading says where it begins."""
    records = FileRecords.open(path, preallocated_bytes=4096)
    records.append(v2(0))
    records.close_handlers()
    again = FileRecords.open(path, file_already_exists=True)
    assert again.size == 4096
    walk = again.batches()
    assert next(walk).base_offset == 0
    with pytest.raises(CorruptRecord, match="size field is 0") as caught:
        next(walk)
    assert (caught.value.path, caught.value.position) == (str(path), len(v2(0)))
    with pytest.raises(CorruptRecord) as caught:
        again.search_for_offset(5)
    assert caught.value.position == len(v2(0))
    again.truncate_to(len(v2(0)))
    assert list_headers(again) == [(0, 0, len(v2(0)))]


@pytest.mark.parametrize("size", [13, 0, -1, -(2**31)])
def test_a_size_field_below_14(path: Path, size: int) -> None:
    """CorruptRecord with its position, after the batches before it."""
    records = write_records(path, [v2(0), struct.pack(">qi", 2, size) + bytes(100)])
    seen = []
    with pytest.raises(CorruptRecord, match=f"size field is {size}") as caught:
        for one in records.batches():
            seen.append(one.base_offset)
    assert (seen, caught.value.position) == ([0], len(v2(0)))


@pytest.mark.parametrize("magic", [3, 127, -1, -128])
def test_any_magic_is_handed_on_by_the_scan(path: Path, magic: int) -> None:
    """FILE-16: 3 comes as a v2 batch, -1 as a v0 or v1 message that is not valid; no error from the scan."""
    odd = bytearray(v2(2))
    odd[16] = magic & 0xFF
    records = write_records(path, [v2(0), bytes(odd), v2(4)])
    found = list(records.batches(check_crc=True))
    assert [(b.base_offset, b.magic) for b in found] == [(0, 2), (2, magic), (4, 2)]
    assert found[1].last_offset == (3 if magic > 2 else 2)
    assert [b.is_valid for b in found] == [True, magic > 2, True]
    assert records.search_for_offset(2) == (2, len(v2(0)), len(odd))


def test_a_huge_size_field_is_not_believed(path: Path) -> None:
    records = write_records(path, [v2(0), struct.pack(">qiib", 2, 2**31 - 1, 0, 2) + bytes(80)])
    assert list_headers(records) == [(0, 0, len(v2(0)))]
    assert records.search_for_offset(2) is None
    assert records.search_for_timestamp(10**6) is None


@given(st.binary(max_size=200), st.integers(-1, 300))
def test_any_bytes_end_or_say_where(tmp_path_factory: pytest.TempPathFactory, tail: bytes, target: int) -> None:
    path = tmp_path_factory.mktemp("r") / "0.log"
    path.write_bytes(v2(0) + tail)
    records = FileRecords.open(path, mutable=False)
    for walk in (
        lambda: list(records.batches(check_crc=True)),
        lambda: records.search_for_offset(target),
        lambda: records.search_for_timestamp(1000 + target),
        lambda: records.largest_timestamp_after(0),
    ):
        try:
            walk()
        except (CorruptRecord, InvalidRecord, UnsupportedForFormat) as error:
            assert error.position is not None and error.position >= len(v2(0))


def test_reading_only(path: Path) -> None:
    path.write_bytes(v2(0))
    records = FileRecords.open(path, mutable=False)
    for call in (lambda: records.append(v2(2)), lambda: records.truncate_to(0)):
        with pytest.raises(ReadOnlyLog):
            call()
    assert records.size == len(v2(0))
    assert records.read(0, 1000) == v2(0)
    with open(path, "ab") as other:
        other.write(v2(2))
    records.close()
    assert path.read_bytes() == v2(0) + v2(2)


def test_closed(path: Path) -> None:
    records = write_records(path, [v2(0)])
    records.close()
    records.close()
    assert records.closed and "closed" in repr(records)
    for call in (
        lambda: records.append(v2(2)),
        lambda: records.read(0, 10),
        lambda: records.truncate_to(0),
        lambda: records.search_for_offset(0),
        records.flush,
        records.last_modified_ms,
    ):
        with pytest.raises(LogClosed) as caught:
            call()
        assert caught.value.path == str(path)
    assert path.read_bytes() == v2(0)
