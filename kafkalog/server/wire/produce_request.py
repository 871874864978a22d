"""The produce requests that come most, one batch for one partition, read by hand; all others by their plan.

Whatever is not exactly of that shape, or not whole, goes to `read_request`, which checks it.
"""

from __future__ import annotations

import struct
from typing import Any, NamedTuple
from uuid import UUID

from kafkalog.server.wire.reader import read_id, read_request
from kafkalog.server.wire.versions import APIS, PRODUCE

_FIRST_WITH_IDS = 13
_HEAD = struct.Struct(">hiB").unpack_from  # acks, time limit, number of topics and 1
_OLD_HEAD = struct.Struct(">hiih").unpack_from  # acks, time limit, number of topics, length of the first name
_INT = struct.Struct(">i").unpack_from
_TWO_INTS = struct.Struct(">iii").unpack_from  # number of partitions, index, bytes of records


class ProducePartition(NamedTuple):
    """A partition and its records."""

    index: int  # type: ignore[assignment]  # the name that it has on the wire
    records: memoryview | None


class ProduceTopic(NamedTuple):
    """A topic: versions below 13 name it, the others give its id."""

    name: str
    topic_id: UUID | None
    partition_data: tuple[ProducePartition, ...]


class ProduceRequest(NamedTuple):
    """The body of a request, with kio's names; the time limit is ms."""

    transactional_id: str | None
    acks: int
    timeout: int
    topic_data: tuple[ProduceTopic, ...]


def read_produce(version: int, frame: bytearray, position: int) -> Any:
    """The body of a produce request; errors as `read_request`."""
    view = memoryview(frame)
    try:
        read = _read_flexible if APIS[PRODUCE].is_flexible(version) else _read_old
        found = read(version, view, position)
    except (struct.error, IndexError):
        found = None
    return read_request(PRODUCE, version, frame, position) if found is None else found


def _read_flexible(version: int, view: memoryview, position: int) -> ProduceRequest | None:
    size = view[position]
    if size >= 0x80:
        return None
    transactional_id = str(view[position + 1 : position + size], "utf-8", "replace") if size else None
    position += size or 1
    acks, timeout, topics = _HEAD(view, position)
    position += 7
    name, topic_id = "", None
    if version >= _FIRST_WITH_IDS:
        if position + 16 > len(view):
            return None
        topic_id = read_id(bytes(view[position : position + 16]))
        position += 16
    else:
        size = view[position]
        if not 0 < size < 0x80:
            return None
        name = str(view[position + 1 : position + size], "utf-8", "replace")
        position += size
    if topics != 2 or view[position] != 2:
        return None
    (index,) = _INT(view, position + 1)
    position += 5
    size = shift = 0
    while True:
        byte = view[position]
        position += 1
        size |= (byte & 0x7F) << shift
        if byte < 0x80:
            break
        shift += 7
        if shift > 21:
            return None
    end = position + size - 1
    if size < 1 or end + 3 != len(view) or view[end] or view[end + 1] or view[end + 2]:
        return None  # null, or tagged fields
    topic = ProduceTopic(name, topic_id, (ProducePartition(index, view[position:end]),))
    return ProduceRequest(transactional_id, acks, timeout, (topic,))


def _read_old(version: int, view: memoryview, position: int) -> ProduceRequest | None:
    size = view[position] << 8 | view[position + 1]
    position += 2
    transactional_id = None
    if size != 0xFFFF:
        if size > 0x7FFF or position + size > len(view):
            return None
        transactional_id = str(view[position : position + size], "utf-8", "replace")
        position += size
    acks, timeout, topics, size = _OLD_HEAD(view, position)
    position += 12
    if topics != 1 or size < 0:
        return None
    name = str(view[position : position + size], "utf-8", "replace")
    position += size
    partitions, index, size = _TWO_INTS(view, position)
    position += 12
    if partitions != 1 or size < 0 or position + size != len(view):
        return None
    topic = ProduceTopic(name, None, (ProducePartition(index, view[position:]),))
    return ProduceRequest(transactional_id, acks, timeout, (topic,))
