"""Files kept by an open: listed, restored to a new directory so that every sound record is read, removed."""

import json
import shutil
from pathlib import Path

import pytest

import kafkalog
from kafkalog.errors import FormatError, IllegalArgument, PartitionNotFound, StorageError
from kafkalog.storage.recovery.kept import KEPT_DIRECTORY
from kafkalog.tools.kept import list_kept, remove_kept, restore_kept
from kafkalog.util.fileio import FileSystem
from tests.faults import FaultFS
from tests.kills import kill
from tests.storage.test_kept import FIRST, RECORDS, flip_bits, make, make_damaged, mark_unclean, offsets, positions


def values(path: Path) -> dict[int, bytes | None]:
    with kafkalog.open(path) as log:
        return {record.offset: record.value for record in log}


def test_every_sound_record_is_in_the_log_or_restored(tmp_path: Path) -> None:
    """Damage in the first of several segments, a directory that was not closed well, and an append."""
    data, to = tmp_path / "data", tmp_path / "restored"
    data.mkdir()
    path = make_damaged(data)
    originals = values(make(tmp_path))
    with kafkalog.open(path, "a") as log:
        appended = log.append(b"after").first_offset
    (restored,) = restore_kept(data, to)
    assert (restored.sound.records, restored.doubled) == (RECORDS - 18, 0)
    there, back = values(path), values(to / "orders-0")
    assert appended == 15 and there.pop(15) == b"after"
    lost = {offset: value for offset, value in originals.items() if 15 <= offset < 18}
    assert there | back == {offset: value for offset, value in originals.items() if offset not in lost}
    assert kafkalog.verify(to, deep=True).ok
    assert all(one.read_bytes() for one in (to / "orders-0").glob("*.timeindex"))
    with kafkalog.open(to / "orders-0", "a") as log:
        assert log.append(b"more").first_offset == RECORDS


def test_damage_within_what_was_kept_is_passed_over(tmp_path: Path) -> None:
    data, to = tmp_path / "data", tmp_path / "restored"
    data.mkdir()
    path = make_damaged(data)
    for batch in (7, 8, 11):
        flip_bits(path / FIRST, positions(path / FIRST)[batch] + 70)
    later = path / f"{72:020d}.log"
    flip_bits(later, positions(later)[0] + 70)
    kafkalog.open(path, "a").close()
    restore_kept(data, to)
    gone = {*range(21, 27), *range(33, 36), *range(72, 75)}
    assert offsets(to / "orders-0") == [n for n in range(18, RECORDS) if n not in gone]
    assert kafkalog.verify(to).ok


def test_a_batch_that_is_there_twice_is_restored_once(tmp_path: Path) -> None:
    path = make(tmp_path / "data" if (tmp_path / "data").mkdir() is None else tmp_path)
    at = positions(path / FIRST)
    content = (path / FIRST).read_bytes()
    again = content[at[8] : at[10]]
    (path / FIRST).write_bytes(content[: at[10]] + again + content[at[10] :])
    flip_bits(path / FIRST, at[5] + 70)
    mark_unclean(path)
    kafkalog.open(path, "a").close()
    (restored,) = restore_kept(tmp_path / "data", tmp_path / "to")
    assert restored.doubled == 2
    assert offsets(tmp_path / "to" / "orders-0") == list(range(18, RECORDS))


@pytest.mark.parametrize("magic", [0, 1])
@pytest.mark.parametrize("codec", [None, "gzip"])
def test_old_formats_are_restored(tmp_path: Path, magic: int, codec: str | None) -> None:
    data = tmp_path / "data"
    path = data / "old-0"
    with kafkalog.open(path, "a") as log:
        for _ in range(6):
            log.append([b"v" * 40] * 3, compression=codec)
        content = [bytes(kafkalog.convert(bytes(batch), magic)) for batch in log.batches()]
    shutil.rmtree(data)
    path.mkdir(parents=True)
    (path / FIRST).write_bytes(b"".join(content))
    flip_bits(path / FIRST, len(content[0]) + 40)
    kafkalog.open(path, "a").close()
    restore_kept(data, tmp_path / "to")
    assert offsets(tmp_path / "to" / "old-0")[-12:] == list(range(6, 18))


def twice(tmp_path: Path) -> Path:
    """A directory with two entries that hold the same offsets with other records."""
    data = tmp_path / "data"
    data.mkdir()
    path = make_damaged(data)
    with kafkalog.open(path, "a") as log:
        for _ in range(10):
            log.append(b"." * 100)
    flip_bits(path / FIRST, positions(path / FIRST)[2] + 70)
    mark_unclean(path)
    kafkalog.open(path, "a").close()
    return data


def test_offsets_that_were_kept_twice_need_a_choice(tmp_path: Path) -> None:
    data = twice(tmp_path)
    names = [one.name for one in list_kept(data)]
    assert len(names) == 2
    with pytest.raises(IllegalArgument, match="was kept twice"):
        restore_kept(data, tmp_path / "to")
    assert not (tmp_path / "to").exists()
    for name in names:
        restore_kept(data, tmp_path / name, entries=[name])
        assert offsets(tmp_path / name / "orders-0")


def test_a_place_to_restore_to_that_is_no_good(tmp_path: Path) -> None:
    data = tmp_path / "data"
    data.mkdir()
    path = make_damaged(data)
    kafkalog.open(path, "a").close()
    for place in (data, data / "below", path):
        with pytest.raises(IllegalArgument, match="data directory itself"):
            restore_kept(data, place)
    restore_kept(data, tmp_path / "to")
    with pytest.raises(IllegalArgument, match="already has orders-0"):
        restore_kept(data, tmp_path / "to")


@pytest.mark.parametrize(
    ("op", "place"),
    [("pwrite", "orders-0/"), ("fdatasync", "orders-0/"), ("pwrite", "kafkalog-restore.partial/")],
)
def test_a_restore_that_fails_leaves_nothing(tmp_path: Path, op: str, place: str) -> None:
    """A part of the records would pass for all of them."""
    data, to = tmp_path / "data", tmp_path / "restored"
    data.mkdir()
    kafkalog.open(make_damaged(data), "a").close()
    fs = FaultFS()
    fs.fail(op, path=f"{to}/{place}", nth=2)
    with pytest.raises(StorageError):
        restore_kept(data, to, fs=fs)
    assert not (to / "orders-0").exists() and not (to / "kafkalog-restore.partial").exists()
    assert len(restore_kept(data, to)) == 1


def test_restore_that_is_killed_leaves_all_records_or_no_partition(tmp_path: Path) -> None:
    data, to = tmp_path / "data", tmp_path / "restored"
    data.mkdir()
    kafkalog.open(make_damaged(data), "a").close()

    def check() -> None:
        if not (to / "orders-0").exists():
            restore_kept(data, to)
        assert offsets(to / "orders-0") == list(range(18, RECORDS))
        shutil.rmtree(to)

    def work(fs: FileSystem) -> None:
        restore_kept(data, to, fs=fs)

    assert kill(work, check, "steps", 200, 1).is_over


def test_removal_that_is_killed_is_completed(tmp_path: Path) -> None:
    make_damaged(tmp_path / "data" if (tmp_path / "data").mkdir() is None else tmp_path)
    kafkalog.open(tmp_path / "data" / "orders-0", "a").close()
    shutil.copytree(tmp_path / "data", tmp_path / "copy")

    def work(fs: FileSystem) -> None:
        remove_kept(tmp_path / "copy", apply=True, fs=fs)

    def check() -> None:
        remove_kept(tmp_path / "copy", apply=True)
        root = tmp_path / "copy" / "orders-0" / KEPT_DIRECTORY
        assert not list(root.rglob("*.log*"))
        shutil.rmtree(tmp_path / "copy")
        shutil.copytree(tmp_path / "data", tmp_path / "copy")

    assert kill(work, check, "steps", 60, 1).is_over


def test_remove_is_dry_unless_applied(tmp_path: Path) -> None:
    path = make_damaged(tmp_path)
    kafkalog.open(path, "a").close()
    (found,) = remove_kept(path)
    assert list_kept(tmp_path) == [found]
    assert remove_kept(tmp_path, apply=True) == [found]
    assert list_kept(tmp_path) == [] and not (path / KEPT_DIRECTORY).exists()
    assert offsets(path) == list(range(15))


def test_a_name_that_is_not_there(tmp_path: Path) -> None:
    path = make_damaged(tmp_path)
    with pytest.raises(PartitionNotFound, match="nothing is kept there"):
        remove_kept(path, entries=["0-0"])
    kafkalog.open(path, "a").close()
    with pytest.raises(PartitionNotFound, match=f"the entries are {FIRST[:20]}-"):
        restore_kept(path, tmp_path.parent / "to", entries=["0-0"])


@pytest.mark.parametrize("content", [b"", b"[]", b"{", b'{"files": [{"name": "../x"}]}', bytes(range(156, 256))])
def test_a_manifest_that_is_none(tmp_path: Path, content: bytes) -> None:
    path = make_damaged(tmp_path)
    kafkalog.open(path, "a").close()
    (kept,) = list_kept(path)
    (Path(kept.path) / "manifest.json").write_bytes(content)
    with pytest.raises(FormatError, match=r"manifest.json.*kafkalog consume"):
        list_kept(tmp_path)


@pytest.mark.parametrize("changed", [{"partition": "../../t-0"}, {"partition": "/t-0"}, {"at_ms": float("inf")}])
def test_a_manifest_with_a_name_or_a_number_that_cannot_be(tmp_path: Path, changed: dict[str, object]) -> None:
    path = make_damaged(tmp_path / "data")
    kafkalog.open(path, "a").close()
    manifest = Path(list_kept(path)[0].path) / "manifest.json"
    manifest.write_text(json.dumps(json.loads(manifest.read_bytes()) | changed))
    with pytest.raises(FormatError, match="cannot read the manifest"):
        restore_kept(path, tmp_path / "to")
    assert [one.name for one in tmp_path.iterdir()] == ["data"]
