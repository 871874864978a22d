"""A planned repair carried out: the backup first, on disk; then each change, so that a crash leaves old or new."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from typing import Final

from kafkalog.errors import IllegalArgument, StorageError
from kafkalog.tools.repair_plan import Change, partition_owner
from kafkalog.util.fileio import FileSystem

COPY_BYTES: Final = 1 << 20
NEW_SUFFIX: Final = ".repair"
MANIFEST: Final = "repair.json"


class Backup:
    """A directory that gets every byte a repair changes or removes, before it does; made by the first use.

    It holds one directory for each partition: files that are replaced, whole, under their names; of a file that is cut,
    the bytes behind the cut as `<name>.from-<position>`; and `repair.json`, which says what was done to which file.
    """

    def __init__(self, path: str, fs: FileSystem, within: str | None = None) -> None:
        """`within` is a directory that is to be made first: one for the backups of several data directories."""
        self.path = path
        self._within = within
        self._fs = fs
        self.is_used = False

    def check(self, data_directory: str) -> None:
        """IllegalArgument for a place inside the data directory (a broker would not start) or one that is not empty."""
        inside = os.path.commonpath([os.path.realpath(self.path), os.path.realpath(data_directory)])
        if inside == os.path.realpath(data_directory):
            raise IllegalArgument(
                "the backup would lie inside the data directory, where Kafka takes each directory for a partition",
                path=self.path, hint="give --backup-dir another place",
            )  # fmt: skip
        if self._fs.exists(self.path) and (not os.path.isdir(self.path) or self._fs.listdir(self.path)):
            raise IllegalArgument("the backup directory is not empty", path=self.path, hint="give a new one")

    def save(self, partition: str, changes: Sequence[Change], name: str = "") -> None:
        """Returns when all that the changes touch is in the backup, on disk; StorageError.

        It goes to the directory `name`, by default that of the partition.
        """
        target = os.path.join(self.path, name or os.path.basename(partition))
        try:
            for made in (*([self._within] if self._within else []), self.path, target):
                if not self._fs.exists(made):
                    self._fs.mkdir(made)
                    self._fs.fsync_dir(os.path.dirname(os.path.abspath(made)))
            self.is_used = True
            for change in changes:
                name = os.path.basename(change.path)
                if change.kind == "cut":
                    self._copy(change.path, os.path.join(target, f"{name}.from-{change.size_after}"), change.size_after)
                elif change.size_before >= 0:
                    self._copy(change.path, os.path.join(target, name), 0)
            manifest = {"partition": os.path.abspath(partition), "changes": [one.as_json() for one in changes]}
            self._write(os.path.join(target, MANIFEST), json.dumps(manifest, indent=1).encode())
            self._fs.fsync_dir(target)
        except OSError as error:
            if isinstance(error, StorageError):
                raise
            raise StorageError.from_os(error, "write the backup", path=error.filename or target) from error

    def _copy(self, source: str, target: str, position: int) -> None:
        with self._fs.open_file(source, "r") as old, self._fs.open_file(target, "exclusive") as new:
            at = 0
            while data := old.pread(COPY_BYTES, position + at):
                new.pwrite(data, at)
                at += len(data)
            new.sync()

    def _write(self, path: str, data: bytes) -> None:
        with self._fs.open_file(path, "exclusive") as file:
            file.pwrite(data, 0)
            file.sync()


def apply_change(change: Change, fs: FileSystem) -> None:
    """Returns when the change is on disk; StorageError leaves the file as it was or as it should be.

    A new index has the owner and the permissions of the old one: a broker of another user must be able to write it.
    """
    try:
        if change.kind == "remove":
            fs.unlink_if_exists(change.path)
            fs.fsync_dir(os.path.dirname(change.path) or ".")
            return
        if change.kind == "cut":
            with fs.open_file(change.path, "rw") as file:
                file.truncate(change.size_after)
                file.sync()
            return
        fresh = stage(change, NEW_SUFFIX, fs) if change.staged is None else change
        _put_in_place(fresh, fs)
    except StorageError:
        raise
    except OSError as error:
        raise StorageError.from_os(error, "repair", path=change.path) from error


def stage(change: Change, suffix: str, fs: FileSystem) -> Change:
    """The rebuild with its content on disk, synced, in a file beside the one it is for: its name and `suffix`.

    A file half written is removed. OSError when the system refuses.
    """
    user, group, mode = partition_owner(change.path, fs)
    fresh = change.path + suffix
    fs.unlink_if_exists(fresh)
    with _removed_on_error(fresh, fs), fs.open_file(fresh, "exclusive") as file:
        fs.fchmod(file.fileno(), mode)
        if (os.geteuid(), os.getegid()) != (user, group):
            fs.fchown(file.fileno(), user, group)
        file.pwrite(change.data or b"", 0)
        file.sync()
    return replace(change, data=None, staged=fresh)


def _put_in_place(change: Change, fs: FileSystem) -> None:
    """What is staged becomes the file, in one step."""
    assert change.staged is not None
    with _removed_on_error(change.staged, fs):
        size = fs.stat(change.staged).st_size
        if size != change.size_after:
            what = f"what was made anew has {size} bytes on disk, not {change.size_after}"
            raise StorageError(what, path=change.staged, hint="this file was not changed: try again")
        fs.rename(change.staged, change.path)
    fs.fsync_dir(os.path.dirname(change.path) or ".")


@contextmanager
def _removed_on_error(path: str, fs: FileSystem) -> Iterator[None]:
    try:
        yield
    except BaseException:
        try:
            fs.unlink_if_exists(path)
        except OSError:
            pass
        raise
