"""The consumer protocol inside the classic one: subscriptions and assignments of classic members, by topic id."""

from __future__ import annotations

import struct
from collections.abc import Callable
from typing import Final, NamedTuple
from uuid import UUID

from kafkalog.records.encoder import encoded
from kafkalog.records.message import MessageError, Source
from kafkalog.records.schema import Message, Schema
from kafkalog.records.schemas.consumer_protocol import ASSIGNMENT, SUBSCRIPTION
from kafkalog.server.groups.consumer_group import NO_PARTITIONS, Partitions

IdOf = Callable[[str], UUID | None]
NameOf = Callable[[UUID], str | None]
_VERSION: Final = struct.Struct(">h")
NEWEST_VERSION: Final = SUBSCRIPTION.highest


class Malformed(Exception):
    """The bytes are not a subscription or an assignment."""


class HasUserData(Exception):
    """An assignment has data of a client's own assignor, which a consumer group cannot keep."""


class Subscription(NamedTuple):
    """Topics that a classic member subscribes to, and partitions that it still has."""

    topics: frozenset[str]
    owned: Partitions
    rack_id: str | None


def read_subscription(data: bytes, id_of: IdOf) -> Subscription:
    """Return the subscription in a member's metadata. Partitions of unknown topics are left out. Raise Malformed."""
    fields = _read(SUBSCRIPTION, data)
    owned = _partitions(fields.get("ownedPartitions", ()), id_of)
    return Subscription(frozenset(fields["topics"]), owned, fields.get("rackId"))


def read_assignment(data: bytes, id_of: IdOf) -> Partitions:
    """Return the partitions of an assignment; none if it is empty. Raise Malformed, HasUserData."""
    if not data:
        return NO_PARTITIONS
    fields = _read(ASSIGNMENT, data)
    if fields["userData"]:
        raise HasUserData
    return _partitions(fields["assignedPartitions"], id_of)


def assignment_bytes(partitions: Partitions, name_of: NameOf, version: int) -> bytes:
    """Return an assignment in a version of the protocol, without topics that no longer exist."""
    rows = [
        {"topic": name, "partitions": sorted(numbers)}
        for name, numbers in ((name_of(topic_id), numbers) for topic_id, numbers in partitions.items())
        if name is not None
    ]
    return _VERSION.pack(version) + encoded(ASSIGNMENT, {"assignedPartitions": rows, "userData": None}, version)


def version_of(metadata: bytes) -> int:
    """Return the version of a member's metadata, at most the newest that is known here; 0 if it is malformed."""
    return max(0, min(_VERSION.unpack_from(metadata)[0], NEWEST_VERSION)) if len(metadata) >= _VERSION.size else 0


def _read(schema: Schema, data: bytes) -> Message:
    source = Source(data)
    try:
        version = source.i16()
        if version < 0:
            raise Malformed
        return schema.read(source, min(version, schema.highest))  # later versions only add fields at the end
    except (MessageError, struct.error, ValueError) as error:
        raise Malformed from error


def _partitions(rows: object, id_of: IdOf) -> Partitions:
    found: dict[UUID, frozenset[int]] = {}
    for row in rows:  # type: ignore[attr-defined]  # rows of the schema
        topic_id = id_of(row["topic"])
        if topic_id is not None and row["partitions"]:
            found[topic_id] = found.get(topic_id, frozenset()) | frozenset(row["partitions"])
    return found
