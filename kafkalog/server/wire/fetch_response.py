"""The fetch response, written around ranges of files: no record byte passes through Python.

The one response that is written by hand (`FetchResponse`, versions 4 to 18): with a hundred partitions kio's encoder
takes half a millisecond, and it would want the records as bytes.
"""

from __future__ import annotations

import struct
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol
from uuid import UUID

from kafkalog.server.wire.header import response_header
from kafkalog.server.wire.versions import FETCH, unsigned_varint

NO_OFFSET = -1
_NO_ID = bytes(16)


class Records(Protocol):
    """A range of a file, such as `storage.file_slice.FileSlice`."""

    @property
    def size(self) -> int:
        """How many bytes it has."""


@dataclass(slots=True)
class FetchedPartition:
    """What is answered for one partition. Offsets that are not known are -1, `records` None is no bytes."""

    index: int
    error_code: int = 0
    high_watermark: int = NO_OFFSET
    last_stable_offset: int = NO_OFFSET
    log_start_offset: int = NO_OFFSET
    aborted: Sequence[tuple[int, int]] | None = None  # (producer id, first offset); None where all records are read
    records: Records | None = None
    preferred_read_replica: int = -1
    diverging_epoch: tuple[int, int] | None = None  # (epoch, end offset)
    current_leader: tuple[int, int] | None = None  # (node id, leader epoch)


@dataclass(slots=True)
class FetchedTopic:
    """A topic of the answer: versions below 13 name it, the others give its id."""

    name: str
    topic_id: UUID | None
    partitions: Sequence[FetchedPartition]


@dataclass(slots=True)
class NodeEndpoint:
    """Where the leader is that an error speaks of (version 16 and above)."""

    node_id: int
    host: str
    port: int
    rack: str | None = None


@dataclass(slots=True)
class FetchAnswer:
    """The whole answer to a fetch."""

    topics: Sequence[FetchedTopic]
    error_code: int = 0
    session_id: int = 0
    throttle_ms: int = 0
    endpoints: Sequence[NodeEndpoint] = ()


def fetch_pieces(version: int, correlation_id: int, answer: FetchAnswer) -> list[bytes | Records]:
    """The response without its length: bytes, and between them the records as they were given."""
    head = response_header(FETCH, version, correlation_id) + struct.pack(">i", answer.throttle_ms)
    if version >= 7:
        head += struct.pack(">hi", answer.error_code, answer.session_id)
    is_flexible = version >= 12
    pieces: list[bytes | Records] = []
    pending = [head, _count(len(answer.topics), is_flexible)]
    for topic in answer.topics:
        pending.append(_topic_name(version, topic))
        pending.append(_count(len(topic.partitions), is_flexible))
        for partition in topic.partitions:
            pending.append(_partition_head(version, partition))
            records = partition.records
            size = 0 if records is None else records.size
            pending.append(unsigned_varint(size + 1) if is_flexible else struct.pack(">i", size))
            if size:
                assert records is not None
                pieces += (b"".join(pending), records)
                pending = []
            if is_flexible:
                pending.append(_partition_tags(partition))
        if is_flexible:
            pending.append(b"\0")
    if is_flexible:
        pending.append(endpoint_tags(answer.endpoints) if version >= 16 else b"\0")
    pieces.append(b"".join(pending))
    return pieces


def _count(count: int, is_flexible: bool) -> bytes:
    return unsigned_varint(count + 1) if is_flexible else struct.pack(">i", count)


def _topic_name(version: int, topic: FetchedTopic) -> bytes:
    if version >= 13:
        return topic.topic_id.bytes if topic.topic_id is not None else _NO_ID
    return _string(topic.name, version >= 12)


def _string(text: str, is_flexible: bool) -> bytes:
    raw = text.encode()
    return (unsigned_varint(len(raw) + 1) if is_flexible else struct.pack(">h", len(raw))) + raw


def _partition_head(version: int, one: FetchedPartition) -> bytes:
    head = struct.pack(">ihqq", one.index, one.error_code, one.high_watermark, one.last_stable_offset)
    if version >= 5:
        head += struct.pack(">q", one.log_start_offset)
    head += _aborted(version, one.aborted)
    return head + struct.pack(">i", one.preferred_read_replica) if version >= 11 else head


def _aborted(version: int, aborted: Sequence[tuple[int, int]] | None) -> bytes:
    if aborted is None:
        return b"\0" if version >= 12 else b"\xff\xff\xff\xff"
    end = b"\0" if version >= 12 else b""
    return _count(len(aborted), version >= 12) + b"".join(struct.pack(">qq", *one) + end for one in aborted)


def _partition_tags(one: FetchedPartition) -> bytes:
    if one.diverging_epoch is None and one.current_leader is None:
        return b"\0"
    tags = []
    if one.diverging_epoch is not None:
        tags.append(struct.pack(">BBiqB", 0, 13, *one.diverging_epoch, 0))
    if one.current_leader is not None:
        tags.append(leader_tag(1, one.current_leader))
    return bytes([len(tags)]) + b"".join(tags)


def leader_tag(tag: int, leader: tuple[int, int]) -> bytes:
    """Who leads a partition, and in which epoch, as a tagged field (KIP-951)."""
    return struct.pack(">BBiiB", tag, 9, *leader, 0)


def endpoint_tags(endpoints: Sequence[NodeEndpoint]) -> bytes:
    """The tagged fields of a response that has nothing but these; the same for fetch and produce."""
    if not endpoints:
        return b"\0"
    rows = [
        struct.pack(">i", one.node_id) + _string(one.host, True) + struct.pack(">i", one.port)
        + (b"\0" if one.rack is None else _string(one.rack, True)) + b"\0"
        for one in endpoints
    ]  # fmt: skip
    body = unsigned_varint(len(rows) + 1) + b"".join(rows)
    return b"\1\0" + unsigned_varint(len(body)) + body
