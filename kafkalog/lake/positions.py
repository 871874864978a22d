"""Positions of a sync: each partition's next offset, stored in the table's commits, and the ranges to read."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from typing import Final, NamedTuple

from kafkalog.errors import IllegalState, InconsistentTopicId, OffsetOutOfRange
from kafkalog.lake.checksums import GAP

_ELSEWHERE: Final = "sync the topic into another table: this one keeps what it has"


class Positions(NamedTuple):
    """The next offsets of a topic's partitions as of a commit; `checksums` cover the record before each."""

    topic_id: str | None
    next_offsets: Mapping[int, int]
    checksums: Mapping[int, int]

    def text(self) -> str:
        """Return JSON of the positions.

        >>> Positions(None, {0: 5}, {}).text()
        '{"topic_id": null, "next_offsets": {"0": 5}, "checksums": {}}'
        """
        found = {"topic_id": self.topic_id, "next_offsets": dict(self.next_offsets), "checksums": dict(self.checksums)}
        return json.dumps(found)

    @classmethod
    def parse(cls, text: str, table: str) -> Positions:
        """Parse the JSON of positions; raise IllegalState if it is malformed."""
        try:
            found = json.loads(text)
            id = found["topic_id"]
            offsets, checksums = (
                {int(name): int(value) for name, value in found[part].items()} for part in ("next_offsets", "checksums")
            )
            if not (id is None or isinstance(id, str)) or any(value < 0 for value in (*offsets, *offsets.values())):
                raise ValueError("it is out of range")
        except (ValueError, KeyError, TypeError, AttributeError, OverflowError, RecursionError) as error:
            raise IllegalState(
                f"the table's positions are malformed: {error}", path=table, hint=_ELSEWHERE
            ) from None
        return cls(id, offsets, checksums)

    def moved(self, next_offsets: Mapping[int, int], checksums: Mapping[int, int]) -> Positions:
        """Return the positions after a commit; other partitions stay unchanged."""
        kept = {number: one for number, one in self.checksums.items() if number not in next_offsets}
        return Positions(self.topic_id, {**self.next_offsets, **next_offsets}, {**kept, **checksums})


class PartitionState(NamedTuple):
    """State of a partition: its start, the end of its readable records, its log end and directory.

    `checksum` is that of the record or marker before the table's position, GAP if there is none, None if unknown.
    """

    number: int
    start: int
    end: int
    log_end: int
    path: str
    checksum: int | None = None


class ReadRange(NamedTuple):
    """Offsets [start, stop) of a partition that the table does not have yet."""

    number: int
    start: int
    stop: int


def plan_ranges(kept: Positions | None, topic_id: str | None, states: Iterable[PartitionState]) -> list[ReadRange]:
    """Return the ranges that the table lacks, by partition; none for partitions that have nothing new.

    Raises InconsistentTopicId for another topic of the same name, OffsetOutOfRange if records were deleted before they
    reached the table, IllegalState if the log was truncated below the table's position.

    >>> plan_ranges(None, None, [PartitionState(0, 3, 5, 5, "data/orders-0")])
    [ReadRange(number=0, start=3, stop=5)]
    """
    states = [*states]
    if kept is not None and None not in (kept.topic_id, topic_id) and kept.topic_id != topic_id:
        raise InconsistentTopicId(
            f"the table is that of the topic with id {kept.topic_id}, but this one has {topic_id}",
            path=states[0].path if states else None, hint=f"the topic was created again: {_ELSEWHERE}",
        )  # fmt: skip
    found = []
    for one in states:
        first = None if kept is None else kept.next_offsets.get(one.number)
        if first is None:
            first = one.start
        elif kept is not None:
            _check_loss(one, first, kept.checksums.get(one.number))
        if first < one.end:
            found.append(ReadRange(one.number, first, one.end))
    return found


def _check_loss(state: PartitionState, first: int, checksum: int | None) -> None:
    """Raise the error for records that are lost, or no longer those that the table has."""
    if first < state.start:
        raise OffsetOutOfRange(
            f"offsets {first} to {state.start - 1} were deleted before they were written to the table",
            path=state.path, offset=first, hint=f"{_ELSEWHERE}; and sync more often than retention deletes",
        )  # fmt: skip
    if first > state.log_end:
        raise IllegalState(
            f"the table has the records before offset {first}, but the log was truncated and ends at {state.log_end}",
            path=state.path, offset=state.log_end, hint=_ELSEWHERE,
        )  # fmt: skip
    if None in (checksum, state.checksum) or state.checksum in (checksum, GAP):
        return  # compaction leaves a gap where a record was
    found = f"its checksum is {state.checksum}, in the table {checksum}"
    if checksum == GAP:
        found = "there was none when the table was written"
    raise IllegalState(
        f"record {first - 1} is not the one that the table has ({found}): the log was truncated and appended to",
        path=state.path, offset=first - 1, hint=_ELSEWHERE,
    )  # fmt: skip
