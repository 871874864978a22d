"""The directory that benchmarks write to: empty when they begin, and left as it was found."""

from __future__ import annotations

import os
import shutil
import signal
import tempfile
from typing import Final

from kafkalog.errors import IllegalArgument, IllegalState, PartitionNotFound, StorageError
from kafkalog.manager.producer_ids import PRODUCER_IDS_FILE
from kafkalog.manager.topics import TOPICS_FILE
from kafkalog.remote import refuse_to_write
from kafkalog.storage.names import CLEAN_SHUTDOWN_FILE, LOCK_FILE
from kafkalog.util.checkpoint import CLEANER_OFFSET_FILE, HIGH_WATERMARK_FILE, LOG_START_FILE, RECOVERY_POINT_FILE
from kafkalog.util.fileio import OS, TMP_SUFFIX
from kafkalog.util.interrupts import deferred_interrupts
from kafkalog.util.paths import real_path

__all__ = ["Place"]

_FILES: Final = frozenset((
    LOCK_FILE, CLEAN_SHUTDOWN_FILE, TOPICS_FILE, PRODUCER_IDS_FILE,
    CLEANER_OFFSET_FILE, HIGH_WATERMARK_FILE, LOG_START_FILE, RECOVERY_POINT_FILE,
))  # fmt: skip
"""What logs leave beside their directories."""


class Place:
    """A data directory for the logs of benchmarks: a new temporary one, or `given`, which must be missing or empty.

    `make` it, and in the end `remove` the logs that were made, and the directory where it was made, unless they are
    kept. What anybody else has put there meanwhile stays. Ctrl-C and SIGTERM wait for each step, so that nothing is
    made that is not known here. Threads: one.
    """

    def __init__(self, given: str | os.PathLike[str] | None, *, keep: bool) -> None:
        self._given = given
        self._keep = keep
        self._made_directory = False
        self._logs: list[str] = []
        self.path = ""

    def make(self) -> None:
        """Makes the directory; IllegalArgument where it has something in it."""
        with deferred_interrupts(), deferred_interrupts(signal.SIGTERM):
            if self._given is None:
                self.path, self._made_directory = os.path.realpath(tempfile.mkdtemp(prefix="kafkalog-bench-")), True
                return
            given = os.fspath(self._given)
            refuse_to_write(given)
            path = real_path(given)
            self._made_directory = _made(path)
            self.path = path

    def remove(self) -> None:
        """Leaves the directory as it was found; a second call does nothing."""
        with deferred_interrupts(), deferred_interrupts(signal.SIGTERM):
            if not self._keep and self.path:
                self.drop_logs()
                self._remove_rest()
                self.path = ""

    def new_log(self, name: str) -> str:
        """The directory of a new partition of a topic `name`. IllegalState where somebody else makes logs here.

        It is removed by `drop_logs` or at the end.
        """
        number = 0
        while (path := os.path.join(self.path, f"{name}-{number}")) in self._logs:
            number += 1
        with deferred_interrupts(), deferred_interrupts(signal.SIGTERM):
            try:
                OS.mkdir(path)
            except FileExistsError:
                what = "somebody else writes to this directory"
                raise IllegalState(what, path=path, hint="give another one") from None
            except OSError as error:
                raise StorageError.from_os(error, "make the log's directory", path=path) from error
            self._logs.append(path)
        return path

    def drop_logs(self, *, but: str = "", even_kept: bool = False) -> None:
        """Removes the logs but one, unless all are kept: the disk need not hold every benchmark's."""
        if self._keep and not even_kept:
            return
        with deferred_interrupts(), deferred_interrupts(signal.SIGTERM):
            for path in [one for one in self._logs if one != but]:
                shutil.rmtree(path, ignore_errors=True)
                self._logs.remove(path)

    def forget_clean_end(self) -> None:
        """Leaves the directory as a crash does: nothing vouches for what its logs hold, all is to be recovered."""
        for name in (CLEAN_SHUTDOWN_FILE, RECOVERY_POINT_FILE):
            path = os.path.join(self.path, name)
            try:
                OS.unlink_if_exists(path)
            except OSError as error:
                raise StorageError.from_os(error, "remove", path=path) from error

    def _remove_rest(self) -> None:
        """The files that logs leave beside them, and the directory, if it is ours and nobody put anything there."""
        try:
            names = OS.names(self.path)
            if not _FILES.issuperset(name.removesuffix(TMP_SUFFIX) for name in names):
                return
            for name in names:
                OS.unlink_if_exists(os.path.join(self.path, name))
            if self._made_directory:
                OS.rmdir(self.path)
        except OSError:
            return  # what cannot be removed stays; the figures are no worse for it


def _made(path: str) -> bool:
    """True where the directory was missing and is made; IllegalArgument where something is in it."""
    try:
        names = OS.names(path)
    except FileNotFoundError:
        try:
            OS.mkdir(path)
        except FileNotFoundError:
            raise PartitionNotFound(
                "neither the directory nor its parent exists", path=path, hint="create the parent first"
            ) from None
        except OSError as error:
            raise StorageError.from_os(error, "make the directory", path=path) from error
        return True
    except OSError as error:
        raise StorageError.from_os(error, "look into the directory", path=path) from error
    if names:
        raise IllegalArgument(
            f"the directory is not empty: {ascii(min(names))} is in it", path=path,
            hint="benchmarks write to a missing or an empty directory alone; to read a log that is there, use an "
            "existing one (--use-existing)",
        )  # fmt: skip
    return False
