"""What a failed write or fsync does to a log: the error the caller sees, and whether the log takes more writes."""

from __future__ import annotations

import copy
from typing import Final

from kafkalog.errors import KafkalogError, StorageError

REOPEN_HINT: Final = "close the log, look after the disk, and open it again: reopening recovers what is on disk"


class LogHealth:
    """Whether a log may still be written; once it may not, every write raises the reason anew.

    The flag is set inside the call that failed, before anything else can be written (KAFKA-10778).
    A failed fsync is such a failure: the kernel may have dropped the pages, and a second fsync would not tell.
    Threads: set and read under the owner's lock; reading it without is harmless.
    """

    __slots__ = ("cause", "path")

    def __init__(self, path: str) -> None:
        self.path = path
        self.cause: BaseException | None = None

    def poison(self, cause: BaseException) -> None:
        """No write succeeds after this; the first cause is kept."""
        if self.cause is None:
            self.cause = cause

    def check(self) -> None:
        """Return while writes are allowed; StorageError with the first failure otherwise."""
        cause = self.cause
        if cause is None:
            return
        why = cause.message if isinstance(cause, KafkalogError) else str(cause) or type(cause).__name__
        errno = cause.errno if isinstance(cause, OSError) else None
        raise StorageError(
            f"the log takes no writes since an earlier failure: {why}", errno=errno, path=self.path, hint=REOPEN_HINT
        ) from cause


def storage_error(error: BaseException, doing: str, path: str, offset: int | None = None) -> BaseException:
    """The error to raise for `error`: an OSError that has no class of ours becomes a StorageError, all else stays."""
    if isinstance(error, KafkalogError):
        if offset is not None and error.offset is None:
            error = copy.copy(error)
            error.offset = offset
        return error
    if isinstance(error, OSError):
        return StorageError.from_os(error, doing, path=error.filename or path, offset=offset)
    return error
