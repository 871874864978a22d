"""The produce response, written by hand: a producer of small records sends a request for every few of them."""

from __future__ import annotations

import struct
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol
from uuid import UUID

from kafkalog.server.error_codes import ErrorCode
from kafkalog.server.wire.fetch_response import NodeEndpoint, endpoint_tags, leader_tag
from kafkalog.server.wire.versions import unsigned_varint

_OLD = struct.Struct(">ihqq").pack
_PLAIN = struct.Struct(">ihqqq").pack
_INT = struct.Struct(">i").pack
_SHORT = struct.Struct(">h").pack
_NO_ID = bytes(16)
_NOTHING_TO_SAY = b"\1\0\0"  # no record errors, no message, no tags
FIRST_FLEXIBLE = 9


class Produced(Protocol):
    """What is answered for a partition."""

    @property
    def error_code(self) -> int: ...
    @property
    def base_offset(self) -> int: ...
    @property
    def append_time_ms(self) -> int: ...
    @property
    def log_start_offset(self) -> int: ...
    @property
    def record_errors(self) -> Sequence[tuple[int, str]]: ...
    @property
    def message(self) -> str | None: ...


Rows = Sequence[tuple[str | UUID | None, Sequence[tuple[int, Produced]]]]
"""Topics, by id from version 13 on, with the partitions by number."""


@dataclass(slots=True)
class ProduceAnswer:
    """The whole answer to a produce."""

    rows: Rows
    throttle_ms: int = 0
    leader: tuple[int, int] | None = None  # (node id, epoch): told with NOT_LEADER_OR_FOLLOWER from version 10 on
    endpoints: Sequence[NodeEndpoint] = ()


def produce_body(
    version: int,
    rows: Rows,
    throttle_ms: int,
    leader: tuple[int, int] | None = None,
    endpoints: Sequence[NodeEndpoint] = (),
) -> bytes:
    """All of a response behind the correlation id; who leads instead (KIP-951) from version 10 on."""
    if version < FIRST_FLEXIBLE:
        pieces = [_INT(len(rows))]
        for topic, partitions in rows:
            name = str(topic).encode()
            pieces += (_SHORT(len(name)), name, _INT(len(partitions)))
            pieces += [_old_row(version, index, one) for index, one in partitions]
        pieces.append(_INT(throttle_ms))
        return b"".join(pieces)
    pieces = [b"\0", unsigned_varint(len(rows) + 1)]
    for topic, partitions in rows:
        if version >= 13:
            pieces.append(topic.bytes if isinstance(topic, UUID) else _NO_ID)
        else:
            pieces.append(_compact(str(topic)))
        pieces.append(unsigned_varint(len(partitions) + 1))
        pieces += [_row(index, one, leader) for index, one in partitions]
        pieces.append(b"\0")
    pieces += (_INT(throttle_ms), endpoint_tags(endpoints))
    return b"".join(pieces)


def _row(index: int, one: Produced, leader: tuple[int, int] | None) -> bytes:
    head = _PLAIN(index, one.error_code, one.base_offset, one.append_time_ms, one.log_start_offset)
    if leader is not None and one.error_code == ErrorCode.NOT_LEADER_OR_FOLLOWER:
        return head + b"\1\0\1" + leader_tag(0, leader)
    if one.message is None and not one.record_errors:
        return head + _NOTHING_TO_SAY
    errors = [_INT(number) + _compact(words) + b"\0" for number, words in one.record_errors]
    message = b"\0" if one.message is None else _compact(one.message)
    return head + unsigned_varint(len(errors) + 1) + b"".join(errors) + message + b"\0"


def _old_row(version: int, index: int, one: Produced) -> bytes:
    if version < 5:
        return _OLD(index, one.error_code, one.base_offset, one.append_time_ms)
    head = _PLAIN(index, one.error_code, one.base_offset, one.append_time_ms, one.log_start_offset)
    if version < 8:
        return head
    errors = [_INT(number) + _string(words) for number, words in one.record_errors]
    return head + _INT(len(errors)) + b"".join(errors) + (b"\xff\xff" if one.message is None else _string(one.message))


def _compact(text: str) -> bytes:
    raw = text.encode()
    return unsigned_varint(len(raw) + 1) + raw


def _string(text: str) -> bytes:
    raw = text.encode()[:0x7FFF]
    return _SHORT(len(raw)) + raw
