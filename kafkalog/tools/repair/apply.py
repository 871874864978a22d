"""Execution of a planned repair: the backup first, on disk; then each change, so that a crash leaves old or new."""

from __future__ import annotations

import json
import os
from collections.abc import Iterable, Iterator, Sequence
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import replace
from itertools import groupby
from typing import Final

from kafkalog.errors import IllegalArgument, StorageError
from kafkalog.storage.names import INDEX_SUFFIX, TIME_INDEX_SUFFIX
from kafkalog.tools.repair.excise import sound_ranges
from kafkalog.tools.repair.plan import Change, partition_owner, saved_name
from kafkalog.util.fileio import File, FileSystem
from kafkalog.util.os_errors import os_errors

COPY_BYTES: Final = 1 << 20
NEW_SUFFIX: Final = ".repair"
MANIFEST: Final = "repair.json"


class Backup:
    """A directory that gets every byte before a repair changes or removes it; created at first use.

    It holds one directory for each partition: replaced files, whole, under their names; the bytes after a cut and each
    damaged piece as `<name>.from-<position>`; and `repair.json`, which lists the change to each file.
    """

    def __init__(self, path: str, fs: FileSystem, within: str | None = None) -> None:
        """Create nothing yet. `within` is a directory to create first, for the backups of several data directories."""
        self.path = path
        self._within = within
        self._fs = fs
        self.is_used = False

    def check(self, data_directory: str) -> None:
        """Raise IllegalArgument for a place inside the data directory (a broker would not start) or a non-empty one."""
        inside = os.path.commonpath([os.path.realpath(self.path), os.path.realpath(data_directory)])
        if inside == os.path.realpath(data_directory):
            raise IllegalArgument(
                "the backup would be inside the data directory, where Kafka takes every directory for a partition",
                path=self.path, hint="give another --backup-dir",
            )  # fmt: skip
        if self._fs.exists(self.path) and (not os.path.isdir(self.path) or self._fs.listdir(self.path)):
            raise IllegalArgument("the backup directory is not empty", path=self.path, hint="give a new one")

    def save(self, partition: str, changes: Sequence[Change], name: str = "") -> None:
        """Write all bytes that the changes affect to the backup, and sync them; StorageError.

        They go to the directory `name`, by default that of the partition.
        """
        target = os.path.join(self.path, name or os.path.basename(partition))
        try:
            for directory in (*([self._within] if self._within else []), self.path, target):
                if not self._fs.exists(directory):
                    self._fs.mkdir(directory)
                    self._fs.fsync_dir(os.path.dirname(os.path.abspath(directory)))
            self.is_used = True
            for change in changes:
                if change.kind == "cut":
                    saved = os.path.join(target, saved_name(change.path, change.size_after))
                    self._copy(change.path, saved, change.size_after)
                elif change.kind == "excise":
                    for piece in change.pieces:
                        position = piece.position or 0
                        saved = os.path.join(target, saved_name(change.path, position))
                        self._copy(change.path, saved, position, piece.size)
                elif change.size_before >= 0:
                    self._copy(change.path, os.path.join(target, os.path.basename(change.path)), 0)
            manifest = {"partition": os.path.abspath(partition), "changes": [one.as_json() for one in changes]}
            self._write(os.path.join(target, MANIFEST), json.dumps(manifest, indent=1).encode())
            self._fs.fsync_dir(target)
        except OSError as error:
            if isinstance(error, StorageError):
                raise
            raise StorageError.from_os(error, "write the backup", path=error.filename or target) from error

    def _copy(self, source: str, target: str, position: int, size: int | None = None) -> None:
        with self._fs.open_file(source, "r") as old, self._fs.open_file(target, "exclusive") as new:
            copy_ranges(old, new, [(position, old.size() if size is None else position + size)])
            new.sync()

    def _write(self, path: str, data: bytes) -> None:
        with self._fs.open_file(path, "exclusive") as file:
            file.pwrite(data, 0)
            file.sync()


def apply_changes(changes: Sequence[Change], fs: FileSystem) -> None:
    """Apply all changes in order and sync them; the files of an excised segment are changed together.

    StorageError.
    """
    excised = {_segment_of(change.path) for change in changes if change.kind == "excise"}
    for (segment, is_removal), group in groupby(changes, lambda one: (_segment_of(one.path), one.kind == "remove")):
        if segment in excised and not is_removal:
            _excise(list(group), fs)
            continue
        for change in group:
            apply_change(change, fs)


def _segment_of(path: str) -> str:
    directory, name = os.path.split(path)
    return os.path.join(directory, name.partition(".")[0])


def _excise(changes: Sequence[Change], fs: FileSystem) -> None:
    """Replace a segment by one without its damaged pieces, with matching indexes.

    All are first written to other files. The old indexes are removed before the segment changes: their positions would
    be wrong then, while a reader without indexes rebuilds them from the log. StorageError.
    """
    directory = os.path.dirname(changes[0].path)
    staged: list[Change] = []
    try:
        with ExitStack() as stack:
            for change in changes:
                staged.append(stage(change, NEW_SUFFIX, fs))
                stack.enter_context(_remove_on_error(change.path + NEW_SUFFIX, fs))
            for change in changes:
                if change.path.endswith((INDEX_SUFFIX, TIME_INDEX_SUFFIX)):
                    fs.unlink_if_exists(change.path)
            fs.fsync_dir(directory)
            for change in sorted(staged, key=lambda one: one.kind != "excise"):
                _replace_file(change, fs)
    except StorageError:
        raise
    except OSError as error:
        raise StorageError.from_os(error, "repair", path=error.filename or changes[0].path) from error


def apply_change(change: Change, fs: FileSystem) -> None:
    """Apply a change and sync it; StorageError leaves the file as it was or as it should be.

    A new index gets the owner and the permissions of the old one: a broker of another user must be able to write it.
    """
    with os_errors("repair", change.path):
        if change.kind == "remove":
            fs.unlink_if_exists(change.path)
            fs.fsync_dir(os.path.dirname(change.path) or ".")
        elif change.kind == "cut":
            with fs.open_file(change.path, "rw") as file:
                file.truncate(change.size_after)
                file.sync()
        else:
            _replace_file(stage(change, NEW_SUFFIX, fs) if change.staged is None else change, fs)


def stage(change: Change, suffix: str, fs: FileSystem) -> Change:
    """Write a rebuild's or excision's content, synced, to a file beside its target.

    Its name is the target's with `suffix`. A partially written file is removed. OSError if the system refuses.
    """
    user, group, mode = partition_owner(change.path, fs)
    new_path = change.path + suffix
    fs.unlink_if_exists(new_path)
    with _remove_on_error(new_path, fs), fs.open_file(new_path, "exclusive") as file:
        fs.fchmod(file.fileno(), mode)
        if (os.geteuid(), os.getegid()) != (user, group):
            fs.fchown(file.fileno(), user, group)
        if change.kind == "excise":
            with fs.open_file(change.path, "r") as old:
                copy_ranges(old, file, sound_ranges(change.pieces, change.size_before))
        else:
            file.pwrite(change.data or b"", 0)
        file.sync()
    return replace(change, data=None, staged=new_path)


def _replace_file(change: Change, fs: FileSystem) -> None:
    """Rename the staged file to its target, in one step."""
    assert change.staged is not None
    with _remove_on_error(change.staged, fs):
        size = fs.stat(change.staged).st_size
        if size != change.size_after:
            what = f"the new file has {size} bytes on disk, not {change.size_after}"
            raise StorageError(what, path=change.staged, hint="the old file was not changed: try again")
        fs.rename(change.staged, change.path)
    fs.fsync_dir(os.path.dirname(change.path) or ".")


@contextmanager
def _remove_on_error(path: str, fs: FileSystem) -> Iterator[None]:
    try:
        yield
    except BaseException:
        with suppress(OSError):
            fs.unlink_if_exists(path)
        raise


def copy_ranges(source: File, target: File, ranges: Iterable[tuple[int, int]]) -> None:
    """Copy ranges of bytes of one file to the start of another, one after the other. OSError."""
    end = 0
    for start, stop in ranges:
        while start < stop and (data := source.pread(min(COPY_BYTES, stop - start), start)):
            target.pwrite(data, end)
            start += len(data)
            end += len(data)
