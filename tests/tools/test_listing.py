"""What `kafkalog ls` says of index files: entries, the bytes they take, the length of the file."""

import os
import struct
from pathlib import Path

import pytest

from kafkalog.tools.listing import PIECE_ENTRIES, list_files


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
