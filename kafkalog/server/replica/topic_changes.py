"""Changes that give a follower the topics of its leader, as a function of values."""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple
from uuid import UUID


class TopicState(NamedTuple):
    """Actual or wanted state of a topic; `settings` are its overrides, None if unknown."""

    id: UUID | None
    partitions: int
    settings: Mapping[str, str] | None = None


class Make(NamedTuple):
    """Create a missing topic."""

    name: str
    id: UUID | None
    partitions: int
    settings: Mapping[str, str]


class Grow(NamedTuple):
    """Add partitions to a topic that has too few."""

    name: str
    partitions: int


class Alter(NamedTuple):
    """Change settings that differ; None removes an override."""

    name: str
    changes: Mapping[str, str | None]


class Delete(NamedTuple):
    """Delete a topic that the leader does not have, or has with another id."""

    name: str


Change = Make | Grow | Alter | Delete


def topic_changes(wanted: Mapping[str, TopicState], own: Mapping[str, TopicState]) -> list[Change]:
    """Return the changes in a feasible order. A topic keeps its own id if the leader reports none."""
    changes: list[Change] = [Delete(name) for name in sorted(own) if name not in wanted]
    for name, topic in sorted(wanted.items()):
        have = own.get(name)
        if have is not None and topic.id is not None and have.id is not None and topic.id != have.id:
            changes.append(Delete(name))
            have = None
        if have is None:
            changes.append(Make(name, topic.id, topic.partitions, topic.settings or {}))
            continue
        if topic.partitions > have.partitions:
            changes.append(Grow(name, topic.partitions))
        altered = setting_changes(topic.settings, have.settings)
        if altered:
            changes.append(Alter(name, altered))
    return changes


def setting_changes(wanted: Mapping[str, str] | None, own: Mapping[str, str] | None) -> dict[str, str | None]:
    """Return the settings to set, with None for those to remove; empty if either side is unknown."""
    if wanted is None or own is None:
        return {}
    changes: dict[str, str | None] = {name: value for name, value in wanted.items() if own.get(name) != value}
    return changes | {name: None for name in own if name not in wanted}
