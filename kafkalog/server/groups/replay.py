"""Replay of the coordinator's records: the groups of one partition of `__consumer_offsets`."""

from __future__ import annotations

import logging
from collections import Counter
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final

from kafkalog.records.control import ControlType, control_record
from kafkalog.records.internal import coordinator_record
from kafkalog.records.message import MessageError
from kafkalog.records.schemas.groups import KEYS, VALUES
from kafkalog.server.groups import records
from kafkalog.server.groups.consumer_group import ConsumerGroup
from kafkalog.server.groups.offsets import GroupOffsets
from kafkalog.server.groups.other_group import KIND_OF, MEMBERS, WITHOUT_STATE, Kind, OtherGroup
from kafkalog.server.groups.share_group import ShareGroup
from kafkalog.storage.log_walk import log_chunks
from kafkalog.storage.segment_reader import Chunk

if TYPE_CHECKING:
    from kafkalog.records.schema import Message
    from kafkalog.storage.log_walk import Walkable

_LOG: Final = logging.getLogger(__name__)
_LEGACY_OFFSET: Final = 0
_CONSUMER: Final = frozenset(range(records.CONSUMER_GROUP, records.CURRENT_MEMBER + 1)) | {records.REGULAR_EXPRESSION}
_KNOWN_TYPES: Final = _CONSUMER | KIND_OF.keys() | {_LEGACY_OFFSET, records.OFFSET, records.CLASSIC_GROUP}
NO_PRODUCER: Final = -1


@dataclass(slots=True, eq=False)
class Replay:
    """The state of a partition's groups after the records applied so far. Not thread-safe.

    `unreadable` maps each key whose last record cannot be read to its group; `others` are the share and streams groups
    that exist or existed.
    """

    offsets: GroupOffsets = field(default_factory=GroupOffsets)
    classic: dict[str, Message] = field(default_factory=dict)
    consumer: dict[str, ConsumerGroup] = field(default_factory=dict)
    others: dict[str, OtherGroup] = field(default_factory=dict)
    unread: Counter[int | None] = field(default_factory=Counter)  # by the number in the key, None without a key
    unreadable: dict[bytes, str] = field(default_factory=dict)

    def apply(self, key: bytes | None, value: bytes | None, at: int, producer_id: int = NO_PRODUCER) -> None:
        """Apply one record; `at` is its offset, `producer_id` is set if it belongs to a transaction.

        Of streams groups, only the members and the state are kept. Records of unknown types, which later
        versions may write, are counted in `unread` and stay in the log. MessageError if a record of a known type cannot
        be read.
        """
        number = None if key is None or len(key) < 2 else int.from_bytes(key[:2], "big", signed=True)
        if key is None or number not in _KNOWN_TYPES:
            if number not in WITHOUT_STATE:
                self.unread[number] += 1
            return
        found = coordinator_record(key, None, KEYS, VALUES)
        group_id: str = found.key["group"] if "group" in found.key else found.key["groupId"]
        if found.type in MEMBERS:
            self._other(found.type, found.key, None if value is None else {})
            return
        self.unreadable[key] = group_id
        if value is not None:
            found = coordinator_record(key, value, KEYS, VALUES)
        del self.unreadable[key]
        if found.type == records.CLASSIC_GROUP:
            self._classic(group_id, found.value)
        elif found.type in _CONSUMER:
            self._consumer(found.type, found.key, found.value)
        elif found.type in KIND_OF:
            self._other(found.type, found.key, found.value)
        else:
            self._offset(found.key, found.value, at, producer_id)

    def drop_unreadable(self) -> set[str]:
        """Remove the groups that have an unreadable record, and return them.

        Serving such a group could overwrite what a later version wrote in that record.
        """
        groups = set(self.unreadable.values())
        for group_id in groups:
            self.offsets.drop_group(group_id)
            self.classic.pop(group_id, None)
            self.consumer.pop(group_id, None)
            self.others.pop(group_id, None)
        return groups

    def kept_for_broker(self) -> dict[str, OtherGroup]:
        """Return the share and streams groups that exist: those whose own record was not deleted."""
        return {group_id: group for group_id, group in self.others.items() if group.epoch is not None}

    def _offset(self, names: Message, value: Message | None, at: int, producer_id: int) -> None:
        group_id, place = names["group"], (names["topic"], names["partition"])
        if value is None:
            self.offsets.remove(group_id, place)
        elif producer_id == NO_PRODUCER:
            self.offsets.put(group_id, place, records.committed_offset(value), at)
        else:
            self.offsets.put_pending(producer_id, group_id, place, records.committed_offset(value), at)

    def _classic(self, group_id: str, value: Message | None) -> None:
        if value is None:
            self.classic.pop(group_id, None)
        else:
            self.classic[group_id] = value
            self.others.pop(group_id, None)

    def _consumer(self, kind: int, names: Message, value: Message | None) -> None:
        group_id = names["groupId"]
        group = self.consumer.get(group_id)
        if group is None:
            if value is None:  # the record that it deletes was compacted away
                return
            group = self.consumer[group_id] = ConsumerGroup(group_id)
            self.classic.pop(group_id, None)
            self.others.pop(group_id, None)
        if group.apply(kind, names, value):
            del self.consumer[group_id]

    def _other(self, number: int, names: Message, value: Message | None) -> None:
        group_id, kind = names["groupId"], KIND_OF[number]
        group = self.others.get(group_id)
        if group is None or group.kind is not kind:
            if value is None:  # the record that it deletes was compacted away, or is of an earlier group
                return
            group = ShareGroup(group_id) if kind is Kind.SHARE else OtherGroup(group_id, kind)
            self.others[group_id] = group
        group.apply(number, names, value)
        if group.epoch is not None:
            self.classic.pop(group_id, None)
            self.consumer.pop(group_id, None)

    def end_transaction(self, producer_id: int, is_committed: bool) -> None:
        """Apply a marker that ends the producer's transaction."""
        self.offsets.end_transaction(producer_id, is_committed, lambda group_id: True)


def replay_log(log: Walkable, into: Replay | None = None) -> Replay:
    """Replay all records of a partition of `__consumer_offsets` and return the state of its groups.

    Runs in a thread of the pool. A record that cannot be read is logged, and its group is in `unreadable`.
    CorruptRecord, InvalidRecord or StorageError for damage and for batches or markers that cannot be read; `into`, an
    empty Replay, then has the state before that place.
    """
    replay = Replay() if into is None else into
    for chunk in log_chunks(log, log.log_start_offset, log.log_end_offset):
        for row in range(chunk.first, chunk.last):
            _replay_batch(replay, chunk, row)
    for number, count in sorted(replay.unread.items(), key=str):
        what = "without a key" if number is None else f"of unknown type {number}"
        _LOG.warning("ignored %d group records %s; they stay in the log", count, what)
    return replay


def _replay_batch(replay: Replay, chunk: Chunk, row: int) -> None:
    header = chunk.batches[row]
    producer_id = header.producer_id if header.is_transactional else NO_PRODUCER
    for record in chunk.batch_table(row):
        if header.is_control:
            kind = control_record(record.key, record.value).type
            if kind in (ControlType.COMMIT, ControlType.ABORT):
                replay.end_transaction(header.producer_id, kind is ControlType.COMMIT)
            continue
        try:
            replay.apply(record.key, record.value, record.offset, producer_id)
        except MessageError as error:
            _LOG.error("a group record at offset %d of %s cannot be read: %s", record.offset, chunk.path, error)
