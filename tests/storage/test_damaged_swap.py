"""Damage in a `.swap` that a crash left beside segments that it replaces: nothing sound is given up for good."""

import shutil
from pathlib import Path

import pytest

import kafkalog
from kafkalog.errors import CorruptRecord
from kafkalog.storage.names import log_file_name
from kafkalog.storage.recovery.kept import list_kept
from kafkalog.tools.kept import restore_kept
from kafkalog.util.fileio import OS
from tests.storage.test_kept import BATCHES, RECORDS, flip_bits, make, mark_unclean, offsets, positions

OF_ONE = 3 * BATCHES
"""Records of a segment."""
NAMES = [log_file_name(OF_ONE * number) for number in range(4)]


def write_swap(root: Path, *, first_stays: bool = False, cleaned: bool = False) -> Path:
    """The partition of `make`, not closed, with a `.swap` of its first three segments; the first is gone.

    In a cleaned one the last two batches of the second segment and the first two of the third are missing.
    """
    path = make(root / "data")
    mark_unclean(path)
    data = [(path / name).read_bytes() for name in NAMES[:3]]
    if cleaned:
        data[1] = data[1][: positions(path / NAMES[1])[-2]]
        data[2] = data[2][positions(path / NAMES[2])[2] :][: len(data[2]) // BATCHES]
    (path / f"{NAMES[0]}.swap").write_bytes(b"".join(data))
    if not first_stays:
        for file in path.glob(f"{OF_ONE * 0:020d}.*"):
            if file.suffix != ".swap":
                file.unlink()
    return path


def restore_all(path: Path, root: Path) -> set[int]:
    """The offsets of all that openings kept; entries that overlap are restored each to a directory of its own."""
    found: set[int] = set()
    for number, entry in enumerate(list_kept(str(path), OS)):
        restore_kept(path, root / f"restored-{number}", entries=[entry.name])
        with kafkalog.open(root / f"restored-{number}" / path.name) as log:
            found |= {record.offset for record in log.records(on_damage="skip")}
    return found


def test_a_sound_one_takes_the_place_of_all_three(tmp_path: Path) -> None:
    """LOAD-3."""
    path = write_swap(tmp_path)
    assert offsets(path) == list(range(RECORDS))
    with kafkalog.open(path, "a") as log:
        assert [record.offset for record in log] == list(range(RECORDS))
    assert sorted(file.name for file in path.glob("*.log")) == [NAMES[0], NAMES[3]]
    assert list_kept(str(path), OS) == []


def test_a_damaged_one_is_removed_where_all_segments_are_there(tmp_path: Path) -> None:
    path = write_swap(tmp_path, first_stays=True)
    flip_bits(path / f"{NAMES[0]}.swap", 70)
    with kafkalog.open(path, "a") as log:
        assert [record.offset for record in log] == list(range(RECORDS))
    assert sorted(file.name for file in path.glob("*.log")) == NAMES


@pytest.mark.parametrize("batch", [BATCHES + 3, 2 * BATCHES + 3])
def test_what_a_damaged_one_replaces_is_kept(tmp_path: Path, batch: int) -> None:
    """The reference deletes it."""
    path = write_swap(tmp_path)
    flip_bits(path / f"{NAMES[0]}.swap", positions(path / f"{NAMES[0]}.swap")[batch] + 70)
    twin = shutil.copytree(path, tmp_path / "twin" / path.name)
    with kafkalog.open(path, "a") as log:
        given = {record.offset for record in log}
    assert given | restore_all(path, tmp_path) == set(range(RECORDS))
    before = {file.name: file.read_bytes() for file in twin.iterdir() if file.is_file()}
    with pytest.raises(CorruptRecord, match="the file that replaces segments"):
        kafkalog.open(twin, "a", on_damage="refuse")
    assert {file.name: file.read_bytes() for file in twin.iterdir() if file.is_file()} == before


def test_a_last_batch_with_a_base_offset_too_high_takes_nothing_away(tmp_path: Path) -> None:
    """By its offsets the file would replace the last segment too, which it holds nothing of."""
    path = write_swap(tmp_path)
    swap = path / f"{NAMES[0]}.swap"
    flip_bits(swap, positions(swap)[-1] + 7, 16)
    with kafkalog.open(path, "a") as log:
        assert log.end_offset == 3 * OF_ONE + 16
    assert restore_all(path, tmp_path) == set(range(OF_ONE, RECORDS))


def test_a_gap_over_the_beginning_of_a_segment_costs_no_record(tmp_path: Path) -> None:
    """A clean leaves such a gap: the opening cannot know, and keeps the segments that were replaced."""
    path = write_swap(tmp_path, cleaned=True)
    expected = [*range(2 * OF_ONE - 6), *range(2 * OF_ONE + 6, 2 * OF_ONE + 9), *range(3 * OF_ONE, RECORDS)]
    with kafkalog.open(path, "a") as log:
        assert [record.offset for record in log] == expected
        assert [one.sound.first_offset for one in list_kept(str(path), OS)] == [OF_ONE]
