"""The part of `Log` that has named cursors."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Final, Never, cast

from kafkalog.cursor_place import AUTO_COMMIT_MS, Options, Reset
from kafkalog.keywords import unknown_keyword

if TYPE_CHECKING:
    from kafkalog.api import Log
    from kafkalog.cursors import Cursor, CursorInfo

__all__ = ["CursorMixin"]
_OPTIONS: Final = ("name", *Options._fields, "store")


class CursorMixin:
    """Opening a cursor, and listing those there are."""

    __slots__ = ()

    def cursor(
        self,
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
        """The position called `name` in this log, held by the caller until it is closed; made where it is missing.

        `start`: where a new one begins, "earliest", "latest" or an offset. `reset`: what happens where the log has been
        deleted or cut at the position, or is another log by now: "error" raises OffsetOutOfRange, "earliest" and
        "latest" go on there and say so in `Cursor.lost` and a log line. `isolation` as for `records`.
        `auto_commit_ms`: how often what was processed is kept while reading, and at the close; None: only by
        `commit()`. With `sync` a commit is on disk when it returns. `store`: the directory to keep it in, by default
        $KAFKALOG_CURSORS, else kafkalog/cursors in the user's state directory; never one inside a data directory.

        CursorInUse where another reader has the name; IllegalArgument, OffsetOutOfRange, CorruptCheckpoint,
        StorageError.

        >>> with log.cursor("billing", store="cursors") as cursor:
        ...     [record.value for record in cursor]
        [b'first', b'second']
        """
        if unknown:
            raise unknown_keyword("cursor", unknown, _OPTIONS)
        from kafkalog.cursors import open_cursor

        log = cast("Log", self)
        options = Options(start, reset, isolation, auto_commit_ms, sync)
        return open_cursor(log._engine, name, options, store=store, owner=log)

    def cursors(
        self, *, store: str | os.PathLike[str] | None = None, **unknown: Never
    ) -> tuple[CursorInfo, ...]:
        """The cursors of this log, by name: position, lag and time of the last commit. CorruptCheckpoint.

        >>> with log.cursor("billing", store="cursors", start="latest") as cursor:
        ...     position = cursor.commit()
        >>> [(one.name, one.position, one.lag) for one in log.cursors(store="cursors")]
        [('billing', 2, 0)]
        """
        if unknown:
            raise unknown_keyword("cursors", unknown, ("store",))
        from kafkalog.cursors import cursors_of

        return cursors_of(cast("Log", self)._engine, store)
