"""A log for asyncio: its calls as coroutines, run in a small thread pool, and `async for` over records."""

from __future__ import annotations

import asyncio
import os
from collections.abc import AsyncIterator, Callable, Iterable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from itertools import islice
from types import TracebackType
from typing import TYPE_CHECKING, Any, Final, Literal, Never, ParamSpec, TypedDict, TypeVar, Unpack, overload

from kafkalog._core.batch.record import Record
from kafkalog.aio.cursor import AsyncCursor, waited
from kafkalog.aio.opening import open_in_thread
from kafkalog.errors import IllegalState, LogClosed
from kafkalog.log.log import Log
from kafkalog.log.open import open as open_log
from kafkalog.reading.chunks import check_end
from kafkalog.reading.source import isolation_of
from kafkalog.reading.tail import Place, Waiting, check_timeout
from kafkalog.records.batch import RecordBatch
from kafkalog.types import Isolation, LogAppendInfo, OffsetAndTimestamp, TopicPartition
from kafkalog.util.keywords import unknown_keyword
from kafkalog.util.times import Time

if TYPE_CHECKING:
    from typing_extensions import Buffer

    from kafkalog.aio.queue import AsyncWorkQueue
    from kafkalog.cursors.cursor import CursorInfo
    from kafkalog.cursors.place import Reset
    from kafkalog.log.append import OneRecord
    from kafkalog.log.matching import DecodedRecord
    from kafkalog.records.table import Table
    from kafkalog.storage.damage import Skipped
    from kafkalog.tools.verify.directories import Report
    from kafkalog.where import Expression

    class _Append(TypedDict, total=False):
        """Keywords of `Log.append`."""

        compression: str | None

    class _AppendArrow(_Append, total=False):
        """Keywords of `Log.append_arrow`."""

        columns: Mapping[str, str | None] | None
        batch_bytes: int

    class _Bounds(TypedDict, total=False):
        """Keywords of `Log.records` and `Log.batches`."""

        since: Time | None
        until: Time | None
        isolation: str | None
        on_damage: str
        skipped: list[Skipped] | None

    class _Records(_Bounds, total=False):
        """Keywords of `Log.records`."""

        where: str | Expression | None

    class _Decoding(_Records, total=False):
        """Keywords of `Log.records` that make its records decoded ones."""

        key: Any
        value: Any
        on_undecodable: str
        schema: Any
        schemas: Any
        registry: Any
        subject: str
        message: str
        framing: str

    class _LookUp(TypedDict, total=False):
        """Keywords of look-ups by key."""

        isolation: str | None
        on_damage: str
        skipped: list[Skipped] | None

    class _Cursors(TypedDict, total=False):
        """Keywords of `Log.cursors`."""

        store: str | os.PathLike[str] | None

    class _Cursor(_Cursors, total=False):
        """Keywords of `Log.cursor`."""

        start: int | str
        reset: Reset
        isolation: str | None
        auto_commit_ms: int | None
        sync: bool

Item = TypeVar("Item")
P = ParamSpec("P")
R = TypeVar("R")

THREADS: Final = 4
RECORDS_PER_CALL: Final = 1024
BATCHES_PER_CALL: Final = 64


async def open(path: str | bytes | os.PathLike[str], mode: Literal["r", "a"] = "r", **options: Any) -> AsyncLog:
    """Return the log at `path` for asyncio; arguments and errors are those of `kafkalog.open`.

    A thread opens the log and recovers it. If the call is cancelled meanwhile, the log is closed again.

    >>> async def main():
    ...     async with await kafkalog.aio.open("data/clicks-0", "a", sync=True) as alog:
    ...         return await alog.append(b"first")
    >>> asyncio.run(main()).first_offset
    0
    """
    return AsyncLog(await open_in_thread(partial(open_log, path, mode, **options)))


def wrap(log: Log) -> AsyncLog:
    """Return `log` for asyncio; closing one closes the other.

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
    """A `Log` whose calls are coroutines; arguments, results and errors are those of `Log`.

    Disk work runs in this object's threads, so the event loop never waits for it. A call that a thread has started runs
    to its end, even if it is cancelled. Threads: belongs to one event loop. A forked child cannot use it.

    >>> async def read_and_write():
    ...     async with wrap(log) as alog:
    ...         await alog.append([(b"u-3", b"third")])
    ...         await alog.flush()
    ...         print([record.value async for record in alog.records(1)], (await alog.record_at(0)).key)
    ...         print((await alog.get(b"u-3")).offset, await alog.get_many([b"u-4"]))
    ...         print((await alog.get_table([b"u-3", b"u-4"]))["offset"].to_pylist())
    ...         print([record.offset async for record in alog.history(b"u-3")])
    ...         batches = [bytes(batch) async for batch in alog.batches()]
    ...         await alog.append_bytes(batches[0])
    ...         await alog.append_arrow(log.table(["value"]))
    ...         print(await alog.start_offset(), await alog.end_offset(), await alog.last_stable_offset())
    ...         print((await alog.offset_for_time(0)).offset, [record.offset async for record in alog.tail(0.01, -1)])
    >>> asyncio.run(read_and_write())
    [b'second', b'third'] b'u-1'
    2 [None]
    [2, None]
    [2]
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
    >>> topic = dirs.create_topic("tasks")
    >>> async def work():
    ...     async with wrap(dirs["tasks", 0]) as alog, await alog.queue("workers") as queue:
    ...         return await queue.acquire()
    >>> asyncio.run(work())
    []
    """

    def __init__(self, log: Log) -> None:
        self.log = log
        self._pid = os.getpid()
        self._pool = ThreadPoolExecutor(THREADS, thread_name_prefix=f"kafkalog-aio-{log.name}")

    async def _run(self, call: Callable[P, R], *args: P.args, **kwargs: P.kwargs) -> R:
        if self._pid != os.getpid():
            raise IllegalState(
                f"the threads of log {self.log.name} run in the process that opened it",
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
        """Topic and partition number."""
        return self.log.topic_partition

    async def start_offset(self) -> int:
        """Return the first offset that can be read."""
        return await self._run(lambda: self.log.start_offset)

    async def end_offset(self) -> int:
        """Return the offset of the next record to be appended."""
        return await self._run(lambda: self.log.end_offset)

    async def record_at(self, offset: int) -> Record:
        """Return the record with this offset: `log[offset]`."""
        return await self._run(lambda: self.log[offset])

    async def get(self, key: Buffer, **options: Unpack[_LookUp]) -> Record | None:
        """Return the last record with this key, None if there is none, as `Log.get` does."""
        return await self._run(self.log.get, key, **options)

    async def get_many(self, keys: Iterable[Buffer], **options: Unpack[_LookUp]) -> list[Record | None]:
        """Return the last record of each key, as `Log.get_many` does."""
        return await self._run(self.log.get_many, keys, **options)

    async def get_table(
        self, keys: Iterable[Buffer], columns: Iterable[str] | None = None, **options: Unpack[_LookUp]
    ) -> Table:
        """Return the last record of each key as columns, as `Log.get_table` does."""
        return await self._run(self.log.get_table, keys, columns, **options)

    async def history(self, key: Buffer, **options: Unpack[_LookUp]) -> AsyncIterator[Record]:
        """Yield all records with this key, as `Log.history` does; a thread reads up to 1,024 of them at a time."""
        source = await self._run(self.log.history, key, **options)
        async for record in self._in_chunks(source, RECORDS_PER_CALL):
            yield record

    async def append(self, records: OneRecord | Iterable[OneRecord], **options: Unpack[_Append]) -> LogAppendInfo:
        """Append records as `Log.append` does; return its result."""
        return await self._run(self.log.append, records, **options)

    async def append_bytes(self, batches: Buffer) -> LogAppendInfo:
        """Append ready-made batches as `Log.append_bytes` does; return its result."""
        return await self._run(self.log.append_bytes, batches)

    async def append_arrow(self, data: object, **options: Unpack[_AppendArrow]) -> LogAppendInfo:
        """Append Arrow data as `Log.append_arrow` does; return its result."""
        return await self._run(self.log.append_arrow, data, **options)

    async def last_stable_offset(self) -> int:
        """Return the offset up to which `isolation="read_committed"` reads."""
        return await self._run(lambda: self.log.last_stable_offset)

    async def offset_for_time(self, when: Time, *, isolation: str | None = None) -> OffsetAndTimestamp | None:
        """Find the first record at or after `when` as `Log.offset_for_time` does; return its result."""
        return await self._run(self.log.offset_for_time, when, isolation=isolation)

    async def verify(self, *, deep: bool = False, threads: int | None = None) -> Report:
        """Check the partition's files as `Log.verify` does; return its report."""
        return await self._run(self.log.verify, deep=deep, threads=threads)

    async def queue(self, name: str, **options: Any) -> AsyncWorkQueue:
        """Open the queue called `name` on this partition, as `Log.queue` does."""
        from kafkalog.aio.queue import open_with  # few readers need it

        return await open_with(partial(self.log.queue, name, **options))

    async def flush(self) -> None:
        """Sync everything appended so far to disk."""
        await self._run(self.log.flush)

    async def roll(self) -> int:
        """Start a new active segment and return its base offset."""
        return await self._run(self.log.roll)

    async def truncate_to(self, offset: int) -> bool:
        """Truncate the log as `Log.truncate_to` does; return its result."""
        return await self._run(self.log.truncate_to, offset)

    async def delete_before(self, offset: int) -> int:
        """Delete records as `Log.delete_before` does; return the new log start offset."""
        return await self._run(self.log.delete_before, offset)

    @overload
    def records(
        self, start: int | None = None, stop: int | None = None, **bounds: Unpack[_Records]
    ) -> AsyncIterator[Record]: ...
    @overload
    def records(
        self, start: int | None = None, stop: int | None = None, **bounds: Unpack[_Decoding]
    ) -> AsyncIterator[DecodedRecord]: ...
    async def records(
        self, start: int | None = None, stop: int | None = None, **bounds: Unpack[_Decoding]
    ) -> AsyncIterator[Record | DecodedRecord]:
        """Yield the records of `Log.records`; a thread reads up to 1,024 of them at a time."""
        source = await self._run(partial(self.log.records, start, stop, **bounds))
        async for record in self._in_chunks(source, RECORDS_PER_CALL):
            yield record

    def __aiter__(self) -> AsyncIterator[Record]:
        """Yield the records from the log start to the current end, as `records` does."""
        return self.records()

    async def batches(
        self, start: int | None = None, stop: int | None = None, **bounds: Unpack[_Bounds]
    ) -> AsyncIterator[RecordBatch]:
        """Yield the batches of `Log.batches`; a thread reads up to 64 of them at a time."""
        source = await self._run(self.log.batches, start, stop, **bounds)
        async for batch in self._in_chunks(source, BATCHES_PER_CALL):
            yield batch

    async def _in_chunks(self, source: Iterator[Item], size: int) -> AsyncIterator[Item]:
        """Yield the items of `source`, read `size` at a time in a thread; raise an error after the items before it."""

        def read_chunk() -> tuple[list[Item], BaseException | None]:
            items: list[Item] = []
            try:
                items.extend(islice(source, size))
            except Exception as error:
                return items, error
            return items, None

        while True:
            items, error = await self._run(read_chunk)
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
        """Yield records from `start` (default: the current end) and wait for new ones; `isolation` as for `records`.

        Ends after `timeout` seconds without a new record; None waits forever. Cancelling the task ends it at once.
        Raises OffsetOutOfRange for a start outside the log, and when the log is truncated below the reader.
        """
        if unknown:
            raise unknown_keyword("tail", unknown, ("timeout", "start", "isolation"))
        level = isolation_of(isolation)
        check_timeout(timeout)
        position = max(await self._end(level), await self.start_offset()) if start is None else start
        if position < 0:
            position = max(position + await self._end(level), await self.start_offset())
        waiting = Waiting(timeout)
        place = await self._run(Place, self.log._source, position)
        while True:
            end = await self._end(level)
            await self._run(place.check)
            if end < position <= await self.end_offset():
                end = position  # the isolation level hides the records in between for now
            if end != position:
                last = None
                async for last in self.records(position, None if end < position else end, isolation=isolation):
                    yield last
                position = end
                await self._run(place.move, position, last)
                waiting.restart()
                continue
            await self._run(check_end, self.log._source, position, level == "committed", None)
            if not await waited(waiting):
                return

    async def _end(self, level: Isolation) -> int:
        """Return the offset at which reading with this isolation ends now."""
        if level == "log_end":
            return await self.end_offset()
        return await self._run(lambda: self.log.high_watermark if level != "committed" else self.log.last_stable_offset)

    async def cursor(self, name: str, **options: Unpack[_Cursor]) -> AsyncCursor:
        """Return the cursor of `Log.cursor` as an `AsyncCursor`."""
        return AsyncCursor(self, await self._run(self.log.cursor, name, **options))

    async def cursors(self, **options: Unpack[_Cursors]) -> tuple[CursorInfo, ...]:
        """Return the result of `Log.cursors`."""
        return await self._run(self.log.cursors, **options)

    async def close(self) -> None:
        """Close the log, then end the threads. A second call does nothing."""
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
