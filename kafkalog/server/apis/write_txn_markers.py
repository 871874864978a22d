"""WriteTxnMarkers: a coordinator, or an admin cleaning up after one, ends transactions in the named partitions."""

from __future__ import annotations

from typing import TYPE_CHECKING

from kafkalog.server.error_codes import ErrorCode, Refused
from kafkalog.server.requests.context import Answer, RequestContext
from kafkalog.server.requests.cooperative_yield import CooperativeYield
from kafkalog.server.security.acls import Operation
from kafkalog.server.txns.markers import Marker, write_marker
from kafkalog.types import TopicPartition

if TYPE_CHECKING:
    from kio.schema.write_txn_markers.v2.request import WritableTxnMarker, WriteTxnMarkersRequest

    from kafkalog.server.node.node import Node


async def handle(node: Node, context: RequestContext, request: WriteTxnMarkersRequest) -> Answer:
    """Write the markers and return an error code for each partition of each marker."""
    if not node.authorizer.allows_cluster(context, Operation.ALTER):
        node.authorizer.require_cluster(context, Operation.CLUSTER_ACTION)
    await node.groups.loaded()  # until it is loaded, markers in `__consumer_offsets` have no effect on it
    turns = CooperativeYield()
    return {"markers": [await _write(node, entry, turns) for entry in request.markers]}


async def _write(node: Node, entry: WritableTxnMarker, turns: CooperativeYield) -> dict[str, object]:
    marker = Marker(
        entry.producer_id, entry.producer_epoch, entry.transaction_result, entry.coordinator_epoch,
        getattr(entry, "transaction_version", 0),
    )  # fmt: skip
    codes = {}
    for topic in entry.topics:
        for index in topic.partition_indexes:
            await turns.row()
            partition = TopicPartition(topic.name, index)
            codes[partition] = write_marker(node, partition, marker)
    written = [one for one, code in codes.items() if code == ErrorCode.NONE]
    settled = ErrorCode(await node.replicas.settled(written))  # a marker may be written again: the client retries all
    return _result(entry, {**codes, **dict.fromkeys(written, settled)})


def _result(entry: WritableTxnMarker, codes: dict[TopicPartition, ErrorCode]) -> dict[str, object]:
    topics = [
        {
            "name": topic.name,
            "partitions": [
                {"partition_index": index, "error_code": codes[TopicPartition(topic.name, index)]}
                for index in topic.partition_indexes
            ],
        }
        for topic in entry.topics
    ]
    return {"producer_id": entry.producer_id, "topics": topics}


def refused(node: Node, context: RequestContext, request: WriteTxnMarkersRequest, error: Refused) -> Answer:
    """Return the same error for every partition."""
    code = ErrorCode(error.code)
    results = []
    for entry in request.markers:
        partitions = {TopicPartition(topic.name, index) for topic in entry.topics for index in topic.partition_indexes}
        results.append(_result(entry, dict.fromkeys(partitions, code)))
    return {"markers": results}
