"""Listing of a partition directory: names and sizes, read once without opening a file."""

from __future__ import annotations

import errno
import os
import stat
from typing import NamedTuple

from kafkalog.errors import NOT_REGULAR, NotAPartition, StorageError
from kafkalog.storage.names import LOG_SUFFIX
from kafkalog.util.descriptors import with_room
from kafkalog.util.fileio import FileSystem


class Directory(NamedTuple):
    """The names in a partition directory, and the bytes of each of its regular `.log` files."""

    path: str
    names: tuple[str, ...]
    sizes: dict[str, int]

    def size_of(self, log_name: str) -> int:
        """Return the bytes of a segment's `.log` file; StorageError if it is missing or not a regular file."""
        size = self.sizes.get(log_name)
        if size is None:
            path = os.path.join(self.path, log_name)
            error = OSError(errno.ENOENT, os.strerror(errno.ENOENT))
            if log_name in self.names:
                error = OSError(errno.EINVAL, NOT_REGULAR)
            raise StorageError.from_os(error, "open the segment", path=path)
        return size


def list_directory(path: str, fs: FileSystem) -> Directory:
    """List the directory as it is now; NotAPartition for a file, StorageError."""
    names: list[str] = []
    sizes: dict[str, int] = {}
    try:
        with with_room(fs.scandir, path) as entries:
            for entry in entries:
                name = entry.name
                names.append(name)
                if name.endswith(LOG_SUFFIX):
                    status = entry.stat()
                    if stat.S_ISREG(status.st_mode):
                        sizes[name] = status.st_size
    except NotADirectoryError as error:
        raise NotAPartition("a file was given instead of a partition directory", path=path) from error
    except OSError as error:
        where = error.filename if isinstance(error.filename, str) else path
        if isinstance(error, FileNotFoundError) and os.path.islink(where):
            raise missing_target(where) from error
        raise StorageError.from_os(error, "read the partition directory", path=where) from error
    return Directory(path, tuple(names), sizes)


def missing_target(link: str) -> StorageError:
    """Return the error for a symbolic link to a file that is missing."""
    return StorageError(
        "the target of a symbolic link is missing", path=link, hint="restore its target, or remove the link"
    )
