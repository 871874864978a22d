"""Produce: append clients' batches to partitions and respond according to `acks`."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from itertools import cycle
from typing import TYPE_CHECKING, Any, Final, Protocol
from uuid import UUID

from kafkalog._core.batch.scan import REASON_PARTIAL, BatchTable, scan
from kafkalog.server.apis.fetch import endpoint_trees, hint_of, leader_tree
from kafkalog.server.error_codes import ErrorCode, Refused
from kafkalog.server.replica.results import AppendParams, AppendResult
from kafkalog.server.requests.context import CLOSE, Answer, RequestContext
from kafkalog.server.requests.cooperative_yield import TURNS
from kafkalog.server.security.acls import Operation, ResourceType
from kafkalog.types import TopicPartition

if TYPE_CHECKING:
    from kafkalog.server.node.node import Node
    from kafkalog.server.node.topics import Topic as FoundTopic

    class _Partition(Protocol):
        index: int
        records: bytes | memoryview | None

    class _Topic(Protocol):
        """The fields of all versions: `name` up to version 12, `topic_id` from version 13 on."""

        name: str
        topic_id: UUID | None
        partition_data: tuple[_Partition, ...]

    class _Request(Protocol):
        """The fields of every version; times are in ms."""

        transactional_id: str | None
        acks: int
        timeout: int
        topic_data: tuple[_Topic, ...]


_ADMIN_CLIENT: Final = "__admin_client"
"""Client id that may write to internal topics, as in the reference."""
_ZSTD: Final = 4
_TRANSACTIONAL: Final = 0x10
"""Bit of a batch's attributes."""
_FIRST_WITH_ZSTD: Final = 7
_FIRST_WITH_LEADERS: Final = 10
_FIRST_WITH_IDS: Final = 13
_FIRST_WITH_LONG_TEXTS: Final = 9
_MAX_TEXT_BYTES: Final = 0x7FFF
Topic = str | UUID | None
Results = dict[Topic, dict[int, AppendResult]]
"""Result of each partition, by topic and partition number."""
Batches = dict[TopicPartition, tuple[bytes | memoryview, BatchTable]]
_PENDING: Final = AppendResult()
"""Placeholder for the result of a pending append."""


async def handle(node: Node, context: RequestContext, request: _Request) -> Answer:
    """Append the batches and return each partition's result; for acks=0 return None, or CLOSE after a failure."""
    results: Results = {}
    batches: Batches = {}
    pending: dict[TopicPartition, dict[int, AppendResult]] = {}
    topic_ids: dict[str, UUID] = {}
    is_transactional = False
    version, requested = context.api_version, request.topic_data
    is_single = len(requested) == 1 and len(requested[0].partition_data) == 1
    turns = cycle(TURNS)
    for topic in requested:
        topic_key: Topic = topic.name if version < _FIRST_WITH_IDS else topic.topic_id
        found = node.topics.get(topic.name) if version < _FIRST_WITH_IDS else node.topics.by_id(topic.topic_id)
        refusal = 0
        if found is None or node.authorizer.is_enabled:
            refusal = _refusal(node, context, topic_key, found)
        rows = results.setdefault(topic_key, {})
        if found is not None and version >= _FIRST_WITH_IDS:
            topic_ids[found.name] = found.id
        if next(turns):
            await asyncio.sleep(0)
        for partition in topic.partition_data:
            if next(turns):
                await asyncio.sleep(0)
            index, records, code = partition.index, partition.records, refusal
            if found is None or (not code and not 0 <= index < found.partitions):
                code = code or ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
            if found is None or records is None or code:
                rows[index] = AppendResult(code or ErrorCode.INVALID_RECORD)
                continue
            table = scan(records)
            # also without a producer id, which a client may leave out
            has_transaction = table.count > 0 and table.attributes(0) & _TRANSACTIONAL and table[0].is_transactional
            is_transactional = is_transactional or bool(has_transaction)
            if table.stop_reason or table.count != 1 or table.magic(0) != 2 or table.codec or found.is_internal:
                code = check_produced(table, context, found.is_internal)
            if code:
                rows[index] = AppendResult(code)
                continue
            done = None
            if is_single and not has_transaction:
                done = node.replicas.append_at_once((found.name, index), records, table, request.acks)
            if done is None:
                key = TopicPartition(found.name, index)
                batches[key], pending[key] = (records, table), rows
            rows[index] = done or _PENDING
    if is_transactional and not _may_use_transaction(node, context, request.transactional_id):
        raise Refused(ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED)
    if batches:
        await _append(node, context, request, batches, pending, topic_ids)
    if node.quotas.file.state.quotas:
        context.throttle_ms = max(context.throttle_ms, node.quotas.record_produce(context, context.size_bytes))
    if request.acks == 0:
        return CLOSE if any(one.error_code for rows in results.values() for one in rows.values()) else None
    answer = answer_tree(version, results)
    if version >= _FIRST_WITH_LEADERS and node.quorum.replica_set is not None and not node.quorum.leads:
        _add_leader(node, context, answer)
    return answer


async def _append(
    node: Node,
    context: RequestContext,
    request: _Request,
    batches: Batches,
    pending: Mapping[TopicPartition, dict[int, AppendResult]],
    topic_ids: Mapping[str, UUID],
) -> None:
    """Append the batches and store their results in `pending`."""
    appended = await node.replicas.append_scanned(
        batches,
        AppendParams(
            request.acks,
            request.timeout,
            internal_allowed=True,
            transactional_id=request.transactional_id,
            produce_version=context.api_version,
            on_wait=lambda: release_records(request, batches),
            topic_ids=topic_ids,
        ),
    )
    for key, rows in pending.items():
        rows[key.partition] = appended[key]


def refused(node: Node, context: RequestContext, request: _Request, error: Refused) -> Answer:
    """Return the error for every partition."""
    if request.acks == 0:
        return CLOSE
    by_id = context.api_version >= _FIRST_WITH_IDS
    one = AppendResult(error.code)
    results: Results = {}
    for topic in request.topic_data:
        rows = results.setdefault(topic.topic_id if by_id else topic.name, {})
        for partition in topic.partition_data:
            rows[partition.index] = one
    return answer_tree(context.api_version, results)


def check_produced(table: BatchTable, context: RequestContext, is_internal: bool) -> int:
    """Return 0 for one batch of format v2 whose codec this version knows, else the error code.

    Only the client id `__admin_client` may write to an internal topic."""
    if table.stop_reason > REASON_PARTIAL:
        return ErrorCode.CORRUPT_MESSAGE
    if table.count != 1 or table.magic(0) != 2:
        return ErrorCode.INVALID_RECORD
    if table.codec == _ZSTD and context.api_version < _FIRST_WITH_ZSTD:
        return ErrorCode.UNSUPPORTED_COMPRESSION_TYPE
    if is_internal and context.client_id != _ADMIN_CLIENT:
        return ErrorCode.INVALID_TOPIC_EXCEPTION
    return 0


def release_records(request: _Request, batches: Batches) -> None:
    """Release the records' bytes in the request's frame, once they are in the log."""
    batches.clear()
    frame = None
    for topic in request.topic_data:
        for partition in topic.partition_data:
            if isinstance(partition.records, memoryview):
                frame = partition.records.obj
                partition.records.release()
    if isinstance(frame, bytearray):
        try:
            frame.clear()
        except BufferError:  # still in use elsewhere: it is freed later
            pass


def _refusal(node: Node, context: RequestContext, topic_key: Topic, found: FoundTopic | None) -> int:
    """Return the error code for a topic, or 0 if the client may write to it."""
    name = topic_key if found is None else found.name
    if not isinstance(name, str):
        return ErrorCode.UNKNOWN_TOPIC_ID
    if not node.authorizer.allows(context, Operation.WRITE, ResourceType.TOPIC, name):
        return ErrorCode.TOPIC_AUTHORIZATION_FAILED
    return ErrorCode.UNKNOWN_TOPIC_OR_PARTITION if found is None else 0


def _may_use_transaction(node: Node, context: RequestContext, transactional_id: str | None) -> bool:
    return transactional_id is not None and node.authorizer.allows(
        context, Operation.WRITE, ResourceType.TRANSACTIONAL_ID, transactional_id
    )


def _add_leader(node: Node, context: RequestContext, answer: dict[str, Any]) -> None:
    """Add the current leader to NOT_LEADER_OR_FOLLOWER errors (KIP-951)."""
    leader = hint_of(node.quorum.role())
    if leader is None:
        return
    answer["node_endpoints"] = endpoint_trees(node, context, [leader[0]])
    for topic in answer["responses"]:
        for partition in topic["partition_responses"]:
            if partition["error_code"] == ErrorCode.NOT_LEADER_OR_FOLLOWER:
                partition["current_leader"] = leader_tree(leader)


def answer_tree(version: int, results: Mapping[Topic, Mapping[int, AppendResult]]) -> dict[str, object]:
    """Build the response from the results of topics, by name or id, and their partitions."""
    topics = []
    for topic, rows in results.items():
        partitions = []
        for index, one in rows.items():
            row: dict[str, object] = {
                "index": index,
                "error_code": one.error_code,
                "base_offset": one.base_offset,
                "log_append_time": one.append_time_ms,
                "log_start_offset": one.log_start_offset,
                "record_errors": one.record_errors and [
                    {"batch_index": number, "batch_index_error_message": _text(version, text)}
                    for number, text in one.record_errors
                ],
                "error_message": one.message and _text(version, one.message),
            }
            partitions.append(row)
        topics.append({"name": topic, "topic_id": topic, "partition_responses": partitions})
    return {"responses": topics}


def _text(version: int, text: str) -> str:
    """Return the text, shortened to the length that the version allows."""
    if version >= _FIRST_WITH_LONG_TEXTS:
        return text
    return text.encode()[:_MAX_TEXT_BYTES].decode(errors="ignore")
