"""The file system of a directory, its properties, and the cases that give a warning."""

from __future__ import annotations

import logging
import warnings
from pathlib import Path

import pytest
from click.testing import CliRunner

import kafkalog
from kafkalog.cli import ls_cmd
from kafkalog.errors import UnsafeFileSystem
from kafkalog.manager.log_manager import LogManager
from kafkalog.util import filesystems
from kafkalog.util.filesystems import Judgement, file_system_of, judge, mount_of, parse_mountinfo

HOST = """\
22 27 0:21 / /proc rw,relatime - proc proc rw
27 1 254:0 / / rw,relatime shared:1 - ext4 /dev/vda rw,discard
28 27 0:30 / /dev/shm rw,nosuid - tmpfs tmpfs rw,size=24684096k
31 27 8:1 / /data rw - xfs /dev/sda1 rw,attr2
32 31 0:40 /export /data/team\\040share rw - nfs4 server:/export rw,vers=4.2,hard
33 27 8:2 / /backup rw,relatime - xfs /dev/sdb1 rw
34 27 0:41 / /backup rw,relatime - cifs //server/share rw,nobrl
35 27 0:42 / /database rw - btrfs /dev/sdc rw,nobarrier
this line is not one
36 27
"""


def judge_path(path: str, text: str = HOST) -> Judgement:
    return judge(path, parse_mountinfo(text))


@pytest.mark.parametrize(
    ("path", "kind", "point"),
    [
        ("/", "ext4", "/"),
        ("/home/me", "ext4", "/"),
        ("/data", "xfs", "/data"),
        ("/data/kafka", "xfs", "/data"),
        ("/database", "btrfs", "/database"),
        ("/databases", "ext4", "/"),
        ("/data/team share/kafka", "nfs4", "/data/team share"),
        ("/data/team", "xfs", "/data"),
        ("/backup/x", "cifs", "/backup"),
        ("/dev/shm", "tmpfs", "/dev/shm"),
    ],
)
def test_the_mount_of_a_path_is_the_deepest_and_the_last(path: str, kind: str, point: str) -> None:
    """Names with blanks, names that only begin alike, one mount over another."""
    mount = mount_of(path, parse_mountinfo(HOST))
    assert mount is not None and (mount.kind, mount.mount_point) == (kind, point)


def test_nothing_is_known_without_mounts() -> None:
    unknown = judge("/x", parse_mountinfo("garbage\n\x00 - \n"))
    assert (unknown.kind, unknown.is_safe, str(unknown)) == ("unknown", True, "unknown")


@pytest.mark.parametrize("kind", ["ext3", "ext4", "xfs", "btrfs", "zfs", "f2fs"])
def test_local_file_systems_with_a_journal_are_safe(kind: str) -> None:
    assert judge_path("/x", f"1 0 8:1 / / rw - {kind} /dev/sda rw").is_safe


@pytest.mark.parametrize("kind", ["nfs", "nfs4", "cifs", "smb3", "ceph", "fuse", "fuse.sshfs", "fuseblk", "9p"])
def test_locks_of_what_others_serve_are_doubted(kind: str) -> None:
    assert judge_path("/x", f"1 0 0:9 / / rw - {kind} there rw").locks


@pytest.mark.parametrize(
    ("kind", "options", "why"),
    [
        ("tmpfs", "rw", "memory"),
        ("ramfs", "rw", "memory"),
        ("ext2", "rw", "journal"),
        ("vfat", "rw", "journal"),
        ("ext4", "rw,nobarrier", "nobarrier"),
        ("xfs", "rw,barrier=0", "barrier=0"),
        ("cifs", "rw,nostrictsync", "nostrictsync"),
        ("overlay", "rw,lowerdir=/a,upperdir=/b,workdir=/c,volatile", "volatile"),
        ("fuse.mergerfs", "rw", "program"),
        ("virtiofs", "rw", "host"),
    ],
)
def test_syncs_that_may_not_hold(kind: str, options: str, why: str) -> None:
    found = judge_path("/x", f"1 0 0:9 / / rw - {kind} there {options}")
    assert found.durable is not None and why in found.durable and not found.is_safe


def test_a_mount_without_locks_says_so() -> None:
    assert "`nolock`" in str(judge_path("/x", "1 0 0:9 / / rw - nfs there rw,vers=3,nolock"))
    assert "`nobrl`" in str(judge_path("/backup/x"))


@pytest.mark.parametrize(
    ("upper", "safe"), [("/data/upper", True), ("/dev/shm/upper", False), ("/backup/upper", False), ("relative", True)]
)
def test_an_overlay_is_what_its_upper_directory_lies_on(upper: str, safe: bool) -> None:
    text = f"{HOST}40 27 0:50 / /merged rw - overlay overlay rw,lowerdir=/l,upperdir={upper},workdir=/w\n"
    assert judge_path("/merged/kafka", text).is_safe is safe


def has_a_root() -> bool:
    """A root that was changed into may lie on no mount of its own."""
    return any(line.split()[4] == "/" for line in Path(filesystems.MOUNTINFO).read_text().splitlines())


@pytest.mark.skipif(not has_a_root(), reason="the root of this process is the mount of nothing")
def test_this_machine_tells_what_a_directory_lies_on(tmp_path: Path) -> None:
    found = file_system_of(tmp_path)
    assert found.kind != "unknown" and found.mount is not None and found.mount.source in str(found)


# Warnings


@pytest.fixture
def mounts(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A file that says what the system says; write it before the directory is opened."""
    path = tmp_path / "mountinfo"
    path.write_text("1 0 8:1 / / rw - ext4 /dev/sda rw\n")
    monkeypatch.setattr(filesystems, "MOUNTINFO", str(path))
    monkeypatch.setattr(filesystems, "_warned", set())
    return path


def warn_twice(path: Path, **more: object) -> list[warnings.WarningMessage]:
    with warnings.catch_warnings(record=True) as warned:
        warnings.simplefilter("always")
        for _ in range(2):
            kafkalog.open(path, "a", **more).close()  # type: ignore[arg-type]
    return warned


def test_a_network_file_system_is_warned_of_once_a_directory(tmp_path: Path, mounts: Path) -> None:
    """The warning names the line that opened it and has its own class, and nothing is refused."""
    mounts.write_text("1 0 0:9 / / rw - nfs4 server:/x rw\n")
    warned = warn_twice(tmp_path / "d" / "t-0")
    assert [one.category for one in warned] == [UnsafeFileSystem] and warned[0].filename == __file__
    assert f"{tmp_path / 'd'} is on nfs4: its locks" in str(warned[0].message)
    assert warn_twice(tmp_path / "d" / "t-1") == []
    assert len(warn_twice(tmp_path / "e" / "t-0")) == 1


def test_memory_is_warned_of_where_syncs_are_asked_for(tmp_path: Path, mounts: Path) -> None:
    mounts.write_text("1 0 0:9 / / rw - tmpfs tmpfs rw\n")
    assert warn_twice(tmp_path / "d" / "t-0") == []
    warned = warn_twice(tmp_path / "d" / "t-0", sync=True)
    assert len(warned) == 1 and "memory" in str(warned[0].message)
    assert len(warn_twice(tmp_path / "e" / "t-0", sync=10)) == 1


def test_a_warning_that_is_made_an_error_leaves_nothing_behind(tmp_path: Path, mounts: Path) -> None:
    mounts.write_text("1 0 0:9 / / rw - nfs server:/x rw\n")
    with warnings.catch_warnings():
        warnings.simplefilter("error", UnsafeFileSystem)
        with pytest.raises(UnsafeFileSystem):
            kafkalog.open(tmp_path / "d" / "t-0", "a")
    assert not (tmp_path / "d").exists()


def test_a_safe_one_and_an_unknown_one_are_not_warned_of(tmp_path: Path, mounts: Path) -> None:
    assert warn_twice(tmp_path / "d" / "t-0", sync=True) == []
    mounts.unlink()
    assert warn_twice(tmp_path / "e" / "t-0", sync=True) == []


def test_a_store_of_directories_warns_as_well(tmp_path: Path, mounts: Path) -> None:
    mounts.write_text("1 0 0:9 / / rw - fuse.sshfs me@there: rw\n")
    with pytest.warns(UnsafeFileSystem, match="is on fuse.sshfs"):
        LogManager.open([tmp_path / "d"]).close()


def test_ls_notes_what_is_doubtful_and_all_with_v(
    tmp_path: Path, mounts: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(logging, "basicConfig", lambda **given: None)
    kafkalog.open(tmp_path / "d" / "t-0", "a").close()

    def run_ls(*more: str) -> str:
        return CliRunner().invoke(ls_cmd.command, ["-d", str(tmp_path / "d"), "-t", "t", *more]).stderr

    assert run_ls() == ""
    assert run_ls("-v") == f"{tmp_path / 'd'}: ext4 on /dev/sda\n"
    mounts.write_text("1 0 0:9 / / rw - 9p hostshare rw\n")
    assert "9p on hostshare; it belongs to the host" in run_ls()
    assert run_ls("-q") == ""
