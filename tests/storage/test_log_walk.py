"""A walk over a whole log: every sound batch is given, or the damage is raised or told with its place."""

from pathlib import Path

import pytest

from kafkalog.errors import CorruptRecord
from kafkalog.storage.log_walk import log_chunks, sound_chunks
from kafkalog.storage.view import LogView
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
