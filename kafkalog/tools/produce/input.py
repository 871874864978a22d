"""Input files of a command, opened together and read one after the other."""

from __future__ import annotations

import os
import stat
from collections.abc import Iterator, Sequence

from kafkalog.errors import StorageError
from kafkalog.util.closing import Closing

STDIN_NAME = "stdin"


class Inputs(Closing):
    """The named files (`-` is stdin), all opened before the first is read, so that a wrong name costs nothing.

    StorageError for the first that cannot be opened. Iterating gives (descriptor, name) and closes each when the next
    is requested. `total` is their size in bytes, None if one is not a regular file.
    """

    def __init__(self, names: Sequence[str]) -> None:
        self._open: list[tuple[int, str]] = []
        self.total: int | None = 0
        for name in names:
            try:
                fd = 0 if name == "-" else os.open(name, os.O_RDONLY | os.O_CLOEXEC)
                self._open.append((fd, STDIN_NAME if name == "-" else name))
                status = os.fstat(fd)
                if stat.S_ISDIR(status.st_mode):
                    raise IsADirectoryError(21, "Is a directory", name)
            except OSError as error:
                self.close()
                raise StorageError.from_os(error, "read the input", path=name) from error
            if self.total is not None:
                self.total = self.total + status.st_size if stat.S_ISREG(status.st_mode) else None

    def __iter__(self) -> Iterator[tuple[int, str]]:
        while self._open:
            yield self._open[0]
            self._close_first()

    def _close_first(self) -> None:
        fd, _ = self._open.pop(0)
        if fd != 0:
            os.close(fd)

    def close(self) -> None:
        """Close the files that are still open; stdin stays open."""
        while self._open:
            self._close_first()
