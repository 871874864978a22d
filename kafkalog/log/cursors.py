"""The part of `Log` that has named cursors."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Final, Never

from kafkalog.cursors.place import AUTO_COMMIT_MS, Options, Reset
from kafkalog.util.keywords import unknown_keyword

if TYPE_CHECKING:
    from kafkalog.cursors.cursor import Cursor, CursorInfo
    from kafkalog.log.log import Log

_OPTIONS: Final = ("name", *Options._fields, "store")


def cursor(
    log: Log,
    name: str,
    *,
    start: int | str = "earliest",
    reset: Reset = "error",
    isolation: str | None = None,
    auto_commit_ms: int | None = AUTO_COMMIT_MS,
    sync: bool = True,
    store: str | os.PathLike[str] | None = None,
    **unknown: Never,
) -> Cursor:
    """Open the cursor called `name` in this log, creating it if missing; the caller holds it until it is closed.

    `start` is the position of a new cursor: "earliest", "latest" or an offset. `reset` applies if the log was
    deleted or truncated at the position, or replaced by another log: "error" raises OffsetOutOfRange; "earliest"
    and "latest" continue there and report it in `Cursor.lost` and a log line. `isolation` is as for `records`.
    `auto_commit_ms` is the interval at which the position is committed while reading, and at close; None: only by
    `commit()`. With `sync` a commit is on disk when it returns. `store` is the directory of the cursors, by default
    $KAFKALOG_CURSORS, else kafkalog/cursors in the user's state directory; it must not be inside a data directory.

    Raises CursorInUse if another reader holds the cursor; IllegalArgument, OffsetOutOfRange, CorruptCheckpoint,
    StorageError.

    >>> with log.cursor("billing", store="cursors") as cursor:
    ...     [record.value for record in cursor]
    [b'first', b'second']
    """
    if unknown:
        raise unknown_keyword("cursor", unknown, _OPTIONS)
    from kafkalog.cursors.cursor import open_cursor

    options = Options(start, reset, isolation, auto_commit_ms, sync)
    return open_cursor(log._source, name, options, store=store, owner=log)


def cursors(
    log: Log, *, store: str | os.PathLike[str] | None = None, **unknown: Never
) -> tuple[CursorInfo, ...]:
    """Return the cursors of this log, by name: position, lag, time of the last commit. Raises CorruptCheckpoint.

    >>> with log.cursor("billing", store="cursors", start="latest") as cursor:
    ...     position = cursor.commit()
    >>> [(one.name, one.position, one.lag) for one in log.cursors(store="cursors")]
    [('billing', 2, 0)]
    """
    if unknown:
        raise unknown_keyword("cursors", unknown, ("store",))
    from kafkalog.cursors.cursor import cursors_of

    return cursors_of(log._source, store)
