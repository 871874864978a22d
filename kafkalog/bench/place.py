"""The directory that benchmarks write to: empty at the start, and restored at the end."""

from __future__ import annotations

import os
import shutil
import signal
import tempfile
from typing import Final

from kafkalog.errors import IllegalArgument, IllegalState, PartitionNotFound, StorageError
from kafkalog.manager.producer_ids import PRODUCER_IDS_FILE
from kafkalog.manager.topics import TOPICS_FILE
from kafkalog.storage.names import CLEAN_SHUTDOWN_FILE, LOCK_FILE
from kafkalog.storage.remote import refuse_to_write
from kafkalog.util.checkpoint import CLEANER_OFFSET_FILE, HIGH_WATERMARK_FILE, LOG_START_FILE, RECOVERY_POINT_FILE
from kafkalog.util.fileio import OS, TMP_SUFFIX
from kafkalog.util.interrupts import deferred_interrupts
from kafkalog.util.os_errors import os_errors
from kafkalog.util.paths import real_path

_FILES: Final = frozenset((
    LOCK_FILE, CLEAN_SHUTDOWN_FILE, TOPICS_FILE, PRODUCER_IDS_FILE,
    CLEANER_OFFSET_FILE, HIGH_WATERMARK_FILE, LOG_START_FILE, RECOVERY_POINT_FILE,
))  # fmt: skip
"""Files of a data directory beside its logs."""


class Place:
    """A data directory for the logs of benchmarks: a new temporary one, or `given`, which must be missing or empty.

    `make` creates it; `remove` deletes the logs at the end, and the directory if it was created, unless they are kept.
    Files of other processes stay. Ctrl-C and SIGTERM are deferred during each step, so that everything created is
    recorded here. Threads: one.
    """

    def __init__(self, given: str | os.PathLike[str] | None, *, keep: bool) -> None:
        self._given = given
        self._keep = keep
        self._made_directory = False
        self._logs: list[str] = []
        self.path = ""

    def make(self) -> None:
        """Create the directory; raise IllegalArgument if it is not empty."""
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
        """Restore the directory as it was before; a second call does nothing."""
        with deferred_interrupts(), deferred_interrupts(signal.SIGTERM):
            if not self._keep and self.path:
                self.drop_logs()
                self._remove_rest()
                self.path = ""

    def new_log(self, name: str) -> str:
        """Create a partition directory of topic `name` and return it; IllegalState if another process writes here.

        `drop_logs` or `remove` deletes it.
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
        """Remove all logs except `but`, unless all are kept, to limit the disk space of benchmarks."""
        if self._keep and not even_kept:
            return
        with deferred_interrupts(), deferred_interrupts(signal.SIGTERM):
            for path in [one for one in self._logs if one != but]:
                shutil.rmtree(path, ignore_errors=True)
                self._logs.remove(path)

    def forget_clean_end(self) -> None:
        """Leave the directory as after a crash: without marker and recovery points, so that all logs are recovered."""
        for name in (CLEAN_SHUTDOWN_FILE, RECOVERY_POINT_FILE):
            path = os.path.join(self.path, name)
            with os_errors("remove", path):
                OS.unlink_if_exists(path)

    def _remove_rest(self) -> None:
        """Remove the files beside the logs, and the directory if it was created here; do nothing if it has others."""
        try:
            names = OS.names(self.path)
            if not _FILES.issuperset(name.removesuffix(TMP_SUFFIX) for name in names):
                return
            for name in names:
                OS.unlink_if_exists(os.path.join(self.path, name))
            if self._made_directory:
                OS.rmdir(self.path)
        except OSError:
            return  # files that cannot be removed stay; the figures are valid


def _made(path: str) -> bool:
    """Create a missing directory and return True; raise IllegalArgument if it is not empty."""
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
