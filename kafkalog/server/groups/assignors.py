"""Partition assignors of consumer groups: "uniform" and "range" (KIP-848)."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping
from heapq import heapify, heappop, heappush, heapreplace
from itertools import chain, islice
from typing import Final, NamedTuple
from uuid import UUID

from kafkalog.server.groups.consumer_group import Partitions
from kafkalog.util.java_hash import in_java_order

Place = tuple[UUID, int]


class Subscriber(NamedTuple):
    """A member as an assignor sees it: its subscribed topics and its previous target assignment."""

    instance_id: str | None
    topics: frozenset[UUID]
    previous: Partitions


Members = Mapping[str, Subscriber]
Assignment = dict[str, dict[UUID, frozenset[int]]]


class _Loads:
    """The partitions of each member, and the least loaded reader of each topic; ties go to the smallest id.

    Each set of readers has a heap of (partition count, member id). Entries may be stale, but at least one entry of each
    member is not too large.
    """

    def __init__(self, members: Members, topics: Iterable[UUID]) -> None:
        self.assigned: dict[str, set[Place]] = {member_id: set() for member_id in members}
        self.readers: dict[UUID, tuple[str, ...]] = {}
        by_topics: dict[frozenset[UUID], list[str]] = {}
        for member_id, one in members.items():
            by_topics.setdefault(one.topics, []).append(member_id)
        for topic_id in topics:  # topics with the same readers list them in the same order, and share a heap
            those = (several for read, several in by_topics.items() if topic_id in read)
            self.readers[topic_id] = tuple(chain.from_iterable(those))
        self._heaps: dict[tuple[str, ...], list[tuple[int, str]]] = {}
        self._heaps_of: dict[str, list[list[tuple[int, str]]]] = {}

    def start(self) -> None:
        """Build the heaps. Called once, before `least`, when the members have the partitions they keep."""
        for readers in set(self.readers.values()):
            heap = self._heaps[readers] = [(len(self.assigned[one]), one) for one in readers]
            heapify(heap)
            for one in readers:
                self._heaps_of.setdefault(one, []).append(heap)

    def least(self, topic_id: UUID) -> str:
        """Return the least loaded reader of a topic; the topic must have readers."""
        heap = self._heaps[self.readers[topic_id]]
        while True:
            count, member_id = heap[0]
            now = len(self.assigned[member_id])
            if count == now:
                return member_id
            if count < now:
                heapreplace(heap, (now, member_id))
            else:
                heappop(heap)

    def move(self, place: Place, member_id: str, to: str) -> None:
        """Move a partition from one member to another."""
        self.assigned[member_id].remove(place)
        self.assigned[to].add(place)
        for heap in self._heaps_of.get(member_id, ()):
            heappush(heap, (len(self.assigned[member_id]), member_id))


def uniform(members: Members, partitions: Mapping[UUID, int]) -> Assignment:
    """Assign partitions as evenly as possible; members keep as many of their partitions as possible."""
    if len({one.topics for one in members.values()}) == 1:
        return _uniform_for_same_topics(members, partitions)
    loads = _Loads(members, partitions)
    owner = _keep_previous(members, partitions, loads.assigned)
    missing = [
        (topic_id, number)
        for topic_id, count in partitions.items()
        for number in range(count)
        if (topic_id, number) not in owner and loads.readers[topic_id]
    ]
    loads.start()
    for place in sorted(missing, key=lambda place: (len(loads.readers[place[0]]), place)):
        loads.assigned[loads.least(place[0])].add(place)
    _even_out(loads)
    return {member_id: _by_topic(places) for member_id, places in loads.assigned.items()}


def _uniform_for_same_topics(members: Members, partitions: Mapping[UUID, int]) -> Assignment:
    """Assign partitions to members that read the same topics, by the steps of a broker and in its order of members."""
    places = [(topic_id, number) for topic_id in sorted(partitions) for number in range(partitions[topic_id])]
    assigned: dict[str, set[Place]] = {member_id: set() for member_id in sorted(members)}
    owner = _keep_previous(members, partitions, assigned)
    missing = [place for place in places if place not in owner]
    quota, extras = divmod(len(places), len(members))
    short = []
    for position, member_id in enumerate(in_java_order(assigned)):
        kept = sorted(assigned[member_id])
        room = quota + (extras > 0)
        missing += kept[room:]
        assigned[member_id] = set(kept[:room])
        if len(kept) < room and 0 < extras < len(members) - position:
            room -= 1  # another member takes one more
        elif extras:
            extras -= 1
        short.append((assigned[member_id], room))
    left = iter(missing)
    for own, room in short:
        own.update(islice(left, room - len(own)))
    return {member_id: _by_topic(own) for member_id, own in assigned.items()}


def _keep_previous(members: Members, partitions: Mapping[UUID, int], loads: dict[str, set[Place]]) -> dict[Place, str]:
    owner: dict[Place, str] = {}
    for member_id in sorted(members):
        one = members[member_id]
        for topic_id, numbers in one.previous.items():
            for number in numbers:
                place = (topic_id, number)
                if topic_id in one.topics and number < partitions.get(topic_id, 0) and place not in owner:
                    owner[place] = member_id
                    loads[member_id].add(place)
    return owner


def _even_out(loads: _Loads) -> None:
    """Move partitions from the most loaded members to readers with at least two fewer, until no such pair is left."""
    assigned = loads.assigned
    moved = True
    while moved:
        moved = False
        for member_id in sorted(assigned, key=lambda one: (-len(assigned[one]), one)):
            for place in sorted(assigned[member_id], reverse=True):
                least = loads.least(place[0])
                if len(assigned[member_id]) - len(assigned[least]) >= 2:
                    loads.move(place, member_id, least)
                    moved = True


def range_(members: Members, partitions: Mapping[UUID, int]) -> Assignment:
    """Assign each reader a range of each topic, so that a member gets the same partition numbers of several topics."""
    order = sorted(members, key=lambda one: (members[one].instance_id is None, members[one].instance_id or "", one))
    assigned: dict[str, set[Place]] = {member_id: set() for member_id in members}
    for topic_id, count in partitions.items():
        readers = [member_id for member_id in order if topic_id in members[member_id].topics]
        first = 0
        for position, member_id in enumerate(readers):
            size = count // len(readers) + (position < count % len(readers))
            assigned[member_id] |= {(topic_id, number) for number in range(first, first + size)}
            first += size
    return {member_id: _by_topic(places) for member_id, places in assigned.items()}


def _by_topic(places: set[Place]) -> dict[UUID, frozenset[int]]:
    found: defaultdict[UUID, set[int]] = defaultdict(set)
    for topic_id, number in places:
        found[topic_id].add(number)
    return {topic_id: frozenset(numbers) for topic_id, numbers in found.items()}


ASSIGNORS: Final[Mapping[str, Callable[[Members, Mapping[UUID, int]], Assignment]]] = {
    "uniform": uniform,
    "range": range_,
}
