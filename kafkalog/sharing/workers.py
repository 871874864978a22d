"""A member of a share group with the event loop that it runs on, as `kafkalog.queue` needs it."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterable, Mapping
from concurrent.futures import Future
from contextlib import suppress
from functools import partial
from typing import TYPE_CHECKING, Final, TypeVar

from kafkalog.copy.cluster_client import ClusterClient
from kafkalog.copy.places import parse_addresses
from kafkalog.errors import KafkalogError, LogClosed, UnknownTopicOrPartition
from kafkalog.server.client.errors import PeerRefused, PeerUnreachable
from kafkalog.server.client.settings import peer_settings
from kafkalog.server.packages import check_packages
from kafkalog.sharing.group_settings import START, apply_settings
from kafkalog.sharing.links import SharedTopic
from kafkalog.sharing.loop import LoopThread, result_of
from kafkalog.sharing.member import Member

if TYPE_CHECKING:
    from kafkalog.manager.log_manager import LogManager
    from kafkalog.queue.worker import Acquired, Lease
    from kafkalog.sharing.links import Link, Links

T = TypeVar("T")
_LOCAL_SLICE_S: Final = 0.05
_REMOTE_SLICE_S: Final = 0.25


class MemberWorker:
    """A member on a loop of another thread; `end_loop` is called once it has left."""

    def __init__(self, loop: LoopThread, links: Links, member: Member, end_loop: Callable[[], object]) -> None:
        self._loop = loop
        self._links = links
        self._member = member
        self._end_loop = end_loop

    def begin(self, group: str, start: str | None, settings: Mapping[str, object]) -> None:
        """Give the group its settings, and join it; after an error nothing is left."""
        try:
            self._loop.call(self._begin(group, {} if start is None else {START: start}, settings))
        except BaseException:
            with suppress(KafkalogError):
                self._loop.call(self._links.close())
            self._end_loop()
            raise

    async def _begin(self, group: str, defaults: Mapping[str, str], settings: Mapping[str, object]) -> None:
        await self._member.find()  # before anything is kept for the group
        await self._links.ask_any(lambda link: apply_settings(link, group, defaults, settings))
        await self._member.join()

    def begin_acquire(self, max_records: int, timeout_s: float | None) -> Future[list[Acquired]]:
        """Begin to acquire records; wait up to `timeout_s` (None: forever) for the first one.

        If the call is cancelled, what comes for it is released.
        """
        call: list[Future[list[Acquired]]] = []
        tasks: list[asyncio.Task[list[Acquired]]] = []

        async def acquire() -> list[Acquired]:
            task = asyncio.current_task()
            assert task is not None
            tasks.append(task)
            task.add_done_callback(partial(self._release_unwanted, call))  # runs once the call's future is set
            return await self._member.acquire(max_records, timeout_s)

        try:
            call.append(self._loop.submit(acquire()))
        except BaseException:  # a Ctrl-C may come when the loop has the coroutine, and the caller no future of it
            with suppress(LogClosed):
                self._loop.submit(self._give_up(tasks))
            raise
        return call[0]

    async def _give_up(self, tasks: Iterable[asyncio.Task[list[Acquired]]]) -> None:
        """Cancel tasks whose caller was interrupted, and release what they acquire all the same."""
        for task in tasks:
            task.add_done_callback(self._release)
            task.cancel()

    def _release_unwanted(self, call: list[Future[list[Acquired]]], task: asyncio.Task[list[Acquired]]) -> None:
        if call and call[0].cancelled():
            self._release(task)

    def _release(self, task: asyncio.Task[list[Acquired]]) -> None:
        if not task.cancelled() and task.exception() is None:
            self._member.begin(self._member.give_back(task.result()))

    def wait(self, future: Future[T]) -> T:
        """Wait for the result of a call that was begun; a Ctrl-C cancels it. LogClosed if the queue is closed first."""
        return result_of(future)

    def give_back(self, future: Future[list[Acquired]]) -> None:
        """Release the records of a call whose caller was interrupted after they were acquired."""
        future.add_done_callback(self._give_back)  # a result may just be on its way, and cannot be cancelled

    def _give_back(self, future: Future[list[Acquired]]) -> None:
        if not future.cancelled() and future.exception() is None:
            with suppress(LogClosed):
                self._loop.submit(self._member.give_back(future.result()))

    def begin_acknowledge(self, kind: int, leases: Iterable[Lease]) -> Future[Mapping[Lease, KafkalogError]]:
        """Begin to acknowledge records. The result has the errors of those for which it failed."""
        return self._loop.submit(self._member.acknowledge(kind, leases))

    def close(self) -> None:
        """Release what is acquired, and leave the group."""
        try:
            with suppress(KafkalogError, TimeoutError):
                self._loop.call(self._member.leave())
            self._loop.call(self._links.close())
        finally:
            self._end_loop()


def local_worker(
    manager: LogManager, topic: str, group: str, partition: int | None, start: str | None,
    settings: Mapping[str, object],
) -> MemberWorker:  # fmt: skip
    """Return a member on open directories."""
    check_packages()
    from kafkalog.sharing.local import LocalLinks, acquire_node, release_node

    local = acquire_node(manager)
    links = LocalLinks(local)
    member = Member(links, group, topic, takes_all=True, partition=partition, slice_s=_LOCAL_SLICE_S)
    worker = MemberWorker(local.loop, links, member, lambda: release_node(local))
    worker.begin(group, start, settings)
    return worker


def remote_worker(
    bootstrap: str, topic: str, group: str, start: str | None, settings: Mapping[str, object],
    properties: Mapping[str, str],
) -> MemberWorker:  # fmt: skip
    """Return a member of a group in a cluster. IllegalArgument for a wrong address."""
    check_packages()
    client = ClusterClient(bootstrap, parse_addresses(bootstrap), peer_settings(properties))
    links = RemoteLinks(client)
    loop = LoopThread("kafkalog-queue")
    member = Member(links, group, topic, slice_s=_REMOTE_SLICE_S)
    worker = MemberWorker(loop, links, member, loop.stop)
    worker.begin(group, start, settings)
    return worker


class RemoteLinks:
    """Connections to the nodes of a cluster, opened when they are needed."""

    def __init__(self, client: ClusterClient) -> None:
        self._client = client

    async def topic(self, name: str) -> SharedTopic:
        """Return the topic as its cluster describes it. UnknownTopicOrPartition, PeerError."""
        found = (await self._client.read([name])).topics.get(name)
        if found is None:
            raise UnknownTopicOrPartition(f"{self._client.name} has no topic {name}", hint="create the topic first")
        if found.id is None:
            raise PeerRefused(f"{self._client.name} has no topic ids", hint="share groups need a newer broker")
        return SharedTopic(name, found.id, tuple(one.node_id for one in found.leaders))

    async def ask_coordinator(self, group: str, call: Callable[[Link], Awaitable[T]]) -> T:
        """Return the result of `call` with the group's coordinator, repeated while that can help."""
        return await self._client.ask_coordinator(group, call)

    async def ask_any(self, call: Callable[[Link], Awaitable[T]]) -> T:
        """Return the result of `call` with any node that answers."""
        return await self._client.any_broker(call)

    async def to_node(self, node_id: int) -> Link:
        """Return the connection to a node. PeerError."""
        address = self._client.nodes.get(node_id)
        if address is None:
            raise PeerUnreachable(f"{self._client.name} has no node {node_id} now")
        return await self._client.connection(address)

    async def close(self) -> None:
        """Close the connections: the nodes release what their sessions have acquired."""
        await self._client.close()
