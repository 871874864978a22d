"""DescribeProducers: the active producers of partitions and their transactions (FLOW-22)."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING

from kafkalog.errors import InvalidTopic, KafkalogError
from kafkalog.server.error_codes import ErrorCode, Refused
from kafkalog.server.node.topics import check_name
from kafkalog.server.replica.append_results import code_for_reader
from kafkalog.server.requests.context import Answer, RequestContext
from kafkalog.server.requests.cooperative_yield import CooperativeYield
from kafkalog.server.security.acls import Operation, ResourceType
from kafkalog.types import TopicPartition

if TYPE_CHECKING:
    from kio.schema.describe_producers.v0.request import DescribeProducersRequest

    from kafkalog._core.log.producer_state import ProducerState
    from kafkalog.server.node.node import Node


async def handle(node: Node, context: RequestContext, request: DescribeProducersRequest) -> Answer:
    """Return the active producers of each partition's log."""
    topics = []
    turns = CooperativeYield()
    for topic in {one.name: one for one in request.topics}.values():  # once each
        refusal = _refusal_of(node, context, topic.name)
        rows = []
        for index in dict.fromkeys(topic.partition_indexes):
            key = TopicPartition(topic.name, index)
            if refusal is not None:
                row = _refusal(index, *refusal)
            else:
                try:
                    node.replicas.find(key).check_epoch(-1)
                    row = _row(index, node.replicas.find(key).log.producers)
                except KafkalogError as error:
                    row = _refusal(index, code_for_reader(error, key))
                    if node.topics.get(topic.name) is not None:
                        row["error_message"] = None  # the reference also reports only codes for partitions
            rows.append(row)
            await turns.row()
        topics.append({"name": topic.name, "partitions": rows})
    return {"topics": topics}


def _refusal_of(node: Node, context: RequestContext, topic: str) -> tuple[ErrorCode, str | None] | None:
    """Return the code and message for all partitions of a topic that is invalid or not the client's, else None."""
    try:
        check_name(topic)
    except InvalidTopic as error:
        return ErrorCode.INVALID_TOPIC_EXCEPTION, error.message
    if not node.authorizer.allows(context, Operation.READ, ResourceType.TOPIC, topic):
        return ErrorCode.TOPIC_AUTHORIZATION_FAILED, None
    return None


def refused(node: Node, context: RequestContext, request: DescribeProducersRequest, error: Refused) -> Answer:
    """Return the error for every partition."""
    topics = [
        {"name": topic.name, "partitions": [_refusal(index, error.code) for index in topic.partition_indexes]}
        for topic in request.topics
    ]
    return {"topics": topics}


def _row(index: int, producers: Iterable[ProducerState]) -> dict[str, object]:
    active = [
        {
            "producer_id": one.producer_id,
            "producer_epoch": one.producer_epoch,
            "last_sequence": one.last_sequence,
            "last_timestamp": one.last_timestamp,
            "coordinator_epoch": one.coordinator_epoch,
            "current_txn_start_offset": one.current_txn_first_offset,
        }
        for one in producers
    ]
    return {"partition_index": index, "error_code": 0, "error_message": None, "active_producers": active}


def _refusal(index: int, code: int, message: str | None = None) -> dict[str, object]:
    text = message or ErrorCode(code).message
    return {"partition_index": index, "error_code": code, "error_message": text, "active_producers": ()}
