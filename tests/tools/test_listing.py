"""`kafkalog ls` of index files: entries, the bytes they take, the length of the file."""

import os
import struct
from pathlib import Path

import pytest

from kafkalog.tools.listing import PIECE_ENTRIES, list_files
from tests.raw_batches import batches, write_segment
from tests.storage.damage_cases import DAMAGE, damage


@pytest.mark.parametrize("count", [0, 1, PIECE_ENTRIES - 1, PIECE_ENTRIES, PIECE_ENTRIES + 1, 3 * PIECE_ENTRIES + 5])
@pytest.mark.parametrize(("suffix", "form"), [(".index", ">ii"), (".timeindex", ">qi")])
@pytest.mark.parametrize("tail", [0, 5, 4096])
def test_entries_are_counted_up_to_where_they_stop_growing(
    tmp_path: Path, suffix: str, form: str, count: int, tail: int
) -> None:
    path = tmp_path / f"{0:020d}{suffix}"
    data = b"".join(struct.pack(form, n, n) for n in range(1, count + 1))
    path.write_bytes(data + bytes(tail))
    (found,) = list_files(str(tmp_path))
    assert (found.entries, found.used, found.length) == (count, len(data), len(data) + tail)


@pytest.mark.parametrize("suffix", [".index", ".timeindex"])
def test_an_index_of_a_terabyte_of_nothing(tmp_path: Path, suffix: str) -> None:
    """A sparse file says any length; no memory is taken for it."""
    path = tmp_path / f"{0:020d}{suffix}"
    path.write_bytes(struct.pack(">qi" if suffix == ".timeindex" else ">ii", 7, 7))
    os.truncate(path, 1 << 40)
    (found,) = list_files(str(tmp_path))
    assert (found.entries, found.length) == (1, 1 << 40)


@pytest.mark.parametrize("kind", DAMAGE)
def test_what_lies_behind_damage_of_a_preallocated_file_is_in_use(tmp_path: Path, kind: str) -> None:
    path = write_segment(tmp_path / "t-0", 0, batches(0, 30, 10))
    used = path.stat().st_size
    damage(path, 4, kind)
    with path.open("r+b") as file:
        file.truncate(1 << 20)
    (found,) = (one for one in list_files(str(path.parent)) if one.name == path.name)
    assert (found.length, found.used) == (1 << 20, used)
