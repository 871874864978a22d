"""The disk that forgets, itself: what its images hold."""

import os
from pathlib import Path
from random import Random

from kafkalog.util.fileio import atomic_write
from tests.crash.disk import EVERYTHING, MODES, SECTOR, DiskFS, Mode, read_image

SYNCED = MODES[0]
NAMES = MODES[1]
LENGTHS = MODES[2]
TORN = Mode("torn", "all", "torn", SECTOR)


def written(fs: DiskFS, path: Path, data: bytes, *, sync: bool) -> None:
    with fs.open_file(path, "create") as file:
        file.pwrite(data, 0)
        if sync:
            file.sync()


def test_what_is_not_synced_may_be_lost_by_name_or_by_content(place: Path) -> None:
    fs, rng = DiskFS(place), Random(1)
    written(fs, place / "a", b"first", sync=True)
    assert fs.disk.image(SYNCED, rng) == {}
    fs.fsync_dir(place)
    written(fs, place / "a", b"later", sync=False)
    written(fs, place / "b", b"new", sync=False)
    assert fs.disk.image(SYNCED, rng) == {"a": b"first"}
    assert fs.disk.image(NAMES, rng) == {"a": b"first", "b": b""}
    assert fs.disk.image(LENGTHS, rng) == {"a": b"first", "b": b"\0\0\0"}
    assert fs.disk.image(EVERYTHING, rng) == {"a": b"later", "b": b"new"} == read_image(place)


def test_a_file_written_aside_and_renamed_is_whole_or_old(place: Path) -> None:
    (place / "f").write_bytes(b"old")
    fs, rng = DiskFS(place), Random(2)
    seen = set()
    fs.on_change = lambda: seen.update(fs.disk.image(mode, rng).get("f") for mode in MODES)
    atomic_write(fs, place / "f", b"new" * 1000)
    assert seen == {b"old", b"new" * 1000}


def test_a_write_is_torn_at_sectors(place: Path) -> None:
    fs = DiskFS(place)
    written(fs, place / "f", b"x" * 4 * SECTOR, sync=False)
    found = {fs.disk.image(TORN, Random(seed))["f"] for seed in range(60)}
    assert len(found) > 8
    for content in found:
        assert content is not None
        for at in range(0, len(content), SECTOR):
            assert content[at : at + SECTOR] in (b"x" * SECTOR, bytes(SECTOR))


def test_what_a_failed_sync_gave_up_no_later_sync_brings(place: Path) -> None:
    fs, rng = DiskFS(place), Random(3)
    written(fs, place / "f", b"before", sync=True)
    fs.fsync_dir(place)
    fs.fail("fsync", times=1)
    with fs.open_file(place / "f", "rw") as file:
        file.pwrite(b"BEFORE", 0)
        try:
            file.sync()
        except OSError:
            pass
        file.sync()
    assert fs.disk.image(SYNCED, rng) == {"f": b"before"}
    assert os.path.getsize(place / "f") == 6


def test_lengths_renames_and_removals_are_followed(place: Path) -> None:
    fs = DiskFS(place)
    fs.mkdir(place / "d")
    written(fs, place / "d" / "x", b"123456", sync=False)
    with fs.open_file(place / "d" / "x", "rw") as file:
        file.truncate(2)
        file.allocate(0, 4)
    fs.rename(place / "d" / "x", place / "d" / "y")
    fs.rename(place / "d" / "y", place / "z")
    written(fs, place / "d" / "gone", b"1", sync=True)
    fs.unlink(place / "d" / "gone")
    fs.rmdir(place / "d")
    image = fs.disk.image(EVERYTHING, Random(4))
    assert image == {"z": b"12\0\0"} == read_image(place)
