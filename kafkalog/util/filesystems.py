"""File systems of directories, and how reliable their locks and syncs are.

The mounts come from `/proc/self/mountinfo` (proc(5)), one line each. Finding the mount of a path, and judging it, are
functions of that text. Without that file nothing is known and no warning is given.
"""

from __future__ import annotations

import os
import sys
import warnings
from typing import Final, NamedTuple

from kafkalog.errors import UnsafeFileSystem
from kafkalog.util.fileio import OS

MOUNTINFO: Final = "/proc/self/mountinfo"
_MOST_BYTES: Final = 1 << 24
_PACKAGE: Final = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))

_IN_MEMORY: Final = frozenset(("devtmpfs", "hugetlbfs", "ramfs", "rootfs", "tmpfs"))
_WITHOUT_JOURNAL: Final = frozenset(("exfat", "ext2", "hfs", "hfsplus", "minix", "msdos", "ntfs", "udf", "vfat"))
_NETWORK: Final = frozenset(("afs", "beegfs", "ceph", "cifs", "gfs2", "gpfs", "lustre", "nfs", "nfs4", "smb3", "smbfs"))
_FROM_THE_HOST: Final = frozenset(("9p", "drvfs", "prl_fs", "vboxsf", "virtiofs", "vmhgfs", "wslfs"))
_WITHOUT_BARRIERS: Final = frozenset(("barrier=0", "nobarrier", "nostrictsync"))
_WITHOUT_LOCKS: Final = frozenset(("local_lock=all", "local_lock=posix", "localflock", "nobrl", "nolock"))


class Mount(NamedTuple):
    """A mounted file system: its type ("ext4"), mount point, source and options."""

    kind: str
    mount_point: str
    source: str
    options: frozenset[str]


class Judgement(NamedTuple):
    """Reliability of a directory's file system; `mount` is its mount, None if unknown.

    `locks` is the reason why another process might write as well. `durable` is the reason why a power loss or a restart
    might lose synced data. Each is None if there is no doubt.
    """

    mount: Mount | None
    locks: str | None = None
    durable: str | None = None

    @property
    def kind(self) -> str:
        """Type of the file system, or "unknown"."""
        return "unknown" if self.mount is None else self.mount.kind

    @property
    def is_safe(self) -> bool:
        """True if there is no doubt about locks and syncs."""
        return self.locks is None and self.durable is None

    def __str__(self) -> str:
        """Return the file system, its source, and any doubts."""
        name = self.kind if self.mount is None else f"{self.kind} on {self.mount.source}"
        return "; ".join([name, *(reason for reason in (self.locks, self.durable) if reason is not None)])


def parse_mountinfo(text: str) -> tuple[Mount, ...]:
    """Return the mounts in the order of the file; skip lines in another format."""
    mounts = []
    for line in text.splitlines():
        before, separator, after = line.partition(" - ")
        fields, more = before.split(" "), after.split(" ")
        if not separator or len(fields) < 6 or len(more) < 2:
            continue
        options = {*fields[5].split(","), *(more[2].split(",") if len(more) > 2 else ())}
        names = frozenset(map(_unescape, options - {""}))
        mounts.append(Mount(more[0], _unescape(fields[4]), _unescape(more[1]), names))
    return tuple(mounts)


def _unescape(text: str) -> str:
    """Return a field with octal escapes of blanks, tabs, newlines and backslashes decoded."""
    for escape, sign in (("\\040", " "), ("\\011", "\t"), ("\\012", "\n"), ("\\134", "\\")):
        text = text.replace(escape, sign)
    return text


def mount_of(path: str, mounts: tuple[Mount, ...]) -> Mount | None:
    """Return the mount of the absolute path `path`: the deepest, and at one mount point the last one mounted."""
    found: Mount | None = None
    for mount in mounts:
        point = mount.mount_point.rstrip("/")
        if path == point or path.startswith(point + "/"):
            if found is None or len(point) >= len(found.mount_point.rstrip("/")):
                found = mount
    return found


def judge(path: str, mounts: tuple[Mount, ...]) -> Judgement:
    """Judge the absolute path `path`; for an overlay, the file system of its upper directory counts as well."""
    mount = mount_of(path, mounts)
    if mount is None:
        return Judgement(None)
    if mount.kind == "overlay":
        return _judge_overlay(mount, mounts)
    return Judgement(mount, _doubt_about_locks(mount), _doubt_about_syncs(mount))


def _judge_overlay(mount: Mount, mounts: tuple[Mount, ...]) -> Judgement:
    if "volatile" in mount.options:
        return Judgement(mount, None, "it is an overlay mounted with `volatile`, which ignores every sync")
    upper = next((o.partition("=")[2] for o in mount.options if o.startswith("upperdir=")), "")
    upper_mount = mount_of(upper, mounts) if upper.startswith("/") else None
    if upper_mount is None or upper_mount.kind == "overlay":
        return Judgement(mount)
    return Judgement(mount, _doubt_about_locks(upper_mount), _doubt_about_syncs(upper_mount))


def _doubt_about_locks(mount: Mount) -> str | None:
    kind = mount.kind
    without = sorted(mount.options & _WITHOUT_LOCKS)
    if without:
        return f"it is mounted with `{without[0]}`: a lock taken here does not exclude other machines"
    if kind in _NETWORK:
        return "its locks are only as reliable as its server, and every machine must lock through that server"
    if _is_fuse(kind):
        return "a user-space program serves it and decides whether locks hold"
    if kind in _FROM_THE_HOST:
        return "it belongs to the host of this virtual machine, which our lock does not exclude"
    return None


def _doubt_about_syncs(mount: Mount) -> str | None:
    kind = mount.kind
    without = sorted(mount.options & _WITHOUT_BARRIERS)
    if without:
        return f"it is mounted with `{without[0]}`: a sync does not wait until the data is on disk"
    if kind in _IN_MEMORY:
        return "it is in memory: a restart of the machine loses even synced data"
    if kind in _WITHOUT_JOURNAL:
        return "it has no journal: a power loss can damage names and lengths of synced files"
    if _is_fuse(kind):
        return "a user-space program serves it and decides what a sync means"
    if kind in _FROM_THE_HOST:
        return "it belongs to the host of this virtual machine, which decides what a sync means"
    return None


def _is_fuse(kind: str) -> bool:
    return kind in ("fuse", "fuseblk") or kind.startswith("fuse.")


def file_system_of(path: str | os.PathLike[str]) -> Judgement:
    """Judge a directory, existing or not; the result is unknown without `/proc/self/mountinfo`."""
    try:
        text = _read_mounts().decode(errors="replace")
    except OSError:
        return Judgement(None)
    return judge(os.path.realpath(os.fspath(path)), parse_mountinfo(text))


def _read_mounts() -> bytes:
    """Return the mounts, read piece by piece since the file has no length."""
    with OS.open_file(MOUNTINFO, "r") as file:
        data = bytearray()
        while len(data) < _MOST_BYTES and (piece := file.pread(1 << 16, len(data))):
            data += piece
    return bytes(data)


# Warnings

_warned: set[tuple[str, bool]] = set()


def warn_if_unsafe(directory: str, *, durable: bool) -> None:
    """Warn once for each data directory on a file system with unreliable locks: UnsafeFileSystem.

    With `durable` (the caller requested syncs) also warn if synced data may be lost. It is never an error by itself.
    """
    if (directory, True) in _warned or (directory, durable) in _warned:
        return
    _warned.add((directory, durable))
    found = file_system_of(directory)
    reasons = [reason for reason in (found.locks, found.durable if durable else None) if reason is not None]
    if reasons:
        warnings.warn(
            f"{directory} is on {found.kind}: {'; '.join(reasons)}", UnsafeFileSystem, stacklevel=_first_caller()
        )


def _first_caller() -> int:
    """Return the stacklevel, relative to the caller, of the first frame outside this package, for the warning."""
    level, frame = 1, sys._getframe(1)
    while frame.f_back is not None and frame.f_code.co_filename.startswith(_PACKAGE):
        level, frame = level + 1, frame.f_back
    return level
