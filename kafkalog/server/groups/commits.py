"""The committed offsets of a coordinator's groups: commit, fetch, delete and import offsets."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Iterable, Mapping
from functools import partial
from typing import TYPE_CHECKING, Final, NamedTuple
from uuid import UUID

from kafkalog.config.keys import MAX_LONG
from kafkalog.errors import KafkalogError
from kafkalog.server.error_codes import ErrorCode
from kafkalog.server.groups import consumer_heartbeat, rebalance, records
from kafkalog.server.groups.classic_group import ClassicGroup, State
from kafkalog.server.groups.consumer_group import ConsumerGroup
from kafkalog.server.groups.group_log import commit_error_code
from kafkalog.server.groups.offsets import Place
from kafkalog.server.groups.other_group import Kind, OtherGroup
from kafkalog.server.groups.records import Record
from kafkalog.server.groups.values import NO_GENERATION, NO_MEMBER, CommittedOffset, KeptPosition
from kafkalog.server.requests.cooperative_yield import TURN_ROWS, CooperativeYield

if TYPE_CHECKING:
    from kafkalog.server.groups.classic_groups import ClassicGroups
    from kafkalog.server.groups.group_table import GroupTable, ServedGroup
    from kafkalog.server.node.node import Node

_LOG: Final = logging.getLogger(__name__)
_FIRST_WITH_EPOCHS: Final = 9
"""First version of OffsetCommit and OffsetFetch with member epochs (KIP-848)."""


class Committer(NamedTuple):
    """The client that commits or fetches offsets: a member, or one outside the group (generation -1, no ids)."""

    member_id: str = NO_MEMBER
    generation: int = NO_GENERATION
    instance_id: str | None = None
    version: int = _FIRST_WITH_EPOCHS

    @property
    def is_anonymous(self) -> bool:
        """True if the request has no generation, member id or instance id."""
        return self.generation < 0 and not self.member_id and self.instance_id is None


class NewOffset(NamedTuple):
    """An offset to commit for a partition."""

    offset: int
    leader_epoch: int
    metadata: str
    topic_id: UUID | None = None


class OffsetCommits:
    """Operations on committed offsets."""

    def __init__(self, node: Node, table: GroupTable, classic: ClassicGroups) -> None:
        self._node = node
        self._table = table
        self._classic = classic

    async def commit(
        self,
        group_id: str,
        committer: Committer,
        offsets: Mapping[Place, NewOffset],
        retention_ms: int = -1,
    ) -> dict[Place, int]:
        """Commit offsets and return the error code of each partition.

        With `retention_ms` at least 0, the offsets expire after that time; -1 applies `offsets.retention.minutes`.
        """
        error = await self._table.ready(group_id, needs_id=False)
        codes, accepted, batch = await self._new_offsets(group_id, {} if error else offsets, retention_ms)
        error = error or self._check_commit(group_id, committer, offsets)  # no await from here to the append
        if error:
            return dict.fromkeys(offsets, int(error))
        if accepted:
            self._touch(group_id, committer)
            append = partial(self._table.log.append, group_id, batch)
            codes |= await self._append(group_id, accepted, append, partial(self._table.offsets.put, group_id))
        return codes

    async def commit_in_transaction(
        self,
        group_id: str,
        transactional_id: str,
        producer_id: int,
        producer_epoch: int,
        offsets: Mapping[Place, NewOffset | CommittedOffset],
        member_id: str = NO_MEMBER,
        generation: int = NO_GENERATION,
        group_instance_id: str | None = None,
        verify: Callable[[], int] = lambda: 0,
        *,
        knows_epochs: bool = True,
    ) -> dict[Place, int]:
        """Write offsets that take effect when the transaction commits; return the error code of each partition.

        `verify` returns 0 while the transaction is open, else an error code. It is called just before the append:
        offsets written after the transaction's marker would stay pending. `knows_epochs`: the client knows the errors
        of KIP-1319; another one gets ILLEGAL_GENERATION instead.
        """
        committer = Committer(member_id, generation, group_instance_id)
        error = await self._table.ready(group_id)
        codes, accepted, batch = await self._new_offsets(group_id, {} if error else offsets, -1)
        error = error or self._check_transactional(group_id, committer, offsets, knows_epochs) or verify()
        if error:
            return dict.fromkeys(offsets, int(error))
        if accepted:
            append = partial(self._table.log.append_in_transaction, group_id, batch, producer_id, producer_epoch)
            put = partial(self._table.offsets.put_pending, producer_id, group_id)
            codes |= await self._append(group_id, accepted, append, put, transactional_id)
        return codes

    async def _append(
        self,
        group_id: str,
        accepted: Mapping[Place, CommittedOffset],
        append: Callable[[], int],
        put: Callable[[Place, CommittedOffset, int], object],
        transactional_id: str | None = None,
    ) -> dict[Place, int]:
        """Append offsets, then store them by `put`; `append` returns the last offset. Return the code of each."""
        try:
            last = append()
        except (KafkalogError, OSError) as failure:
            transaction = "" if transactional_id is None else f" in transaction {transactional_id}"
            _LOG.error("offsets of group %s%s cannot be written: %s", group_id, transaction, failure)
            return dict.fromkeys(accepted, int(commit_error_code(failure)))
        for record_offset, (place, one) in enumerate(accepted.items(), last - len(accepted) + 1):
            put(place, one, record_offset)
        if group_id not in self._table.groups:  # a request that commits nothing creates no group
            self._table.groups[group_id] = ClassicGroup(group_id, self._node.clock())
        return dict.fromkeys(accepted, int(await self._table.log.settled(group_id)))

    def on_transaction_ended(
        self, producer_id: int, producer_epoch: int, partitions: Iterable[int], is_committed: bool
    ) -> None:
        """Apply a transaction's markers, which were written to these partitions of `__consumer_offsets`."""
        ended = set(partitions)
        partition_for = self._table.log.partition_for
        self._table.offsets.end_transaction(producer_id, is_committed, lambda group: partition_for(group) in ended)

    async def _new_offsets(
        self, group_id: str, offsets: Mapping[Place, NewOffset | CommittedOffset], retention_ms: int
    ) -> tuple[dict[Place, int], dict[Place, CommittedOffset], list[Record]]:
        """Return (error code of each partition, accepted offsets, their records). Yields to other tasks."""
        longest = self._node.config["offset.metadata.max.bytes"]
        now_ms = self._node.clock()
        expire_ms = None if retention_ms < 0 else min(now_ms + retention_ms, MAX_LONG)
        codes: dict[Place, int] = {}
        accepted: dict[Place, CommittedOffset] = {}
        batch: list[Record] = []
        turns = CooperativeYield()
        for place, new in offsets.items():
            await turns.row()
            metadata = new.metadata or ""
            if len(metadata) > longest:
                codes[place] = int(ErrorCode.OFFSET_METADATA_TOO_LARGE)
                continue
            codes[place] = 0
            topic_id = getattr(new, "topic_id", None)
            one = CommittedOffset(new.offset, new.leader_epoch, metadata, now_ms, expire_ms, topic_id)
            accepted[place] = one
            batch.append(records.offset_record(group_id, *place, one))
        return codes, accepted, batch

    def _check_commit(
        self, group_id: str, committer: Committer, offsets: Iterable[Place], *, is_transactional: bool = False
    ) -> int:
        group = self._table.groups.get(group_id)
        if group is None:
            if committer.generation >= 0:
                is_new = committer.version >= _FIRST_WITH_EPOCHS
                return ErrorCode.GROUP_ID_NOT_FOUND if is_new else ErrorCode.ILLEGAL_GENERATION
            return 0
        if isinstance(group, OtherGroup):
            return group.refuse_commit(
                committer.member_id, committer.generation, knows_epochs=committer.version >= _FIRST_WITH_EPOCHS
            )  # fmt: skip
        if committer.generation < 0 and group.is_empty:
            return 0
        if committer.is_anonymous:
            return 0 if is_transactional else ErrorCode.UNKNOWN_MEMBER_ID
        if isinstance(group, ConsumerGroup):
            return _check_epoch(group, committer, [(one, place[1]) for one, place in self._ids_of(offsets)])
        error = group.check_member(committer.member_id, committer.instance_id)
        if error:
            return error
        if committer.generation != group.generation:
            return ErrorCode.ILLEGAL_GENERATION
        is_waiting = group.state is State.COMPLETING_REBALANCE and not is_transactional
        return ErrorCode.REBALANCE_IN_PROGRESS if is_waiting else 0

    def _check_transactional(
        self, group_id: str, committer: Committer, offsets: Iterable[Place], knows_epochs: bool
    ) -> int:
        error = self._check_commit(group_id, committer, offsets, is_transactional=True)
        is_absent = error == ErrorCode.GROUP_ID_NOT_FOUND and group_id not in self._table.groups
        if not knows_epochs and (is_absent or error == ErrorCode.STALE_MEMBER_EPOCH):
            return ErrorCode.ILLEGAL_GENERATION
        return error

    def _ids_of(self, offsets: Iterable[Place]) -> Iterable[tuple[UUID | None, Place]]:
        for place in offsets:
            topic = self._node.topics.get(place[0])
            yield (None if topic is None else topic.id), place

    def _touch(self, group_id: str, committer: Committer) -> None:
        """Restart the member's session timer, since a commit shows that the member is alive."""
        group = self._table.groups.get(group_id)
        if isinstance(group, ClassicGroup) and committer.member_id in group.members:
            self._classic.run(group, [rebalance.session(group, committer.member_id)])

    async def check_fetch(self, group_id: str, member_id: str | None, epoch: int) -> int:
        """Return the error code for an OffsetFetch of a group, with or without a member id and epoch."""
        error = await self._table.ready(group_id, is_written=False, needs_id=False)
        group = self._table.groups.get(group_id)
        if error or (member_id is None and epoch < 0):
            return error
        if isinstance(group, OtherGroup):
            return group.check_member(member_id or "", epoch) if group.kind is Kind.STREAMS else 0
        if not isinstance(group, ConsumerGroup):
            return 0
        return _check_epoch(group, Committer(member_id or "", epoch))

    def fetched(self, group_id: str, place: Place, requires_stable: bool) -> CommittedOffset | None:
        """Return the committed offset, or None.

        Return `UNSTABLE` if `requires_stable` and an open transaction has an offset for the partition.
        """
        if requires_stable and self._table.offsets.is_pending(group_id, place):
            return UNSTABLE
        one = self._table.offsets.get(group_id, place)
        return None if one is None or self._is_of_another(place[0], one) else one

    def _is_of_another(self, name: str, one: CommittedOffset) -> bool:
        """Return True if the offset was committed for a deleted topic whose name another topic has now.

        Such an offset remains if a crash comes between the delete of a topic and the tombstones of its offsets.
        """
        topic = self._node.topics.get(name)
        return topic is not None and one.topic_id is not None and topic.id != one.topic_id

    async def delete_offsets(self, group_id: str, places: Iterable[Place]) -> tuple[int, dict[Place, int]]:
        """Delete committed offsets. Return the error code of the request and that of each partition.

        Offsets of topics that members are subscribed to are not deleted, nor those of share and streams groups.
        """
        error = await self._table.ready(group_id, is_written=False)
        if error:
            return error, {}
        group = self._table.groups.get(group_id)
        if group is None:
            return ErrorCode.GROUP_ID_NOT_FOUND, {}
        if isinstance(group, OtherGroup):
            if group.kind is Kind.SHARE:
                return ErrorCode.GROUP_ID_NOT_FOUND, {}
            return 0, dict.fromkeys(places, int(ErrorCode.GROUP_SUBSCRIBED_TO_TOPIC))
        if isinstance(group, ConsumerGroup):
            read: frozenset[str] | set[str] | None = group.subscribed_topics()
        else:
            read = set() if group.state is State.EMPTY else group.read_topics
            if read is None and group.protocol_type != "consumer":
                return ErrorCode.NON_EMPTY_GROUP, {}
        codes = {
            place: int(ErrorCode.GROUP_SUBSCRIBED_TO_TOPIC) if read is None or place[0] in read else 0
            for place in places
        }
        known = set(self._table.offsets.places_of(group_id))  # with those of open transactions, as in a broker
        deleted = [place for place, code in codes.items() if not code and place in known]
        try:
            for first in range(0, len(deleted), TURN_ROWS):
                self.drop(group_id, deleted[first : first + TURN_ROWS])
                await asyncio.sleep(0)
        except (KafkalogError, OSError) as failure:
            return commit_error_code(failure), {}
        error = await self._table.log.settled(group_id) if deleted else 0
        return (error, {}) if error else (0, codes)

    def drop(self, group_id: str, places: list[Place]) -> None:
        """Write tombstones of offsets, then remove them. Raises the append's errors."""
        self._table.log.append_many(group_id, [records.tombstone(records.OFFSET, group_id, *place) for place in places])
        for place in places:
            self._table.offsets.remove(group_id, place)

    def forget_topic(self, topic: str) -> None:
        """Delete the offsets of a deleted topic, except those of share and streams groups."""
        by_group: dict[str, list[Place]] = {}
        for group_id, place in self._table.offsets.of_topic(topic):
            if not isinstance(self._table.groups.get(group_id), OtherGroup):
                by_group.setdefault(group_id, []).append(place)
        for group_id, places in by_group.items():
            try:
                self.drop(group_id, places)
            except (KafkalogError, OSError) as error:
                _LOG.error("offsets of topic %s in group %s cannot be deleted: %s", topic, group_id, error)

    # Import of readers' positions

    async def import_positions(self, positions: Iterable[KeptPosition]) -> int:
        """Commit positions that readers saved themselves, if newer than the committed offset; return their number."""
        imported = 0
        skipped: set[str] = set()
        for one in positions:
            topic = self._node.topics.get(one.topic)
            if topic is None or one.partition >= topic.partitions or await self._table.ready(one.group_id):
                continue
            if isinstance(self._table.groups.get(one.group_id), OtherGroup):
                skipped.add(one.group_id)
                continue
            place = (one.topic, one.partition)
            known = self._table.offsets.get(one.group_id, place)
            if known is not None and known.commit_ms >= one.committed_ms:
                continue
            new = CommittedOffset(one.offset, -1, "", self._node.clock(), None, topic.id)
            record_offset = self._table.log.append(one.group_id, [records.offset_record(one.group_id, *place, new)])
            self._table.offsets.put(one.group_id, place, new, record_offset)
            self._table.groups.setdefault(one.group_id, ClassicGroup(one.group_id, self._node.clock()))
            imported += 1
        if imported:
            _LOG.info("imported %d positions of named readers as group offsets", imported)
        if skipped:
            names = ", ".join(ascii(name) for name in sorted(skipped))
            _LOG.warning("positions of named readers were not imported: a broker has groups named %s", names)
        return imported

    def forget(self, group: ServedGroup) -> None:
        """Write tombstones for everything recorded for a group without members, offsets first, and remove it."""
        places = self._table.offsets.places_of(group.id)
        tombstones = [records.tombstone(records.OFFSET, group.id, *place) for place in places]
        if isinstance(group, ConsumerGroup):
            tombstones += consumer_heartbeat.delete(group)
        else:
            tombstones.append(records.tombstone(records.CLASSIC_GROUP, group.id))
        self._table.remove(group.id, tombstones)
        self._table.offsets.drop_group(group.id)


UNSTABLE: Final = CommittedOffset(-1, -1, "", -1)
"""Stands for an offset that an open transaction may change."""


def _check_epoch(group: ConsumerGroup, committer: Committer, places: Iterable[tuple[UUID | None, int]] = ()) -> int:
    """Return 0 for the member's current epoch, or an earlier one since which it has had all `places` (KIP-1251)."""
    member = group.members.get(committer.member_id)
    if member is None:
        return ErrorCode.UNKNOWN_MEMBER_ID
    if committer.version < _FIRST_WITH_EPOCHS and not member.is_classic:
        return ErrorCode.UNSUPPORTED_VERSION
    if committer.generation == member.epoch:
        return 0
    if member.is_classic:
        return ErrorCode.ILLEGAL_GENERATION
    places = list(places)
    had = [member.epochs.get((one, number), member.epoch) for one, number in places if one is not None]
    is_ours = 0 <= committer.generation < member.epoch and len(had) == len(places) > 0
    return 0 if is_ours and max(had) <= committer.generation else ErrorCode.STALE_MEMBER_EPOCH
