"""Committed offsets of all groups, and offsets pending in transactions."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator
from typing import NamedTuple

from kafkalog.server.groups.values import CommittedOffset

Place = tuple[str, int]
"""A topic and a partition number."""


class StoredOffset(NamedTuple):
    """A committed offset and the offset of its record in `__consumer_offsets`; -1 if unknown."""

    committed: CommittedOffset
    record_offset: int


class GroupOffsets:
    """Committed offsets of each group, by topic and partition. Not thread-safe."""

    __slots__ = ("_groups", "_pending", "_pending_counts")

    def __init__(self) -> None:
        self._groups: dict[str, dict[Place, StoredOffset]] = {}
        self._pending: dict[int, dict[str, dict[Place, StoredOffset]]] = {}  # by producer id, then by group
        self._pending_counts: dict[str, Counter[Place]] = {}  # number of transactions with an offset for each

    def groups(self) -> list[str]:
        """Return the groups that have offsets, committed or pending."""
        return [*self._groups, *(group for group in self._pending_counts if group not in self._groups)]

    def has(self, group_id: str) -> bool:
        """Return True if a group has offsets, committed or pending."""
        return group_id in self._groups or self.has_pending(group_id)

    def get(self, group_id: str, place: Place) -> CommittedOffset | None:
        """Return the group's committed offset for a partition, or None."""
        stored = self._groups.get(group_id, {}).get(place)
        return None if stored is None else stored.committed

    def all_of(self, group_id: str) -> dict[Place, CommittedOffset]:
        """Return all committed offsets of a group."""
        return {place: stored.committed for place, stored in self._groups.get(group_id, {}).items()}

    def put(self, group_id: str, place: Place, committed: CommittedOffset, record_offset: int = -1) -> None:
        """Store a committed offset; `record_offset` is the offset of its record."""
        self._groups.setdefault(group_id, {})[place] = StoredOffset(committed, record_offset)

    def remove(self, group_id: str, place: Place) -> None:
        """Remove a group's offset for a partition, both committed and pending."""
        offsets = self._groups.get(group_id)
        if offsets is not None:
            offsets.pop(place, None)
            if not offsets:
                del self._groups[group_id]
        if not self.is_pending(group_id, place):
            return
        del self._pending_counts[group_id][place]
        if not self._pending_counts[group_id]:
            del self._pending_counts[group_id]
        for groups in self._pending.values():
            pending = groups.get(group_id)
            if pending is not None and pending.pop(place, None) is not None and not pending:
                del groups[group_id]

    # Transactions

    def put_pending(
        self, producer_id: int, group_id: str, place: Place, committed: CommittedOffset, record_offset: int = -1
    ) -> None:
        """Store an offset that takes effect when the producer's transaction commits."""
        places = self._pending.setdefault(producer_id, {}).setdefault(group_id, {})
        if place not in places:
            self._pending_counts.setdefault(group_id, Counter())[place] += 1
        places[place] = StoredOffset(committed, record_offset)

    def is_pending(self, group_id: str, place: Place) -> bool:
        """Return True if an open transaction holds an offset of this group for the partition."""
        return place in self._pending_counts.get(group_id, ())

    def has_pending(self, group_id: str) -> bool:
        """Return True if any open transaction holds offsets of this group."""
        return group_id in self._pending_counts

    def places_of(self, group_id: str) -> list[Place]:
        """Return the partitions for which a group has offsets, committed ones first, then those only pending."""
        committed = self._groups.get(group_id, {})
        return [*committed, *sorted(self._pending_counts.get(group_id, Counter()).keys() - committed.keys())]

    def end_transaction(self, producer_id: int, is_committed: bool, includes: Callable[[str], bool]) -> list[str]:
        """End a producer's transaction in the groups for which `includes` is true; return those with pending offsets.

        A committed offset stays if its record comes after the transaction's.
        """
        groups = self._pending.get(producer_id, {})
        ended = [group for group in groups if includes(group)]
        for group_id in ended:
            waiting = self._pending_counts[group_id]
            for place, pending in groups.pop(group_id).items():
                waiting[place] -= 1
                if not waiting[place]:
                    del waiting[place]
                stored = self._groups.get(group_id, {}).get(place)
                if is_committed and (stored is None or stored.record_offset <= pending.record_offset):
                    self._groups.setdefault(group_id, {})[place] = pending
            if not waiting:
                del self._pending_counts[group_id]
        if not groups:
            self._pending.pop(producer_id, None)
        return ended

    # Whole groups and topics

    def drop_group(self, group_id: str) -> list[Place]:
        """Remove all offsets of a group; return their partitions, including those with only pending offsets."""
        places = self.places_of(group_id)
        for place in places:
            self.remove(group_id, place)
        return places

    def clear(self) -> None:
        """Remove all offsets."""
        self._groups.clear()
        self._pending.clear()
        self._pending_counts.clear()

    def of_topic(self, topic: str) -> Iterator[tuple[str, Place]]:
        """Yield (group, place) of each committed or pending offset for a topic."""
        for group_id in self.groups():
            for place in self.places_of(group_id):
                if place[0] == topic:
                    yield group_id, place

    def update(self, other: GroupOffsets) -> None:
        """Add the offsets of other groups, such as those of a newly loaded partition."""
        self._groups.update(other._groups)
        for producer_id, groups in other._pending.items():
            self._pending.setdefault(producer_id, {}).update(groups)
        self._pending_counts.update(other._pending_counts)

    def __len__(self) -> int:
        return sum(map(len, self._groups.values()))
