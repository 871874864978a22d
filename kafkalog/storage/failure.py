"""What a failed write or fsync does to a log: the error the caller sees, and whether the log takes more writes."""

from __future__ import annotations

import errno
from collections.abc import Callable
from typing import Final

from kafkalog.errors import KafkalogError, LogClosed, StorageError

REOPEN_HINT: Final = "close the log, look after the disk, and open it again"


_NOT_THE_DISK: Final = frozenset(
    (
        errno.ENOSPC, errno.EDQUOT, errno.EMFILE, errno.ENFILE, errno.ENOMEM, errno.EINTR, errno.EAGAIN,
        errno.ENAMETOOLONG, errno.ENOENT, errno.ENOTEMPTY,
    )
)  # fmt: skip


def is_disk_failure(error: BaseException) -> bool:
    """True for an error that says the disk cannot be relied on.

    A full disk is none: retention may make room on it, which it could not once the directory is offline. Nor is a
    process out of descriptors or memory, or a file that is gone: it may have been deleted or renamed beside this.
    """
    return isinstance(error, OSError) and error.errno is not None and error.errno not in _NOT_THE_DISK


Report = Callable[[BaseException], object]
"""Called under the log's lock, so it may note the failure and no more."""


class LogHealth:
    """Whether a log may still be written; once it may not, every write raises why.

    The flag is set inside the call that failed, before anything else can be written (KAFKA-10778). A failed fsync is
    such a failure: the kernel may have dropped the pages, and a second fsync would not tell.
    Threads: set and read under the owner's lock; reading it without is harmless.
    """

    __slots__ = ("cause", "closed", "name", "path", "report")

    def __init__(self, path: str, name: str, report: Report | None = None) -> None:
        self.path = path
        self.name = name
        self.report = report
        self.cause: BaseException | None = None
        self.closed = False
        """True after `close` or `abandon`: there are no files to read either."""

    def notice(self, error: BaseException) -> None:
        """Tell the owner of the data directory of an error that its disk is to blame for."""
        if self.report is not None and is_disk_failure(error):
            self.report(error)

    def poison(self, cause: BaseException) -> None:
        """No write succeeds after this; the first cause is kept. One of the disk's is told."""
        if self.cause is None:
            self.cause = cause
        if isinstance(cause, OSError) and cause.errno is not None and self.report is not None:
            self.report(cause)

    def resume(self, cause: BaseException) -> None:
        """Allow writes again, if nothing but `cause` forbids them."""
        if self.cause is cause:
            self.cause = None

    def close(self) -> None:
        """From now on every use is LogClosed."""
        self.cause = LogClosed(f"log {self.name} is closed")
        self.closed = True

    def abandon(self, cause: BaseException) -> None:
        """From now on every use, reading too, is a StorageError with this cause."""
        if not self.closed:
            self.cause = cause
            self.closed = True

    def check(self) -> None:
        """Return while writes are allowed; LogClosed, or StorageError with the first failure, otherwise."""
        cause = self.cause
        if cause is None:
            return
        if isinstance(cause, LogClosed):
            raise LogClosed(cause.message)
        if isinstance(cause, StorageError) and cause.errno is None:  # nothing failed in this log: it says all itself
            raise StorageError(cause.message, path=cause.path or self.path, hint=cause.hint) from cause
        why = cause.message if isinstance(cause, KafkalogError) else str(cause) or type(cause).__name__
        code = cause.errno if isinstance(cause, OSError) else None
        raise StorageError(
            f"log {self.name} takes no writes since an earlier failure: {why}",
            errno=code,
            path=self.path,
            hint=REOPEN_HINT,
        ) from cause
