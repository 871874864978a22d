"""Effect of a failed write or fsync on a log: the error to raise, and whether it accepts further writes."""

from __future__ import annotations

import errno
from collections.abc import Callable
from typing import Final

from kafkalog.errors import KafkalogError, LogClosed, StorageError

REOPEN_HINT: Final = "close the log, check the disk, and open it again"


_NOT_THE_DISK: Final = frozenset(
    (
        errno.ENOSPC, errno.EDQUOT, errno.EMFILE, errno.ENFILE, errno.ENOMEM, errno.EINTR, errno.EAGAIN,
        errno.ENAMETOOLONG, errno.ENOENT, errno.ENOTEMPTY,
    )
)  # fmt: skip


def is_disk_failure(error: BaseException) -> bool:
    """Return True for an error that means the disk is unreliable.

    A full disk does not count: retention may free space, which it could not do once the directory is offline. Nor
    does a lack of descriptors or memory, or a missing file: it may have been deleted or renamed concurrently.
    """
    return isinstance(error, OSError) and error.errno is not None and error.errno not in _NOT_THE_DISK


Report = Callable[[BaseException], object]
"""Called under the log's lock, so it may only record the failure."""


class LogHealth:
    """Write permission of a log; after a failure, every write raises its cause.

    The flag is set inside the call that failed, before anything else can be written (KAFKA-10778). This includes a
    failed fsync: the kernel may have dropped the pages, and a second fsync would not report it. Threads: set and
    read under the owner's lock; reading it without the lock is harmless.
    """

    __slots__ = ("cause", "closed", "name", "path", "report")

    def __init__(self, path: str, name: str, report: Report | None = None) -> None:
        self.path = path
        self.name = name
        self.report = report
        self.cause: BaseException | None = None
        self.closed = False
        """True after `close` or `abandon`; reads fail too, since the files are closed."""

    def notice(self, error: BaseException) -> None:
        """Report an error caused by the disk to the owner of the data directory."""
        if self.report is not None and is_disk_failure(error):
            self.report(error)

    def poison(self, cause: BaseException) -> None:
        """Reject all further writes; keep the first cause. Report an error of the operating system."""
        if self.cause is None:
            self.cause = cause
        if isinstance(cause, OSError) and cause.errno is not None and self.report is not None:
            self.report(cause)

    def resume(self, cause: BaseException) -> None:
        """Allow writes again if only `cause` forbids them."""
        if self.cause is cause:
            self.cause = None

    def close(self) -> None:
        """Make every further use raise LogClosed."""
        self.cause = LogClosed(f"log {self.name} is closed")
        self.closed = True

    def abandon(self, cause: BaseException) -> None:
        """Make every further use, also reading, raise StorageError with this cause."""
        if not self.closed:
            self.cause = cause
            self.closed = True

    @property
    def is_stopped(self) -> bool:
        """True if the owner stopped the writes without a failure: the log was deleted, or is moving."""
        cause = self.cause
        return isinstance(cause, StorageError) and cause.errno is None and not self.closed

    def check_disk(self) -> None:
        """Raise StorageError if a write or a sync has failed; being closed or stopped is no failure."""
        cause = self.cause
        if isinstance(cause, OSError) and cause.errno is not None:
            self.check()

    def check(self) -> None:
        """Raise LogClosed, or StorageError with the first failure, if writes are not allowed."""
        cause = self.cause
        if cause is None:
            return
        if isinstance(cause, LogClosed):
            raise LogClosed(cause.message)
        if isinstance(cause, StorageError) and cause.errno is None:  # nothing failed here: the message is complete
            raise StorageError(cause.message, path=cause.path or self.path, hint=cause.hint) from cause
        why = cause.message if isinstance(cause, KafkalogError) else str(cause) or type(cause).__name__
        code = cause.errno if isinstance(cause, OSError) else None
        raise StorageError(
            f"log {self.name} rejects writes after an earlier failure: {why}",
            errno=code,
            path=self.path,
            hint=REOPEN_HINT,
        ) from cause
