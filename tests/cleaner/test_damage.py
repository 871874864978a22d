"""A clean of a log with damage in it: an error that names the place, and every file stays as it was."""

from pathlib import Path
from typing import Any

import pytest

from kafkalog.errors import CorruptRecord
from tests.cleaner.test_pass import clean_log, write_keys
from tests.storage.damage_cases import DAMAGE, damage

SETTINGS: dict[str, Any] = {"segment_every": 10, "segment_index_bytes": 1 << 16, "index_interval_bytes": 100}
KEYS = [1, 2, 3, 4, 5, 6, 7, 8, 9, 10] * 3


def log_files(path: Path) -> dict[str, bytes]:
    return {one.name: one.read_bytes() for one in (path / "topic-0").iterdir() if one.suffix == ".log"}


@pytest.mark.parametrize("kind", DAMAGE)
@pytest.mark.parametrize(("segment", "batch"), [(0, 0), (0, 9), (1, 4), (2, 4), (2, 9)])
@pytest.mark.parametrize("first_dirty", [0, 20])
def test_damage_stops_the_clean_and_changes_nothing(
    tmp_path: Path, first_dirty: int, segment: int, batch: int, kind: str
) -> None:
    """In what is dirty the map finds it; in what is clean already, the copy."""
    log = write_keys(tmp_path, *KEYS, **SETTINGS)
    path = sorted((tmp_path / "topic-0").glob("*.log"))[segment]
    damage(path, batch, kind)
    before = log_files(tmp_path)
    with pytest.raises(CorruptRecord) as caught:
        clean_log(log, first_dirty)
    assert caught.value.path == str(path) and caught.value.position is not None
    assert log_files(tmp_path) == before
    log.close()


def test_a_gap_that_compaction_left_is_no_damage(tmp_path: Path) -> None:
    log = write_keys(tmp_path, *KEYS, 1, 2, **SETTINGS)
    assert clean_log(log).end_offset == len(KEYS) + 2
    assert clean_log(log).end_offset == len(KEYS) + 2
    log.close()
