"""The search for the next sound batch behind damage: every byte is tried, windows join, and its cost has a limit."""

import os
from pathlib import Path

import pytest

from kafkalog._core.log.segment_check import find_header
from kafkalog.storage.batch_search import WINDOW_BYTES, Budget, Found, checksum_holds, find_batch, is_batch
from kafkalog.storage.trailing_zeros import only_zeros
from kafkalog.util.fileio import OS, File
from tests.builder import message_v1
from tests.raw_batches import batch, framed

NOWHERE = Found(-1, False)
NOISE = b"\xa5"
"""A byte that no header begins with: negative offsets."""


def write_and_open(path: Path, data: bytes) -> File:
    (path / "data").write_bytes(data)
    return OS.open_file(path / "data", "r")


@pytest.mark.parametrize("windows", [1, 2, 3])
@pytest.mark.parametrize("before", [0, 1, 25, 59, 60, 61, 62, 99])
@pytest.mark.parametrize("behind", [0, 1, 500])
def test_a_batch_is_found_wherever_windows_join(tmp_path: Path, windows: int, before: int, behind: int) -> None:
    at = windows * WINDOW_BYTES - before
    data = NOISE * at + batch(7, [b"v" * 20]) + NOISE * behind
    with write_and_open(tmp_path, data) as file:
        budget = Budget(len(data))
        assert find_batch(file, 0, len(data), 7, budget) == Found(at, False)
        assert find_batch(file, at, len(data), 7, budget) == Found(at, False)
        assert find_batch(file, at + 1, len(data), 7, budget) == NOWHERE
        assert find_batch(file, 0, len(data), 8, budget) == NOWHERE, "its offset is below what may be there"
        assert find_batch(file, 0, len(data) - behind - 1, 7, budget) == NOWHERE, "it ends behind what is searched"


@pytest.mark.parametrize("size", [300, WINDOW_BYTES - 61, WINDOW_BYTES, 3 * WINDOW_BYTES, 9 << 20])
@pytest.mark.parametrize("kind", ["v2", "v1"])
def test_a_batch_of_any_size_is_found_by_its_checksum(tmp_path: Path, size: int, kind: str) -> None:
    sound = batch(7, [b"v" * size]) if kind == "v2" else message_v1(7, b"v" * size)
    first = bytearray(sound)
    first[-1] ^= 1
    data = bytes(first) + sound
    with write_and_open(tmp_path, data) as file:
        assert find_batch(file, 0, len(data), 0, Budget(len(data))) == Found(len(first), False)
        assert [is_batch(file, at, len(data), 0) for at in (0, 1, len(first))] == [False, False, True]
        assert not is_batch(file, len(first), len(data), 8)
        assert not is_batch(file, len(first), len(data) - 1, 0)
        assert checksum_holds(file, len(first), len(sound))
        assert not checksum_holds(file, 0, len(sound))


def test_a_batch_one_byte_behind_what_reads_as_another_is_found(tmp_path: Path) -> None:
    """With a zero before it, its offset and size read as those of an old message, one byte earlier."""
    data = bytes(1) + batch(256, [b"v" * 8192], epoch=0)
    with write_and_open(tmp_path, data) as file:
        budget = Budget(len(data))
        assert find_header(data, 0, len(data), len(data), 0) == 0
        assert find_batch(file, 0, len(data), 0, budget) == Found(1, False)


@pytest.mark.parametrize("left", [0, 1, 25, 26, 60, 61, 62, 100, WINDOW_BYTES, WINDOW_BYTES + 61])
def test_a_file_that_was_cut_meanwhile_holds_nothing(tmp_path: Path, left: int) -> None:
    """Its end is where it was when the search began."""
    whole = batch(7, [b"v" * 2 * WINDOW_BYTES])
    with write_and_open(tmp_path, whole[:left]) as file:
        assert find_batch(file, 0, len(whole), 0, Budget(len(whole))) == NOWHERE
        assert not is_batch(file, 0, len(whole), 0) and not checksum_holds(file, 0, len(whole))


def test_bytes_made_to_deceive_end_the_search(tmp_path: Path) -> None:
    """Headers that claim all that follows; where it gave up is said."""
    size = 30 << 20
    header = bytearray(framed(0, bytes(40), epoch=-1)[:61])
    header[8:12] = (size - 12).to_bytes(4, "big")
    places = [7 + 100 * number for number in range(4)]
    data = bytearray(NOISE * (size + 500))
    for at in places:
        data[at : at + 61] = header
    with write_and_open(tmp_path, bytes(data)) as file:
        assert find_batch(file, 0, len(data), 0, Budget(len(data))) == NOWHERE
        budget = Budget(0)
        found = find_batch(file, 0, len(data), 0, budget)
        assert found.gave_up and found.position == places[2]
        assert find_batch(file, places[3] - 50, len(data), 0, budget) == Found(places[3], True)
        assert find_batch(file, places[3] + 1, len(data), 0, budget) == Found(places[3] + 1, True)


@pytest.mark.parametrize("at", [0, 1, WINDOW_BYTES - 1, WINDOW_BYTES, WINDOW_BYTES + 1, 3 * WINDOW_BYTES - 1])
def test_one_byte_among_zeros_is_seen(tmp_path: Path, at: int) -> None:
    data = bytearray(3 * WINDOW_BYTES)
    data[at] = 1
    with write_and_open(tmp_path, bytes(data)) as file:
        assert not only_zeros(file, 0, len(data))
        assert not only_zeros(file, at, at + 1)
        assert only_zeros(file, at + 1, len(data))
        assert only_zeros(file, 0, at)
        os.truncate(tmp_path / "data", 10 * WINDOW_BYTES)
        assert only_zeros(file, at + 1, 10 * WINDOW_BYTES), "a hole is zeros"
