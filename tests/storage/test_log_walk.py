"""A walk over a whole log: every sound batch is given, or the damage is raised or told with its place."""

from pathlib import Path

import pytest

import kafkalog
from kafkalog.errors import CorruptRecord
from kafkalog.storage.log_walk import log_chunks, sound_chunks
from kafkalog.storage.view import LogView
from tests.raw_batches import batches, write_segment
from tests.storage.damage_cases import DAMAGE, damage
from tests.storage.logs import lead, log

SETTINGS = {"internal_segment_bytes": 1000, "index_interval_bytes": 200, "segment_index_bytes": 1 << 16}
BATCHES = 25  # ten of 100 bytes in a segment


@pytest.fixture
def directory(tmp_path: Path) -> Path:
    a_log = log(tmp_path, **SETTINGS)
    for _ in range(BATCHES):
        lead(a_log)
    a_log.close()
    return tmp_path / "topic-0"


def segment_files(directory: Path) -> list[Path]:
    return sorted(directory.glob("*.log"))


def walked(directory: Path) -> list[int]:
    """The offsets of a walk from the log's start to its end."""
    found: list[int] = []
    with LogView(directory) as view:
        for chunk in log_chunks(view, 0, view.log_end_offset):
            found += list(chunk.batches.base_offsets)[chunk.first : chunk.last]
    return found


def test_a_sound_log_is_given_whole(directory: Path) -> None:
    assert len(segment_files(directory)) == 3
    assert walked(directory) == list(range(BATCHES))


@pytest.mark.parametrize("kind", DAMAGE)
@pytest.mark.parametrize("segment", [0, 1])
@pytest.mark.parametrize("batch", [0, 4, 9])
def test_damage_in_an_old_segment_ends_the_walk_with_an_error(
    directory: Path, segment: int, batch: int, kind: str
) -> None:
    path = segment_files(directory)[segment]
    position = damage(path, batch, kind)
    with LogView(directory) as view:
        found: list[int] = []
        with pytest.raises(CorruptRecord) as caught:
            for chunk in log_chunks(view, 0, view.log_end_offset):
                found += list(chunk.batches.base_offsets)[chunk.first : chunk.last]
    assert (caught.value.path, caught.value.position) == (str(path), position)
    assert found == list(range(10 * segment + batch))


@pytest.mark.parametrize("kind", DAMAGE)
@pytest.mark.parametrize("batch", [0, 4, 9])
def test_all_sound_batches_around_damage_are_given(directory: Path, batch: int, kind: str) -> None:
    path = segment_files(directory)[1]
    position = damage(path, batch, kind)
    found: list[int] = []
    errors: list[CorruptRecord] = []
    with LogView(directory) as view:
        for chunk in sound_chunks(view.extent(10), 10, 20, errors.append):
            found += list(chunk.batches.base_offsets)[chunk.first : chunk.last]
    assert [(error.path, error.position) for error in errors] == [(str(path), position)]
    assert found == [offset for offset in range(10, 20) if offset != 10 + batch]


@pytest.mark.parametrize("interval", [1, 1 << 30], ids=["with an index", "without"])
def test_batch_that_contradicts_the_one_behind_a_gap_is_not_given(tmp_path: Path, interval: int) -> None:
    """Either of the two may have the wrong base offset."""
    parts = [*batches(0, 2, 5), *batches(30, 2, 5), *batches(50, 1, 5)]
    path = write_segment(tmp_path / "t-0", 0, parts, interval=interval)
    content = bytearray(path.read_bytes())
    content[sum(map(len, parts[:3])) + 7] -= 2  # offsets 35 to 39 are 33 to 37 now, and those before it 30 to 34
    path.write_bytes(content)
    with kafkalog.open(tmp_path / "t-0") as log:
        for start, stop in ((0, 60), (30, 40), (35, 36), (36, 38)):
            with pytest.raises(CorruptRecord, match="begins at offset 30 and the one behind it at 33"):
                list(log.records(start, stop))
        with pytest.raises(CorruptRecord):
            log[36]
        assert [record.offset for record in log.records(50)] == [*range(50, 55)]
