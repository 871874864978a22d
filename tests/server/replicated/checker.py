"""Find contradictions in a history of appends and reads: pure functions, after Jepsen's Kafka tests.

A history is what clients saw, with times of one clock: each append with its outcome, each poll with its
records. `Logs` is what the replicas hold at the end. `check` returns every contradiction between them; the
caller decides which of them a promise allows, by `Fault.acks` and the settings of the topic.
"""

from __future__ import annotations

import json
from bisect import bisect_left, bisect_right
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping
from itertools import pairwise
from typing import NamedTuple

Key = tuple[str, int]
"""A topic and a partition."""
OK, FAILED, UNKNOWN = "ok", "failed", "unknown"


class Append(NamedTuple):
    """One record that a producer sent. `number` grows with each record that it sends to the partition; `outcome` is
    FAILED if it was surely not written, UNKNOWN if that is open; `offset` is -1 if it was not reported. A record
    reported more than once is unknown only if there is no other report."""

    process: str
    key: Key
    number: int
    value: str
    begin: float
    end: float
    outcome: str
    offset: int = -1
    acks: int = -1
    is_idempotent: bool = False


class Poll(NamedTuple):
    """One poll of a partition: (offset, value) each. It continues where the reader's last poll ended, except
    for one with `has_new_position`, where it chose a position."""

    process: str
    key: Key
    begin: float
    end: float
    records: tuple[tuple[int, str], ...]
    has_new_position: bool = False


class Position(NamedTuple):
    """A group's committed offset (`is_commit`), or a fetched one. A commit appears once as unknown, and
    again with its end when it was answered."""

    process: str
    key: Key
    begin: float
    end: float
    offset: int
    outcome: str
    is_commit: bool


class Copy(NamedTuple):
    """A partition's log on one replica: what it begins with, its high watermark, its records, and the bytes of each
    batch by base offset."""

    log_start: int
    high_watermark: int
    records: tuple[tuple[int, str], ...]
    batches: tuple[tuple[int, bytes], ...] = ()


Operation = Append | Poll | Position
Logs = Mapping[Key, Mapping[int, Copy]]
"""By node, for each partition."""


class Fault(NamedTuple):
    """A contradiction: its kind, where, what was acknowledged how (0 where no append is meant), and the words."""

    kind: str
    key: Key
    acks: int
    words: str


def check(history: Iterable[Operation], logs: Logs) -> list[Fault]:
    """All faults of a history, in the order of the functions below."""
    latest: dict[tuple[Key, str], Append] = {}
    polls: dict[Key, list[Poll]] = defaultdict(list)
    positions: dict[Key, list[Position]] = defaultdict(list)
    for one in history:
        if isinstance(one, Poll):
            polls[one.key].append(one)
        elif isinstance(one, Position):
            positions[one.key].append(one)
        elif one.outcome != UNKNOWN or (one.key, one.value) not in latest:
            latest[one.key, one.value] = one
    appends: dict[Key, list[Append]] = defaultdict(list)
    for append in latest.values():
        appends[append.key].append(append)
    found: list[Fault] = []
    for key in sorted({*appends, *polls, *positions, *logs}):
        copies = logs.get(key, {})
        found += divergent(key, copies)
        whole = longest(copies)
        found += lost(appends[key], whole)
        found += unwritten(key, appends[key], polls[key], whole)
        found += inconsistent(key, appends[key], polls[key], whole)
        found += vanished(key, polls[key], whole)
        found += duplicated(key, appends[key], polls[key], whole)
        found += reordered(key, appends[key], whole)
        found += overtaken(key, appends[key])
        found += unsteady(key, polls[key], whole)
        found += forgotten(key, positions[key])
    return found


def longest(copies: Mapping[int, Copy]) -> Copy:
    """The replica with the highest watermark: what readers see in the end."""
    return max(copies.values(), key=lambda one: (one.high_watermark, -one.log_start), default=Copy(0, 0, ()))


def lost(appends: Iterable[Append], log: Copy) -> Iterator[Fault]:
    """Acknowledged, and in the log no more, though it goes on behind it. What retention took was not lost."""
    there = {value for _, value in log.records}
    for one in appends:
        is_kept = one.offset >= log.log_start or (one.offset < 0 and not log.log_start)
        if one.outcome == OK and one.value not in there and is_kept:
            yield Fault("lost", one.key, one.acks, f"{one.process} wrote {one.value} at {one.offset}")


def unwritten(key: Key, appends: Iterable[Append], polls: Iterable[Poll], log: Copy) -> Iterator[Fault]:
    """Find records that were read, but never written, or whose producer got an error."""
    outcomes = {one.value: one.outcome for one in appends}
    for offset, value in sorted({*log.records, *(row for poll in polls for row in poll.records)}):
        if value not in outcomes:
            yield Fault("never written", key, 0, f"{value} is at {offset}")
        elif outcomes[value] == FAILED:
            yield Fault("aborted", key, 0, f"{value} is at {offset}, but its producer got an error")


def inconsistent(key: Key, appends: Iterable[Append], polls: Iterable[Poll], log: Copy) -> Iterator[Fault]:
    """Two values at one offset, by what was acknowledged, what was read, and what is there."""
    seen: dict[int, dict[str, tuple[str, int]]] = defaultdict(dict)
    for offset, value in log.records:
        seen[offset].setdefault(value, ("the log", 0))
    for poll in polls:
        for offset, value in poll.records:
            seen[offset].setdefault(value, (poll.process, 0))
    for one in appends:
        if one.outcome == OK and one.offset >= 0:
            seen[one.offset].setdefault(one.value, (one.process, one.acks))
    for offset, values in sorted(seen.items()):
        if len(values) > 1:
            acks = min((acks for _, acks in values.values() if acks), default=0)
            reported = ", ".join(f"{value} ({who})" for value, (who, _) in sorted(values.items()))
            yield Fault("inconsistent", key, acks, f"{offset} is {reported}")


def vanished(key: Key, polls: Iterable[Poll], log: Copy) -> Iterator[Fault]:
    """Read once, and in the log no more."""
    there = {value for _, value in log.records}
    for offset, value in sorted({row for poll in polls for row in poll.records}):
        if value not in there and offset >= log.log_start:
            yield Fault("vanished", key, 0, f"{value} was read at {offset}")


def duplicated(key: Key, appends: Iterable[Append], polls: Iterable[Poll], log: Copy) -> Iterator[Fault]:
    """At two offsets, though its producer is idempotent."""
    once = {one.value for one in appends if one.is_idempotent}
    places: dict[str, set[int]] = defaultdict(set)
    for offset, value in (*log.records, *(row for poll in polls for row in poll.records)):
        places[value].add(offset)
    for value, offsets in sorted(places.items()):
        if value in once and len(offsets) > 1:
            yield Fault("duplicate", key, 0, f"{value} is at {sorted(offsets)}")


def reordered(key: Key, appends: Iterable[Append], log: Copy) -> Iterator[Fault]:
    """An idempotent producer's records in another order than it sent them."""
    numbers = {one.value: (one.process, one.number) for one in appends if one.is_idempotent}
    last: dict[str, tuple[int, int]] = {}
    for offset, value in log.records:
        if value not in numbers:
            continue
        process, number = numbers[value]
        before, at = last.get(process, (-1, -1))
        if number < before:
            yield Fault("reordered", key, 0, f"{process}: number {number} at {offset}, behind {before} at {at}")
        last[process] = (number, offset)


def overtaken(key: Key, appends: Iterable[Append]) -> Iterator[Fault]:
    """Sent after another was acknowledged, and acknowledged with an offset that is not above that one's."""
    reported = sorted((one for one in appends if one.outcome == OK and one.offset >= 0), key=lambda one: one.end)
    highest: Append | None = None
    ended = 0
    for one in sorted(reported, key=lambda append: append.begin):
        while ended < len(reported) and reported[ended].end < one.begin:
            if highest is None or reported[ended].offset > highest.offset:
                highest = reported[ended]
            ended += 1
        if highest is not None and one.offset <= highest.offset:
            words = f"{one.value} is at {one.offset}, sent after {highest.value} was acknowledged at {highest.offset}"
            yield Fault("overtaken", key, max(one.acks, highest.acks), words)  # one may be lost, the other not


def unsteady(key: Key, polls: Iterable[Poll], log: Copy) -> Iterator[Fault]:
    """Find readers that go back or skip records without a seek."""
    by_reader: dict[str, list[Poll]] = defaultdict(list)
    for poll in polls:
        by_reader[poll.process].append(poll)
    there = [offset for offset, _ in log.records]
    for process, own in sorted(by_reader.items()):
        last = -1
        for poll in sorted(own, key=lambda one: one.end):
            if poll.has_new_position:
                last = poll.records[0][0] - 1 if poll.records else -1
            for offset, _ in poll.records:
                if offset <= last:
                    yield Fault("went back", key, 0, f"{process} read {last}, and then {offset}")
                elif last >= 0 and offset > last + 1 and (left := _between(there, last, offset)):
                    yield Fault("skipped", key, 0, f"{process} read {last}, then {offset}: not {left}")
                last = offset


def forgotten(key: Key, positions: Iterable[Position]) -> Iterator[Fault]:
    """A group that is somewhere else than its last answered commit said, and than any commit that may have come after
    that one. It has one member at a time."""
    rows = list(positions)
    commits = {(one.process, one.begin): one for one in rows if one.is_commit and one.outcome == UNKNOWN}
    commits.update({(one.process, one.begin): one for one in rows if one.is_commit and one.outcome == OK})
    for asked in rows:
        if asked.is_commit:
            continue
        before = [one for one in commits.values() if one.outcome == OK and one.end < asked.begin]
        last = max(before, key=lambda one: one.begin, default=None)
        began = 0.0 if last is None else last.begin
        may_be = {one.offset for one in commits.values() if one.end >= began and one.begin < asked.end}
        if asked.offset not in may_be and (last is not None or asked.offset):
            reported = "nothing" if last is None else f"{last.offset} by {last.process}"
            yield Fault("forgotten", key, 0, f"{asked.process} found {asked.offset} after {reported} was committed")


def _between(offsets: list[int], after: int, before: int) -> list[int]:
    return offsets[bisect_right(offsets, after) : bisect_left(offsets, before)][:10]


def divergent(key: Key, copies: Mapping[int, Copy]) -> Iterator[Fault]:
    """Two replicas with other bytes below both high watermarks."""
    for (one, mine), (other, theirs) in pairwise(sorted(copies.items())):
        first, end = max(mine.log_start, theirs.log_start), min(mine.high_watermark, theirs.high_watermark)
        left, right = (
            {base: data for base, data in (copy.batches or copy.records) if first <= base < end}
            for copy in (mine, theirs)
        )
        for base in sorted(left.keys() | right.keys()):
            if left.get(base) != right.get(base):
                how = "other bytes" if base in left and base in right else "a batch that one of them lacks"
                yield Fault("divergent", key, 0, f"nodes {one} and {other} have {how} at {base}")
                break


# A history as it is kept in a file

def to_line(operation: Operation) -> str:
    """One operation as a line of JSON."""
    return json.dumps([type(operation).__name__, *operation])


def from_line(line: str) -> Operation:
    """The operation of a line."""
    name, process, key, *rest = json.loads(line)
    if name == "Append":
        return Append(process, tuple(key), *rest)
    if name == "Position":
        return Position(process, tuple(key), *rest)
    begin, end, records, has_new_position = rest
    return Poll(process, tuple(key), begin, end, tuple((offset, value) for offset, value in records), has_new_position)
