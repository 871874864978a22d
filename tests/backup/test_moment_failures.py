"""Restores at a moment that fail or are killed: nothing half done is visible, and the next run completes it."""

import errno
import os
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

import kafkalog
from kafkalog.backup import create_backup, restore_backup, restore_directories
from kafkalog.backup.copies import Copies
from kafkalog.backup.restore_at.plan import Moment
from kafkalog.backup.store import BackupStore, StoreLock
from kafkalog.errors import CorruptBackup, CorruptRecord, DirectoryLocked, IllegalArgument, StorageError
from kafkalog.util.fileio import OS
from tests.backup.logs import files, fill, offsets
from tests.faults import WRITING_CALLS, FaultFS
from tests.mock_time import MockClock

ROOT = Path(__file__).parents[2]
AT = 1000 + 300
"""`fill` gives record n the time 1000 + n: the batch of offsets 300 to 304 is divided."""
KILLED = """
import os, sys
sys.path.insert(0, sys.argv[1])
from kafkalog.backup import restore_backup, restore_directories
from tests.faults import WRITING_CALLS, FaultFS

class Fatal(FaultFS):
    left = int(sys.argv[4])
    def _check(self, op, path, write=None):
        if op in WRITING_CALLS and sys.argv[5] in path:
            self.left -= 1
            if self.left == 0:
                os.kill(os.getpid(), 9)

restore = {"backup": restore_backup, "live": restore_directories}[sys.argv[2]]
restore(sys.argv[3], sys.argv[6:], at=1300, fs=Fatal())
"""


@pytest.fixture
def where(tmp_path: Path) -> Path:
    """Two data directories of one topic each, and a backup of both."""
    fill(tmp_path / "one", "left", records=400)
    fill(tmp_path / "two", "right", records=400)
    create_backup([tmp_path / "one", tmp_path / "two"], tmp_path / "backups")
    return tmp_path


def values(partition: Path) -> list[bytes | None]:
    with kafkalog.open(partition) as log:
        assert not log.problems
        return [record.value for record in log.records()]


def is_visible(place: Path) -> bool:
    """Return True if a directory has a partition that a broker, or kafkalog, would open."""
    return any(path.name.startswith(("left-", "right-")) for path in place.iterdir()) if place.exists() else False


def leftovers(place: Path) -> list[str]:
    return [name for name in os.listdir(place) if name.startswith("kafkalog-restore")]


@pytest.mark.parametrize("source", ["backup", "live"])
def test_a_killed_restore_shows_nothing_half_done(where: Path, source: str) -> None:
    given, count = (where / "backups", 2) if source == "backup" else (where / "one", 1)
    nth, killed = 3, 0
    wanted = [b"value %d" % number for number in range(301)]
    while True:
        places = [where / f"restored-{nth}-{number}" for number in range(count)]
        line = [sys.executable, "-c", KILLED, ROOT, source, given, nth, f"restored-{nth}-", *places]
        done = subprocess.run([str(part) for part in line], capture_output=True, text=True)
        assert done.returncode in (0, -signal.SIGKILL), done.stderr
        for place, topic in zip(places, ("left", "right"), strict=False):
            if is_visible(place):
                assert values(place / f"{topic}-0") == wanted, "what is visible is whole"
        if done.returncode == 0:
            break
        killed += 1
        if not all(is_visible(place) and not leftovers(place) for place in places):  # else only the end was cut short
            (restore_directories if source == "live" else restore_backup)(given, places, at=AT)
        for place, topic in zip(places, ("left", "right"), strict=False):
            assert values(place / f"{topic}-0") == wanted
            assert not leftovers(place)
        nth += 23
    assert killed >= 4, nth


def test_a_failing_disk_leaves_nothing(where: Path) -> None:
    nth = 2
    while True:
        fs = FaultFS()
        fs.fail(*WRITING_CALLS, path=str(where / "restored"), nth=nth, code=errno.EIO)
        try:
            restore_backup(where / "backups", [where / "restored0", where / "restored1"], at=AT, fs=fs)
            break
        except StorageError as error:
            assert error.errno == errno.EIO
            assert not any(is_visible(where / name) for name in ("restored0", "restored1")) or nth > 100
        nth += 41
    assert nth > 80 and values(where / "restored0" / "left-0") == [b"value %d" % n for n in range(301)]


@pytest.mark.parametrize("source", ["backup", "live"])
def test_another_moment_does_not_continue_a_restore(where: Path, source: str) -> None:
    """It is refused, and then the restore that was interrupted can still be continued."""
    restore, given = (restore_backup, where / "backups") if source == "backup" else (
        restore_directories, [where / "one", where / "two"]
    )  # fmt: skip
    places = [where / "restored0", where / "restored1"]
    nth = 1
    while not is_visible(places[0]):
        fs = FaultFS()
        fs.fail("rename", path=str(places[1]), nth=nth, code=errno.EIO)
        with pytest.raises(StorageError):
            restore(given, places, at=AT, fs=fs)
        nth += 1
    assert not is_visible(places[1])
    with pytest.raises(IllegalArgument, match="the directory has|interrupted here"):
        restore(given, places, at=AT + 50)
    if source == "live":
        with pytest.raises(IllegalArgument, match="the directory has"):
            restore(given[::-1], places, at=AT)
    restore(given, places, at=AT)
    assert [len(values(place / name)) for place, name in zip(places, ("left-0", "right-0"), strict=True)] == [301, 301]
    assert not (where / "restored0.kafkalog-restore").exists()


def test_a_second_restore_into_the_same_place_leaves_the_copies_of_the_first(where: Path) -> None:
    refused = []

    class SecondMeanwhile(FaultFS):
        def _check(self, op: str, path: str, write: Any = None) -> None:
            super()._check(op, path, write)
            if not refused and "restored0/kafkalog-restore.partial" in path:
                refused.append(path)
                with pytest.raises(DirectoryLocked):
                    restore_directories(where / "one", where / "restored0", at=AT)

    restore_directories(where / "one", where / "restored0", at=AT, fs=SecondMeanwhile())
    assert refused and len(values(where / "restored0" / "left-0")) == 301
    assert not (where / "restored0.kafkalog-restore").exists()


@pytest.mark.parametrize(
    ("op", "path"),
    [
        ("rename", ".kafkalog-restore/kafkalog.restored"), ("unlink", ".kafkalog-restore/kafkalog.restore"),
        ("rmdir", ".kafkalog-restore"), ("unlink", ".kafkalog-restore.done"),
    ],
)  # fmt: skip
def test_a_restore_killed_when_all_is_in_place_is_complete_for_the_next_run(where: Path, op: str, path: str) -> None:
    place = where / "restored0"
    stopped = []

    class Stopped(FaultFS):
        def _check(self, each: str, at: str, write: Any = None) -> None:
            super()._check(each, at, write)
            if each == op and at == f"{place}{path}":
                stopped.append(at)
                raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        restore_directories(where / "one", place, at=AT, fs=Stopped())
    before = files(place)
    assert stopped and before and list(where.glob("restored0.*"))
    assert restore_directories(where / "one", place, at=AT).partitions[0].end_offset == 301
    assert files(place) == before and not list(where.glob("restored0.*"))
    with pytest.raises(IllegalArgument, match="the directory has"):
        restore_directories(where / "one", place, at=AT)


def test_another_moment_leaves_the_copies_of_a_restore_killed_before_it_was_recorded(where: Path) -> None:
    place, copies = where / "restored0", where / "restored0.kafkalog-restore"
    fs = FaultFS()
    fs.fail("rename", path=f"{copies}/kafkalog.restored", error=KeyboardInterrupt)
    with pytest.raises(KeyboardInterrupt):
        restore_directories(where / "one", place, at=AT, fs=fs)
    before, kept = files(place), files(copies)
    assert before and kept
    with pytest.raises(IllegalArgument, match="the directory has"):
        restore_directories(where / "one", place, at=AT + 50)
    assert files(place) == before and files(copies).keys() >= kept.keys() - {"kafkalog.restored.tmp"}
    assert restore_directories(where / "one", place, at=AT).partitions[0].end_offset == 301
    assert files(place) == before and not list(where.glob("restored0.*"))


def test_a_run_that_is_refused_leaves_the_copies_that_another_one_makes(where: Path) -> None:
    place, copies = where / "restored0", where / "restored0.kafkalog-restore"
    refused = Copies([str(where / "one")], [str(place)], Moment.of(AT, "append"), OS)
    with StoreLock(copies, create=True):
        (copies / "20261123T084119Z.partial").mkdir()
        refused.discard()
        assert (copies / "20261123T084119Z.partial").exists()
    refused.discard()
    assert not copies.exists()


@pytest.mark.parametrize("code", [errno.EACCES, errno.EIO])
@pytest.mark.parametrize("name", ["/", ".done"])
def test_what_cannot_be_looked_at_is_named(where: Path, name: str, code: int) -> None:
    record = where / "restored0.kafkalog-restore.done"
    record.write_bytes(b"kafkalog restored, version 1\n")
    fs = FaultFS()
    fs.fail("stat", path=f"restored0.kafkalog-restore{name}", code=code)
    with pytest.raises(StorageError) as caught:
        restore_directories(where / "one", where / "restored0", at=AT, fs=fs)
    assert caught.value.errno == code and "restored0.kafkalog-restore" in str(caught.value.path)


@pytest.mark.parametrize("is_directory", [True, False])
def test_what_has_the_name_of_a_restores_record_but_not_its_content_is_not_removed(
    where: Path, is_directory: bool
) -> None:
    other = where / "restored0.kafkalog-restore.done"
    if is_directory:
        other.mkdir()
    kept = other / "mine" if is_directory else other
    kept.write_text("mine")
    with pytest.raises(IllegalArgument, match="no record of a restore") as caught:
        restore_directories(where / "one", where / "restored0", at=AT)
    assert caught.value.path == str(other) and kept.read_text() == "mine" and not (where / "restored0").exists()
    other.rename(where / "moved")
    restore_directories(where / "one", where / "restored0", at=AT)


def test_a_missing_piece_of_the_backup(where: Path) -> None:
    (path,) = (where / "backups").glob("*/dir1/right-0/00000000000000000000.log")
    os.unlink(path)
    with pytest.raises((CorruptBackup, CorruptRecord, StorageError)) as caught:
        restore_backup(where / "backups", [where / "restored0", where / "restored1"], at=AT)
    assert "right-0" in str(caught.value) and files(where / "restored0") == {} or not (where / "restored0").exists()


@pytest.mark.parametrize("by", ["append", "time"])
@pytest.mark.parametrize("source", ["backup", "live"])
def test_a_log_that_lost_its_end_is_not_taken_for_one_without_later_records(
    tmp_path: Path, source: str, by: str
) -> None:
    data, out = tmp_path / "data", tmp_path / "out"
    fill(data, "left", records=400)
    max(data.glob("left-0/*.log")).unlink()
    end = create_backup(data, tmp_path / "backups").manifest.partitions[0].end_offset
    restore = restore_backup if source == "backup" else restore_directories
    given = tmp_path / "backups" if source == "backup" else data
    with pytest.raises(CorruptRecord, match="was on disk up to offset 400") as caught:
        restore(given, out, at=2000, by=by)
    assert (caught.value.path, caught.value.offset) == (str(data / "left-0"), end)
    assert not is_visible(out)
    if by == "append":  # the cut lies before what is lost
        assert restore(given, out, at=1010, by=by).partitions[0].end_offset == 11


def test_a_target_that_is_not_empty(where: Path) -> None:
    (where / "restored0").mkdir()
    (where / "restored0" / "mine").write_text("mine")
    with pytest.raises(IllegalArgument, match="the directory has mine"):
        restore_backup(where / "backups", [where / "restored0", where / "restored1"], at=AT)
    assert files(where / "restored0") == {"mine": b"mine"}


@pytest.mark.parametrize(
    ("at", "by", "said"),
    [
        ("2100-01-01T00:00Z", "append", "no backup was made at or after 2100-01-01T00:00:00Z"),
        (999, "append", "no record is as old as 1970-01-01T00:00:00.999Z"),
        (999, "time", "no record is as old as 1970-01-01T00:00:00.999Z"),
        ("yesterday", "append", "is not a time"),
        (-5, "append", "is not a moment"),
        (AT, "offset", "by is 'offset'"),
    ],
)
def test_a_moment_that_cannot_be(where: Path, at: str | int, by: str, said: str) -> None:
    with pytest.raises(IllegalArgument, match=said) as caught:
        restore_backup(where / "backups", [where / "restored0", where / "restored1"], at=at, by=by)
    assert caught.value.hint
    assert not is_visible(where / "restored0") and not is_visible(where / "restored1")


def test_the_first_backup_after_the_moment_is_used(where: Path) -> None:
    from kafkalog.backup import list_backups

    first = list_backups(where / "backups")[0]
    create_backup([where / "one", where / "two"], where / "backups")
    second = list_backups(where / "backups")[1]
    for at, wanted in ((first.created_ms, first.id), (first.created_ms + 1, second.id), (second.created_ms, second.id)):
        found = restore_backup(where / "backups", [where / f"a{at}", where / f"b{at}"], at=at) if at else None
        assert found is not None and found.id == wanted
        if at == first.created_ms:
            continue
        break
    with pytest.raises(IllegalArgument, match="no backup was made at or after"):
        restore_backup(where / "backups", [where / "x", where / "y"], first.id, at=first.created_ms + 1)


def test_the_newest_backup_before_a_moment_may_have_an_id_after_it(where: Path) -> None:
    """An id has whole seconds, and is above all others: that of the second backup within a second is later."""
    made = [
        create_backup(where / "one", where / "quick", clock=MockClock(1_700_000_000_000 + ms)).manifest
        for ms in (100, 200, 900)
    ]
    store = BackupStore(where / "quick")
    for at_ms, wanted in ((150, made[0]), (201, made[1]), (950, made[2]), (5000, made[2])):
        assert store.newest_before(1_700_000_000_000 + at_ms) == wanted
    assert store.newest_before(made[0].created_ms) is None


def test_segments_before_the_cut_are_copied_once(tmp_path: Path) -> None:
    data, target = tmp_path / "data", tmp_path / "restored"
    fill(data, records=600)
    before = {path.name: path.read_bytes() for path in (data / "orders-0").glob("*.log")}
    fs = FaultFS()
    restore_directories(data, target, at=1400, fs=fs)
    written = {Path(one.path) for one in fs.calls if one.op == "pwrite" and one.path.endswith(".log")}
    twice = {one.name for one in written if "kafkalog-restore.partial" in one.parts}
    segments = sorted((target / "orders-0").glob("*.log"))
    assert len(segments) > 5 and twice & {one.name for one in segments} <= {segments[-1].name}
    assert all(one.read_bytes() == before[one.name] for one in segments[:-1])
    statuses = [one.stat() for one in segments]
    assert {one.st_nlink for one in statuses} == {1} and {one.st_mode & 0o600 for one in statuses} == {0o600}
    assert offsets(target / "orders-0") == list(range(401))
    assert {path.name: path.read_bytes() for path in (data / "orders-0").glob("*.log")} == before
    with kafkalog.open(target / "orders-0", "a") as log:
        log.append([b"value 401"])
