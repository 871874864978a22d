"""A data file by its name: opened when it is touched, closed when the process holds too many, opened again."""

from __future__ import annotations

import errno
import os
import weakref
from typing import Any, Protocol

from kafkalog._core.mapping import Witness
from kafkalog.util.descriptors import DESCRIPTORS
from kafkalog.util.fileio import File, FileSystem


class DataFile(Protocol):
    """What a range of a file is read through: an open File, or one that is opened by the first read."""

    path: str

    def pread(self, size: int, position: int) -> bytes: ...
    def pread_into(self, buffer: Any, position: int) -> int: ...
    def stat(self) -> os.stat_result: ...
    def next_data(self, position: int) -> int: ...
    def expect_whole_read(self) -> None: ...


class Owner(Protocol):
    """Who writes to the file by the number of its descriptor, so that only he can say when it may be closed."""

    def lend(self) -> bool: ...


class LazyFile:
    """A file that is open only as long as that is worth a descriptor. `file` is it, None while it is closed.

    A reader takes the File and keeps it for the length of its call: closing drops the one reference that is held here,
    so a descriptor is given back when the last reader is done with it, and its number never means another file to any
    of them. Who writes by number sets `owner`, and is asked instead (`FileRecords.lend`).

    What is closed without being synced leaves a witness behind (`_core/mapping.pyx`): a failed write-back is told to
    the files that are open at the time, so an fsync through a descriptor that is opened later could say that all is
    well when it is not. `sync` asks both.

    Threads: reads from any thread, beside `let_go`, `rename_to` and `end`; those, and writing, are for the owner.
    """

    __slots__ = (
        "__weakref__", "_fs", "_identity", "_kept", "_mode", "_next_path", "_renames", "_witness", "file", "is_gone",
        "owner", "path", "used", "was_written",
    )  # fmt: skip

    def __init__(self, path: str, fs: FileSystem, mode: str = "rw", file: File | None = None) -> None:
        self.path = path
        self.file = file
        self.used = True
        self.was_written = False
        self.is_gone = False
        self.owner: weakref.ref[Owner] | None = None
        self._fs = fs
        self._identity: tuple[int, int] | None = None
        self._kept: File | None = None
        self._mode = mode
        self._next_path: str | None = None
        self._renames = 0
        self._witness: Witness | None = None

    def opened(self) -> File:
        """The open file; OSError where it cannot be opened, FileNotFoundError once it has lost its name."""
        file = self.file
        if file is None:
            DESCRIPTORS.make_room()
            self.file = file = self._find()
            self.share()
        self.used = True
        return file

    def share(self) -> None:
        """Let the file be closed when others are needed more."""
        DESCRIPTORS.add(self)

    def _find(self) -> File:
        """The file, by whichever name it has: a rename may go on beside this, and another file take the old name."""
        while True:
            renames, names = self._renames, (self.path, self._next_path)
            if self._kept is not None:
                return self._kept
            if not self._mode:
                raise self.lost()
            failure: OSError | None = None
            for name in names:
                if name is None:
                    continue
                try:
                    file = self._fs.open_file(name, self._mode)
                except FileNotFoundError as error:
                    failure = failure or error
                    continue
                if self._renames == renames:
                    return self._same(file)
                file.close()
                break
            if failure is not None and self._renames == renames:
                raise failure

    def _same(self, file: File) -> File:
        """The file, unless it is known to be another one that has taken the name."""
        if self._identity is not None:
            status = file.stat()
            if (status.st_dev, status.st_ino) != self._identity:
                file.close()
                raise self.lost()
        return file

    def lost(self) -> FileNotFoundError:
        """The error for a file that has no name any more and is not open."""
        return FileNotFoundError(errno.ENOENT, "the file was deleted or closed", self.path)

    def let_go(self) -> bool:
        """Close the file for now; False where it is written to, or cannot be closed safely."""
        if self._kept is not None:
            return False
        owner = None if self.owner is None else self.owner()
        return self.put_away() if owner is None else owner.lend()

    def put_away(self) -> bool:
        """Close the file for now, whoever writes to it: nobody does at this moment."""
        file = self.file
        if file is not None and self.was_written and self._witness is None:
            try:
                self._witness = Witness(file.fileno())
            except OSError:  # a file system without mappings
                return False
        self.file = None
        return True

    def pin(self, *, has_name: bool) -> None:
        """Stay readable for those who have slices, whatever comes next: from now on nobody tells of a new name.

        The file is opened, and kept open. With `has_name`, where it is not deleted and too many are open already, its
        identity is noted instead: it can be found again until somebody takes it away.
        """
        try:
            if self.file is None and has_name:
                DESCRIPTORS.make_room()
                if len(DESCRIPTORS) >= DESCRIPTORS.limit:
                    status = self._fs.stat(self.path)
                    self._identity = status.st_dev, status.st_ino
                    return
            self._kept = self.opened()
        except OSError:
            pass
        self._mode = ""

    def will_be(self, path: str) -> None:
        """Know that the file's directory is about to get another name; `relocate` says that it has it, or has not."""
        self._next_path = path
        self._renames += 1

    def relocate(self, path: str) -> None:
        """Know what the file's name is now."""
        self.path = path
        self._next_path = None
        self._renames += 1
        file = self.file
        if file is not None:
            file.path = path

    def rename_to(self, path: str) -> None:
        """Give the file another name; OSError leaves the old one."""
        self._next_path = path
        self._renames += 1
        try:
            self._fs.rename(self.path, path)
            self.path = path
        finally:
            self._next_path = None
            self._renames += 1
        file = self.file
        if file is not None:
            file.path = path

    def datasync(self) -> None:
        """Return when all that was written is on disk; OSError also where a part was lost while the file was closed."""
        self.opened().datasync()
        if self._witness is not None:
            self._witness.sync()

    @property
    def has_witness(self) -> bool:
        """True where the file was closed with something unsynced in it, and `dismiss_witness` was not called since."""
        return self._witness is not None

    def dismiss_witness(self) -> None:
        """All that was written is on disk, and was asked after."""
        self._witness = None

    # Reading, for slices

    def pread(self, size: int, position: int) -> bytes:
        """As `File.pread`."""
        return self.opened().pread(size, position)

    def pread_into(self, buffer: Any, position: int) -> int:
        """As `File.pread_into`."""
        return self.opened().pread_into(buffer, position)

    def stat(self) -> os.stat_result:
        """As `File.stat`."""
        return self.opened().stat()

    def next_data(self, position: int) -> int:
        """As `File.next_data`."""
        return self.opened().next_data(position)

    def expect_whole_read(self) -> None:
        """As `File.expect_whole_read`; a file that cannot be opened tells when it is read."""
        try:
            self.opened().expect_whole_read()
        except OSError:
            pass

    def __repr__(self) -> str:
        return f"<LazyFile {self.path} {'closed for now' if self.file is None else 'open'}>"
