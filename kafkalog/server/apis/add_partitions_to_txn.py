"""AddPartitionsToTxn: announce the partitions a transaction will write to; from version 4 on, brokers batch them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Final, Protocol

from kafkalog.server.error_codes import ErrorCode, Refused
from kafkalog.server.node.topics import INTERNAL
from kafkalog.server.requests.context import Answer, RequestContext
from kafkalog.server.requests.cooperative_yield import CooperativeYield
from kafkalog.server.security.acls import Operation, ResourceType
from kafkalog.server.txns.decisions import ProducerEpoch
from kafkalog.server.txns.states import CLASSIC, EPOCH_BUMPS
from kafkalog.types import TopicPartition

if TYPE_CHECKING:
    from kio.schema.add_partitions_to_txn.v5.request import AddPartitionsToTxnTopic, AddPartitionsToTxnTransaction

    from kafkalog.server.node.node import Node

    class _Request(Protocol):
        """The fields of all versions: the first four up to version 3, the last from version 4 on."""

        v3_and_below_transactional_id: str
        v3_and_below_producer_id: int
        v3_and_below_producer_epoch: int
        v3_and_below_topics: tuple[AddPartitionsToTxnTopic, ...]
        transactions: tuple[AddPartitionsToTxnTransaction, ...]


_OF_BROKERS: Final = 4
_KNOWS_FENCED: Final = 2
"""First version whose clients know PRODUCER_FENCED."""
Codes = Mapping[TopicPartition, int]


async def handle(node: Node, context: RequestContext, request: _Request) -> Answer:
    """Add all partitions of a transaction or none of them; return an error code for each partition."""
    if context.api_version < _OF_BROKERS:
        producer = ProducerEpoch(request.v3_and_below_producer_id, request.v3_and_below_producer_epoch)
        transactional_id, topics = request.v3_and_below_transactional_id, request.v3_and_below_topics
        codes = await _add(node, context, transactional_id, producer, topics, False)
        return {"results_by_topic_v3_and_below": _results(topics, codes)}
    node.authorizer.require_cluster(context, Operation.CLUSTER_ACTION)
    results = []
    for one in request.transactions:
        producer = ProducerEpoch(one.producer_id, one.producer_epoch)
        codes = await _add(node, context, one.transactional_id, producer, one.topics, one.verify_only)
        results.append({"transactional_id": one.transactional_id, "topic_results": _results(one.topics, codes)})
    return {"error_code": ErrorCode.NONE, "results_by_transaction": results}


async def _add(
    node: Node,
    context: RequestContext,
    transactional_id: str,
    producer: ProducerEpoch,
    topics: Sequence[AddPartitionsToTxnTopic],
    verify_only: bool,
) -> Codes:
    version = context.api_version
    partitions = [TopicPartition(topic.name, index) for topic in topics for index in topic.partitions]
    of_client = version < _OF_BROKERS
    if of_client and not node.authorizer.allows(
        context, Operation.WRITE, ResourceType.TRANSACTIONAL_ID, transactional_id
    ):
        return dict.fromkeys(partitions, ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED)
    errors = await _partition_errors(node, context, partitions, of_client)
    if errors:
        return {one: errors.get(one, ErrorCode.OPERATION_NOT_ATTEMPTED) for one in partitions}
    if verify_only:
        return node.transactions.verify_partitions(transactional_id, producer, partitions)
    client_version = CLASSIC if of_client else EPOCH_BUMPS
    error = node.transactions.add_partitions(transactional_id, producer, partitions, client_version)
    error = error or await node.transactions.settled(transactional_id)
    if error == ErrorCode.PRODUCER_FENCED and version < _KNOWS_FENCED:
        error = ErrorCode.INVALID_PRODUCER_EPOCH
    return dict.fromkeys(partitions, error)


async def _partition_errors(
    node: Node, context: RequestContext, partitions: list[TopicPartition], of_client: bool
) -> Codes:
    """Return the error codes of partitions that the client may not write to and of missing partitions."""
    found: dict[TopicPartition, ErrorCode] = {}
    allowed: dict[str, bool] = {}
    turns = CooperativeYield()
    for one in partitions:
        await turns.row()
        name = one.topic
        topic = node.topics.get(name)
        if of_client and name not in allowed:
            may_write = node.authorizer.allows(context, Operation.WRITE, ResourceType.TOPIC, name)
            allowed[name] = may_write and name not in INTERNAL
        if of_client and not allowed[name]:
            found[one] = ErrorCode.TOPIC_AUTHORIZATION_FAILED
        elif topic is None or not 0 <= one.partition < topic.partitions:
            found[one] = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    return found


def _results(topics: Sequence[AddPartitionsToTxnTopic], codes: Codes) -> list[dict[str, object]]:
    return [
        {
            "name": topic.name,
            "results_by_partition": [
                {"partition_index": index, "partition_error_code": codes[TopicPartition(topic.name, index)]}
                for index in topic.partitions
            ],
        }
        for topic in topics
    ]


def refused(node: Node, context: RequestContext, request: _Request, error: Refused) -> Answer:
    """Return one error from version 4 on; before, the error for each partition."""
    if context.api_version >= _OF_BROKERS:
        return {"error_code": error.code, "results_by_transaction": []}
    topics = request.v3_and_below_topics
    codes = {TopicPartition(topic.name, index): error.code for topic in topics for index in topic.partitions}
    return {"results_by_topic_v3_and_below": _results(topics, codes)}
