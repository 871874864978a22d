"""Who gets which partitions of a consumer group: the assignors "uniform" and "range" (KIP-848)."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Mapping
from typing import Final, NamedTuple
from uuid import UUID

from kafkalog.server.groups.consumer_group import Partitions

Place = tuple[UUID, int]


class Subscriber(NamedTuple):
    """A member as an assignor sees it: the topics it reads, what it should have had so far."""

    instance_id: str | None
    topics: frozenset[UUID]
    had: Partitions


Members = Mapping[str, Subscriber]
Assignment = dict[str, dict[UUID, frozenset[int]]]


def uniform(members: Members, partitions: Mapping[UUID, int]) -> Assignment:
    """As even as can be, and of what members have as much as can stay."""
    loads: dict[str, set[Place]] = {member_id: set() for member_id in members}
    owner = _kept(members, partitions, loads)
    readers = {topic_id: [one for one in sorted(members) if topic_id in members[one].topics] for topic_id in partitions}
    missing = [
        (topic_id, number)
        for topic_id, count in partitions.items()
        for number in range(count)
        if (topic_id, number) not in owner and readers[topic_id]
    ]
    for place in sorted(missing, key=lambda place: (len(readers[place[0]]), place)):
        member_id = min(readers[place[0]], key=lambda one: (len(loads[one]), one))
        loads[member_id].add(place)
    _even_out(members, loads, readers)
    return {member_id: _by_topic(places) for member_id, places in loads.items()}


def _kept(members: Members, partitions: Mapping[UUID, int], loads: dict[str, set[Place]]) -> dict[Place, str]:
    owner: dict[Place, str] = {}
    for member_id in sorted(members):
        one = members[member_id]
        for topic_id, numbers in one.had.items():
            for number in numbers:
                place = (topic_id, number)
                if topic_id in one.topics and number < partitions.get(topic_id, 0) and place not in owner:
                    owner[place] = member_id
                    loads[member_id].add(place)
    return owner


def _even_out(members: Members, loads: dict[str, set[Place]], readers: Mapping[UUID, list[str]]) -> None:
    """Moves partitions from those who have most to those who have two fewer at least, until nobody has."""
    moved = True
    while moved:
        moved = False
        for member_id in sorted(members, key=lambda one: (-len(loads[one]), one)):
            for place in sorted(loads[member_id], reverse=True):
                least = min(readers[place[0]], key=lambda one: (len(loads[one]), one))
                if len(loads[member_id]) - len(loads[least]) >= 2:
                    loads[member_id].remove(place)
                    loads[least].add(place)
                    moved = True


def range_(members: Members, partitions: Mapping[UUID, int]) -> Assignment:
    """Of each topic a range for each member, so that the same numbers of several topics go together."""
    order = sorted(members, key=lambda one: (members[one].instance_id is None, members[one].instance_id or "", one))
    given: dict[str, set[Place]] = {member_id: set() for member_id in members}
    for topic_id, count in partitions.items():
        readers = [member_id for member_id in order if topic_id in members[member_id].topics]
        first = 0
        for position, member_id in enumerate(readers):
            size = count // len(readers) + (position < count % len(readers))
            given[member_id] |= {(topic_id, number) for number in range(first, first + size)}
            first += size
    return {member_id: _by_topic(places) for member_id, places in given.items()}


def _by_topic(places: set[Place]) -> dict[UUID, frozenset[int]]:
    found: defaultdict[UUID, set[int]] = defaultdict(set)
    for topic_id, number in places:
        found[topic_id].add(number)
    return {topic_id: frozenset(numbers) for topic_id, numbers in found.items()}


ASSIGNORS: Final[Mapping[str, Callable[[Members, Mapping[UUID, int]], Assignment]]] = {
    "uniform": uniform,
    "range": range_,
}
