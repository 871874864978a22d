"""What a failed write or fsync does to a log: the error the caller sees, and whether the log takes more writes."""

from __future__ import annotations

import errno
from typing import Final

from kafkalog.errors import KafkalogError, LogClosed, StorageError

REOPEN_HINT: Final = "close the log, look after the disk, and open it again"


_NOT_THE_DISK: Final = frozenset(
    (
        errno.ENOSPC, errno.EDQUOT, errno.EMFILE, errno.ENFILE, errno.ENOMEM, errno.EINTR, errno.EAGAIN,
        errno.ENAMETOOLONG,
    )
)  # fmt: skip


def is_disk_failure(error: BaseException) -> bool:
    """True for an error that says the disk cannot be relied on.

    A full disk is none: retention may make room on it, which it could not once the directory is offline. Nor is a
    process out of descriptors or memory.
    """
    return isinstance(error, OSError) and error.errno is not None and error.errno not in _NOT_THE_DISK


class LogHealth:
    """Whether a log may still be written; once it may not, every write raises why.

    The flag is set inside the call that failed, before anything else can be written (KAFKA-10778). A failed fsync is
    such a failure: the kernel may have dropped the pages, and a second fsync would not tell.
    Threads: set and read under the owner's lock; reading it without is harmless.
    """

    __slots__ = ("cause", "name", "path")

    def __init__(self, path: str, name: str) -> None:
        self.path = path
        self.name = name
        self.cause: BaseException | None = None

    def poison(self, cause: BaseException) -> None:
        """No write succeeds after this; the first cause is kept."""
        if self.cause is None:
            self.cause = cause

    def close(self) -> None:
        """From now on every use is LogClosed."""
        self.cause = LogClosed(f"log {self.name} is closed")

    @property
    def closed(self) -> bool:
        """True after `close`."""
        return isinstance(self.cause, LogClosed)

    def check(self) -> None:
        """Return while writes are allowed; LogClosed, or StorageError with the first failure, otherwise."""
        cause = self.cause
        if cause is None:
            return
        if isinstance(cause, LogClosed):
            raise LogClosed(cause.message)
        why = cause.message if isinstance(cause, KafkalogError) else str(cause) or type(cause).__name__
        code = cause.errno if isinstance(cause, OSError) else None
        raise StorageError(
            f"log {self.name} takes no writes since an earlier failure: {why}",
            errno=code,
            path=self.path,
            hint=REOPEN_HINT,
        ) from cause
