"""DeleteRecords: delete the records below an offset."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, Protocol

from kafkalog.server.requests.context import Answer, RequestContext
from kafkalog.server.requests.partitions import PartitionCall
from kafkalog.server.security.acls import Operation
from kafkalog.types import TopicPartition

if TYPE_CHECKING:
    from kio.schema.delete_records.v2.request import DeleteRecordsPartition, DeleteRecordsTopic

    from kafkalog.server.node.node import Node

    class _Request(Protocol):
        """The fields of every version; times are in ms."""

        topics: tuple[DeleteRecordsTopic, ...]
        timeout: int


_CALL: Final = PartitionCall(Operation.DELETE, {"low_watermark": -1})
refused = _CALL.refused


async def handle(node: Node, context: RequestContext, request: _Request) -> Answer:
    """Return the low watermark of each partition, once all replicas have reached it (PART-11)."""
    behind: dict[TopicPartition, int] = {}

    async def delete(key: TopicPartition, one: DeleteRecordsPartition) -> dict[str, object]:
        low = await node.replicas.delete_records(key, one.offset)
        start = node.replicas.find(key).log.log_start_offset
        target = start if one.offset < 0 else min(start, one.offset)
        if low < target:
            behind[key] = target
        return {"low_watermark": low}

    answer = await _CALL.answer(node, context, request, delete)
    if behind:
        found = await node.replicas.deleted_everywhere(behind, request.timeout)
        for topic in answer["topics"]:
            for row in topic["partitions"]:
                key = TopicPartition(topic["name"], row["partition_index"])
                if key in found and not row["error_code"]:
                    row.update(found[key]._asdict())
    return answer
