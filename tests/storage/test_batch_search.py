"""The search for the next sound batch behind damage: every byte is tried, windows join, and its cost has a limit."""

import os
import random
from pathlib import Path

import pytest

from kafkalog._core.log.segment_check import find_header
from kafkalog.storage.batch_search import (
    PIECE_BYTES,
    WINDOW_BYTES,
    BatchSearch,
    Budget,
    Found,
    checksum_holds,
    is_batch,
)
from kafkalog.storage.damage import next_sound
from kafkalog.storage.trailing_zeros import only_zeros
from kafkalog.util.fileio import OS, File, FileSystem
from tests.builder import message_v1
from tests.raw_batches import batch, framed

NOWHERE = Found(-1, False)
NOISE = b"\xa5"
"""A byte that no header begins with: negative offsets."""


def find_batch(file: File, position: int, end: int, lowest_offset: int, budget: Budget | None) -> Found:
    return BatchSearch(file, budget).find(position, end, lowest_offset)


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


def make_decoys(count: int, behind: int) -> bytearray:
    """Headers that claim all that follows, `behind` bytes of noise behind the last one too."""
    header = bytearray(framed(0, bytes(40), epoch=-1)[:61])
    data = bytearray()
    for number in range(count):
        header[8:12] = ((count - number) * 61 + behind - 12).to_bytes(4, "big")
        data += header
    return data + NOISE * behind


def test_bytes_made_to_deceive_end_the_search(tmp_path: Path) -> None:
    """Headers that claim all that follows; where it gave up is said."""
    data = bytes(make_decoys(20_000, 500))
    with write_and_open(tmp_path, data) as file:
        budget = Budget(0)
        found = find_batch(file, 0, len(data), 0, budget)
        assert found.gave_up and found.position % 61 == 0 and 0 < found.position < 20_000 * 61
        assert find_batch(file, found.position + 1, len(data), 0, budget) == Found(found.position + 61, True)


class CountsReads(FileSystem):
    """Number of reads, and of bytes read, in all."""

    bytes_read = calls = 0

    def pread(self, fd: int, size: int, position: int) -> bytes:  # type: ignore[override]
        data = os.pread(fd, size, position)
        self.bytes_read += len(data)
        self.calls += 1
        return data


def test_a_search_without_a_budget_reads_two_pieces_for_each_header_that_deceives(tmp_path: Path) -> None:
    """Each of them claims 4 MiB; and the sound batch behind them is found."""
    fs = CountsReads()
    data = make_decoys(2000, 4 << 20)
    data[2000 * 61 :] = batch(7, [b"v" * (4 << 20)])
    (tmp_path / "data").write_bytes(data)
    with fs.open_file(tmp_path / "data", "r") as file:
        assert find_batch(file, 0, len(data), 7, None) == Found(2000 * 61, False)
    assert fs.bytes_read < 2000 * 2 * PIECE_BYTES + 4 * len(data)


@pytest.mark.parametrize("kind", ["v2", "v1"])
def test_the_checksum_of_a_large_batch_is_that_of_all_its_bytes(tmp_path: Path, kind: str) -> None:
    """Wherever it begins in a piece, whichever of its bytes is wrong, and when more of the file was read before."""
    rng = random.Random(7)
    for _ in range(40):
        value = rng.randbytes(rng.randrange(9 * PIECE_BYTES, 40 * PIECE_BYTES))
        sound = batch(7, [value]) if kind == "v2" else message_v1(7, value)
        wrong = bytearray(sound)
        wrong[rng.choice((-1, rng.randrange(100, len(sound)), rng.randrange(100, len(sound))))] ^= 1 << rng.randrange(8)
        before = rng.randrange(2 * PIECE_BYTES)
        data = NOISE * before + bytes(wrong) + sound + NOISE * rng.randrange(PIECE_BYTES)
        with write_and_open(tmp_path, data) as file:
            search = BatchSearch(file)
            for start in (0, before + 1, 0):
                assert search.find(start, len(data), 7) == Found(before + len(sound), False)
            assert search.find(before + len(sound) + 1, len(data), 7) == NOWHERE


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


def test_batches_inside_a_damaged_value_are_walked_over_once(tmp_path: Path) -> None:
    """Whether they are the log's own is found out once for a chain, not once for each batch in it."""
    inside = b"".join(batch(n, [b"v"]) for n in range(500))
    damaged = bytearray(batch(0, [inside]))
    damaged[17] ^= 1
    data = bytes(damaged) + batch(1, [b"v"])
    fs = CountsReads()
    (tmp_path / "data").write_bytes(data)
    with fs.open_file(tmp_path / "data", "r") as file:
        found = next_sound(file, 0, len(data), 0)
    assert found == (len(damaged), 1)
    assert fs.calls < 10 * 500
