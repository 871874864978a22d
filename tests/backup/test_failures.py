"""A backup or restore that a full disk, an error or a kill ended: the previous one stays, whole."""

import errno
import os
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

import kafkalog
from kafkalog.backup import create_backup, delete_backups, list_backups, restore_backup, verify_backup
from kafkalog.errors import CorruptBackup, IllegalArgument, NotAPartition, StorageError
from tests.backup.logs import append, files, fill, offsets
from tests.faults import WRITING_CALLS, FaultFS
from tests.tiny_disk import run_on_tiny_disk

ROOT = Path(__file__).parents[2]


class Broken(FaultFS):
    """Fails the `nth` call that changes a file below `below`, and all that come after it."""

    def __init__(self, below: Path, nth: int, code: int) -> None:
        super().__init__()
        self.rule = self.fail(*WRITING_CALLS, path=str(below), nth=nth, code=code)


@pytest.mark.parametrize("code", [errno.EIO, errno.ENOSPC])
def test_whichever_write_fails_the_backup_before_stays_whole(tmp_path: Path, code: int) -> None:
    fill(tmp_path / "data", records=180)
    create_backup(tmp_path / "data", tmp_path / "backups")
    before = files(tmp_path / "data")
    nth, failed = (1 if code == errno.EIO else 2), True
    while failed:
        failed = False
        try:
            create_backup(tmp_path / "data", tmp_path / "backups", fs=Broken(tmp_path / "backups", nth, code))
        except StorageError as error:
            failed = True
            assert error.errno == code
        ids = [one.id for one in list_backups(tmp_path / "backups")]
        assert ids and all(verify_backup(tmp_path / "backups", one).ok for one in ids)
        left = [path.name for path in (tmp_path / "backups").iterdir() if path.name.endswith(".partial")]
        if code == errno.ENOSPC:
            assert not left, "a full disk gets its room back"
        delete_backups(tmp_path / "backups", ids[1:])
        nth += 3
    assert nth > 40 and files(tmp_path / "data") == before
    create_backup(tmp_path / "data", tmp_path / "backups")
    assert not list((tmp_path / "backups").glob("*.partial"))
    assert verify_backup(tmp_path / "backups", deep=True).ok


def test_a_full_disk_is_told_with_its_error_and_its_file(tmp_path: Path) -> None:
    script = f"""
import errno, os, sys
sys.path.insert(0, {str(ROOT)!r})
from pathlib import Path
from kafkalog.backup import create_backup, list_backups, verify_backup
from kafkalog.errors import StorageError
from tests.backup.logs import append, fill
import kafkalog
data = Path({str(tmp_path)!r}) / "data"
fill(data, records=500, **{{"segment.bytes": 200_000}})
create_backup(data, "backups")
with kafkalog.open_dirs(data, "a") as dirs:
    for _ in range(1000):
        dirs["orders", 0].append([os.urandom(1500)])
try:
    create_backup(data, "backups")
except StorageError as error:
    assert error.errno == errno.ENOSPC and "backups" in error.path and "free space" in error.hint, error
else:
    raise AssertionError("the disk is not full")
assert len(os.listdir("backups")) == 2, os.listdir("backups")
assert verify_backup("backups", deep=True).ok
"""
    done = run_on_tiny_disk(script, size="1m")
    assert done.returncode == 0, done.stderr


KILLED = """
import os, sys
sys.path.insert(0, sys.argv[3])
from kafkalog.backup import create_backup, restore_backup
from tests.faults import WRITING_CALLS, FaultFS

class Fatal(FaultFS):
    left = int(sys.argv[4])
    def _check(self, op, path, write=None):
        if op in WRITING_CALLS and sys.argv[2] in path:
            self.left -= 1
            if self.left == 0:
                os.kill(os.getpid(), 9)

getattr(sys.modules["__main__"], sys.argv[5])(sys.argv[1], sys.argv[2], fs=Fatal())
"""


def kill_at(what: str, source: Path, target: Path, nth: int) -> bool:
    """Return True if the work reached its `nth` write, where it is killed."""
    line = [sys.executable, "-c", KILLED, source, target, ROOT, str(nth), what]
    done = subprocess.run([str(part) for part in line], capture_output=True, text=True)
    assert done.returncode in (0, -signal.SIGKILL), done.stderr
    return done.returncode != 0


def test_a_killed_backup_is_gone_on_with(tmp_path: Path) -> None:
    fill(tmp_path / "data", records=600)
    create_backup(tmp_path / "data", tmp_path / "backups")
    for path in (tmp_path / "data").rglob("*.log"):  # so that nothing is known by the first backup
        path.write_bytes(path.read_bytes()[:-1] + b"!")
    nth = 5
    while kill_at("create_backup", tmp_path / "data", tmp_path / "backups", nth):
        assert [verify_backup(tmp_path / "backups", one.id).ok for one in list_backups(tmp_path / "backups")] == [True]
        nth += 37
    assert nth > 100
    assert [verify_backup(tmp_path / "backups", one.id).ok for one in list_backups(tmp_path / "backups")] == [True] * 2
    assert not list((tmp_path / "backups").glob("*.partial"))


def test_what_a_killed_backup_had_copied_is_not_copied_again(tmp_path: Path) -> None:
    fill(tmp_path / "data", records=600)
    late = FaultFS()
    late.fail("open", path="kafkalog.backup.json", code=errno.EIO)
    with pytest.raises(StorageError):
        create_backup(tmp_path / "data", tmp_path / "backups", fs=late)
    report = create_backup(tmp_path / "data", tmp_path / "backups")
    assert report.linked > 9 * (report.copied + report.cloned)
    assert verify_backup(tmp_path / "backups", deep=True).ok


def test_a_killed_restore_is_never_taken_for_a_log_and_ends_well(tmp_path: Path) -> None:
    fill(tmp_path / "data", records=300, partitions=2)
    create_backup(tmp_path / "data", tmp_path / "backups")
    nth, seen = 3, 0
    while kill_at("restore_backup", tmp_path / "backups", tmp_path / "restored", nth):
        half = tmp_path / "restored"
        if (half / "kafkalog-restore.partial").exists():
            seen += 1
            with pytest.raises(NotAPartition, match="kafkalog-restore"):
                kafkalog.open_dirs(half, "a")
        else:
            assert files(half) in ({}, files(tmp_path / "data"))
        nth += 17
    assert files(tmp_path / "restored") == files(tmp_path / "data")
    assert seen > 4


def test_a_restore_that_fails_leaves_nothing(tmp_path: Path) -> None:
    fill(tmp_path / "data", records=300)
    create_backup(tmp_path / "data", tmp_path / "backups")
    with pytest.raises(StorageError) as caught:
        full = FaultFS()
        full.fail("pwrite", path=str(tmp_path / "restored"), nth=12)
        restore_backup(tmp_path / "backups", tmp_path / "restored", fs=full)
    assert caught.value.errno == errno.ENOSPC
    assert files(tmp_path / "restored") == {}
    restore_backup(tmp_path / "backups", tmp_path / "restored")
    assert offsets(tmp_path / "restored" / "orders-0") == list(range(300))


def damage_file(path: Path, how: str) -> None:
    content = path.read_bytes()
    path.chmod(0o600)
    if how == "missing":
        path.unlink()
    elif how == "length":
        path.write_bytes(content[:-1])
    else:
        path.write_bytes(content[:-1] + bytes([content[-1] ^ 1]))


@pytest.mark.parametrize("how", ["missing", "length", "checksum"])
def test_a_damaged_backup_is_found_and_not_restored(tmp_path: Path, how: str) -> None:
    fill(tmp_path / "data")
    path = Path(create_backup(tmp_path / "data", tmp_path / "backups").path)
    for name in sorted(files(path)):
        content, mode = (path / name).read_bytes(), (path / name).stat().st_mode
        if not content:
            continue
        damage_file(path / name, how)
        found = list(verify_backup(tmp_path / "backups"))
        assert found, name
        if name.startswith("dir0"):
            assert [(one.kind, one.path) for one in found] == [(how, str(path / name))]
            with pytest.raises(CorruptBackup) as caught:
                restore_backup(tmp_path / "backups", tmp_path / "restored")
            assert caught.value.path == str(path / name)
            assert files(tmp_path / "restored") == {}
        (path / name).unlink(missing_ok=True)
        (path / name).write_bytes(content)
        (path / name).chmod(mode)
    assert verify_backup(tmp_path / "backups").ok


def test_a_file_that_somebody_put_there_is_told(tmp_path: Path) -> None:
    fill(tmp_path / "data")
    path = Path(create_backup(tmp_path / "data", tmp_path / "backups").path)
    (path / "dir0" / "orders-0" / "00000000000000009999.log").write_bytes(b"")
    assert [one.kind for one in verify_backup(tmp_path / "backups")] == ["extra"]


def test_a_place_that_holds_something_is_refused(tmp_path: Path) -> None:
    fill(tmp_path / "data")
    create_backup(tmp_path / "data", tmp_path / "backups")
    before = files(tmp_path / "data")
    for place in (tmp_path / "data", tmp_path / "backups" / "here"):
        with pytest.raises(IllegalArgument):
            restore_backup(tmp_path / "backups", place)
    assert files(tmp_path / "data") == before and verify_backup(tmp_path / "backups").ok


def test_a_clock_that_was_set_back_brings_no_backup_before_another(tmp_path: Path) -> None:
    fill(tmp_path / "data")

    class Back:
        now_ms = 1_790_000_000_000

        def milliseconds(self) -> int:
            self.now_ms -= 3_600_000
            return self.now_ms

        def monotonic_ms(self) -> int:
            return 0

        def sleep(self, ms: float) -> None:
            pass

    clock: Any = Back()
    made = [os.path.basename(create_backup(tmp_path / "data", tmp_path / "backups", clock=clock).path) for _ in "123"]
    assert made == sorted(set(made)) and [one.id for one in list_backups(tmp_path / "backups")] == made


def two_backups(tmp_path: Path) -> list[str]:
    """The ids of two backups of two directories; the second has more records in both."""
    ids = []
    for _ in range(2):
        for number in range(2):
            with kafkalog.open_dirs(tmp_path / f"data{number}", "a") as dirs:
                dirs.create_topic("orders", 1, {}) if ("orders", 0) not in dirs else None
                append(dirs["orders", 0], 50)
        places = [tmp_path / f"data{number}" for number in range(2)]
        ids.append(create_backup(places, tmp_path / "backups").manifest.id)
    return ids


def end_offsets(places: list[Path]) -> list[int]:
    return [len(offsets(place / "orders-0")) for place in places]


def test_what_a_refused_restore_has_staged_is_none_of_another_backups(tmp_path: Path) -> None:
    first, second = two_backups(tmp_path)
    path = next((tmp_path / "backups" / second / "dir1" / "orders-0").glob("*.log"))
    damage_file(path, "checksum")
    places = [tmp_path / "restored0", tmp_path / "restored1"]
    with pytest.raises(CorruptBackup):
        restore_backup(tmp_path / "backups", places, second)
    restore_backup(tmp_path / "backups", places, first)
    assert end_offsets(places) == [50, 50]
    assert [files(place) for place in places] == [files(tmp_path / "backups" / first / f"dir{n}") for n in range(2)]


@pytest.mark.parametrize("call", ["rename", "rmdir", "unlink"])
def test_a_restore_of_two_directories_that_was_ended_anywhere_is_gone_on_with(tmp_path: Path, call: str) -> None:
    first, second = two_backups(tmp_path)
    nth, ended = 1, True
    while ended:
        places = [tmp_path / f"at-{nth}" / name for name in ("one", "two")]
        broken, ended = FaultFS(), False
        broken.fail(call, path=f"at-{nth}/", nth=nth, code=errno.EIO)
        try:
            restore_backup(tmp_path / "backups", places, second, fs=broken)
        except StorageError:
            ended = True
            if any((place / "orders-0").exists() for place in places):
                with pytest.raises(IllegalArgument, match="the directory has"):
                    restore_backup(tmp_path / "backups", places, first)
            restore_backup(tmp_path / "backups", places, second)
        assert end_offsets(places) == [100, 100]
        assert [files(place) for place in places] == [files(tmp_path / f"data{n}") for n in range(2)]
        nth += 1
    assert nth > 2
