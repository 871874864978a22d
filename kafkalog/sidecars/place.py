"""The place of a partition's sidecars of one kind: beside its segments, or below a separate directory."""

from __future__ import annotations

import hashlib
import os
import re
import time
from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING, ClassVar, Final

from kafkalog.errors import StorageError
from kafkalog.storage.names import base_name, parse_base_offset
from kafkalog.storage.outside_data import refuse_data_directory
from kafkalog.util.fileio import FileSystem, atomic_write, make_directories
from kafkalog.util.os_errors import os_errors
from kafkalog.util.paths import real_path

if TYPE_CHECKING:
    from kafkalog.util.buffers import Data

LEFTOVER_S: Final = 3600
"""Age in seconds from which on an unfinished file is a leftover of a crash."""
_READABLE: Final = re.compile(r"[^A-Za-z0-9._-]")


class SidecarPlace:
    """The directory with the sidecars of one partition; the class that derives from it names their kind.

    A broker, and recovery, ignore the files beside the segments: their names end in none of Kafka's suffixes. `store`
    is a directory for the sidecars of any number of partitions; None: beside the segments. Threads: immutable.
    """

    __slots__ = ("directory", "fs", "is_beside")

    suffix: ClassVar[str]
    noun: ClassVar[str]

    def __init__(self, partition: str, store: str | os.PathLike[str] | None, fs: FileSystem) -> None:
        self.fs = fs
        self.is_beside = store is None
        self.directory = partition if store is None else _folder(partition, real_path(store), self.noun)

    def path_of(self, base_offset: int) -> str:
        """Return the path of the file of the segment with this base offset."""
        return os.path.join(self.directory, self.file_name(base_offset))

    def file_name(self, base_offset: int) -> str:
        """Return `<20 digits><suffix>`."""
        return base_name(base_offset) + self.suffix

    def base_offsets(self) -> list[int]:
        """Return the base offsets of all files there are, rising; StorageError."""
        return sorted(base for name, base in self._names() if name.endswith(self.suffix))

    def _names(self) -> Iterator[tuple[str, int]]:
        try:
            names = self.fs.names(self.directory)
        except FileNotFoundError:
            return
        except OSError as error:
            raise StorageError.from_os(error, f"list the files of {self.noun}", path=self.directory) from error
        for name in names:
            base = parse_base_offset(name)
            if base is not None and name.startswith(self.file_name(base)):
                yield name, base

    def write(self, base_offset: int, *data: Data) -> str:
        """Write a file, whole or not at all, and return its path. It is not synced: it can be built again."""
        path = self.path_of(base_offset)
        with os_errors(f"write the {self.noun}", path):
            if not self.is_beside:
                make_directories(self.fs, self.directory)
            atomic_write(self.fs, path, *data, sync=False, shared=True)  # another one may build it too
        return path

    def remove_others(self, kept: Iterable[int] = ()) -> int:
        """Remove the files of all segments but the `kept` ones, and unfinished files; return their number.

        An unfinished file younger than LEFTOVER_S may be one that another process writes, and stays.
        """
        bases = frozenset(kept)
        removed = 0
        for name, base in list(self._names()):
            path = os.path.join(self.directory, name)
            is_finished = name.endswith(self.suffix)
            try:
                if base in bases if is_finished else time.time() - self.fs.stat(path).st_mtime < LEFTOVER_S:
                    continue
                removed += self.fs.unlink_if_exists(path)
            except FileNotFoundError:
                continue
            except OSError as error:
                raise StorageError.from_os(error, f"remove the {self.noun}", path=path) from error
        return removed


def _folder(partition: str, store: str, noun: str) -> str:
    data = os.path.dirname(partition)
    refuse_data_directory(store, f"the {noun}", [data])
    readable = _READABLE.sub("_", os.path.basename(data))[:60] or "data"
    digest = hashlib.sha256(os.fsencode(data), usedforsecurity=False).hexdigest()[:16]
    return os.path.join(store, f"{readable}-{digest}", os.path.basename(partition))
