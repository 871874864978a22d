"""The expiry of the committed offsets of a coordinator's groups."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Mapping
from typing import TYPE_CHECKING, Final

from kafkalog.errors import KafkalogError
from kafkalog.server.groups.classic_group import ClassicGroup, State
from kafkalog.server.groups.consumer_group import ConsumerGroup
from kafkalog.server.groups.group_log import OFFSETS_TOPIC
from kafkalog.server.groups.offsets import Place
from kafkalog.server.groups.other_group import OtherGroup
from kafkalog.server.groups.values import CommittedOffset
from kafkalog.server.requests.cooperative_yield import CooperativeYield

if TYPE_CHECKING:
    from kafkalog.server.groups.commits import OffsetCommits
    from kafkalog.server.groups.group_table import GroupTable, ServedGroup
    from kafkalog.server.node.node import Node

_LOG: Final = logging.getLogger(__name__)


class OffsetExpiry:
    """Deletes the offsets of a coordinator's groups that have expired, and groups without members and offsets."""

    def __init__(self, node: Node, table: GroupTable, commits: OffsetCommits) -> None:
        self._node = node
        self._table = table
        self._commits = commits
        self._timer: asyncio.TimerHandle | None = None
        self._running: asyncio.Task[int] | None = None

    def start(self) -> None:
        """Expire offsets periodically."""
        period_ms = self._node.config["offsets.retention.check.interval.ms"]
        self._timer = self._node.later(period_ms, self._expire_periodically)

    async def stop(self) -> None:
        """Stop expiring offsets."""
        if self._timer is not None:
            self._timer.cancel()
        if self._running is not None:
            self._running.cancel()
            await asyncio.gather(self._running, return_exceptions=True)

    def _expire_periodically(self) -> None:
        self._running = asyncio.get_running_loop().create_task(self.expire())
        self.start()

    async def expire(self) -> int:
        """Delete the offsets that expired after `offsets.retention.minutes`; return their number."""
        if self._node.topics.get(OFFSETS_TOPIC) is None or self._node.is_read_only:
            return 0
        retention_ms = self._node.config["offsets.retention.minutes"] * 60_000
        dropped = 0
        turns = CooperativeYield()
        for group in list(self._table.groups.values()):
            await turns.row()
            if isinstance(group, OtherGroup):
                continue
            if self._table.groups.get(group.id) is not group or self._table.is_unloaded(group.id):
                continue  # replaced meanwhile, or not loaded
            try:
                dropped += self._expire_group(group, retention_ms)
            except (KafkalogError, OSError) as error:
                _LOG.error("expired offsets of group %s cannot be deleted: %s", group.id, error)
        if dropped:
            _LOG.info("deleted %d offsets that expired after %d minutes", dropped, retention_ms // 60_000)
        return dropped

    def _expire_group(self, group: ServedGroup, retention_ms: int) -> int:
        offsets = {
            place: one
            for place, one in self._table.offsets.all_of(group.id).items()
            if not self._table.offsets.is_pending(group.id, place)
        }
        places = self._old_places(group, offsets, retention_ms)
        self._commits.drop(group.id, places)
        is_gone = len(places) == len(offsets) and not self._table.offsets.has_pending(group.id)
        if is_gone and group.is_empty and not (isinstance(group, ClassicGroup) and group.pending):
            self._commits.forget(group)
        return len(places)

    def _old_places(
        self, group: ServedGroup, offsets: Mapping[Place, CommittedOffset], retention_ms: int
    ) -> list[Place]:
        now_ms = self._node.clock()
        if isinstance(group, ConsumerGroup):
            return expired(offsets, now_ms, retention_ms, None, group.subscribed_topics())
        if group.protocol_type is None:
            return expired(offsets, now_ms, retention_ms)
        if group.state is State.EMPTY:
            return expired(offsets, now_ms, retention_ms, group.state_ms)
        read = group.read_topics
        return [] if read is None or group.state is not State.STABLE else expired(
            offsets, now_ms, retention_ms, None, read
        )  # fmt: skip


def expired(
    offsets: Mapping[Place, CommittedOffset],
    now_ms: int,
    retention_ms: int,
    base_ms: int | None = None,
    read_topics: frozenset[str] | set[str] = frozenset(),
) -> list[Place]:
    """Return the partitions whose offsets have expired after `retention_ms` (KIP-211).

    The retention starts at the commit, or at `base_ms`, when the group became empty. Offsets of `read_topics`, to
    which members are subscribed, do not expire. An expiry time that an old client set (`expire_ms`) takes precedence
    over the retention.
    """
    found = []
    for place, one in offsets.items():
        if place[0] in read_topics:
            continue
        if one.expire_ms is not None:
            is_over = now_ms >= one.expire_ms
        else:
            is_over = now_ms - (one.commit_ms if base_ms is None else base_ms) >= retention_ms
        if is_over:
            found.append(place)
    return found
