"""Records of Kafka's own topics: their keys and values, parsed by the tables in `records.schemas`.

Errors are MessageError with the reference's text: a tool prints them in place of the record and continues.
"""

from __future__ import annotations

import re
import struct
from collections.abc import Mapping
from functools import partial
from typing import Any, NamedTuple

from kafkalog.records.message import MessageError, Source
from kafkalog.records.schema import Message, Schema
from kafkalog.records.schemas import consumer_protocol

METADATA_FRAME_VERSION = 1
MAX_SHORT = 0x7FFF
_CONSUMER = "consumer"


class UnknownRecord(MessageError):
    """A record of the type `number` that this version cannot parse."""

    def __init__(self, message: str = "", *, number: int = -1, **where: Any) -> None:
        super().__init__(message, **where)
        self.number = number


class UnknownRecordType(UnknownRecord):
    """A record whose key begins with an unknown type."""


class UnknownRecordVersion(UnknownRecord):
    """A record of a known type in a version newer than the known ones."""


class CoordinatorRecord(NamedTuple):
    """A record of a coordinator's topic; `version` and `value` are None for a tombstone."""

    type: int
    key: Message
    version: int | None
    value: Message | None


class MetadataRecord(NamedTuple):
    """A record that begins with a frame version, as in `__cluster_metadata`."""

    type: int
    name: str
    version: int
    data: Message


def coordinator_record(
    key: bytes, value: bytes | None, keys: Mapping[int, Schema], values: Mapping[int, Schema]
) -> CoordinatorRecord:
    """Parse a record of `__consumer_offsets`, `__transaction_state` or `__share_group_state`.

    Key and value begin with an i16: the type in the key, the version in the value. Trailing bytes are ignored.
    """
    source, number = _begin(key, "key")
    if number not in keys:
        raise UnknownRecordType(f"there is no record type {number}", number=number)
    found = _read(keys[number], source, number, "key")
    if value is None:
        return CoordinatorRecord(number, found, None, None)
    source, version = _begin(value, "value")
    schema = values[number]
    if not schema.lowest <= version <= schema.highest:
        raise MessageError(f"Found an unknown record version {version} for {number} type")
    return CoordinatorRecord(number, found, version, _read(schema, source, version, "value"))


def _begin(data: bytes, what: str) -> tuple[Source, int]:
    source = Source(data)
    if source.left < 2:
        raise MessageError(f"Could not read version from {what}'s buffer.")
    return source, source.i16()


def _read(schema: Schema, source: Source, version: int, what: str) -> Message:
    try:
        return schema.read(source, version)
    except MessageError as error:
        raise MessageError(
            f"Could not read record with version {version} from {what}'s buffer due to: {error.message}."
        ) from None


def with_consumer_protocol(group: Message) -> Message:
    """Return a classic group's value with its members' subscriptions and assignments parsed where possible.

    Only groups of the protocol type "consumer" have such bytes; those that cannot be parsed stay bytes.
    """
    if group["protocolType"] != _CONSUMER:
        return group
    members = [
        member
        | {
            "subscription": _protocol(consumer_protocol.SUBSCRIPTION, member["subscription"]),
            "assignment": _protocol(consumer_protocol.ASSIGNMENT, member["assignment"]),
        }
        for member in group["members"]
    ]
    return group | {"members": members}


def _protocol(schema: Schema, data: bytes) -> Message | bytes:
    source = Source(data)
    if source.left < 2:
        return data
    version = source.i16()
    try:
        return schema.read(source, version)
    except MessageError:
        return data


def metadata_record(value: bytes, records: Mapping[int, Schema]) -> MetadataRecord:
    """Parse a record of `__cluster_metadata` or `__remote_log_metadata`: frame version, type, version, fields."""
    source = Source(value)
    frame = _short(source, "frame version")
    if frame == 0:
        raise MessageError(
            "Could not deserialize metadata record with frame version 0. Note that upgrades from the preview release "
            "of KRaft in 2.8 to newer versions are not supported."
        )
    if frame != METADATA_FRAME_VERSION:
        raise MessageError(
            f"Could not deserialize metadata record due to unknown frame version {frame}(only frame version "
            f"{METADATA_FRAME_VERSION} is supported)"
        )
    number = _short(source, "type")
    version = _short(source, "version")
    if number not in records:
        message = f"org.apache.kafka.common.errors.UnsupportedVersionException: Unknown metadata id {number}"
        raise UnknownRecordType(message, number=number)
    failed = partial(UnknownRecordVersion, number=number) if version > records[number].highest else MessageError
    try:
        data = records[number].read(source, version)
    except MessageError:
        raise failed(f"Failed to deserialize record with type {number}") from None
    if source.left:
        raise failed(f"Found {source.left} byte(s) of garbage after {number}")
    return MetadataRecord(number, records[number].name, version, data)


def _short(source: Source, what: str) -> int:
    try:
        value = source.uvarint()
    except (MessageError, struct.error):
        raise MessageError(f"Error while reading {what}") from None
    if value > MAX_SHORT:
        raise MessageError(f"Value for {what} was too large.")
    return (value + 0x8000) % 0x10000 - 0x8000  # truncated to a signed 16-bit number, as the reference does


def enum_name(name: str) -> str:
    """Return a record's name in capitals: FeatureLevelRecord becomes FEATURE_LEVEL_RECORD."""
    return re.sub(r"(?<=.)([A-Z])", r"_\1", name).upper()
