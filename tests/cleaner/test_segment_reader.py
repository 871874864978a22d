"""A segment read from front to back through one buffer: each byte once, a long batch whole (CLN-27, CLN-28)."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from kafkalog._core.batch.scan import scan
from kafkalog.cleaner.segment_reader import SegmentReader
from kafkalog.errors import CorruptRecord
from kafkalog.storage.file_slice import LARGE_BATCH_BYTES, claimed_size
from kafkalog.storage.segment import LogSegment
from tests.faults import FaultFS
from tests.page_cache import drop_pages, resident_bytes
from tests.raw_batches import batch
from tests.storage.logs import segment, sized_batch

BUFFER = 4096


def read_batches(reader: SegmentReader, of: LogSegment) -> tuple[bytes, list[int]]:
    """All whole batches, as they came, and the capacities that the buffer had."""
    found, capacities = b"", []
    reader.begin(of.records)
    while reader.unread:
        chunk = reader.chunk()
        capacities.append(reader.capacity)
        table = scan(chunk, file_mode=True)
        if not len(table):
            reader.grow(claimed_size(bytes(chunk[:12])))
            continue
        assert bytes(chunk) == Path(of.path).read_bytes()[reader.position : reader.position + len(chunk)]
        found += bytes(chunk[: table.valid_bytes])
        reader.advance(table.valid_bytes)
    reader.end()
    return found, capacities


def write_segment(path: Path, data: bytes, fs: FaultFS | None = None) -> LogSegment:
    (path / f"{0:020d}.log").write_bytes(data)
    return segment(path, exists=True, fs=fs or FaultFS())


def test_each_byte_is_read_once_whatever_the_chunks_cut_off(tmp_path: Path) -> None:
    fs = FaultFS()
    data = b"".join(sized_batch(300 + 7 * n, base=n) for n in range(60))
    one = write_segment(tmp_path, data, fs)
    fs.calls.clear()
    found, capacities = read_batches(SegmentReader(BUFFER, fs), one)
    assert found == data and set(capacities) == {BUFFER}
    reads = [call for call in fs.named("preadv", "pread") if call.path.endswith(".log")]
    spans = [(call.args[1], sum(len(part) for part in call.args[0])) for call in reads]
    assert sum(size for _, size in spans) == len(data)
    one.close_handlers()


def test_the_buffer_grows_for_a_long_batch_and_shrinks_after_the_segment(tmp_path: Path) -> None:
    """CLN-27: to the batch's own size."""
    long = batch(1, [b"x" * 50_000])
    data = sized_batch(100) + long + b"".join(sized_batch(1000, base=2 + n) for n in range(9))
    one = write_segment(tmp_path, data)
    reader = SegmentReader(BUFFER, FaultFS())
    found, capacities = read_batches(reader, one)
    assert found == data and max(capacities) == len(long)
    assert reader.capacity == BUFFER
    assert read_batches(reader, one)[0] == data
    one.close_handlers()


def test_a_sound_batch_of_any_size_is_read_whole(tmp_path: Path) -> None:
    """CLN-27: its checksum is compared first, where it lies."""
    data = sized_batch(100) + batch(1, [b"x" * LARGE_BATCH_BYTES]) + sized_batch(100, base=2)
    one = write_segment(tmp_path, data)
    assert read_batches(SegmentReader(BUFFER, FaultFS()), one)[0] == data
    one.close_handlers()


@pytest.mark.parametrize("last", [1, 61, 4095])
def test_few_bytes_at_the_end_of_a_segment_are_read_too(tmp_path: Path, last: int) -> None:
    """And behind them nothing is asked of the file."""
    fs = FaultFS()
    one = write_segment(tmp_path, bytes(BUFFER) + b"x" * last, fs)
    reader = SegmentReader(BUFFER, fs)
    reader.begin(one.records)
    reader.chunk()
    reader.advance(BUFFER)
    assert bytes(reader.chunk()) == b"x" * last
    reader.advance(last)
    fs.calls.clear()
    assert not len(reader.chunk()) and not fs.named("pread", "preadv")
    one.close_handlers()


@pytest.mark.parametrize(
    ("tail", "why"),
    [
        (sized_batch(5000, base=1)[:4500], "claims 5000 bytes, but only 4500 are left"),
        (sized_batch(100, base=1)[:11], "truncated"),
        (b"\0" * 8 + (2**31 - 13).to_bytes(4, "big") + b"\0" * 6000, "claims 2147483647 bytes"),
    ],
    ids=["torn", "no header", "hostile size"],
)
def test_a_batch_that_the_segment_does_not_hold_is_damage(tmp_path: Path, tail: bytes, why: str) -> None:
    """CLN-28: with file and position; no memory is taken for it."""
    one = write_segment(tmp_path, sized_batch(200) + tail)
    reader = SegmentReader(BUFFER, FaultFS())
    with pytest.raises(CorruptRecord, match=why) as caught:
        read_batches(reader, one)
    assert (caught.value.path, caught.value.position) == (one.path, 200)
    assert reader.capacity == BUFFER
    one.close_handlers()


def test_a_huge_batch_is_believed_only_with_its_checksum(tmp_path: Path) -> None:
    """CLN-28: its size field may be the damage."""
    huge = bytearray(batch(0, [b"x" * LARGE_BATCH_BYTES]))
    huge[-1] ^= 1
    one = write_segment(tmp_path, bytes(huge))
    reader = SegmentReader(BUFFER, FaultFS())
    with pytest.raises(CorruptRecord, match="does not match its CRC"):
        read_batches(reader, one)
    assert reader.capacity == BUFFER
    one.close_handlers()


def test_a_file_that_was_cut_meanwhile_is_told(tmp_path: Path) -> None:
    one = write_segment(tmp_path, sized_batch(3000) + sized_batch(3000, base=1))
    reader = SegmentReader(BUFFER, FaultFS())
    reader.begin(one.records)
    reader.chunk()
    reader.advance(3000)
    one.records.opened().truncate(4000)
    with pytest.raises(CorruptRecord, match="too short"):
        reader.chunk()
    one.close_handlers()


def test_what_the_reading_brought_into_the_page_cache_does_not_stay(tmp_path: Path) -> None:
    """So the tail that others read keeps its place there; what was in memory before stays."""
    data = b"".join(sized_batch(60_000, base=n) for n in range(400))
    one = write_segment(tmp_path, data)
    one.records.flush()
    fd = os.open(one.path, os.O_RDWR)
    os.fsync(fd)
    try:
        drop_pages(fd, len(data))
    except pytest.skip.Exception:
        os.close(fd)
        one.close_handlers()
        raise
    warm = 1 << 20
    os.posix_fadvise(fd, 0, 0, os.POSIX_FADV_RANDOM)
    os.pread(fd, warm, len(data) - warm)
    reader = SegmentReader(1 << 18, FaultFS())
    reader.begin(one.records)
    while reader.unread:
        reader.advance(scan(reader.chunk(), file_mode=True).valid_bytes)
    reader.end()
    assert warm <= resident_bytes(fd, len(data)) < 2 * warm
    os.close(fd)
    one.close_handlers()


@pytest.mark.parametrize("skipped", [1000, 2000, 2096, 2097, 9000])
def test_a_skip_after_a_part_of_the_buffer_leads_to_the_batch_behind(tmp_path: Path, skipped: int) -> None:
    sizes = [2000, skipped, 500, 600]
    parts = [sized_batch(size, base=n) for n, size in enumerate(sizes)]
    one = write_segment(tmp_path, b"".join(parts))
    reader = SegmentReader(BUFFER, FaultFS())
    reader.begin(one.records)
    reader.chunk()
    reader.advance(2000)  # of 4,096
    reader.skip(skipped)
    assert reader.position == 2000 + skipped
    assert bytes(reader.chunk(500)) == parts[2]
    reader.advance(500)
    assert bytes(reader.chunk()) == parts[3]
    reader.advance(600)
    assert reader.unread == 0 and not len(reader.chunk())
    one.close_handlers()
