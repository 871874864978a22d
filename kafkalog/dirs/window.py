"""The range of a topic that a named cursor has not passed, for scans and queries that continue where one ended."""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from kafkalog.cursors.place import record_checksum
from kafkalog.errors import IllegalArgument

if TYPE_CHECKING:
    from kafkalog.cursors.cursor import Cursor
    from kafkalog.cursors.place import Reset
    from kafkalog.log.log import Log


class TopicWindow:
    """The records of a topic from a cursor's position to the ends of its partitions, both as of its creation.

    The cursor is a named one of each partition (docs/cursors.md), held until `close()`. Only `commit()` moves it, so
    that what failed sees the same records again. Threads: one at a time.
    """

    __slots__ = ("_checksums", "_cursors", "_ends")

    def __init__(
        self,
        logs: Iterable[Log],
        name: str,
        *,
        store: str | os.PathLike[str] | None = None,
        isolation: str | None = None,
        reset: Reset = "error",
    ) -> None:
        self._cursors: dict[int, Cursor] = {}
        self._ends: dict[int, int] = {}
        self._checksums: dict[int, int | None] = {}
        try:
            for log in logs:
                self._cursors[log.partition] = log.cursor(
                    name, isolation=isolation, auto_commit_ms=None, store=store, reset=reset
                )
            self._move()
        except BaseException:
            self.close()
            raise

    def _move(self) -> None:
        self._ends = {number: cursor.position + cursor.lag for number, cursor in self._cursors.items()}
        # of the records that are read: a log that is truncated before the commit may have others there by then
        self._checksums = {
            number: record_checksum(cursor.engine, self._ends[number]) for number, cursor in self._cursors.items()
        }

    def bounds(self, log: Log) -> dict[str, int]:
        """Return the offsets to read of a partition, as keywords of `Log.scan`.

        There are none in a partition that was added after the creation: the next window has all of its records.
        """
        cursor = self._cursors.get(log.partition)
        if cursor is None:
            start = log.start_offset
            return {"start": start, "stop": start}
        return {"start": cursor.position, "stop": self._ends[log.partition]}

    def commit(self) -> dict[int, int]:
        """Store the ends, and return them by partition; the window then reaches from there to the current ends."""
        for number, cursor in self._cursors.items():
            cursor.advance(self._ends[number], self._checksums[number])
            cursor.commit()
        committed = self._ends
        self._move()
        return committed

    def close(self) -> None:
        """Release the cursors; a second call does nothing."""
        for cursor in self._cursors.values():
            cursor.close()


@contextmanager
def window_of(
    logs: Iterable[Log], name: str | None, store: str | os.PathLike[str] | None, options: dict[str, Any]
) -> Iterator[TopicWindow | None]:
    """Give the window of a scan with these options, None for one without a cursor; an error in the block closes it."""
    for bound in ("start", "stop"):
        if bound in options:
            raise IllegalArgument(
                f"a scan of a topic has no {bound}: offsets belong to one partition",
                hint="give since or until, or scan a partition: dirs[topic, 0].scan(...)",
            )
    if name is None:
        if store is not None:
            raise IllegalArgument("cursors is given, but no cursor", hint='give its name: cursor="reports"')
        yield None
        return
    both = [bound for bound in ("since", "until") if options.get(bound) is not None]
    if both:
        raise IllegalArgument(
            f"both cursor and {both[0]} are given", hint="a cursor has its own bounds: filter the rows by time instead"
        )
    window = TopicWindow(logs, name, store=store, isolation=options.get("isolation"))
    try:
        yield window
    except BaseException:
        window.close()
        raise
