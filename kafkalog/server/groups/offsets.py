"""Committed offsets of all groups, those too that wait for the end of a transaction."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from typing import NamedTuple

from kafkalog.server.groups.values import CommittedOffset

Place = tuple[str, int]
"""A topic and the number of a partition."""


class Kept(NamedTuple):
    """A committed offset and where its record lies in the log of offsets; -1 where that is not known."""

    committed: CommittedOffset
    at: int


class GroupOffsets:
    """What each group has committed, by topic and partition. One thread at a time."""

    __slots__ = ("_groups", "_pending", "_waiting")

    def __init__(self) -> None:
        self._groups: dict[str, dict[Place, Kept]] = {}
        self._pending: dict[int, dict[str, dict[Place, Kept]]] = {}  # by producer id, then by group
        self._waiting: dict[str, Counter[Place]] = {}  # how many transactions have an offset for each

    def groups(self) -> list[str]:
        """The groups that have offsets, committed or pending."""
        return [*self._groups, *(group for group in self._waiting if group not in self._groups)]

    def has(self, group_id: str) -> bool:
        """Whether a group has offsets, committed or pending."""
        return group_id in self._groups or self.has_pending(group_id)

    def get(self, group_id: str, place: Place) -> CommittedOffset | None:
        """What a group has committed for a partition."""
        kept = self._groups.get(group_id, {}).get(place)
        return None if kept is None else kept.committed

    def all_of(self, group_id: str) -> dict[Place, CommittedOffset]:
        """All that a group has committed."""
        return {place: kept.committed for place, kept in self._groups.get(group_id, {}).items()}

    def put(self, group_id: str, place: Place, committed: CommittedOffset, at: int = -1) -> None:
        """A group has committed an offset, or the record of that was read again."""
        self._groups.setdefault(group_id, {})[place] = Kept(committed, at)

    def remove(self, group_id: str, place: Place) -> None:
        """Forgets what was committed, and what would be when a transaction ends."""
        offsets = self._groups.get(group_id)
        if offsets is not None:
            offsets.pop(place, None)
            if not offsets:
                del self._groups[group_id]
        if not self.is_pending(group_id, place):
            return
        del self._waiting[group_id][place]
        if not self._waiting[group_id]:
            del self._waiting[group_id]
        for groups in self._pending.values():
            pending = groups.get(group_id)
            if pending is not None and pending.pop(place, None) is not None and not pending:
                del groups[group_id]

    # Transactions

    def put_pending(
        self, producer_id: int, group_id: str, place: Place, committed: CommittedOffset, at: int = -1
    ) -> None:
        """A transaction has an offset in it, which counts when that is committed."""
        places = self._pending.setdefault(producer_id, {}).setdefault(group_id, {})
        if place not in places:
            self._waiting.setdefault(group_id, Counter())[place] += 1
        places[place] = Kept(committed, at)

    def is_pending(self, group_id: str, place: Place) -> bool:
        """Whether a transaction that is not over has an offset of this group for this partition."""
        return place in self._waiting.get(group_id, ())

    def has_pending(self, group_id: str) -> bool:
        """Whether any transaction that is not over has offsets of this group."""
        return group_id in self._waiting

    def pending_places(self, group_id: str) -> set[Place]:
        """The partitions for which transactions that are not over have offsets of this group."""
        return set(self._waiting.get(group_id, ()))

    def end_transaction(self, producer_id: int, is_committed: bool, is_meant: Callable[[str], bool]) -> list[str]:
        """A producer's transaction is over for the groups that are meant, those of some partitions of the topic.

        An offset that was committed behind that of the transaction stays. Returns the groups that had any.
        """
        groups = self._pending.get(producer_id, {})
        ended = [group for group in groups if is_meant(group)]
        for group_id in ended:
            waiting = self._waiting[group_id]
            for place, pending in groups.pop(group_id).items():
                waiting[place] -= 1
                if not waiting[place]:
                    del waiting[place]
                kept = self._groups.get(group_id, {}).get(place)
                if is_committed and (kept is None or kept.at <= pending.at):
                    self._groups.setdefault(group_id, {})[place] = pending
            if not waiting:
                del self._waiting[group_id]
        if not groups:
            self._pending.pop(producer_id, None)
        return ended

    # All at once

    def drop_group(self, group_id: str) -> list[Place]:
        """Forgets a group; its partitions, those that only transactions had included."""
        places = [*self._groups.get(group_id, ())]
        places += [place for place in sorted(self.pending_places(group_id)) if place not in places]
        for place in places:
            self.remove(group_id, place)
        return places

    def clear(self) -> None:
        """Forgets everything."""
        self._groups.clear()
        self._pending.clear()
        self._waiting.clear()

    def of_topic(self, topic: str) -> Iterator[tuple[str, Place]]:
        """The group and the partition of each offset there is for a topic."""
        for group_id in self.groups():
            for place in {*self._groups.get(group_id, ()), *self.pending_places(group_id)}:
                if place[0] == topic:
                    yield group_id, place

    def take(self, other: GroupOffsets) -> None:
        """Takes in the offsets of other groups, such as those of a partition that was just loaded."""
        self._groups.update(other._groups)
        for producer_id, groups in other._pending.items():
            self._pending.setdefault(producer_id, {}).update(groups)
        self._waiting.update(other._waiting)

    def __len__(self) -> int:
        return sum(map(len, self._groups.values()))


def expired(
    offsets: Mapping[Place, CommittedOffset],
    now_ms: int,
    retention_ms: int,
    base_ms: int | None = None,
    read_topics: frozenset[str] | set[str] = frozenset(),
) -> list[Place]:
    """The partitions whose offsets nobody has needed for `retention_ms` (KIP-211).

    The time runs from the commit, or from `base_ms` on, when the group became empty. Topics that members read now do
    not expire. A time of its own, which old clients may ask for, goes before all that.
    """
    found = []
    for place, one in offsets.items():
        if place[0] in read_topics:
            continue
        if one.expire_ms is not None:
            is_over = now_ms >= one.expire_ms
        else:
            is_over = now_ms - (one.commit_ms if base_ms is None else base_ms) >= retention_ms
        if is_over:
            found.append(place)
    return found
