"""Calls about share groups between the main process, which has the groups and states, and workers with partitions."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Collection, Iterable, Mapping
from typing import TYPE_CHECKING, Any, Final

from kafkalog.errors import KafkalogError, NotLeaderOrFollower
from kafkalog.server.share.dead_letters import append_letters, place_of_letters
from kafkalog.server.share.state import ShareKey
from kafkalog.server.workers.link import LinkLost, Message
from kafkalog.server.workers.share_states import change_of, key_of, key_values
from kafkalog.types import TopicPartition

if TYPE_CHECKING:
    from kafkalog.server.node.node import Node
    from kafkalog.server.workers.workers import Workers

CALL_SECONDS: Final = 10.0
LETTERS_SECONDS: Final = 40.0
"""Time limit of a worker's dead letters, which have one of their own."""
Call = Callable[["Node", Message], Awaitable[Message]]


class WorkerShares:
    """The share partitions of workers, for the main process. A worker that does not run has none to change."""

    def __init__(self, workers: Workers) -> None:
        self._workers = workers
        self._tasks: set[asyncio.Task[object]] = set()

    def stop(self) -> None:
        """Cancel what is sent in the background."""
        for task in self._tasks:
            task.cancel()

    async def forget(self, keys: Collection[ShareKey]) -> None:
        """Let workers drop these share partitions: their states were replaced or deleted."""
        await self._send("share_forget", keys, CALL_SECONDS)

    async def letters_written(self, keys: Collection[ShareKey]) -> None:
        """Wait until workers have written the dead letters of these share partitions; a limited time."""
        await self._send("share_bury", keys, LETTERS_SECONDS)

    def forget_all(self) -> None:
        """Let workers drop all share partitions, soon."""
        for number in self._workers.numbers:
            self._start(self._ask(number, "share_forget", {"keys": None}, CALL_SECONDS))

    def member_gone(self, group_id: str, member: str) -> None:
        """Let workers end the sessions of a member, soon."""
        for number in self._workers.numbers:
            self._start(self._ask(number, "share_left", {"group": group_id, "member": member}, CALL_SECONDS))

    async def ends(self, places: Iterable[TopicPartition]) -> dict[TopicPartition, int]:
        """Return the high watermarks of those of these partitions that lie with workers which answer."""
        wanted: dict[int, list[TopicPartition]] = {}
        for place in places:
            if place in self._workers.owners:
                wanted.setdefault(self._workers.worker_of(place), []).append(place)
        found: dict[TopicPartition, int] = {}
        for number, rows in wanted.items():
            answer = await self._ask(number, "share_ends", {"places": rows}, CALL_SECONDS)
            if answer is not None:
                found |= {place: end for place, end in zip(rows, answer.values["ends"], strict=True) if end >= 0}
        return found

    async def append_letters(self, place: TopicPartition, data: bytes) -> None:
        """Append dead letters to a worker's partition. Errors of the append."""
        try:
            await self._workers.call(self._workers.worker_of(place), "share_append", {"place": place}, data)
        except LinkLost as error:
            raise NotLeaderOrFollower(str(error)) from None  # it starts again: the caller tries later

    async def _send(self, name: str, keys: Iterable[ShareKey], seconds: float) -> None:
        wanted: dict[int, list[dict[str, Any]]] = {}
        topics = self._workers.node.topics
        for key in keys:
            topic = topics.by_id(key.topic_id)
            if topic is None:
                continue
            place = TopicPartition(topic.name, key.partition)
            if place in self._workers.owners:
                wanted.setdefault(self._workers.worker_of(place), []).append(key_values(key))
        await asyncio.gather(*(self._ask(number, name, {"keys": rows}, seconds) for number, rows in wanted.items()))

    async def _ask(self, number: int, name: str, values: Mapping[str, Any], seconds: float) -> Message | None:
        """Return the answer of a worker; None without one. A paused worker does it before it answers its clients."""
        # a task, since a request may run outside of one, where `asyncio.timeout` does not work
        return await asyncio.get_running_loop().create_task(self._workers.ask(number, name, values, seconds))

    def _start(self, work: Any) -> None:
        task = asyncio.get_running_loop().create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)


# Calls of a worker


async def _read(node: Node, message: Message) -> Message:
    key, log = key_of(message.values), node.shares.log
    code = int(await log.ready(key))
    placed = log.placed(key)
    if code or placed is None:
        return Message({"code": code, "state": None, "number": 0})
    return Message({"code": 0, "state": placed.state, "number": placed.number})


async def _write(node: Node, message: Message) -> Message:
    values = message.values  # nothing is awaited before the write: changes of a worker keep their order
    code = node.shares.log.write_numbered(key_of(values), values["number"], change_of(values["change"]))
    return Message({"code": int(code)})


async def _letters(node: Node, message: Message) -> Message:
    place, max_bytes = await place_of_letters(node, key_of(message.values))
    return Message({"place": place, "max_bytes": max_bytes})


async def _append(node: Node, message: Message) -> Message:
    await append_letters(node, TopicPartition(*message.values["place"]), message.body)
    return Message({})


CALLS_OF_WORKERS: Final[Mapping[str, Call]] = {
    "share_read": _read, "share_write": _write, "share_letters": _letters, "share_append": _append,
}  # fmt: skip


# Calls of the main process


async def _forget(node: Node, message: Message) -> Message:
    rows = message.values["keys"]
    keys = None if rows is None else frozenset(map(key_of, rows))
    node.shares.forget(lambda key: keys is None or key in keys)
    node.shares.log.delete(node.shares.log.keys(lambda key: keys is None or key in keys))
    return Message({})


async def _bury(node: Node, message: Message) -> Message:
    await node.shares.letters_written(map(key_of, message.values["keys"]))
    return Message({})


async def _left(node: Node, message: Message) -> Message:
    node.shares.member_left(message.values["group"], message.values["member"])
    return Message({})


async def _ends(node: Node, message: Message) -> Message:
    return Message({"ends": [_end(node, TopicPartition(*one)) for one in message.values["places"]]})


def _end(node: Node, place: TopicPartition) -> int:
    try:
        return node.replicas.find(place).high_watermark
    except KafkalogError:
        return -1


async def _append_here(node: Node, message: Message) -> Message:
    node.replicas.append_now(TopicPartition(*message.values["place"]), message.body, "client")
    return Message({})


CALLS_OF_THE_MAIN_PROCESS: Final[Mapping[str, Call]] = {
    "share_forget": _forget, "share_bury": _bury, "share_left": _left, "share_ends": _ends,
    "share_append": _append_here,
}  # fmt: skip
