"""Stored state of share partitions: the records of `__share_group_state`, as a broker's share coordinator has them.

A snapshot has the whole state of a partition, an update what changed since. A state is that of the last snapshot with
the updates of its snapshot epoch applied in order; a snapshot without a value deletes it.
"""

from __future__ import annotations

import struct
from bisect import bisect_left, bisect_right
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from operator import itemgetter
from typing import TYPE_CHECKING, Final, NamedTuple
from uuid import UUID

from kafkalog.records.encoder import encoded
from kafkalog.records.internal import coordinator_record
from kafkalog.records.message import MessageError
from kafkalog.records.schemas.share_state import KEYS, VALUES
from kafkalog.server.groups.records import Record, id_of, id_text
from kafkalog.server.share.window import StateBatch, joined_batches
from kafkalog.storage.log_walk import data_records

if TYPE_CHECKING:
    from kafkalog.records.schema import Message
    from kafkalog.storage.log_walk import Walkable

SNAPSHOT: Final = 0
UPDATE: Final = 1
UNKNOWN_START: Final = -1
"""Start offset of a partition that was not fetched from yet."""
_VERSION: Final = 0
_SHORT: Final = struct.Struct(">h")
_KEY: Final = ("groupId", "topicId", "partition")
_BATCH: Final = ("firstOffset", "lastOffset", "deliveryState", "deliveryCount")
_FIRST: Final[Callable[[StateBatch], int]] = itemgetter(0)
_LAST: Final[Callable[[StateBatch], int]] = itemgetter(1)


class ShareKey(NamedTuple):
    """A share partition: a group's view of a topic's partition."""

    group_id: str
    topic_id: UUID
    partition: int

    def __str__(self) -> str:
        """Return the text that determines the partition of the key's records."""
        return f"{self.group_id}:{id_text(self.topic_id)}:{self.partition}"


class ShareState(NamedTuple):
    """Stored state of a share partition; `complete` is -1 if an older broker wrote the record. Times in ms."""

    snapshot_epoch: int
    state_epoch: int = 0
    leader_epoch: int = 0
    start: int = UNKNOWN_START
    complete: int = -1
    created_ms: int = 0
    written_ms: int = 0
    batches: tuple[StateBatch, ...] = ()


class Change(NamedTuple):
    """A change of a state; numbers of -1 are those of the state before."""

    leader_epoch: int
    start: int
    complete: int
    batches: tuple[StateBatch, ...]


def changed(state: ShareState, change: Change) -> ShareState:
    """Return the state after a change."""
    start = state.start if change.start == UNKNOWN_START else change.start
    return state._replace(
        leader_epoch=state.leader_epoch if change.leader_epoch == -1 else change.leader_epoch,
        start=start,
        complete=change.complete,
        batches=combined(state.batches, change.batches, start),
    )


def combined(old: Iterable[StateBatch], new: Iterable[StateBatch], start: int) -> tuple[StateBatch, ...]:
    """Return the batches with the states of both; `new` applies where they overlap, and nothing is below `start`.

    `old` are in order and disjoint, as those returned. A request may bring thousands of new ones.
    """
    found = list(old)  # in order and disjoint, also after each step
    for one in new:
        low = bisect_left(found, one.first, key=_LAST)
        high = bisect_right(found, one.last, key=_FIRST)
        parts = [one]
        for before in found[low:high]:
            if before.first < one.first:
                parts.insert(0, before._replace(last=one.first - 1))
            if before.last > one.last:
                parts.append(before._replace(first=one.last + 1))
        found[low:high] = parts
    found = [one._replace(first=max(one.first, start)) for one in found if one.last >= start]
    return joined_batches(found)


# Records


def snapshot_record(key: ShareKey, state: ShareState) -> Record:
    """Return the record with a whole state."""
    return Record(_key(SNAPSHOT, key), _value(SNAPSHOT, {
        "snapshotEpoch": state.snapshot_epoch, "stateEpoch": state.state_epoch, "leaderEpoch": state.leader_epoch,
        "startOffset": state.start, "deliveryCompleteCount": state.complete, "createTimestamp": state.created_ms,
        "writeTimestamp": state.written_ms, "stateBatches": _rows(state.batches),
    }))  # fmt: skip


def update_record(key: ShareKey, snapshot_epoch: int, change: Change) -> Record:
    """Return the record with a change."""
    return Record(_key(UPDATE, key), _value(UPDATE, {
        "snapshotEpoch": snapshot_epoch, "leaderEpoch": change.leader_epoch, "startOffset": change.start,
        "deliveryCompleteCount": change.complete, "stateBatches": _rows(change.batches),
    }))  # fmt: skip


def tombstone(key: ShareKey) -> Record:
    """Return the record that deletes a state."""
    return Record(_key(SNAPSHOT, key), None)


def _key(kind: int, key: ShareKey) -> bytes:
    fields = (key.group_id, id_text(key.topic_id), key.partition)
    return _SHORT.pack(kind) + encoded(KEYS[kind], dict(zip(_KEY, fields, strict=True)), 0)


def _value(kind: int, fields: dict[str, object]) -> bytes:
    return _SHORT.pack(_VERSION) + encoded(VALUES[kind], fields, _VERSION)


def _rows(batches: Iterable[StateBatch]) -> list[dict[str, int]]:
    return [dict(zip(_BATCH, one, strict=True)) for one in batches]


# Replay


class Placed(NamedTuple):
    """A state, the offset of its last snapshot, the number of updates since, and its number among those of its key.

    A state that is stored in place of another one has another number.
    """

    state: ShareState
    offset: int
    updates: int = 0
    number: int = 0


@dataclass(slots=True, eq=False)
class StateReplay:
    """The states of one partition of the topic. `unreadable` are the share partitions with a record of a later format.

    `problems` has a message for each record that cannot be read.
    """

    states: dict[ShareKey, Placed] = field(default_factory=dict)
    unreadable: set[ShareKey] = field(default_factory=set)
    problems: list[str] = field(default_factory=list)

    def apply(self, key: bytes | None, value: bytes | None, offset: int) -> None:
        """Apply one record. MessageError if it cannot be read."""
        names = coordinator_record(key or b"", None, KEYS, VALUES)
        one = ShareKey(names.key["groupId"], id_of(names.key["topicId"]), names.key["partition"])
        self.unreadable.add(one)
        found = coordinator_record(key or b"", value, KEYS, VALUES).value
        self.unreadable.discard(one)
        if found is None:
            self.states.pop(one, None)
        elif names.type == SNAPSHOT:
            self.states[one] = Placed(_state_of(found), offset)
        elif one in self.states and self.states[one].state.snapshot_epoch == found["snapshotEpoch"]:
            before = self.states[one]
            self.states[one] = Placed(changed(before.state, _change_of(found)), before.offset, before.updates + 1)


def _state_of(value: Message) -> ShareState:
    return ShareState(
        value["snapshotEpoch"], value["stateEpoch"], value["leaderEpoch"], value["startOffset"],
        value.get("deliveryCompleteCount", -1), value["createTimestamp"], value["writeTimestamp"],
        combined((), _batches_of(value), UNKNOWN_START),
    )  # fmt: skip


def _change_of(value: Message) -> Change:
    return Change(
        value["leaderEpoch"], value["startOffset"], value.get("deliveryCompleteCount", -1), _batches_of(value)
    )


def _batches_of(value: Message) -> tuple[StateBatch, ...]:
    rows = [StateBatch(*(row[name] for name in _BATCH)) for row in value["stateBatches"]]
    return tuple(one for one in rows if one.first <= one.last)


def read_states(log: Walkable) -> StateReplay:
    """Return the states in a partition of the topic. CorruptRecord, with its place, for damage; StorageError."""
    replay = StateReplay()
    for record in data_records(log, log.log_start_offset, log.log_end_offset):
        try:
            replay.apply(record.key, record.value, record.offset)
        except MessageError as error:
            replay.problems.append(f"offset {record.offset}: {error.message}")
    for one in replay.unreadable:
        replay.states.pop(one, None)
    return replay
