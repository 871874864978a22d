"""A log for asyncio: the same calls as coroutines, run in a small pool of threads, and `async for` over records."""

from __future__ import annotations

import asyncio
import os
from collections.abc import AsyncIterator, Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from itertools import islice
from types import TracebackType
from typing import TYPE_CHECKING, Any, Final, Never, ParamSpec, TypeVar

from kafkalog._core.record import Record
from kafkalog.aio_cursor import AsyncCursor, waited
from kafkalog.api import Log
from kafkalog.engine import isolation_of
from kafkalog.errors import IllegalState, LogClosed
from kafkalog.following import Waiting, check_timeout
from kafkalog.keywords import unknown_keyword
from kafkalog.records.batch import RecordBatch
from kafkalog.times import Time
from kafkalog.types import Isolation, LogAppendInfo, OffsetAndTimestamp, TopicPartition

if TYPE_CHECKING:
    from kafkalog.cursors import CursorInfo
    from kafkalog.tools.verify import Report

Item = TypeVar("Item")
P = ParamSpec("P")
R = TypeVar("R")

THREADS: Final = 4
RECORDS_PER_HOP: Final = 1024
BATCHES_PER_HOP: Final = 64


def wrap(log: Log) -> AsyncLog:
    """The log `log` for asyncio; closing the one closes the other.

    >>> async def main():
    ...     async with wrap(log) as alog:
    ...         async for record in alog.tail(timeout=0.01, start=0):
    ...             print(record.value)
    >>> asyncio.run(main())
    b'first'
    b'second'
    """
    return AsyncLog(log)


class AsyncLog:
    """A `Log` whose calls are coroutines; arguments, results and errors are the log's own.

    Disk work runs in threads of this object, so the event loop never waits for it. A cancelled call may
    still be carried out: what a thread has begun it ends. Threads: belongs to one event loop. A fork's child cannot use
    it.

    >>> async def read_and_write():
    ...     async with wrap(log) as alog:
    ...         await alog.append([(b"u-3", b"third")])
    ...         await alog.flush()
    ...         print([record.value async for record in alog.records(1)], (await alog.get(0)).key)
    ...         batches = [bytes(batch) async for batch in alog.batches()]
    ...         await alog.append_bytes(batches[0])
    ...         await alog.append_arrow(log.table(["value"]))
    ...         print(await alog.start_offset(), await alog.end_offset(), await alog.last_stable_offset())
    ...         print((await alog.offset_for_time(0)).offset, [record.offset async for record in alog.tail(0.01, -1)])
    >>> asyncio.run(read_and_write())
    [b'second', b'third'] b'u-1'
    0 10 10
    0 [9]
    >>> async def look_after():
    ...     alog = wrap(kafkalog.open("data/users-0", "a"))
    ...     await alog.append([(b"u-1", b"a"), (b"u-2", b"b")])
    ...     print(alog.topic_partition, await alog.roll(), await alog.delete_before(1), await alog.truncate_to(2))
    ...     async with await alog.cursor("billing") as cursor:
    ...         print(cursor, (await alog.cursors())[0].lag, (await alog.verify()).ok)
    ...     await alog.close()
    >>> asyncio.run(look_after())
    users-0 2 1 False
    <AsyncCursor billing of users-0 at 1 committed 1> 1 True
    """

    def __init__(self, log: Log) -> None:
        self.log = log
        self._pid = os.getpid()
        self._pool = ThreadPoolExecutor(THREADS, thread_name_prefix=f"kafkalog-aio-{log.name}")

    async def _run(self, call: Callable[P, R], *args: P.args, **kwargs: P.kwargs) -> R:
        if self._pid != os.getpid():
            raise IllegalState(
                f"the threads of log {self.log.name} are in the process that opened it",
                hint="open the log in the child process instead of before the fork",
            )
        try:
            future = self._pool.submit(call, *args, **kwargs)
        except RuntimeError:
            raise LogClosed(f"log {self.log.name} is closed") from None
        try:
            return await asyncio.wrap_future(future)
        finally:
            del future  # else it, its error and this frame keep each other alive

    @property
    def topic_partition(self) -> TopicPartition:
        """Which partition it is."""
        return self.log.topic_partition

    async def start_offset(self) -> int:
        """The first offset that can be read."""
        return await self._run(lambda: self.log.start_offset)

    async def end_offset(self) -> int:
        """The offset that the next record will have."""
        return await self._run(lambda: self.log.end_offset)

    async def get(self, offset: int) -> Record:
        """The record with this offset: `log[offset]`."""
        return await self._run(lambda: self.log[offset])

    async def append(self, records: Any, **options: Any) -> LogAppendInfo:
        """The result of `Log.append`."""
        return await self._run(self.log.append, records, **options)

    async def append_bytes(self, batches: Any) -> LogAppendInfo:
        """The result of `Log.append_bytes`."""
        return await self._run(self.log.append_bytes, batches)

    async def append_arrow(self, data: Any, **options: Any) -> LogAppendInfo:
        """The result of `Log.append_arrow`."""
        return await self._run(self.log.append_arrow, data, **options)

    async def last_stable_offset(self) -> int:
        """The offset up to which `isolation="read_committed"` reads."""
        return await self._run(lambda: self.log.last_stable_offset)

    async def offset_for_time(self, when: Time, *, isolation: str | None = None) -> OffsetAndTimestamp | None:
        """The result of `Log.offset_for_time`."""
        return await self._run(self.log.offset_for_time, when, isolation=isolation)

    async def verify(self, *, deep: bool = False, threads: int | None = None) -> Report:
        """As `Log.verify`."""
        return await self._run(self.log.verify, deep=deep, threads=threads)

    async def flush(self) -> None:
        """Returns when everything appended is on disk."""
        await self._run(self.log.flush)

    async def roll(self) -> int:
        """The base offset of the new active segment."""
        return await self._run(self.log.roll)

    async def truncate_to(self, offset: int) -> bool:
        """The result of `Log.truncate_to`."""
        return await self._run(self.log.truncate_to, offset)

    async def delete_before(self, offset: int) -> int:
        """The result of `Log.delete_before`."""
        return await self._run(self.log.delete_before, offset)

    async def records(
        self, start: int | None = None, stop: int | None = None, **bounds: Any
    ) -> AsyncIterator[Record]:
        """The records of `Log.records`, read ahead in hops of some hundred."""
        source = await self._run(self.log.records, start, stop, **bounds)
        async for record in self._hops(source, RECORDS_PER_HOP):
            yield record

    async def batches(
        self, start: int | None = None, stop: int | None = None, **bounds: Any
    ) -> AsyncIterator[RecordBatch]:
        """The batches of `Log.batches`."""
        source = await self._run(self.log.batches, start, stop, **bounds)
        async for batch in self._hops(source, BATCHES_PER_HOP):
            yield batch

    async def _hops(self, source: Iterator[Item], size: int) -> AsyncIterator[Item]:
        """The items of `source`, taken `size` at a time in a thread; an error comes after the items before it."""

        def hop() -> tuple[list[Item], BaseException | None]:
            items: list[Item] = []
            try:
                items.extend(islice(source, size))
            except Exception as error:
                return items, error
            return items, None

        while True:
            items, error = await self._run(hop)
            for item in items:
                yield item
            if error is not None:
                raise error
            if len(items) < size:
                return

    async def tail(
        self,
        timeout: float | None = None,
        start: int | None = None,
        *,
        isolation: str | None = None,
        **unknown: Never,
    ) -> AsyncIterator[Record]:
        """The records from `start` (by default the present end) on, waiting for new ones; `isolation` as for `records`.

        Ends after `timeout` seconds in which none came; None waits for ever. Cancelling the task ends it at
        once. OffsetOutOfRange for a start outside the log, and when the log is cut below what was read.
        """
        if unknown:
            raise unknown_keyword("tail", unknown, ("timeout", "start", "isolation"))
        level = isolation_of(isolation)
        check_timeout(timeout)
        at = await self._end(level) if start is None else start
        if at < 0:
            at = max(at + await self._end(level), await self.start_offset())
        waiting = Waiting(timeout)
        while True:
            end = await self._end(level)
            if end < at <= await self.end_offset():
                end = at  # what lies between is not for this reader yet
            if end != at:
                async for record in self.records(at, None if end < at else end, isolation=isolation):
                    yield record
                at = end
                waiting.begin()
            elif not await waited(waiting):
                return

    async def _end(self, level: Isolation) -> int:
        """Where reading with this isolation ends at this moment."""
        if level == "log_end":
            return await self.end_offset()
        return await self._run(lambda: self.log.high_watermark if level != "committed" else self.log.last_stable_offset)

    async def cursor(self, name: str, **options: Any) -> AsyncCursor:
        """The cursor that `Log.cursor` gives, for asyncio."""
        return AsyncCursor(self, await self._run(self.log.cursor, name, **options))

    async def cursors(self, **options: Any) -> tuple[CursorInfo, ...]:
        """The result of `Log.cursors`."""
        return await self._run(self.log.cursors, **options)

    async def close(self) -> None:
        """Closes the log, then ends the threads; harmless the second time."""
        if not self.log.closed:
            await self._run(self.log.close)
        self._pool.shutdown(wait=False)

    async def __aenter__(self) -> AsyncLog:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.close()

    def __repr__(self) -> str:
        return f"<AsyncLog {self.log!r}>"
