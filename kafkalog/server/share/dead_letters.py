"""Dead letters (KIP-1191): a record that a share group rejects, or does not accept in its last delivery, is announced.

The group's settings name the topic. A letter's headers say which record it is about and why; its key and value are
those of the record if the group copies records, else null.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Iterable, Iterator, Mapping
from typing import TYPE_CHECKING, Final

from kafkalog._core.batch.encode import encode_batch
from kafkalog.errors import ConfigError, KafkalogError, RecordTooLarge, TopicExists
from kafkalog.server.error_codes import ErrorCode
from kafkalog.server.settings.features import SHARE
from kafkalog.server.settings.groups import group_setting
from kafkalog.storage.log_walk import data_records
from kafkalog.types import TopicPartition

if TYPE_CHECKING:
    from kafkalog.server.node.node import Node
    from kafkalog.server.share.state import ShareKey
    from kafkalog.server.share.window import DeadLetters
    from kafkalog.storage.log_walk import Walkable

_LOG: Final = logging.getLogger(__name__)
_LEVEL: Final = 2
"""Level of `share.version` from which on there are dead letters."""
_TOPIC_SETTINGS: Final = {"errors.deadletterqueue.group.enable": "true", "message.timestamp.type": "LogAppendTime"}
_MOST_BYTES: Final = 1 << 20
"""Limit of the bytes of copied records in memory, and of a batch."""
_OVERHEAD_BYTES: Final = 64
"""At least what a batch, or a record in it, has besides keys, values and headers."""
_ATTEMPTS: Final = 5
BACKOFF_S = 1.0
"""Time before the second attempt to write; it doubles with each one."""
_REJECTED: Final = "Offset rejected by client."
_EXCEEDED: Final = "Offset delivery count exceeded the threshold."
_Copies = Mapping[int, tuple[bytes | None, bytes | None]]
"""Key and value of records, by offset."""
_Letter = tuple[bytes | None, bytes | None, int, list[tuple[str, bytes]]]


def are_enabled(node: Node, group_id: str) -> bool:
    """Return True if the group's settings name a topic for dead letters, and the cluster has the feature."""
    return node.features.level(SHARE) >= _LEVEL and bool(_topic_name(node, group_id))


def _topic_name(node: Node, group_id: str) -> str:
    return str(group_setting(node, group_id, "errors.deadletterqueue.topic.name"))


async def write(node: Node, key: ShareKey, source: TopicPartition, letters: DeadLetters) -> None:
    """Append the dead letters for a range of offsets, once or more. ConfigError, the errors of the append."""
    own, owner = place_of_letters, node.owner
    place, max_bytes = await (own(node, key) if owner is None else owner.place_of_letters(key))
    log = node.replicas.find(source).log
    most_bytes = min(max_bytes, _MOST_BYTES)
    at = letters.first
    while at <= letters.last:
        copies: _Copies = {}
        last = letters.last
        if group_setting(node, key.group_id, "errors.deadletterqueue.copy.record.enable"):
            try:
                copies, last = await node.run(_read, log, at, last)
            except (KafkalogError, OSError) as error:
                _LOG.warning("records of %s from %d on cannot be copied to dead letters: %s", source, at, error)
        rows = ((offset, *copies.get(offset, (None, None))) for offset in range(at, last + 1))
        for batch in _batches(node.clock(), key.group_id, source, letters, rows, most_bytes):
            try:
                await _append(node, place, batch)
            except RecordTooLarge as error:  # a copy; the others, and this one without it, may have room
                _LOG.warning("a record of %s from %d on is too large for a copy in %s: %s", source, at, place, error)
                await _append(node, place, [(None, None, *letter[2:]) for letter in batch])
            await asyncio.sleep(0)
        at = last + 1


async def place_of_letters(node: Node, key: ShareKey) -> tuple[TopicPartition, int]:
    """Return the partition for the letters of a share partition, and the size of its largest batch.

    The topic is created if it may be. ConfigError.
    """
    name = _topic_name(node, key.group_id)
    topic = node.topics.get(name)
    problem = _problem(node, name)
    if problem is not None:
        raise ConfigError(f"{problem} for share group: {key.group_id}, topic: {name}.")
    if topic is None:
        try:
            topic = await node.topics.create(name, settings=_TOPIC_SETTINGS)
        except TopicExists:  # another share partition created it meanwhile
            return await place_of_letters(node, key)
    return TopicPartition(name, key.partition % topic.partitions), node.topics.settings(name).max_message_bytes


def _problem(node: Node, name: str) -> str | None:
    """Return the reason why letters may not be written to a topic, in the reference's words."""
    if not name:
        return "DLQ topic is not configured"
    if name.startswith("__"):
        return "Configured DLQ topic name cannot start with __"
    if node.topics.get(name) is not None:
        is_enabled = node.topics.settings(name).errors_deadletterqueue_group_enable
        if not is_enabled:
            return "DLQ is not enabled on configured DLQ topic"
    elif not node.config["errors.deadletterqueue.auto.create.topics.enable"]:
        return "DLQ topic does not exist and auto create is disabled on cluster"
    prefix = node.config["errors.deadletterqueue.topic.name.prefix"]
    return None if name.startswith(prefix) else f"Configured DLQ topic name does not comply with the prefix {prefix}"


def _read(log: Walkable, first: int, last: int) -> tuple[_Copies, int]:
    """Return records from `first` on, about as many as fit into memory, and the offset up to which they are complete.

    CorruptRecord, StorageError, OffsetOutOfRange.
    """
    found: dict[int, tuple[bytes | None, bytes | None]] = {}
    size, first = 0, max(first, log.log_start_offset)
    for one in data_records(log, first, last + 1):
        if not first <= one.offset <= last:
            continue
        if found and size > _MOST_BYTES:
            return found, one.offset - 1
        found[one.offset] = one.key, one.value
        size += len(one.key or b"") + len(one.value or b"")
    return found, last


def _batches(
    now_ms: int, group_id: str, source: TopicPartition, letters: DeadLetters,
    rows: Iterable[tuple[int, bytes | None, bytes | None]], most_bytes: int,
) -> Iterator[list[_Letter]]:  # fmt: skip
    """Yield the letters in batches of at most `most_bytes`; a letter that exceeds them is a batch by itself."""
    batch: list[_Letter] = []
    size = _OVERHEAD_BYTES
    for offset, key, value in rows:
        headers = _headers(group_id, source, letters, offset)
        added = _OVERHEAD_BYTES + len(key or b"") + len(value or b"")
        added += sum(_OVERHEAD_BYTES // 4 + len(name) + len(text) for name, text in headers)
        if batch and size + added > most_bytes:
            yield batch
            batch, size = [], _OVERHEAD_BYTES
        batch.append((key, value, now_ms, headers))
        size += added
    if batch:
        yield batch


def _headers(group_id: str, source: TopicPartition, letters: DeadLetters, offset: int) -> list[tuple[str, bytes]]:
    texts = {
        "topic": source.topic,
        "partition": str(source.partition),
        "offset": str(offset),
        "group": group_id,
        "delivery.count": str(letters.deliveries),
        "message": _REJECTED if letters.is_rejected else _EXCEEDED,
    }
    return [(f"__dlq.errors.{name}", text.encode()) for name, text in texts.items()]


async def _append(node: Node, place: TopicPartition, batch: list[_Letter]) -> None:
    """Append a batch; try several times if its partition cannot take it yet."""
    data = encode_batch(batch, timestamp=node.clock())
    for attempt in range(1, _ATTEMPTS + 1):
        try:
            await append_letters(node, place, bytes(data))
            break
        except KafkalogError as error:
            if not error.retriable or attempt == _ATTEMPTS:
                raise
        await asyncio.sleep(BACKOFF_S * 2 ** (attempt - 1))


async def append_letters(node: Node, place: TopicPartition, data: bytes) -> None:
    """Append a batch and wait until it is replicated; another process does so if the partition lies there.

    Errors of the append.
    """
    if node.owner is not None and node.store.get(place) is None:
        await node.owner.append_letters(place, data)
    elif node.workers is not None and place in node.workers.owners:
        await node.workers.shares.append_letters(place, data)
    else:
        node.replicas.append_now(place, data, "client")
        code = await node.replicas.settled([place])
        if code:
            _LOG.error("dead letters in %s are not replicated: %s", place, ErrorCode(code).message)
