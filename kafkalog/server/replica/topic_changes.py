"""What has to change so that a follower has the topics of its leader: a function of values."""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple
from uuid import UUID


class TopicState(NamedTuple):
    """A topic as it is, or as it should be; `settings` are its own, None where they are not known."""

    id: UUID | None
    partitions: int
    settings: Mapping[str, str] | None = None


class Make(NamedTuple):
    """A topic is missing."""

    name: str
    id: UUID | None
    partitions: int
    settings: Mapping[str, str]


class Grow(NamedTuple):
    """A topic has fewer partitions than it should."""

    name: str
    partitions: int


class Alter(NamedTuple):
    """Settings differ; None takes one back."""

    name: str
    changes: Mapping[str, str | None]


class Delete(NamedTuple):
    """A topic should not be there: the leader has none of that name, or another one."""

    name: str


Change = Make | Grow | Alter | Delete


def topic_changes(wanted: Mapping[str, TopicState], own: Mapping[str, TopicState]) -> list[Change]:
    """The changes, in an order in which they can be made. A topic whose leader does not tell an id keeps its own."""
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
    """What to set and, as None, what to take back; nothing where either is not known."""
    if wanted is None or own is None:
        return {}
    changes: dict[str, str | None] = {name: value for name, value in wanted.items() if own.get(name) != value}
    return changes | {name: None for name in own if name not in wanted}
