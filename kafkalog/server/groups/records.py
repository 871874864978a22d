"""Records of `__consumer_offsets`: keys and values as a broker of 4.3.1 writes them.

A key is the number of its type and its fields, a value the number of its version and its fields. A record without a
value is a tombstone, which deletes the entry of its key.
"""

from __future__ import annotations

import base64
import struct
from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Final, NamedTuple, NotRequired, TypedDict
from uuid import UUID

from kafkalog.records.encoder import encoded
from kafkalog.records.schemas.groups import KEYS, VALUES
from kafkalog.server.groups.values import CommittedOffset

if TYPE_CHECKING:
    from kafkalog.records.schema import Message

OFFSET: Final = 1
CLASSIC_GROUP: Final = 2
CONSUMER_GROUP: Final = 3
CONSUMER_PARTITIONS: Final = 4
CONSUMER_MEMBER: Final = 5
TARGET: Final = 6
TARGET_MEMBER: Final = 7
CURRENT_MEMBER: Final = 8
SHARE_MEMBER: Final = 10
SHARE_GROUP: Final = 11
SHARE_TARGET: Final = 12
SHARE_TARGET_MEMBER: Final = 13
SHARE_CURRENT_MEMBER: Final = 14
SHARE_PARTITIONS: Final = 15
REGULAR_EXPRESSION: Final = 16
STREAMS_GROUP: Final = 17
STREAMS_MEMBER: Final = 19
STREAMS_TARGET: Final = 20
STREAMS_TARGET_MEMBER: Final = 21
STREAMS_CURRENT_MEMBER: Final = 22
STREAMS_TOPOLOGY: Final = 23

_OFFSET_VERSION, _OFFSET_VERSION_WITH_EXPIRY, _GROUP_VERSION = 4, 1, 3
_NO_ID: Final = "A" * 22
_SHORT: Final = struct.Struct(">h")
_KEY_FIELDS: Final = {number: tuple(field.name for field in schema.fields) for number, schema in KEYS.items()}


class PartitionRow(TypedDict):
    """A row with the partitions of a topic, in the value of a record."""

    topicId: str
    partitions: list[int]
    assignmentEpochs: NotRequired[list[int]]


class Record(NamedTuple):
    """A record of the topic, as bytes; `value` None is a tombstone."""

    key: bytes
    value: bytes | None


def tombstone(kind: int, *names: object) -> Record:
    """Return the tombstone of type `kind` whose key has these fields, in order."""
    return Record(_key(kind, names), None)


def record(kind: int, names: tuple[object, ...], fields: Mapping[str, object], version: int = 0) -> Record:
    """Return a record of type `kind`: `names` are the key's fields in order, `fields` the value's by name."""
    return Record(_key(kind, names), _SHORT.pack(version) + encoded(VALUES[kind], fields, version))


def _key(kind: int, names: tuple[object, ...]) -> bytes:
    return _SHORT.pack(kind) + encoded(KEYS[kind], dict(zip(_KEY_FIELDS[kind], names, strict=True)), 0)


def offset_record(group_id: str, topic: str, partition: int, one: CommittedOffset) -> Record:
    """Return the record of a committed offset. An offset with `expire_ms` uses the old version that has that field."""
    fields: dict[str, object] = {
        "offset": one.offset, "metadata": one.metadata, "commitTimestamp": one.commit_ms,
    }  # fmt: skip
    version = _OFFSET_VERSION
    if one.expire_ms is not None:
        version = _OFFSET_VERSION_WITH_EXPIRY
        fields["expireTimestamp"] = one.expire_ms
    else:
        fields["leaderEpoch"] = one.leader_epoch
        if one.topic_id is not None:
            fields["topicId"] = id_text(one.topic_id)
    return record(OFFSET, (group_id, topic, partition), fields, version)


def committed_offset(value: Message) -> CommittedOffset:
    """Return the committed offset in a record's value of any version."""
    expire_ms = value.get("expireTimestamp", -1)
    topic_id = value.get("topicId", _NO_ID)
    return CommittedOffset(
        value["offset"],
        value.get("leaderEpoch", -1),
        value["metadata"],
        value["commitTimestamp"],
        None if expire_ms == -1 else expire_ms,
        None if topic_id == _NO_ID else id_of(topic_id),
    )


def group_record(group_id: str, fields: Mapping[str, object]) -> Record:
    """Return the record of a classic group with its members and their assignments."""
    return record(CLASSIC_GROUP, (group_id,), fields, _GROUP_VERSION)


def id_text(topic_id: UUID) -> str:
    """Return a topic's id as records have it: 22 characters of base64."""
    return base64.urlsafe_b64encode(topic_id.bytes)[:22].decode()


def id_of(text: str) -> UUID:
    """Parse a topic's id from the text of `id_text`."""
    return UUID(bytes=base64.urlsafe_b64decode(text + "=="))


def partitions_of(rows: Iterable[PartitionRow]) -> dict[UUID, frozenset[int]]:
    """Return the partitions by topic from the rows of a record."""
    return {id_of(row["topicId"]): frozenset(row["partitions"]) for row in rows}


def partition_rows(partitions: Mapping[UUID, Iterable[int]]) -> list[PartitionRow]:
    """Return a record's rows for partitions by topic."""
    return [{"topicId": id_text(topic_id), "partitions": sorted(those)} for topic_id, those in partitions.items()]


def epochs_of(rows: Iterable[PartitionRow], default: int) -> dict[tuple[UUID, int], int]:
    """Return the epoch in which the member got each partition; `default` if an older record does not have it."""
    found: dict[tuple[UUID, int], int] = {}
    for row in rows:
        epochs = row.get("assignmentEpochs") or [default] * len(row["partitions"])
        topic_id = id_of(row["topicId"])
        found |= {(topic_id, number): epoch for number, epoch in zip(row["partitions"], epochs, strict=False)}
    return found


def rows_with_epochs(
    partitions: Mapping[UUID, Iterable[int]], epochs: Mapping[tuple[UUID, int], int], default: int
) -> list[PartitionRow]:
    """Return a record's rows for partitions by topic, with the epoch in which the member got each partition."""
    return [
        row | {"assignmentEpochs": [epochs.get((topic_id, number), default) for number in row["partitions"]]}
        for topic_id, row in zip(partitions, partition_rows(partitions), strict=True)
    ]
