"""Changes that give a follower the topics of its leader, as a function of values."""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple
from uuid import UUID


class TopicState(NamedTuple):
    """Actual or target state of a topic; `settings` are its overrides, None if unknown."""

    id: UUID | None
    partitions: int
    settings: Mapping[str, str] | None = None


class CreateTopic(NamedTuple):
    """Create a missing topic."""

    name: str
    id: UUID | None
    partitions: int
    settings: Mapping[str, str]


class AddPartitions(NamedTuple):
    """Add partitions to a topic that has too few."""

    name: str
    partitions: int


class AlterSettings(NamedTuple):
    """Change settings that differ; None removes an override."""

    name: str
    changes: Mapping[str, str | None]


class DeleteTopic(NamedTuple):
    """Delete a topic that the leader does not have, or has with another id."""

    name: str


Change = CreateTopic | AddPartitions | AlterSettings | DeleteTopic


def topic_changes(target: Mapping[str, TopicState], own: Mapping[str, TopicState]) -> list[Change]:
    """Return the changes in a feasible order. A topic keeps its own id if the leader reports none."""
    changes: list[Change] = [DeleteTopic(name) for name in sorted(own) if name not in target]
    for name, topic in sorted(target.items()):
        have = own.get(name)
        if have is not None and topic.id is not None and have.id is not None and topic.id != have.id:
            changes.append(DeleteTopic(name))
            have = None
        if have is None:
            changes.append(CreateTopic(name, topic.id, topic.partitions, topic.settings or {}))
            continue
        if topic.partitions > have.partitions:
            changes.append(AddPartitions(name, topic.partitions))
        altered = setting_changes(topic.settings, have.settings)
        if altered:
            changes.append(AlterSettings(name, altered))
    return changes


def setting_changes(target: Mapping[str, str] | None, own: Mapping[str, str] | None) -> dict[str, str | None]:
    """Return the settings to set, with None for those to remove; empty if either side is unknown."""
    if target is None or own is None:
        return {}
    changes: dict[str, str | None] = {name: value for name, value in target.items() if own.get(name) != value}
    return changes | {name: None for name in own if name not in target}
