"""Topics in group requests, given by name or by id."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from kio.schema.offset_commit.v10.request import OffsetCommitRequestTopic
    from kio.schema.offset_fetch.v10.request import OffsetFetchRequestTopics
    from kio.schema.txn_offset_commit.v5.request import TxnOffsetCommitRequestTopic

    from kafkalog.server.node.node import Node
    from kafkalog.server.node.topics import Topic


def topic_of(
    node: Node, row: OffsetCommitRequestTopic | OffsetFetchRequestTopics | TxnOffsetCommitRequestTopic
) -> tuple[str | None, Topic | None]:
    """Return the name of a request row's topic, None for an unknown id, and the topic, None if it does not exist."""
    name = getattr(row, "name", None)
    topic_id = getattr(row, "topic_id", None)
    topic: Topic | None = node.topics.get(name) if name is not None else node.topics.by_id(topic_id)
    if name is None and topic is not None:
        name = topic.name
    return name, topic
