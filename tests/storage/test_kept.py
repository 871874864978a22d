"""Opening a damaged log for writing gives nothing up for good: what is sound behind a cut is kept, or it refuses."""

import errno
import json
import logging
import shutil
import struct
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import kafkalog
from kafkalog.errors import CorruptRecord, StorageError
from kafkalog.log.open_writable import open_for_append
from kafkalog.storage.names import CLEAN_SHUTDOWN_FILE, log_file_name
from kafkalog.storage.recovery.kept import KEPT_DIRECTORY, list_kept
from kafkalog.util.fileio import OS
from tests import raw_batches
from tests.crash.disk import read_image
from tests.faults import FaultFS

BATCHES, SEGMENTS = 12, 4
RECORDS = 3 * BATCHES * SEGMENTS
FIRST = log_file_name(0)


def make(root: Path) -> Path:
    """A partition of SEGMENTS segments with BATCHES batches of three records each, closed well."""
    path = root / "orders-0"
    with kafkalog.open(path, "a") as log:
        for number in range(BATCHES * SEGMENTS):
            if number and number % BATCHES == 0:
                log.roll()
            log.append([b"%d-%d" % (number, n) for n in range(3)])
    return path


def positions(path: Path) -> list[int]:
    """Return the positions of a segment's batches."""
    found, at, data = [], 0, path.read_bytes()
    while at < len(data):
        found.append(at)
        at += 12 + int.from_bytes(data[at + 8 : at + 12], "big")
    return found


def mark_unclean(path: Path) -> None:
    (path.parent / CLEAN_SHUTDOWN_FILE).unlink(missing_ok=True)
    (path.parent / "recovery-point-offset-checkpoint").unlink(missing_ok=True)


def flip_bits(file: Path, at: int, bits: int = 1) -> None:
    data = bytearray(file.read_bytes())
    data[at] ^= bits
    file.write_bytes(data)


def make_damaged(root: Path, batch: int = 5, at: int = 70) -> Path:
    """The partition with one batch of its first segment damaged, not closed well."""
    path = make(root)
    flip_bits(path / FIRST, positions(path / FIRST)[batch] + at)
    mark_unclean(path)
    return path


def offsets(path: Path) -> list[int]:
    with kafkalog.open(path) as log:
        return [record.offset for record in log]


def kept_offsets(path: Path) -> list[tuple[int, int]]:
    return [(one.sound.first_offset, one.sound.last_offset) for one in list_kept(str(path), OS)]


def test_what_is_sound_behind_a_cut_is_kept(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    path = make_damaged(tmp_path)
    before = {file.name: file.read_bytes() for file in path.glob("*.log")}
    cut = positions(path / FIRST)[5]
    with caplog.at_level(logging.WARNING), kafkalog.open(path, "a") as log:
        assert log.end_offset == 15
    (kept,) = list_kept(str(path), OS)
    tail, *later = kept.files
    data = (Path(kept.path) / tail.name).read_bytes()
    assert (tail.name, data) == (f"{FIRST}.from-{cut}", before[FIRST][cut:])
    assert [one.name for one in later] == [log_file_name(36 * n) for n in (1, 2, 3)]
    assert all((Path(kept.path) / one.name).read_bytes() == before[one.name] for one in later)
    assert (kept.segment, kept.position, kept.offset) == (FIRST, cut, 15)
    assert kept.sound == (BATCHES * SEGMENTS - 6, RECORDS - 18, 18, RECORDS - 1)
    (line,) = [one.getMessage() for one in caplog.records if one.name == "kafkalog.storage.recovery.kept"]
    assert f"{RECORDS - 18} sound records in {BATCHES * SEGMENTS - 6} batches (offsets 18 to {RECORDS - 1})" in line
    manifest = json.loads((Path(kept.path) / "manifest.json").read_text())
    assert manifest["partition"] == "orders-0" and manifest["records"] == RECORDS - 18
    assert manifest["reason"] == "the batch does not match its checksum"


@pytest.mark.parametrize(
    ("at", "bits", "first"),
    [
        pytest.param(10, 1, 18, id="size too small"),
        pytest.param(8, 0x10, 18, id="size beyond the file"),
        pytest.param(7, 0x40, 18, id="base offset too high"),
        pytest.param(6, 0x80, 18, id="base offset far too high"),
        pytest.param(7, 0x0F, 15, id="base offset too low"),
    ],
)
def test_each_kind_of_damage_keeps_the_batches_behind(tmp_path: Path, at: int, bits: int, first: int) -> None:
    path = make_damaged(tmp_path)
    flip_bits(path / FIRST, positions(path / FIRST)[5] + 70)
    flip_bits(path / FIRST, positions(path / FIRST)[5] + at, bits)
    kafkalog.open(path, "a").close()
    found = set(offsets(path))
    for one in list_kept(str(path), OS):
        for file in one.files:
            found |= set(range(file.sound.first_offset, file.sound.last_offset + 1))
    assert found >= {*range(15), *range(18, RECORDS)}


def test_a_damaged_size_that_ends_with_a_later_batch_hides_none(tmp_path: Path) -> None:
    path = make(tmp_path)
    at, following, behind = positions(path / FIRST)[5:8]
    data = bytearray((path / FIRST).read_bytes())
    data[at + 8 : at + 12] = struct.pack(">i", behind - at - 12)
    (path / FIRST).write_bytes(data)
    mark_unclean(path)
    assert following < behind and kept_offsets(path) == []
    kafkalog.open(path, "a").close()
    (kept,) = list_kept(str(path), OS)
    assert kept.sound == (BATCHES * SEGMENTS - 6, RECORDS - 18, 18, RECORDS - 1)


def test_a_value_full_of_headers_does_not_hide_the_batches_behind(tmp_path: Path) -> None:
    """Each of its 200 headers claims most of the file: a checksum over it for each is beyond any limit of a search."""
    decoy = struct.pack(">qiibIhiqqqhii", 100, 1_000_000, 0, 2, 1, 0, 0, 0, 0, -1, -1, -1, 1)
    damaged = bytearray(raw_batches.batch(6, [decoy * 200]))
    damaged[11] ^= 1
    sound = [*raw_batches.batches(0, 2, 3), *raw_batches.batches(7, 400, 5, size=600)]
    parts = [*sound[:2], bytes(damaged), *sound[2:]]
    path = raw_batches.write_segment(tmp_path / "orders-0", 0, parts).parent
    with pytest.raises(CorruptRecord, match="2000 sound records in 400 batches"):
        kafkalog.open(path, "a", on_damage="refuse")
    with kafkalog.open(path, "a") as log:
        assert log.end_offset == 6
    assert [one.sound for one in list_kept(str(path), OS)] == [(400, 2000, 7, 2006)]


@pytest.mark.parametrize("tail", [b"half a batch", bytes(4096)], ids=["garbage", "zeros"])
def test_a_torn_end_is_cut_and_nothing_is_kept(tmp_path: Path, tail: bytes) -> None:
    path = make(tmp_path)
    last = path / log_file_name(36 * 3)
    with last.open("ab") as file:
        file.write(tail)
    mark_unclean(path)
    with kafkalog.open(path, "a", on_damage="refuse") as log:
        assert log.end_offset == RECORDS
    assert not (path / KEPT_DIRECTORY).exists()


def test_a_truncation_on_purpose_keeps_nothing(tmp_path: Path) -> None:
    path = make(tmp_path)
    with kafkalog.open(path, "a") as log:
        log.truncate_to(40)
        log.delete_before(20)
        log.truncate_fully_and_start_at(500)
    assert not (path / KEPT_DIRECTORY).exists()


def test_a_log_below_its_start_is_kept_whole(tmp_path: Path) -> None:
    path = make(tmp_path)
    (tmp_path / "log-start-offset-checkpoint").write_text("0\n1\norders 0 9000\n")
    before = read_image(tmp_path)
    with pytest.raises(CorruptRecord, match="log start is 9000"):
        kafkalog.open(path, "a", on_damage="refuse")
    assert read_image(tmp_path) == before
    with kafkalog.open(path, "a") as log:
        assert (log.start_offset, log.end_offset) == (9000, 9000)
    assert kept_offsets(path) == [(0, RECORDS - 1)]


def test_a_segment_without_index_in_a_clean_directory(tmp_path: Path) -> None:
    """Its data is read for new indexes, and nothing of it is cut: all of it was on disk when it was closed."""
    path = make(tmp_path)
    flip_bits(path / FIRST, positions(path / FIRST)[5] + 70)
    (path / FIRST).with_suffix(".index").unlink()
    before = (path / FIRST).read_bytes()
    with kafkalog.open(path, "a") as log:
        with pytest.raises(CorruptRecord) as error:
            list(log)
        assert (error.value.last_sound_offset, error.value.next_sound_offset) == (14, 18)
        end = log.end_offset
        assert [one.offset for one in log.records(on_damage="skip")] == [*range(15), *range(18, end)]
    assert (path / FIRST).read_bytes() == before
    assert kept_offsets(path) == []


def test_a_torn_end_before_sound_batches_is_refused_where_it_was_closed_well(tmp_path: Path) -> None:
    path = make(tmp_path)
    last = path / log_file_name(36 * 3)
    where = positions(last)[5]
    flip_bits(last, where + 8, 0x10)
    with pytest.raises(CorruptRecord) as caught:
        kafkalog.open(path, "a")
    assert (caught.value.path, caught.value.position) == (str(last), where)
    assert not (path / KEPT_DIRECTORY).exists()


# Refused

def test_refuse_names_the_place_and_changes_nothing(tmp_path: Path) -> None:
    path = make_damaged(tmp_path)
    (tmp_path / ".lock").touch()
    before, cut = read_image(tmp_path), positions(path / FIRST)[5]
    with pytest.raises(CorruptRecord) as caught:
        kafkalog.open(path, "a", on_damage="refuse")
    error = caught.value
    assert (error.path, error.position, error.offset) == (str(path / FIRST), cut, 15)
    assert "last sound offset before it is 14" in str(error)
    assert f"{RECORDS - 18} sound records in {BATCHES * SEGMENTS - 6} batches" in str(error)
    assert read_image(tmp_path) == before
    with kafkalog.open(path, "a") as log:
        assert log.end_offset == 15


def test_an_undamaged_log_is_recovered_where_damage_is_refused(tmp_path: Path) -> None:
    path = make(tmp_path)
    mark_unclean(path)
    with kafkalog.open(path, "a", on_damage="refuse") as log:
        assert log.append(b"more").first_offset == RECORDS


def test_damage_that_costs_nothing_is_no_reason_to_refuse(tmp_path: Path) -> None:
    """It was on disk when the log was closed: for a new index it is read, and stays."""
    path = make(tmp_path)
    flip_bits(path / FIRST, positions(path / FIRST)[5] + 70)
    (path / FIRST).with_suffix(".index").unlink()
    with kafkalog.open(path, "a", on_damage="refuse") as log:
        assert [one.offset for one in log.records(on_damage="skip")] == [*range(15), *range(18, RECORDS)]


def test_on_damage_takes_two_words(tmp_path: Path) -> None:
    with pytest.raises(kafkalog.errors.IllegalArgument, match="'skip'"):
        kafkalog.open(tmp_path / "orders-0", "a", on_damage="skip")  # type: ignore[arg-type]
    make(tmp_path)
    with pytest.raises(TypeError, match="on_damage"):
        kafkalog.open(tmp_path / "orders-0", on_damage="refuse")
    with pytest.raises(TypeError, match="on_damage"):
        kafkalog.open_dirs(tmp_path, on_damage="refuse")


# Trouble meanwhile

def failing(path: Path, prepare: Callable[[FaultFS], object]) -> None:
    """An opening that fails cuts nothing; the next one keeps all, once."""
    fs = FaultFS()
    prepare(fs)
    logs = {file.name: file.read_bytes() for file in path.glob("*.log")}
    with pytest.raises(StorageError, match="sound records") as caught:
        open_for_append(path, fs=fs)
    assert caught.value.errno == errno.ENOSPC and "nothing was cut" in str(caught.value)
    kept = {file.name: file.read_bytes() for file in path.glob(f"{KEPT_DIRECTORY}/*/*.log")}
    assert {file.name: file.read_bytes() for file in path.glob("*.log")} | kept == logs
    kafkalog.open(path, "a").close()
    assert offsets(path) == list(range(15)) and kept_offsets(path) == [(18, RECORDS - 1)]


@pytest.mark.parametrize(
    "rule",
    [
        {"ops": ("mkdir",), "path": KEPT_DIRECTORY},
        {"ops": ("pwrite",), "path": ".from-", "partial": 100},
        {"ops": ("fsync",), "path": ".from-"},
        {"ops": ("pwrite",), "path": "manifest.json"},
        {"ops": ("rename",), "path": log_file_name(36 * 3)},
        {"ops": ("rename",), "path": log_file_name(36 * 1)},
    ],
    ids=lambda rule: f"{rule['ops'][0]} {rule['path']}",
)
def test_a_full_disk_cuts_nothing(tmp_path: Path, rule: dict[str, Any]) -> None:
    path = make_damaged(tmp_path)
    failing(path, lambda fs: fs.fail(*rule["ops"], path=rule["path"], partial=rule.get("partial", 0)))


def test_a_full_disk_leaves_no_half_of_a_copy(tmp_path: Path) -> None:
    path = make_damaged(tmp_path)
    fs = FaultFS()
    fs.fail("pwrite", path=".from-", partial=100)
    with pytest.raises(StorageError):
        open_for_append(path, fs=fs)
    assert not (path / KEPT_DIRECTORY).exists()


def test_a_crash_before_the_cut_keeps_the_same_once(tmp_path: Path) -> None:
    """The power went before the cut was on disk: the log is as it was, and what was kept is there already."""
    path = make_damaged(tmp_path)
    first = (path / FIRST).read_bytes()
    kafkalog.open(path, "a").close()
    (path / FIRST).write_bytes(first)
    mark_unclean(path)
    kafkalog.open(path, "a").close()
    assert offsets(path) == list(range(15)) and kept_offsets(path) == [(18, RECORDS - 1)]


def test_a_crash_when_all_segments_are_kept(tmp_path: Path) -> None:
    path = make(tmp_path)
    (tmp_path / "log-start-offset-checkpoint").write_text("0\n1\norders 0 9000\n")
    fs = FaultFS()
    fs.fail("open", path=log_file_name(9000))
    with pytest.raises(StorageError):
        open_for_append(path, fs=fs)
    for snapshot in path.glob("*.snapshot*"):
        snapshot.unlink()
    with kafkalog.open(path, "a") as log:
        assert (log.start_offset, log.end_offset) == (9000, 9000)
    assert kept_offsets(path) == [(0, RECORDS - 1)]


def test_a_second_cut_at_the_same_place_has_a_directory_of_its_own(tmp_path: Path) -> None:
    path = make_damaged(tmp_path)
    for _ in range(2):
        with kafkalog.open(path, "a") as log:
            for _ in range(3):
                log.append(b"." * 100)
        flip_bits(path / FIRST, positions(path / FIRST)[5] + 70)
        mark_unclean(path)
    kafkalog.open(path, "a").close()
    assert kept_offsets(path) == [(18, RECORDS - 1), (16, 17), (16, 17)]


def test_a_copy_of_the_partition_is_read_beside_what_it_kept(tmp_path: Path) -> None:
    """No reader, verify or repair takes the kept files for the log's own."""
    path = make_damaged(tmp_path)
    kafkalog.open(path, "a").close()
    assert kafkalog.verify(tmp_path).ok and kafkalog.repair(tmp_path).summary() == "nothing to repair"
    shutil.copytree(tmp_path, tmp_path.parent / "copy")
    with kafkalog.open_dirs(tmp_path.parent / "copy", "a") as dirs:
        assert dirs["orders", 0].end_offset == 15
        dirs.delete_topic("orders")
