"""Batches of which a chunk holds few: every record is read, and hardly a byte twice."""

import itertools
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import kafkalog
from kafkalog.keys.lookup import LARGE_CHUNK_BYTES
from kafkalog.reading.chunks import batch_chunks
from kafkalog.storage.segment_reader import CHUNK_BYTES, _fitting


def write_log(directory: Path, sizes: list[int]) -> Path:
    """A log of one batch for each size, each of one value."""
    with kafkalog.open(directory, "a") as log:
        for number, size in enumerate(sizes):
            log.append([b"%d" % number + b"." * size])
    return directory


@pytest.mark.parametrize("size", [40_000, 70_000, 110_000, 131_000, 200_000, 255_000])
def test_batches_of_one_size_are_read_once(tmp_path: Path, size: int) -> None:
    path = write_log(tmp_path / "large-0", [size] * 40)
    with kafkalog.open(path) as log:
        assert [record.offset for record in log.records()] == list(range(40))
        assert log._source.metrics.reads.total < 1.1 * 40 * size


numbers = itertools.count()


@settings(max_examples=25, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(sizes=st.lists(st.sampled_from([10, 5000, 33_000, 60_000, 140_000, 262_000, 300_000]), max_size=14))
def test_batches_of_any_sizes_are_read_whole(tmp_path: Path, sizes: list[int]) -> None:
    path = write_log(tmp_path / f"any{next(numbers)}-0", sizes)
    with kafkalog.open(path) as log:
        assert [len(record.value or b"") for record in log.records()] == [
            size + len(str(number)) for number, size in enumerate(sizes)
        ]


@given(size=st.integers(-(2**31), 2**31), chunk_bytes=st.sampled_from([CHUNK_BYTES, LARGE_CHUNK_BYTES]))
def test_a_read_is_never_longer_than_a_chunk(size: int, chunk_bytes: int) -> None:
    assert chunk_bytes // 2 < _fitting(size, chunk_bytes) <= chunk_bytes
    if 0 < size <= chunk_bytes:
        assert _fitting(size, chunk_bytes) >= size


def test_a_chunk_is_as_large_as_asked_for(tmp_path: Path) -> None:
    path = write_log(tmp_path / "asked-0", [10_000] * 300)
    with kafkalog.open(path) as log:
        found = {}
        for asked in (CHUNK_BYTES, LARGE_CHUNK_BYTES):
            chunks = list(batch_chunks(log._source, 0, 300, chunk_bytes=asked))
            found[asked] = max(len(chunk.data) for chunk in chunks)
            assert [chunk.next_offset for chunk in chunks][-1] == 300
        assert found == {CHUNK_BYTES: CHUNK_BYTES, LARGE_CHUNK_BYTES: LARGE_CHUNK_BYTES}
