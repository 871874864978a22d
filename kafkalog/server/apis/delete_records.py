"""DeleteRecords: what lies below an offset is given up."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from kafkalog.server.context import Answer, RequestContext
from kafkalog.server.partition_calls import PartitionCall
from kafkalog.server.security.acls import Operation
from kafkalog.types import TopicPartition

if TYPE_CHECKING:
    from kafkalog.server.node import Node

_CALL: Final = PartitionCall(Operation.DELETE, {"low_watermark": -1})


async def handle(node: Node, context: RequestContext, request: Any) -> Answer:
    """The low watermark of each partition (PART-11)."""

    async def deleted(key: TopicPartition, one: Any) -> dict[str, Any]:
        return {"low_watermark": await node.replicas.delete_records(key, one.offset)}

    return await _CALL.answer(node, context, request, deleted)


def refused(node: Node, context: RequestContext, request: Any, error_code: int, message: str | None) -> Answer:
    """The error for every partition."""
    return _CALL.refused(context, request, error_code)
