"""The topics that requests of groups name, by name or by id."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from kafkalog.server.node import Node
    from kafkalog.server.topics import Topic


def topic_of(node: Node, row: Any) -> tuple[str | None, Topic | None]:
    """The name that a row of a request means, None for an id that is nobody's; and the topic, where there is one."""
    name = getattr(row, "name", None)
    topic: Topic | None = node.topics.get(name) if name is not None else node.topics.by_id(row.topic_id)
    if name is None and topic is not None:
        name = topic.name
    return name, topic
