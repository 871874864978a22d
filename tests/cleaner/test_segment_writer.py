"""Appends through the writer's buffer equal direct appends, in fewer and aligned writes."""

from __future__ import annotations

from pathlib import Path
from random import Random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kafkalog._core.batch.scan import scan
from kafkalog.cleaner.segment_writer import SegmentWriter
from kafkalog.errors import SegmentOffsetOverflow, StorageError
from kafkalog.storage.segment import LogSegment
from tests.faults import FaultFS
from tests.storage.logs import segment, sized_batch

SUFFIXES = (".log", ".index", ".timeindex")


def files(one: LogSegment) -> list[bytes]:
    """Its data and indexes, closed and trimmed."""
    one.close_files()
    return [Path(one.path).with_suffix(suffix).read_bytes() for suffix in SUFFIXES]


@settings(max_examples=40, deadline=None)
@given(seed=st.integers(0, 2**32), buffer=st.sampled_from([4096, 10_000, 1 << 16]))
def test_files_are_those_of_plain_appends(seed: int, buffer: int, tmp_path_factory: pytest.TempPathFactory) -> None:
    """CLN-25: data and both indexes, whatever the chunks; each byte by one write at a multiple of the buffer."""
    rng = Random(seed)
    fs = FaultFS()
    path = tmp_path_factory.mktemp("segments")
    (path / "a").mkdir()
    (path / "b").mkdir()
    one, other = segment(path / "a", fs=fs), segment(path / "b")
    writer = SegmentWriter(buffer)
    writer.begin(one)
    one.begin()
    other.begin()
    offset, total = 0, 0
    for _ in range(rng.randint(1, 8)):
        count = rng.choice([1, 1, 3, 40])
        data = b"".join(sized_batch(rng.choice([100, 700, 5000, 30_000]), base=offset + n) for n in range(count))
        table = scan(data)
        writer.append(memoryview(data), table)
        other.append(data, table)
        offset, total = offset + count, total + len(data)
        assert one.end_offset == other.end_offset == offset
    writer.finish()
    writes = [(call.args[1], len(call.args[0])) for call in fs.named("pwrite") if call.path.endswith(".log")]
    assert [at for at, _ in writes] == list(range(0, total, buffer)) and sum(size for _, size in writes) == total
    assert writer.writes == len(writes)
    assert one.tail == other.tail
    assert files(one) == files(other)


def test_what_was_not_finished_does_not_come_into_the_next_segment(tmp_path: Path) -> None:
    (tmp_path / "a").mkdir()
    (tmp_path / "b").mkdir()
    writer = SegmentWriter(4096)
    dropped, kept = segment(tmp_path / "a"), segment(tmp_path / "b")
    for one in (dropped, kept):
        one.begin()
        writer.begin(one)
        data = sized_batch(3000 if one is dropped else 200)
        writer.append(memoryview(data), scan(data))
    writer.finish()
    assert dropped.size == 0 and files(kept)[0] == sized_batch(200)
    dropped.close_handlers()


def test_an_offset_too_far_from_the_base_is_refused_before_anything_is_written(tmp_path: Path) -> None:
    """CLN-26."""
    one = segment(tmp_path)
    one.begin()
    writer = SegmentWriter(4096)
    writer.begin(one)
    data = sized_batch(100, base=2**31)
    with pytest.raises(SegmentOffsetOverflow):
        writer.append(memoryview(data), scan(data))
    writer.finish()
    assert one.size == 0
    one.close_handlers()


def test_a_disk_that_takes_no_more_is_told(tmp_path: Path) -> None:
    fs = FaultFS()
    one = segment(tmp_path, fs=fs)
    one.begin()
    writer = SegmentWriter(4096)
    writer.begin(one)
    data = sized_batch(3000)
    writer.append(memoryview(data), scan(data))
    fs.fail("pwrite")
    with pytest.raises(StorageError):
        writer.finish()
    one.close_handlers()


def test_a_buffer_that_there_is_no_memory_for() -> None:
    """The error names the memory, not the log or the disk."""
    with pytest.raises(MemoryError, match="no memory for a buffer"):
        SegmentWriter(1 << 62)
