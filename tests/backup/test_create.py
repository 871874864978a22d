"""The content of a backup, what later ones share with it, and what it never includes."""

import errno
import json
import os
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

import kafkalog
from kafkalog.backup import create_backup, delete_backups, list_backups, restore_backup, verify_backup
from kafkalog.backup.store import StoreLock
from kafkalog.errors import DirectoryLocked, IllegalArgument, PartitionNotFound, StorageError
from kafkalog.storage.names import CLEAN_SHUTDOWN_FILE
from kafkalog.tools.verify.directories import verify
from tests.backup.logs import append, files, fill, inodes, offsets
from tests.faults import FaultFS
from tests.storage.damage_cases import DAMAGE, damage

FIRST_LOG = "orders-0/00000000000000000000.log"


class Later:
    """A clock of which each backup is an hour after the one before: no file is too young to be known again."""

    def __init__(self) -> None:
        self.hours = 0

    def milliseconds(self) -> int:
        return int(os.stat("/proc/self").st_ctime * 1000) + self.hours * 3_600_000

    def monotonic_ms(self) -> int:
        return 0

    def sleep(self, ms: float) -> None:
        pass


@pytest.fixture
def clock() -> Later:
    return Later()


def make_backup(data: Path, target: Path, clock: Later, **more: Any) -> Path:
    clock.hours += 1
    report = create_backup(data, target, clock=clock, **more)
    assert verify_backup(target).ok
    return Path(report.path)


def test_what_is_restored_is_the_same_byte_by_byte(tmp_path: Path, clock: Later) -> None:
    fill(tmp_path / "data", partitions=3)
    made = make_backup(tmp_path / "data", tmp_path / "backups", clock)
    restore_backup(tmp_path / "backups", tmp_path / "restored")
    assert files(tmp_path / "restored") == files(tmp_path / "data") == files(made / "dir0")
    assert verify(tmp_path / "restored", deep=True).ok
    for path in (tmp_path / "data").rglob("*.log"):
        there = tmp_path / "restored" / path.relative_to(tmp_path / "data")
        assert there.stat().st_mtime_ns == path.stat().st_mtime_ns
    with kafkalog.open_dirs(tmp_path / "restored", "a") as dirs:
        assert dirs["orders", 2].append([b"value 600"]).base_offset == 600


def test_a_backup_is_read_as_any_data_directory(tmp_path: Path, clock: Later) -> None:
    fill(tmp_path / "data", partitions=2)
    made = make_backup(tmp_path / "data", tmp_path / "backups", clock)
    assert offsets(made / "dir0" / "orders-1") == list(range(600))
    with kafkalog.open_dirs(made / "dir0") as dirs:
        assert dirs["orders", 0].end_offset == 600


def test_nobody_opens_a_backup_to_write(tmp_path: Path, clock: Later) -> None:
    fill(tmp_path / "data")
    made = make_backup(tmp_path / "data", tmp_path / "backups", clock)
    before = files(made)
    with pytest.raises(StorageError, match=r"\.lock.*`kafkalog restore`"):
        kafkalog.open_dirs(made / "dir0", "a")
    with pytest.raises(StorageError, match=r"\.lock"):
        kafkalog.open(made / "dir0" / "orders-0", "a")
    assert files(made) == before and verify_backup(tmp_path / "backups").ok
    assert {oct(path.stat().st_mode & 0o777) for path in made.rglob("*") if path.is_file()} == {"0o444"}


def test_the_next_backup_links_to_what_is_the_same(tmp_path: Path, clock: Later) -> None:
    fill(tmp_path / "data", records=615)
    make_backup(tmp_path / "data", tmp_path / "backups", clock)
    second = make_backup(tmp_path / "data", tmp_path / "backups", clock)
    with kafkalog.open_dirs(tmp_path / "data", "a") as dirs:
        append(dirs["orders", 0], 100)
    clock.hours += 1
    report = create_backup(tmp_path / "data", tmp_path / "backups", clock=clock)
    third = Path(report.path)
    before, after, original = inodes(second / "dir0"), inodes(third / "dir0"), inodes(tmp_path / "data")
    assert not set(before.values()) & set(original.values()), "a backup shares no file with the log"
    shared = [name for name in before if name.endswith(".log") and before[name] == after.get(name)]
    assert len(shared) == len([name for name in before if name.endswith(".log")]) - 1, "all but the last segment"
    assert 0 < report.copied < report.linked and report.cloned in (0, report.copied)


def test_a_file_that_is_known_by_its_identity_is_not_read(tmp_path: Path, clock: Later) -> None:
    fill(tmp_path / "data")
    for _ in range(2):
        make_backup(tmp_path / "data", tmp_path / "backups", clock)
    fs = FaultFS()
    clock.hours += 1
    create_backup(tmp_path / "data", tmp_path / "backups", clock=clock, fs=fs)
    read = {call.path for call in fs.named("pread") if call.path.endswith(".log")}
    assert read == {str(max((tmp_path / "data").rglob("*.log")))}, "the last one, to see where it ends"


def test_bytes_changed_under_the_same_length_are_taken(tmp_path: Path, clock: Later) -> None:
    fill(tmp_path / "data")
    make_backup(tmp_path / "data", tmp_path / "backups", clock)
    changed = tmp_path / "data" / FIRST_LOG
    with changed.open("r+b") as file:
        file.seek(100)
        file.write(b"other")
    made = make_backup(tmp_path / "data", tmp_path / "backups", clock)
    assert (made / "dir0" / FIRST_LOG).read_bytes() == changed.read_bytes()


def test_full_takes_nothing_from_an_earlier_backup(tmp_path: Path, clock: Later) -> None:
    fill(tmp_path / "data")
    first = make_backup(tmp_path / "data", tmp_path / "backups", clock)
    rotten = first / "dir0" / FIRST_LOG
    rotten.chmod(0o600)
    content = rotten.read_bytes()
    rotten.write_bytes(content[:-1] + bytes([content[-1] ^ 1]))
    clock.hours += 1
    create_backup(tmp_path / "data", tmp_path / "backups", clock=clock, full=True)
    assert verify_backup(tmp_path / "backups").ok
    (found,) = verify_backup(tmp_path / "backups", first.name)
    assert (found.kind, found.path) == ("checksum", str(rotten))


@pytest.mark.parametrize("change", ["overwrite", "cut", "append", "cut and append", "delete"])
def test_no_change_of_the_log_reaches_a_backup(tmp_path: Path, change: str, clock: Later) -> None:
    """A broker changes files in place: it appends, truncates and continues, rebuilds indexes."""
    fill(tmp_path / "data")
    for _ in range(2):
        make_backup(tmp_path / "data", tmp_path / "backups", clock)
    before = {one.id: files(tmp_path / "backups" / one.id) for one in list_backups(tmp_path / "backups")}
    for path in (tmp_path / "data").rglob("*"):
        if path.is_file() and change == "delete":
            path.unlink()
        elif path.is_file():
            with path.open("r+b") as file:
                if "cut" in change:
                    file.truncate(path.stat().st_size // 2)
                if "append" in change:
                    file.seek(0, os.SEEK_END)
                file.write(b"changed in its place")
    for one, content in before.items():
        assert verify_backup(tmp_path / "backups", one).ok
        assert files(tmp_path / "backups" / one) == content
    restore_backup(tmp_path / "backups", tmp_path / "restored")
    assert offsets(tmp_path / "restored" / "orders-0") == list(range(600))


def test_a_deleted_backup_takes_nothing_from_the_others(tmp_path: Path, clock: Later) -> None:
    fill(tmp_path / "data")
    made = [make_backup(tmp_path / "data", tmp_path / "backups", clock) for _ in range(3)]
    delete_backups(tmp_path / "backups", [made[0].name, made[1].name])
    assert [one.id for one in list_backups(tmp_path / "backups")] == [made[2].name]
    assert verify_backup(tmp_path / "backups", deep=True).ok
    with pytest.raises(PartitionNotFound, match=made[0].name):
        delete_backups(tmp_path / "backups", [made[2].name, made[0].name])
    assert verify_backup(tmp_path / "backups").ok, "a wrong name among several deletes none"


def test_the_manifest_tells_offsets_ids_and_settings(tmp_path: Path, clock: Later) -> None:
    fill(tmp_path / "data", partitions=2, **{"retention.ms": "-1"})
    with kafkalog.open_dirs(tmp_path / "data", "a") as dirs:
        dirs["orders", 1].delete_before(123)
    clock.hours += 1
    manifest = create_backup(tmp_path / "data", tmp_path / "backups", clock=clock).manifest
    first, second = manifest.partitions
    assert (first.start_offset, first.end_offset, second.start_offset) == (0, 600, 123)
    assert first.topic_id == second.topic_id is not None
    assert manifest.topics["orders"]["retention.ms"] == "-1"
    assert manifest == list_backups(tmp_path / "backups")[0]


def test_committed_offsets_come_from_who_can_read_them(tmp_path: Path, clock: Later) -> None:
    fill(tmp_path / "data")
    asked: list[Any] = []

    def committed(dirs: Any) -> Any:
        asked.extend(dirs)
        return {"billing": {"orders": {0: 17}}}

    made = make_backup(tmp_path / "data", tmp_path / "backups", clock, committed=committed)
    assert list_backups(tmp_path / "backups")[0].groups == {"billing": {"orders": {0: 17}}}
    assert [os.path.basename(one) for one in asked] == ["dir0"] and Path(asked[0]).parent.name.startswith(made.name)


def test_checksums_are_those_of_sha256sum(tmp_path: Path, clock: Later) -> None:
    fill(tmp_path / "data")
    made = make_backup(tmp_path / "data", tmp_path / "backups", clock)
    subprocess.run(["sha256sum", "--check", "--quiet", "SHA256SUMS"], cwd=made, check=True)


def test_several_directories(tmp_path: Path, clock: Later) -> None:
    where = [tmp_path / "one", tmp_path / "two"]
    with kafkalog.open_dirs(where, "a") as dirs:
        dirs.create_topic("orders", 6, {})
        for number in range(6):
            append(dirs["orders", number], 50)
    clock.hours += 1
    create_backup(where, tmp_path / "backups", clock=clock)
    there = [tmp_path / "a", tmp_path / "b"]
    with pytest.raises(IllegalArgument, match="1 directories are given, but the backup has 2"):
        restore_backup(tmp_path / "backups", there[0])
    restore_backup(tmp_path / "backups", there)
    assert [files(one) for one in there] == [files(one) for one in where]


def test_one_maker_at_a_time(tmp_path: Path, clock: Later) -> None:
    fill(tmp_path / "data")
    with StoreLock(tmp_path / "backups", create=True):
        with pytest.raises(DirectoryLocked, match="a backup is being created or deleted"):
            create_backup(tmp_path / "data", tmp_path / "backups", clock=clock)
    make_backup(tmp_path / "data", tmp_path / "backups", clock)


@pytest.mark.parametrize("target", ["data", "data/backups", "."])
def test_backups_and_data_do_not_lie_in_each_other(tmp_path: Path, target: str) -> None:
    fill(tmp_path / "data")
    before = files(tmp_path)
    with pytest.raises(IllegalArgument, match="the target and the data directory .* overlap"):
        create_backup(tmp_path / "data", tmp_path / target)
    assert files(tmp_path) == before


def test_a_target_with_something_else_in_it_stays_as_it_is(tmp_path: Path) -> None:
    fill(tmp_path / "data")
    (tmp_path / "photos").mkdir()
    (tmp_path / "photos" / "cat.png").write_bytes(b"cat")
    with pytest.raises(IllegalArgument, match=r"cat\.png"):
        create_backup(tmp_path / "data", tmp_path / "photos")
    assert files(tmp_path / "photos") == {"cat.png": b"cat"}
    with pytest.raises(PartitionNotFound, match="does not exist"):
        create_backup(tmp_path / "missing", tmp_path / "backups")


def test_what_only_its_owner_may_read_stays_so(tmp_path: Path, clock: Later) -> None:
    fill(tmp_path / "data")
    secret = tmp_path / "data" / "kafkalog.security.json"
    secret.write_text("{}")
    secret.chmod(0o600)
    made = make_backup(tmp_path / "data", tmp_path / "backups", clock)
    restore_backup(tmp_path / "backups", tmp_path / "restored")
    assert (made / "dir0" / secret.name).stat().st_mode & 0o777 == 0o400
    assert (tmp_path / "restored" / secret.name).stat().st_mode & 0o777 == 0o600


def test_what_is_none_of_kafkas_is_told_and_left_out(tmp_path: Path, clock: Later) -> None:
    fill(tmp_path / "data")
    (tmp_path / "data" / "notes.txt").write_text("mine")
    (tmp_path / "data" / "orders-0" / "also.txt").write_text("mine")
    made = make_backup(tmp_path / "data", tmp_path / "backups", clock)
    notes = json.loads((made / "kafkalog.backup.json").read_text())["notes"]
    assert len(notes) == 2 and all("skipped, not " in note for note in notes)
    assert not list(made.rglob("*.txt"))


def test_sidecars_are_left_out_without_a_note(tmp_path: Path, clock: Later) -> None:
    with kafkalog.open_dirs(tmp_path / "data", "a") as dirs:
        dirs.create_topic("orders", 1)
        log = dirs["orders", 0]
        log.append([(b"k", b"v")])
        log.roll()
        assert [info.state for info in log.build_key_index()] == ["ok"]
        place = Path(log.path)
    index = next(place.glob("*.keyindex"))
    for name in (f"{index.name}.17-1f", f"{index.stem}.timeranges"):
        (place / name).write_bytes(index.read_bytes())
    (place / f"{index.stem}.keys").write_bytes(b"mine")
    made = make_backup(tmp_path / "data", tmp_path / "backups", clock)
    assert not [name for name in files(made / "dir0") if "key" in name or "timeranges" in name]
    (note,) = list_backups(tmp_path / "backups")[0].notes
    assert f"{index.stem}.keys: skipped, not one of Kafka's files" in note


def test_a_log_that_was_not_closed_well_is_recovered_after_the_restore(tmp_path: Path, clock: Later) -> None:
    script = (
        "import os, sys, kafkalog; sys.path.insert(0, sys.argv[2]); from tests.backup.logs import append\n"
        "dirs = kafkalog.open_dirs(sys.argv[1], 'a'); dirs.create_topic('orders', 1, {'segment.bytes': 2000})\n"
        "append(dirs['orders', 0], 300); os._exit(0)"
    )
    subprocess.run([sys.executable, "-c", script, tmp_path / "data", Path.cwd()], check=True)
    with max((tmp_path / "data" / "orders-0").glob("*.log")).open("ab") as file:
        file.write(b"\0" * 7 + b"\x01\0\0\0\x55half a batch")
    made = make_backup(tmp_path / "data", tmp_path / "backups", clock)
    assert not (made / "dir0" / ".kafka_cleanshutdown").exists()
    assert verify_backup(tmp_path / "backups", deep=True).ok, "the end is that of a batch, and indexes fit it"
    restore_backup(tmp_path / "backups", tmp_path / "restored")
    with kafkalog.open_dirs(tmp_path / "restored", "a") as dirs:
        assert dirs["orders", 0].end_offset == 300
    assert offsets(tmp_path / "restored" / "orders-0") == list(range(300))


def test_damage_with_sound_batches_behind_it_is_kept_and_told(tmp_path: Path, clock: Later) -> None:
    fill(tmp_path / "data", records=600)
    (tmp_path / "data" / ".kafka_cleanshutdown").unlink()
    last = max((tmp_path / "data" / "orders-0").glob("*.log"))
    content = bytearray(last.read_bytes())
    content[80] ^= 1
    last.write_bytes(content)
    made = make_backup(tmp_path / "data", tmp_path / "backups", clock)
    assert (made / "dir0" / "orders-0" / last.name).read_bytes() == content
    note, damage = list_backups(tmp_path / "backups")[0].notes
    assert str(last) in note and "kept with all bytes after it" in note
    assert last.name in damage and "offsets 540 to 544" in damage


@dataclass(eq=False)
class Cloning(FaultFS):
    """A file system with block sharing: the copy is instant, of all that the file has at that moment."""

    refused: bool = False

    def __post_init__(self) -> None:
        super().__post_init__()
        self.clone = self._cloned

    def _cloned(self, target: int, source: int) -> None:
        if self.refused:
            raise OSError(errno.EXDEV, os.strerror(errno.EXDEV))
        os.pwrite(target, os.pread(source, os.fstat(source).st_size, 0), 0)


@pytest.mark.parametrize("refused", [False, True])
def test_copies_are_clones_where_the_file_system_has_them(tmp_path: Path, clock: Later, refused: bool) -> None:
    fill(tmp_path / "data", records=615)
    with kafkalog.open_dirs(tmp_path / "data", "a") as dirs:
        dirs["orders", 0].append([b"value 615"])
        fs = Cloning(refused=refused)
        report = create_backup(tmp_path / "data", tmp_path / "backups", clock=clock, fs=fs)
    assert (report.cloned > 0, report.copied > 0) == (not refused, refused)
    assert verify_backup(tmp_path / "backups", deep=True).ok
    restore_backup(tmp_path / "backups", tmp_path / "restored", fs=Cloning(refused=refused))
    assert offsets(tmp_path / "restored" / "orders-0") == list(range(616))


@pytest.mark.parametrize("kind", DAMAGE)
@pytest.mark.parametrize("is_closed_well", [True, False])
@pytest.mark.parametrize("which", [0, -1])
def test_each_damage_is_copied_with_all_that_lies_behind_it(
    tmp_path: Path, clock: Later, which: int, is_closed_well: bool, kind: str
) -> None:
    """`kafkalog verify` reports it in an old segment, the backup's notes in the last one."""
    fill(tmp_path / "data", records=300)
    if not is_closed_well:
        (tmp_path / "data" / CLEAN_SHUTDOWN_FILE).unlink()
    path = sorted((tmp_path / "data" / "orders-0").glob("*.log"))[which]
    damage(path, 1, kind)
    clock.hours += 1
    create_backup(tmp_path / "data", tmp_path / "backups", clock=clock)
    (listed,) = list_backups(tmp_path / "backups")
    (copy,) = (tmp_path / "backups").glob(f"*/dir0/orders-0/{path.name}")
    assert copy.read_bytes() == path.read_bytes()
    assert any(str(path) in note for note in listed.notes) == (which == -1)
    assert verify(copy.parent).problems


def test_a_damaged_topic_id_is_kept_and_told(tmp_path: Path, clock: Later) -> None:
    fill(tmp_path / "data")
    (tmp_path / "data" / "orders-0" / "partition.metadata").write_bytes(b"version: 0\nnothing")
    make_backup(tmp_path / "data", tmp_path / "backups", clock)
    (manifest,) = list_backups(tmp_path / "backups")
    assert manifest.partitions[0].topic_id is None and "partition.metadata" in manifest.notes[0]
    restore_backup(tmp_path / "backups", tmp_path / "restored")
    assert files(tmp_path / "restored") == files(tmp_path / "data")


def test_the_zeros_of_a_preallocated_segment_are_not_copied(tmp_path: Path, clock: Later) -> None:
    fill(tmp_path / "data", records=200)
    (tmp_path / "data" / CLEAN_SHUTDOWN_FILE).unlink()
    last = max((tmp_path / "data" / "orders-0").glob("*.log"))
    size = last.stat().st_size
    os.truncate(last, 64 << 20)
    report = create_backup(tmp_path / "data", tmp_path / "backups", clock=clock)
    assert report.copied + report.cloned < 1 << 20
    assert (Path(report.path) / "dir0" / "orders-0" / last.name).stat().st_size == size
    assert verify_backup(tmp_path / "backups", deep=True).ok
    restore_backup(tmp_path / "backups", tmp_path / "restored")
    assert offsets(tmp_path / "restored" / "orders-0") == list(range(200))
