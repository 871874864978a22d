"""A work queue for asyncio (docs/queues.md): its calls as coroutines, which block no thread."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable
from functools import partial
from typing import Any, Self

from kafkalog.aio.opening import open_in_thread
from kafkalog.queue import opening
from kafkalog.queue.item import AcquiredFields, Item
from kafkalog.queue.queue import MAX_RECORDS, WorkQueue, end_finish, leases_of
from kafkalog.queue.worker import ACCEPT, REJECT, RELEASE, RENEW
from kafkalog.util.shielded import shielded


async def connect(bootstrap: str, topic: str, name: str, **options: Any) -> AsyncWorkQueue:
    """Open a queue of a server or a broker; arguments and errors are those of `kafkalog.queue.connect`.

    If the call is cancelled meanwhile, the queue is closed again.

    >>> from kafkalog.testing import kafka_server
    >>> async def work(bootstrap):
    ...     async with await kafkalog.aio.queue.connect(bootstrap, "tasks", "workers") as queue:
    ...         return await queue.acquire()
    >>> with kafka_server(topics="tasks") as server:
    ...     asyncio.run(work(server.bootstrap))
    []
    """
    return await open_with(partial(opening.connect, bootstrap, topic, name, **options))


async def open_with(call: Callable[[], WorkQueue]) -> AsyncWorkQueue:
    """Open a queue in a thread, which joins the group; close it again if this call is cancelled."""
    return AsyncWorkQueue(await open_in_thread(call))


def wrap(queue: WorkQueue) -> AsyncWorkQueue:
    """Return `queue` for asyncio; closing one closes the other.

    >>> topic = dirs.create_topic("tasks")
    >>> info = dirs["tasks", 0].append([b"resize 1", b"resize 2"])
    >>> async def work():
    ...     async with wrap(dirs["tasks"].queue("workers")) as queue:
    ...         for item in await queue.acquire(timeout=1):
    ...             async with item:
    ...                 print(item.value)
    >>> asyncio.run(work())
    b'resize 1'
    b'resize 2'
    """
    return AsyncWorkQueue(queue)


class AsyncWorkQueue:
    """A `WorkQueue` whose calls are coroutines; arguments, results and errors are those of `WorkQueue`.

    An `acquire` that is cancelled leaves nothing acquired: what comes for it is released. An `ack`, `release` or
    `reject` that is cancelled goes on to its end, and its items count as finished. Threads: belongs to one event
    loop, whose tasks may all call. A forked child cannot use it.

    >>> topic = dirs.create_topic("tasks")
    >>> info = dirs["tasks", 0].append([b"resize 1", b"resize 2", b"resize 3", b"resize 4"])
    >>> async def work():
    ...     async with wrap(dirs["tasks"].queue("workers")) as queue:
    ...         items = await queue.acquire(max_records=4)
    ...         await queue.renew(items)
    ...         await queue.ack(items[:1])
    ...         await queue.reject(items[1:2])
    ...         await queue.release(items[2:])
    ...         print([item.offset for item in await queue.acquire(timeout=None)])
    ...         print(queue.name, queue.topic, queue.closed, queue)
    >>> asyncio.run(work())
    [2, 3]
    workers tasks False <AsyncWorkQueue workers of topic tasks>
    """

    def __init__(self, queue: WorkQueue) -> None:
        self.queue = queue

    @property
    def name(self) -> str:
        """Name of the queue: its group."""
        return self.queue.name

    @property
    def topic(self) -> str:
        """Topic whose records it hands out."""
        return self.queue.topic

    @property
    def closed(self) -> bool:
        """True after `close()`."""
        return self.queue.closed

    async def acquire(self, max_records: int = MAX_RECORDS, timeout: float | None = 0) -> list[AsyncItem]:
        """Acquire records as `WorkQueue.acquire` does; waiting takes no thread."""
        worker = self.queue._worker_to_acquire(max_records, timeout)
        acquiring = worker.begin_acquire(max_records, timeout)
        try:
            found = await asyncio.wrap_future(acquiring)
        except asyncio.CancelledError:
            if not _is_cancelled():
                worker.wait(acquiring)  # raises LogClosed
            worker.give_back(acquiring)
            raise
        finally:
            del acquiring
        return [AsyncItem(self, self.queue._item_of(one)) for one in found]

    async def ack(self, items: Iterable[AsyncItem]) -> None:
        """Finish items, whose work is done, as `WorkQueue.ack` does."""
        await self._finish(ACCEPT, items)

    async def release(self, items: Iterable[AsyncItem]) -> None:
        """Give items back for another delivery, as `WorkQueue.release` does."""
        await self._finish(RELEASE, items)

    async def reject(self, items: Iterable[AsyncItem]) -> None:
        """Finish items without success, as `WorkQueue.reject` does."""
        await self._finish(REJECT, items)

    async def renew(self, items: Iterable[AsyncItem]) -> None:
        """Let the locks of items last for the whole time again, as `WorkQueue.renew` does."""
        await self._finish(RENEW, items)

    async def _finish(self, kind: int, items: Iterable[AsyncItem]) -> None:
        given = [one.item for one in items]
        finished = [one for one in given if one.is_finished]
        worker = self.queue._open()
        future = worker.begin_acknowledge(kind, leases_of(given))
        # a cancelled call would not say which items are finished: the acknowledgement goes on to its end
        try:
            end_finish(kind, given, finished, await shielded(asyncio.wrap_future(future)))
        except asyncio.CancelledError:
            if not _is_cancelled():
                worker.wait(future)  # raises LogClosed
            for one in given:  # the end of a block must not acknowledge them again: that fails, and hides this error
                one.is_finished = one.is_finished or kind != RENEW
            raise

    async def close(self) -> None:
        """Release the items that are not finished, and leave the group. A second call does nothing."""
        await asyncio.get_running_loop().run_in_executor(None, self.queue.close)

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()

    def __repr__(self) -> str:
        return f"<Async{repr(self.queue)[1:]}"


def _is_cancelled() -> bool:
    """Return True if the running task was cancelled; a call that it waits for is, too, when its queue is closed."""
    task = asyncio.current_task()
    return task is not None and task.cancelling() > 0


class AsyncItem(AcquiredFields):
    """An `Item` whose calls are coroutines; `item` is the plain one.

    `async with item:` acknowledges it at the end of the block, and releases it after an error or a cancellation.

    >>> topic = dirs.create_topic("tasks")
    >>> info = dirs["tasks", 0].append([b"resize 1"])
    >>> async def work():
    ...     async with wrap(dirs["tasks"].queue("workers")) as queue:
    ...         [item] = await queue.acquire()
    ...         print(item.topic_partition, item.offset, item.key, item.value, item.headers, item.timestamp > 0)
    ...         await item.renew()
    ...         await item.release()
    ...         [item] = await queue.acquire()
    ...         await item.reject()
    ...         print(item.delivery_count, item.is_finished, item.record.value, item)
    >>> asyncio.run(work())
    tasks-0 0 None b'resize 1' [] True
    2 True b'resize 1' <AsyncItem tasks-0 offset 0, delivery 2>
    """

    __slots__ = ("_queue", "item")

    def __init__(self, queue: AsyncWorkQueue, item: Item) -> None:
        self._queue = queue
        self.item = item
        self._acquired = item._acquired

    @property
    def is_finished(self) -> bool:
        """True after `ack`, `release` or `reject`."""
        return self.item.is_finished

    async def ack(self) -> None:
        """Finish it: the work is done."""
        await self._queue.ack((self,))

    async def release(self) -> None:
        """Give it back for another delivery, unless this was the last one that the group allows."""
        await self._queue.release((self,))

    async def reject(self) -> None:
        """Finish it without success, as `Item.reject` does."""
        await self._queue.reject((self,))

    async def renew(self) -> None:
        """Let its lock last for the whole time again, from now on."""
        await self._queue.renew((self,))

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, kind: type[BaseException] | None, *_: object) -> None:
        if not self.is_finished:
            await (self.ack() if kind is None else self.release())

    def __repr__(self) -> str:
        return f"<Async{repr(self.item)[1:]}"
