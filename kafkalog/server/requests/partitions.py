"""Shared code of calls that handle each named partition the same way and return a row for each."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol, TypeVar

from kafkalog.errors import KafkalogError
from kafkalog.server.error_codes import ErrorCode, Refused
from kafkalog.server.replica.append_results import code_for_reader
from kafkalog.server.requests.context import Answer, RequestContext
from kafkalog.server.requests.cooperative_yield import CooperativeYield
from kafkalog.server.security.acls import Operation, ResourceType
from kafkalog.types import TopicPartition

if TYPE_CHECKING:
    from kafkalog.server.node.node import Node

R = TypeVar("R")
R_co = TypeVar("R_co", covariant=True)


class TopicRows(Protocol[R_co]):
    """A topic in such a request, with a row for each partition. The name of the field with its name differs."""

    @property
    def partitions(self) -> Sequence[R_co]: ...


class PartitionRequest(Protocol[R_co]):
    """A request of such a call."""

    @property
    def topics(self) -> Sequence[TopicRows[R_co]]: ...


Found = Callable[[TopicPartition, R], Awaitable[Mapping[str, object]]]
"""Returns a row's fields besides the partition, for its part of the request; includes the error code if not 0."""


class PartitionCall(NamedTuple):
    """Description of such a call: the operation it needs, the values of an error row, and its names of fields.

    `for_nodes`: who may act as a node of the cluster may make the call for any topic.
    """

    operation: Operation
    unknown: Mapping[str, object]
    topic: str = "name"
    partition: str = "partition_index"
    for_nodes: bool = False

    async def answer(
        self, node: Node, context: RequestContext, request: PartitionRequest[R], found: Found[R]
    ) -> dict[str, Any]:
        """Return a row for each partition. A failure affects only its row; other requests are served between rows."""
        topics = []
        turns = CooperativeYield()
        for topic in request.topics:
            name = getattr(topic, self.topic)
            allowed = node.authorizer.allows(context, self.operation, ResourceType.TOPIC, name) or (
                self.for_nodes and node.authorizer.allows_cluster(context, Operation.CLUSTER_ACTION)
            )
            rows = []
            for one in topic.partitions:
                index = getattr(one, self.partition)
                if allowed:
                    rows.append(await self._row(TopicPartition(name, index), one, found))
                else:
                    rows.append(self.row(index, ErrorCode.TOPIC_AUTHORIZATION_FAILED))
                await turns.row()
            topics.append({self.topic: name, "partitions": rows})
            await turns.row()
        return {"topics": topics}

    async def _row(self, key: TopicPartition, one: R, found: Found[R]) -> dict[str, object]:
        try:
            return {**self.row(key.partition, 0), **await found(key, one)}
        except KafkalogError as error:
            return self.row(key.partition, code_for_reader(error, key))

    def row(self, index: int, code: int) -> dict[str, object]:
        """Return a row with the code and the values for unknown fields."""
        return {self.partition: index, "error_code": int(code), **self.unknown}

    def refused(self, node: Node, context: RequestContext, request: PartitionRequest[object], error: Refused) -> Answer:
        """Return the error for every partition."""
        topics = [
            {
                self.topic: getattr(topic, self.topic),
                "partitions": [self.row(getattr(one, self.partition), error.code) for one in topic.partitions],
            }
            for topic in request.topics
        ]
        return {"topics": topics}

