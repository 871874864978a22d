"""The states of share partitions in a worker: it decides on them, and the main process has them and their log.

A worker reads a state when it loads a share partition. Its changes take effect at once, as in a broker, are sent in
order, and are stored before their requests are answered. The state's number says which one a change is for: if the
main process has stored another one meanwhile, or cannot store the change, the worker drops the share partition.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any
from uuid import UUID

from kafkalog.errors import KafkalogError, NotLeaderOrFollower
from kafkalog.server.error_codes import ErrorCode
from kafkalog.server.groups.group_log import group_error_code
from kafkalog.server.share.state import Change, Placed, ShareKey, ShareState, changed
from kafkalog.server.share.state_log import ShareStateLog
from kafkalog.server.share.window import StateBatch
from kafkalog.server.workers.link import Link, LinkLost

if TYPE_CHECKING:
    from kafkalog.server.node.node import Node


def key_values(key: ShareKey) -> dict[str, Any]:
    """Return the form of a key in a call."""
    return {"group": key.group_id, "topic_id": str(key.topic_id), "partition": key.partition}


def key_of(values: Mapping[str, Any]) -> ShareKey:
    """Return the key of such a form."""
    return ShareKey(values["group"], UUID(values["topic_id"]), values["partition"])


def state_of(values: Sequence[Any]) -> ShareState:
    """Return the state of a call's answer."""
    *numbers, batches = values
    return ShareState._make([*numbers, _batches(batches)])


def change_of(values: Sequence[Any]) -> Change:
    """Return the change of a call."""
    *numbers, batches = values
    return Change._make([*numbers, _batches(batches)])


def _batches(rows: Iterable[Sequence[int]]) -> tuple[StateBatch, ...]:
    return tuple(StateBatch(*row) for row in rows)


class WorkerStates(ShareStateLog):
    """The states that a worker has loaded. Only for the event loop's thread."""

    def __init__(self, node: Node, link: Link) -> None:
        super().__init__(node)
        self._link = link
        self._sending: dict[ShareKey, set[asyncio.Task[int]]] = {}

    def start(self) -> None:
        """Do nothing: the main process reads and prunes the log."""

    async def stop(self) -> None:
        """Let nothing be sent from now on, and wait for what was sent."""
        self.is_closed = True
        await self.settled(tuple(self._sending))

    async def ready(self, key: ShareKey) -> int:
        """Read the state, and return 0 or the error code for the client."""
        while True:
            before = self._states.get(key)
            try:
                answer = (await self._link.call("share_read", key_values(key))).values
            except LinkLost:
                return ErrorCode.COORDINATOR_NOT_AVAILABLE
            if self._states.get(key) is before:  # else another call has read or changed it meanwhile
                break
        if answer["code"]:
            return int(answer["code"])
        if answer["state"] is None:
            self._states.pop(key, None)
        else:
            self._states[key] = Placed(state_of(answer["state"]), 0, 0, answer["number"])
        return 0

    def write(self, key: ShareKey, change: Change) -> None:
        """Send a change of a state."""
        before = self._states.get(key)
        if self.is_closed or before is None:
            raise NotLeaderOrFollower("the share partition is no longer served here")
        self._states[key] = before._replace(state=changed(before.state, change))
        task = asyncio.get_running_loop().create_task(self._send(key, before.number, change))
        self._sending.setdefault(key, set()).add(task)
        task.add_done_callback(lambda _: self._sent(key, task))

    async def _send(self, key: ShareKey, number: int, change: Change) -> int:
        values = {**key_values(key), "number": number, "change": change}
        try:
            code = int((await self._link.call("share_write", values)).values["code"])
        except KafkalogError as error:
            code = group_error_code(error)
        if code and (placed := self._states.get(key)) is not None and placed.number == number:
            del self._states[key]
            self._node.shares.failed(key, code)
        return code

    def _sent(self, key: ShareKey, task: asyncio.Task[int]) -> None:
        self._sending[key].discard(task)
        if not self._sending[key]:
            del self._sending[key]

    async def settled(self, keys: Iterable[ShareKey]) -> int:
        """Wait until what was sent of these states is stored. Return 0 or the first error code."""
        sent = [task for key in keys for task in self._sending.get(key, ())]
        if sent:
            await asyncio.wait(sent)  # `gather` would cancel them with the call of a client that has gone
        return next((code for task in sent if (code := task.result())), 0)

    def delete(self, keys: Iterable[ShareKey]) -> None:
        """Forget states; the main process deletes them."""
        for key in list(keys):
            self._states.pop(key, None)
