"""A named cursor for asyncio."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from types import TracebackType
from typing import TYPE_CHECKING, Final

from kafkalog._core.batch.record import Record
from kafkalog.cursors.cursor import POLL_RECORDS, Cursor
from kafkalog.reading.tail import Waiting, check_timeout

if TYPE_CHECKING:
    from kafkalog.aio.log import AsyncLog
    from kafkalog.types import TopicPartition

RECORDS_PER_CALL: Final = 1024


class AsyncCursor:
    """A `Cursor` whose calls are coroutines; positions advance and are committed as `Cursor` does it.

    A cancelled call does not advance the position: the next call returns its records. Threads: belongs to one event
    loop, and to one task at a time.

    >>> async def main():
    ...     async with kafkalog.aio.wrap(log) as alog, await alog.cursor("billing") as cursor:
    ...         found = await cursor.poll(1)
    ...         print(found[0].value, cursor.position, await cursor.lag())
    ...         print([record.value async for record in cursor], await cursor.commit())
    ...         print(await cursor.seek(-1), [record.value async for record in cursor.tail(timeout=0.01)])
    ...         await cursor.close()
    ...         print(cursor.name, cursor.topic_partition, cursor.committed, cursor.lost)
    >>> asyncio.run(main())
    b'first' 1 1
    [b'second'] 2
    1 [b'second']
    billing orders-0 2 None
    """

    def __init__(self, log: AsyncLog, cursor: Cursor) -> None:
        self.cursor = cursor
        self._log = log

    @property
    def name(self) -> str:
        """The cursor's name."""
        return self.cursor.name

    @property
    def topic_partition(self) -> TopicPartition:
        """The partition it reads."""
        return self.cursor.topic_partition

    @property
    def position(self) -> int:
        """Offset from which the next record is read."""
        return self.cursor.position

    @property
    def committed(self) -> int:
        """The committed position."""
        return self.cursor.committed

    @property
    def lost(self) -> str | None:
        """Reason for the last reset of the position; None if there was none."""
        return self.cursor.lost

    async def lag(self) -> int:
        """Return the number of offsets between the position and the current end of reading."""
        lag: int = await self._log._run(lambda: self.cursor.lag)
        return lag

    async def poll(self, max_records: int = POLL_RECORDS, timeout: float | None = 0) -> list[Record]:
        """Return the next records as `Cursor.poll` does; waiting for records takes no thread."""
        check_timeout(timeout)
        waiting = Waiting(timeout)
        while True:
            before = self.cursor.position
            found, after = await self._fetch(max_records)
            self.cursor.advance(after)
            if found:
                return found
            if after == before and not await waited(waiting):
                return []

    async def _fetch(self, max_records: int) -> tuple[list[Record], int]:
        found: list[Record]
        found, after = await self._log._run(self.cursor.fetch, max_records)
        return found, after

    def __aiter__(self) -> AsyncIterator[Record]:
        """Yield the records from the position to the current end."""
        return self._records(0, is_bounded=True)

    def tail(self, timeout: float | None = None) -> AsyncIterator[Record]:
        """Yield records from the position and wait for new ones; end after `timeout` seconds without any."""
        check_timeout(timeout)
        return self._records(timeout)

    async def _records(self, timeout: float | None, *, is_bounded: bool = False) -> AsyncIterator[Record]:
        waiting = Waiting(timeout)
        cursor, run = self.cursor, self._log._run
        stop = await run(cursor._end) if is_bounded else None
        while True:
            before = cursor.position
            found, after = await self._fetch(RECORDS_PER_CALL)
            if stop is not None:
                if before >= stop:
                    return  # the last record counts as processed now
                found = [record for record in found if record.offset < stop]
                after = min(after, max(stop, cursor.position))
            for record in found:
                cursor.advance(record.offset + 1)
                moves = cursor.moves
                yield record
                if cursor.moves != moves:
                    break
                if cursor._is_commit_due():
                    await run(cursor.processed)
            else:
                cursor.advance(after)
                if not found and after == before and not await waited(waiting):
                    return
            if found:
                waiting.restart()

    async def seek(self, offset: int | str) -> int:
        """Move the position as `Cursor.seek` does; return the new one."""
        position: int = await self._log._run(self.cursor.seek, offset)
        return position

    async def commit(self, offset: int | None = None) -> int:
        """Commit a position as `Cursor.commit` does; return it."""
        position: int = await self._log._run(self.cursor.commit, offset)
        return position

    async def close(self) -> None:
        """Close the cursor as `Cursor.close` does; the log may be closed already."""
        await asyncio.get_running_loop().run_in_executor(None, self.cursor.close)

    async def __aenter__(self) -> AsyncCursor:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await asyncio.get_running_loop().run_in_executor(None, self.cursor.__exit__, kind, error, trace)

    def __repr__(self) -> str:
        return f"<Async{repr(self.cursor)[1:]}"


async def waited(waiting: Waiting) -> bool:
    """Wait as `Waiting.wait` does, without blocking the event loop."""
    wait = waiting.next_wait()
    if wait is None:
        return False
    await asyncio.sleep(wait)
    return True
