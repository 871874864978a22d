"""Produce: batches of clients into their partitions, answered as `acks` says."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any, Final
from uuid import UUID

from kafkalog._core.scan import REASON_PARTIAL, BatchTable, scan
from kafkalog.server.apis.fetch import hint_of, leader_endpoints
from kafkalog.server.context import CLOSE, Answer, RequestContext
from kafkalog.server.error_codes import ErrorCode
from kafkalog.server.replica.results import AppendParams, AppendResult
from kafkalog.server.security.acls import Operation, ResourceType
from kafkalog.server.turns import Turns
from kafkalog.server.wire.produce_request import read_produce
from kafkalog.server.wire.produce_response import ProduceAnswer
from kafkalog.types import TopicPartition

if TYPE_CHECKING:
    from kafkalog.server.node import Node

_ADMIN_CLIENT: Final = "__admin_client"
"""The client id that may write to the node's own topics, as in the reference."""
_ZSTD: Final = 4
_FIRST_WITH_ZSTD: Final = 7
_FIRST_WITH_LEADERS: Final = 10
_FIRST_WITH_IDS: Final = 13
Topic = str | UUID | None
Results = dict[Topic, dict[int, AppendResult | TopicPartition]]
"""By topic and partition: what was refused, or the partition whose append tells."""


read: Final = read_produce


async def handle(node: Node, context: RequestContext, request: Any) -> Answer:
    """What came of each partition; nothing for acks=0, and the connection's end where something failed."""
    results: Results = {}
    batches: dict[TopicPartition, tuple[Any, BatchTable]] = {}
    is_transactional = False
    turns = Turns()
    for topic, name, refusal, count, partitions in _topics(node, context, request):
        rows = results.setdefault(topic, {})
        await turns.row()
        for partition in partitions:
            await turns.row()
            records = partition.records
            code = refusal
            if not code and not 0 <= partition.index < count:
                code = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
            if records is None or code:
                rows[partition.index] = AppendResult(code or ErrorCode.INVALID_RECORD)
                continue
            table = scan(records)
            is_transactional = is_transactional or (table.has_producers and table[0].is_transactional)
            code = check_produced(table, context.api_version)
            if code:
                rows[partition.index] = AppendResult(code)
                continue
            key = rows[partition.index] = TopicPartition(name, partition.index)
            batches[key] = records, table
    if is_transactional and not _may_use(node, context, request.transactional_id):
        return refused(node, context, request, ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED, None)
    appended: dict[TopicPartition, AppendResult] = {}
    if batches:
        appended = await node.replicas.append_scanned(
            batches,
            AppendParams(
                request.acks,
                request.timeout,
                internal_allowed=context.client_id == _ADMIN_CLIENT,
                transactional_id=request.transactional_id,
                produce_version=context.api_version,
                on_wait=lambda: give_back(request, batches),
            ),
        )
    context.throttle_ms = max(context.throttle_ms, node.quotas.record_produce(context, context.size_bytes))
    return _answer(node, context, request.acks, results, appended)


def refused(node: Node, context: RequestContext, request: Any, error_code: int, message: str | None) -> Answer:
    """The error for every partition."""
    if request.acks == 0:
        return CLOSE
    one = AppendResult(error_code)
    by_id = context.api_version >= _FIRST_WITH_IDS
    rows = [
        (topic.topic_id if by_id else topic.name, [(partition.index, one) for partition in topic.partition_data])
        for topic in request.topic_data
    ]
    return ProduceAnswer(rows)


def check_produced(table: BatchTable, version: int) -> int:
    """0 where a partition has one batch of format v2 whose codec this version knows, else the error code."""
    if table.stop_reason > REASON_PARTIAL:
        return ErrorCode.CORRUPT_MESSAGE
    if table.count != 1 or table.magic(0) != 2:
        return ErrorCode.INVALID_RECORD
    if table.codec == _ZSTD and version < _FIRST_WITH_ZSTD:
        return ErrorCode.UNSUPPORTED_COMPRESSION_TYPE
    return 0


def give_back(request: Any, batches: dict[TopicPartition, tuple[Any, BatchTable]]) -> None:
    """Let go of the records' bytes, which lie in the request's frame: they are in the log."""
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
        except BufferError:  # somebody else looks at it: it goes when they are done
            pass


def _topics(node: Node, context: RequestContext, request: Any) -> Iterator[tuple[Topic, str, int, int, Any]]:
    """(as the client names it, name, error code, how many partitions it has, those asked for) of each topic."""
    by_id = context.api_version >= _FIRST_WITH_IDS
    for topic in request.topic_data:
        if by_id:
            found = node.topics.by_id(topic.topic_id)
            if found is None:
                yield topic.topic_id, "", ErrorCode.UNKNOWN_TOPIC_ID, 0, topic.partition_data
                continue
            name = found.name
        else:
            name, found = topic.name, node.topics.get(topic.name)
        code = 0
        if not node.authorizer.allows(context, Operation.WRITE, ResourceType.TOPIC, name):
            code = ErrorCode.TOPIC_AUTHORIZATION_FAILED
        elif found is None:
            code = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        count = 0 if found is None else found.partitions
        yield (topic.topic_id if by_id else name), name, code, count, topic.partition_data


def _may_use(node: Node, context: RequestContext, transactional_id: str | None) -> bool:
    return transactional_id is not None and node.authorizer.allows(
        context, Operation.WRITE, ResourceType.TRANSACTIONAL_ID, transactional_id
    )


def _answer(
    node: Node, context: RequestContext, acks: int, results: Results, appended: dict[TopicPartition, AppendResult]
) -> Answer:
    rows = [
        (topic, [(index, appended[one] if isinstance(one, TopicPartition) else one) for index, one in parts.items()])
        for topic, parts in results.items()
    ]
    if acks == 0:
        return CLOSE if any(one.error_code for _, parts in rows for _, one in parts) else None
    answer = ProduceAnswer(rows)
    if context.api_version >= _FIRST_WITH_LEADERS and node.quorum.replica_set is not None and not node.quorum.leads:
        answer.leader = hint_of(node.quorum.role())
        answer.endpoints = leader_endpoints(node, context, [answer.leader[0]]) if answer.leader else ()
    return answer
