"""`segment.index.bytes` made smaller on an existing log: entries stay, the next append rolls, and close works."""

from pathlib import Path

import pytest

import kafkalog
from tests.storage.index_entries import pairs

TIME = 1_700_000_000_000
BATCHES = 300
FULL_BYTES = 8 * BATCHES


@pytest.fixture
def directory(tmp_path: Path) -> Path:
    """A closed log of one segment, with an index entry for each of its batches but the first."""
    with kafkalog.open(tmp_path / "t-0", "a", index_interval_bytes=1) as log:
        append(log, BATCHES)
    return tmp_path / "t-0"


def append(log: kafkalog.Log, count: int) -> None:
    for offset in range(log.end_offset, log.end_offset + count):
        log.append((None, b"v", TIME + offset))


@pytest.mark.parametrize("size", [24, 100, FULL_BYTES - 16, FULL_BYTES - 8, 12 * (BATCHES - 1)])
def test_the_next_append_rolls_and_close_works(directory: Path, size: int) -> None:
    before = {path.name: path.read_bytes() for path in directory.glob("*0.*index")}
    with kafkalog.open(directory, "a", index_interval_bytes=1, segment_index_bytes=size) as log:
        append(log, 1)
        assert [one.base_offset for one in log.segments] == [0, BATCHES]
        append(log, 5)
    assert {name: (directory / name).read_bytes() for name in before} == before
    with kafkalog.open(directory, "a") as log:
        assert [record.offset for record in log.records()] == list(range(BATCHES + 6))
        assert [log.offset_for_time(TIME + n).offset for n in range(BATCHES + 6)] == list(range(BATCHES + 6))
    assert kafkalog.verify(directory).ok


def test_an_open_and_close_without_an_append_changes_no_index(directory: Path) -> None:
    before = {path.name: path.read_bytes() for path in directory.glob("*index")}
    kafkalog.open(directory, "a", segment_index_bytes=24).close()
    assert {path.name: path.read_bytes() for path in directory.glob("*index")} == before


def test_a_truncation_leaves_what_the_cut_index_holds(directory: Path) -> None:
    with kafkalog.open(directory, "a", index_interval_bytes=1, segment_index_bytes=80) as log:
        log.truncate_to(200)
        entries = pairs(log.engine.log.segments.active.offset_index) if hasattr(log, "engine") else None
        append(log, 3)
        assert [one.base_offset for one in log.segments] == [0, 200]
        assert [log[n].offset for n in range(203)] == list(range(203))
        assert entries is None or len(entries) == 199
    assert kafkalog.verify(directory).ok
