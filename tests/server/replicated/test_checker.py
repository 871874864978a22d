"""The checker finds each kind of fault where it was planted, and none in histories that are right."""

from __future__ import annotations

from itertools import count

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kafkalog.control import ControlType, marker_batch
from tests.builder import batch
from tests.server.replicated.checker import (
    FAILED,
    OK,
    UNKNOWN,
    Append,
    Copy,
    Logs,
    Operation,
    Poll,
    Position,
    check,
    from_line,
    to_line,
)
from tests.server.replicated.cluster import committed

KEY = ("t", 0)
VALUES = ("a:0", "a:1", "a:2", "a:3")
RECORDS = tuple(enumerate(VALUES))


def append(number: int, **other: object) -> Append:
    right = Append("a", KEY, number, f"a:{number}", number * 1.0, number + 0.5, OK, number, -1, True)
    return right._replace(**other)


def poll(*offsets: int, end: float = 10.0, **other: object) -> Poll:
    right = Poll("r", KEY, end - 1, end, tuple((offset, VALUES[offset]) for offset in offsets))
    return right._replace(**other)


def copy(records: tuple[tuple[int, str], ...] = RECORDS, **other: object) -> Copy:
    return Copy(0, 4, records, tuple((base, value.encode()) for base, value in records))._replace(**other)


WRITTEN = tuple(append(number) for number in range(4))
FINAL = {KEY: {1: copy(), 2: copy(), 3: copy()}}
SHORT = RECORDS[:2] + RECORDS[3:]


def all_with(records: tuple[tuple[int, str], ...]) -> Logs:
    return {KEY: dict.fromkeys((1, 2, 3), copy(records))}


@pytest.mark.parametrize(
    ("kinds", "history", "logs"),
    [
        ((), (*WRITTEN, poll(0, 1), poll(2, 3, end=11)), FINAL),
        (("lost",), WRITTEN, all_with(SHORT)),
        (("lost",), (*WRITTEN[:2], append(2, offset=-1), WRITTEN[3]), all_with(SHORT)),
        ((), (*WRITTEN[:2], append(2, outcome=UNKNOWN), WRITTEN[3]), all_with(SHORT)),
        ((), WRITTEN, {KEY: {1: copy(RECORDS[3:], log_start=3)}}),
        (("lost",), (append(2, outcome=UNKNOWN), *WRITTEN, append(2, outcome=UNKNOWN)), all_with(SHORT)),
        (("aborted",), (*WRITTEN[:3], append(3, outcome=FAILED)), FINAL),
        (("never written",), WRITTEN[:3], FINAL),
        (("never written", "inconsistent", "vanished"), (*WRITTEN, poll(records=((1, "x"),))), FINAL),
        (("inconsistent",), (*WRITTEN[:3], append(3, begin=0.1, offset=2)), FINAL),
        (("vanished",), (*WRITTEN[:2], append(2, outcome=UNKNOWN), WRITTEN[3], poll(2)), all_with(SHORT)),
        (("duplicate", "reordered"), WRITTEN, all_with((*RECORDS, (4, "a:1")))),
        ((), [one._replace(is_idempotent=False) for one in WRITTEN], all_with((*RECORDS, (4, "a:1")))),
        (
            ("reordered",),
            [one._replace(offset=-1) for one in WRITTEN],
            all_with(((0, "a:0"), (1, "a:2"), (2, "a:1"), (3, "a:3"))),
        ),
        (("overtaken",), (WRITTEN[0], append(1, offset=2), append(2, offset=1)), {}),
        ((), (append(0, end=9.0, offset=1), append(1, offset=0)), {}),
        (("went back",), (*WRITTEN, poll(0, 1, 2), poll(2, 3, end=11)), FINAL),
        ((), (*WRITTEN, poll(0, 1, 2), poll(2, 3, end=11, has_new_position=True)), FINAL),
        (("skipped",), (*WRITTEN, poll(0, 1), poll(3, end=11)), FINAL),
        (("skipped",), (*WRITTEN, poll(0, 1, 3)), FINAL),
        ((), (*WRITTEN[:2], WRITTEN[3], poll(0, 1, 3)), all_with(SHORT)),
        (("divergent",), WRITTEN, {KEY: {1: copy(), 2: copy(batches=((0, b"x"),)), 3: copy(batches=((0, b"x"),))}}),
        ((), WRITTEN, {KEY: {1: copy(), 2: copy(RECORDS[:2], high_watermark=2)}}),
        (("divergent",), WRITTEN, {KEY: {1: copy(), 2: copy(RECORDS[:2])}}),
    ],
)
def test_each_planted_fault_is_found(kinds: tuple[str, ...], history: list[Operation], logs: Logs) -> None:
    if not logs:  # what these are about shows without any
        found = [one for one in check(history, logs) if one.kind not in ("lost",)]
    else:
        found = check(history, logs)
    assert sorted({one.kind for one in found}) == sorted(kinds), found


def commit(offset: int, begin: float, end: float = 0.0) -> list[Position]:
    """Return the history of one commit; without an end it was not answered."""
    asked = Position("g", KEY, begin, 1e18, offset, UNKNOWN, True)
    return [asked, asked._replace(end=end, outcome=OK)] if end else [asked]


@pytest.mark.parametrize(
    ("found", "commits", "is_fault"),
    [
        (0, [], False),
        (3, [], True),
        (5, commit(5, 1, 2), False),
        (0, commit(5, 1, 2), True),
        (5, [*commit(5, 1, 2), *commit(9, 3, 4)], True),
        (9, [*commit(5, 1, 2), *commit(9, 3, 4)], False),
        (7, [*commit(7, 1), *commit(9, 3, 4)], False),  # it may have come late
        (7, [*commit(9, 3, 4), *commit(7, 5)], False),
        (7, [*commit(9, 3, 4), *commit(7, 12)], True),
        (5, [*commit(5, 1, 2), *commit(9, 3, 10.5)], False),
        (9, [*commit(5, 1, 2), *commit(9, 3, 10.5)], False),
    ],
)
def test_a_group_is_where_its_last_answered_commit_put_it(found: int, commits: list[Position], is_fault: bool) -> None:
    asked = Position("g", KEY, 10.0, 11.0, found, OK, False)
    history: list[Operation] = [asked, *commits]
    assert [one.kind for one in check(history, {})] == ["forgotten"] * is_fault
    assert [from_line(to_line(one)) for one in history] == history


def test_what_is_in_a_log_is_what_was_committed() -> None:
    def data(value: bytes, producer: int, is_transactional: bool = True) -> bytes:
        return batch([value], producer_id=producer, producer_epoch=0, base_sequence=0,
                     attributes=0x10 * is_transactional)  # fmt: skip

    def marker(kind: ControlType, producer: int) -> bytes:
        return bytes(marker_batch(kind, producer, 0, 0, timestamp=5))

    a, b, c, d, plain = data(b"a", 1), data(b"b", 2), data(b"c", 1), data(b"d", 3), data(b"p", 2, False)
    batches = [a, b, plain, marker(ControlType.ABORT, 1), c, marker(ControlType.COMMIT, 2), d,
               marker(ControlType.COMMIT, 1)]  # fmt: skip
    assert committed(batches) == [b, plain, c]


@st.composite
def valid_history(draw: st.DrawFn) -> tuple[list[Operation], Logs]:
    """A log, and what producers and readers of it may have seen."""
    clock = count(1)
    history: list[Operation] = []
    records: list[tuple[int, str]] = []
    numbers = {"a": 0, "b": 0, "c": 0}
    offset = 0
    for process in draw(st.lists(st.sampled_from("abc"), max_size=30)):
        number, numbers[process] = numbers[process], numbers[process] + 1
        value, begin = f"{process}:{number}", float(next(clock))
        outcome = draw(st.sampled_from([OK, OK, OK, UNKNOWN, FAILED]))
        is_there = outcome == OK or (outcome == UNKNOWN and draw(st.booleans()))
        is_reported = outcome == OK and draw(st.booleans())
        one = Append(process, KEY, number, value, begin, float(next(clock)), outcome, -1, -1, process != "c")
        history.append(one._replace(offset=offset) if is_reported else one)
        if is_there:
            records.append((offset, value))
            offset += 1
            if process == "c" and draw(st.booleans()):  # sent twice
                records.append((offset, value))
                offset += 1
        offset += draw(st.integers(0, 1))  # a marker
    for reader in range(draw(st.integers(0, 2))):
        at = draw(st.integers(0, len(records)))
        while at < len(records):
            size = draw(st.integers(1, 7))
            now = float(next(clock))
            history.append(Poll(f"r{reader}", KEY, now, now, tuple(records[at : at + size])))
            at += size
    copies = {}
    for node in (1, 2, 3):
        mark = offset if node == 2 else draw(st.integers(0, offset))
        start = draw(st.integers(0, mark)) if node != 2 else 0
        kept = tuple(row for row in records if row[0] >= start)
        copies[node] = Copy(start, mark, kept, tuple((base, value.encode()) for base, value in kept))
    return draw(st.permutations(history)), {KEY: copies}


@given(valid_history())
def test_nothing_is_found_in_a_history_that_is_right(seen: tuple[list[Operation], Logs]) -> None:
    history, logs = seen
    assert check(history, logs) == []
    assert [from_line(to_line(one)) for one in history] == list(history)
