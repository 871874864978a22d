"""The records in flight of a share partition: single rules, and operations in any order beside a plain model."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterable
from itertools import accumulate, pairwise
from typing import Any, Final

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule

from kafkalog.server.error_codes import ErrorCode
from kafkalog.server.share.batches import LogBatch, aborted_ranges, without
from kafkalog.server.share.partition import reset_timestamp
from kafkalog.server.share.state import Change, ShareState, changed, combined
from kafkalog.server.share.window import (
    ACCEPT,
    GAP,
    REJECT,
    RELEASE,
    RENEW,
    AcknowledgedRange,
    AcknowledgementRefused,
    AcquiredRows,
    Ending,
    Limits,
    Plan,
    RecordState,
    Run,
    StateBatch,
    Window,
    acknowledge,
    acquire,
    archive,
    archived,
    begin_at,
    expire,
    loaded,
    next_offset,
    release,
    unwritten,
)

LIMIT: Final = 5
ENDING: Final = Ending(LIMIT)
LOCK_MS: Final = 100
EMPTY: Final = Window(0, 0)


def limits(records: int = 100, **more: Any) -> Limits:
    usual = {"max_locks": 1000, "deadline_ms": LOCK_MS, "delivery_limit": LIMIT, "batch_size": 100, "is_exact": False}
    return Limits(**{"max_records": records, **usual, **more})


def acked(plan: Plan, *ranges: tuple[int, ...], member: str = "m") -> Plan:
    rows = [AcknowledgedRange(first, last, types) for first, last, *types in ranges]
    return acknowledge(plan.window, member, rows, ENDING, 2 * LOCK_MS)


def code_of(plan: Plan, *ranges: tuple[int, ...], member: str = "m") -> int:
    with pytest.raises(AcknowledgementRefused) as raised:
        acked(plan, *ranges, member=member)
    return int(raised.value.code)


def test_each_type_has_its_state_and_the_start_moves_over_what_is_complete() -> None:
    taken = acquire(EMPTY, "m", 0, [(0, 3), (4, 9)], limits())
    assert taken.rows == (AcquiredRows(0, 9, 1),)
    done = acked(taken, (0, 3, ACCEPT, RELEASE, REJECT, GAP), (4, 5, ACCEPT))
    assert done.batches == ((0, 0, 2, 1), (1, 1, 0, 1), (2, 3, 4, 1), (4, 5, 2, 1))
    assert (done.stored_start, done.complete, done.window.start) == (0, 5, 1)
    again = acquire(done.window, "n", 1, [(0, 3), (4, 9)], limits())
    assert again.rows == (AcquiredRows(1, 1, 2),)
    assert acked(again, (1, 1, ACCEPT), member="n").window.start == 6


def test_nobody_completes_what_is_not_theirs() -> None:
    taken = acquire(EMPTY, "m", 0, [(0, 9)], limits())
    done = acked(taken, (0, 0, RELEASE), (2, 2, ACCEPT))
    assert code_of(done, (1, 1, ACCEPT), member="n") == ErrorCode.INVALID_RECORD_STATE
    assert code_of(done, (1, 2, ACCEPT)) == ErrorCode.INVALID_RECORD_STATE, "one is complete"
    assert code_of(done, (0, 0, ACCEPT)) == ErrorCode.INVALID_RECORD_STATE, "it was released"
    assert code_of(done, (10, 10, ACCEPT)) == ErrorCode.INVALID_REQUEST
    assert code_of(done, (9, 10, ACCEPT)) == ErrorCode.INVALID_REQUEST
    assert code_of(Plan(EMPTY, 0, 0), (0, 0, ACCEPT)) == ErrorCode.INVALID_RECORD_STATE


def test_a_lock_expires_and_a_renewed_one_later() -> None:
    taken = acquire(EMPTY, "m", 0, [(0, 3)], limits())
    renewed = acked(taken, (1, 2, RENEW))
    assert renewed.batches == () and renewed.window.next_deadline_ms == LOCK_MS
    late = expire(renewed.window, LOCK_MS, ENDING)
    assert late.batches == ((0, 0, 0, 1), (3, 3, 0, 1))
    assert code_of(late, (0, 0, ACCEPT)) == ErrorCode.INVALID_RECORD_STATE
    assert late.window.next_deadline_ms == 2 * LOCK_MS


def test_the_last_delivery_is_the_last_one_however_it_ends() -> None:
    window = loaded(0, [StateBatch(0, 1, RecordState.AVAILABLE, LIMIT - 1)])
    taken = acquire(window, "m", 0, [(0, 1)], limits())
    assert taken.rows == (AcquiredRows(0, 0, LIMIT),), "one by one"
    assert expire(taken.window, LOCK_MS, ENDING).batches == ((0, 0, 4, LIMIT),)
    assert acked(taken, (0, 0, RELEASE)).window.start == 1
    assert release(taken.window, "m", ENDING).batches == ((0, 0, 4, LIMIT),)
    assert release(taken.window, "m", Ending(LIMIT + 1)).batches == ((0, 0, 0, LIMIT),)
    assert release(taken.window, "n", ENDING).batches == ()


def test_a_record_with_a_dead_letter_stays_until_that_is_written() -> None:
    taken = acquire(EMPTY, "m", 0, [(0, 3)], limits())
    ranges = [AcknowledgedRange(0, 3, [REJECT, GAP, RELEASE, ACCEPT])]
    plan = acknowledge(taken.window, "m", ranges, Ending(1, RecordState.ARCHIVING), 0)
    assert plan.batches == ((0, 0, 3, 1), (1, 1, 4, 1), (2, 2, 3, 1), (3, 3, 2, 1))
    assert plan.letters == ((0, 0, 1, True), (2, 2, 1, False))
    assert plan.window.start == 0 and next_offset(plan.window, 100) == 4
    assert code_of(plan, (0, 0, ACCEPT)) == ErrorCode.INVALID_RECORD_STATE
    assert release(plan.window, "m", ENDING).batches == ()
    reloaded = loaded(0, plan.batches)
    assert reloaded == plan.window
    assert unwritten(reloaded, 2) == ((0, 0, 1, True), (2, 2, 1, True))
    assert unwritten(reloaded, 1) == ((0, 0, 1, False), (2, 2, 1, False))
    assert unwritten(loaded(0, [StateBatch(0, 2, 3, 1)]), 1) == ((0, 2, 1, False),)
    first = archived(reloaded, 0, 0)
    assert (first.batches, first.window.start) == (((0, 0, 4, 1),), 2)
    assert archived(first.window, 0, 2).window == Window(4, 4)


def test_a_stored_state_may_overlap_lack_offsets_and_have_any_numbers() -> None:
    rows = [(0, 2, 2, 1), (3, 6, 0, 2), (6, 6, 2, 1), (8, 8, 2, 1), (9, 9, 1, -4), (10, 10, 0, 2**20), (11, 11, 99, 0)]
    window = loaded(5, [StateBatch(*row) for row in rows])
    assert [run[:4] for run in window.runs] == [
        (5, 6, RecordState.AVAILABLE, 2), (7, 7, RecordState.AVAILABLE, 0), (8, 8, RecordState.ACKNOWLEDGED, 1),
        (9, 9, RecordState.AVAILABLE, 0), (10, 10, RecordState.AVAILABLE, 2**15 - 2),
        (11, 11, RecordState.AVAILABLE, 0),
    ]  # fmt: skip
    assert (window.start, window.end) == (5, 12)


def test_records_that_failed_often_come_in_halves() -> None:
    for expected in ([64] * 5 + [32, 16, 8, 1], [64] * 4 + [32, 16, 8, 1], [64, 64, 1], [64, 64]):
        limit, sizes = len(expected), []
        for count in range(limit):
            window = loaded(0, [StateBatch(0, 63, RecordState.AVAILABLE, count)])
            [row] = acquire(window, "m", 0, [(0, 63)], limits(delivery_limit=limit)).rows
            sizes.append(row.last + 1)
        assert sizes == expected
    one = loaded(0, [StateBatch(0, 0, RecordState.AVAILABLE, 6), StateBatch(1, 9, RecordState.AVAILABLE, 0)])
    assert acquire(one, "m", 0, [(0, 9)], limits(delivery_limit=9)).rows == (AcquiredRows(0, 0, 7),)
    mixed = loaded(0, [StateBatch(0, 1, RecordState.AVAILABLE, 1), StateBatch(2, 3, RecordState.AVAILABLE, 4)])
    assert acquire(mixed, "m", 0, [(0, 9)], limits()).rows == (AcquiredRows(0, 1, 2),), "not with others"


def test_a_fetch_ends_with_a_batch_or_exactly() -> None:
    log = [(0, 2), (3, 5), (6, 8)]
    assert acquire(EMPTY, "m", 0, log, limits(4)).rows == (AcquiredRows(0, 5, 1),)
    assert acquire(EMPTY, "m", 0, log, limits(4, is_exact=True)).rows == (AcquiredRows(0, 3, 1),)
    for size in (1, 3):
        rows = acquire(EMPTY, "m", 0, log, limits(9, batch_size=size)).rows
        assert rows == tuple(AcquiredRows(*one, 1) for one in log)
    rows = acquire(EMPTY, "m", 0, log, limits(9, batch_size=4)).rows
    assert rows == (AcquiredRows(0, 5, 1), AcquiredRows(6, 8, 1))


def test_an_exact_fetch_ends_within_a_batch_that_was_acquired_in_part() -> None:
    taken = acquire(EMPTY, "m", 0, [(0, 9)], limits())
    freed = acked(taken, (0, 1, RELEASE), (4, 9, RELEASE))
    assert acquire(freed.window, "n", 0, [(0, 9)], limits(2, is_exact=True)).rows == (AcquiredRows(0, 1, 2),)
    rows = acquire(freed.window, "n", 0, [(0, 9)], limits(3, is_exact=True)).rows
    assert rows == (AcquiredRows(0, 1, 2), AcquiredRows(4, 4, 2))
    assert acquire(freed.window, "n", 4, [(0, 9)], limits()).rows == (AcquiredRows(4, 9, 2),), "from there on"


def test_no_more_is_acquired_while_the_window_is_full() -> None:
    taken = acquire(EMPTY, "m", 0, [(0, 2), (3, 5)], limits(max_locks=2))
    assert taken.rows == (AcquiredRows(0, 2, 1),)
    assert next_offset(taken.window, 2) is None
    freed = acked(taken, (1, 1, RELEASE))
    assert next_offset(freed.window, 2) == 1
    assert acquire(freed.window, "m", 1, [(0, 2), (3, 5)], limits(max_locks=2)).rows == (AcquiredRows(1, 1, 2),)
    exact = acquire(EMPTY, "m", 0, [(0, 9)], limits(max_locks=4, is_exact=True))
    assert exact.rows == (AcquiredRows(0, 3, 1),)


def test_offsets_without_records_are_passed_over() -> None:
    taken = acquire(EMPTY, "m", 0, [(5, 6), (9, 9)], limits())
    assert [(row.first, row.last) for row in taken.rows] == [(5, 6), (9, 9)]
    assert acked(taken, (5, 6, ACCEPT), (9, 9, ACCEPT)).window == Window(10, 10)
    held = acked(acquire(EMPTY, "m", 0, [(0, 9)], limits()), (0, 2, RELEASE), (4, 4, RELEASE))
    cleaned = acquire(held.window, "n", 0, [(0, 2), (6, 9)], limits())
    found = [(run.first, run.last, run.state, run.member) for run in cleaned.window.runs]
    assert found == [
        (0, 2, RecordState.ACQUIRED, "n"), (3, 3, RecordState.ACQUIRED, "m"), (4, 4, RecordState.ARCHIVED, ""),
        (5, 9, RecordState.ACQUIRED, "m"),
    ]  # fmt: skip


def test_a_gap_as_large_as_the_window_does_not_fill_it() -> None:
    taken = acquire(EMPTY, "m", 0, [(5000, 5001)], limits(max_locks=200))
    assert taken.rows == (AcquiredRows(5000, 5001, 1),)
    assert (taken.window.start, taken.window.end) == (5000, 5002)
    assert (taken.stored_start, taken.complete, taken.batches) == (5000, 0, ())
    only_a_gap = acquire(EMPTY, "m", 0, [(300, 300)], limits(0, max_locks=200)).window
    assert next_offset(only_a_gap, 200) is not None


def test_the_logs_start_takes_the_window_along() -> None:
    taken = acquire(EMPTY, "m", 0, [(0, 9)], limits())
    moved = begin_at(taken.window, 4)
    assert (moved.start, moved.runs) == (4, (Run(4, 9, RecordState.ACQUIRED, 1, "m", LOCK_MS),))
    assert acknowledge(moved, "m", [AcknowledgedRange(0, 9, [ACCEPT])], ENDING, 0).window == Window(10, 10)
    assert begin_at(moved, 20) == Window(20, 20)
    assert begin_at(moved, 3) == moved
    for log in ([(0, 9)], [(2, 3), (4, 9)]):
        late = acquire(Window(4, 4), "m", 2, log, limits())
        assert late.rows == (AcquiredRows(4, 9, 1),) and late.window.start == 4, "it was read before the start moved"


def test_acquired_records_of_an_aborted_transaction_are_archived() -> None:
    taken = acquire(EMPTY, "m", 0, [(0, 9)], limits())
    mixed = acked(taken, (1, 1, ACCEPT), (2, 2, RELEASE))
    plan = archive(mixed.window, [(0, 3), (6, 7)])
    assert plan.batches == ((0, 0, 4, 1), (3, 3, 4, 1), (6, 7, 4, 1))
    assert [(run.first, run.last, run.state) for run in plan.window.runs] == [
        (2, 2, RecordState.AVAILABLE), (3, 3, RecordState.ARCHIVED), (4, 5, RecordState.ACQUIRED),
        (6, 7, RecordState.ARCHIVED), (8, 9, RecordState.ACQUIRED),
    ]  # fmt: skip
    assert (plan.window.start, plan.window.end, plan.complete) == (2, 10, 5)


def test_aborted_transactions_are_not_acquired() -> None:
    rows = [(0, 1, 7, False), (2, 2, 8, False), (3, 3, 7, True), (4, 5, 7, False)]
    log = [LogBatch(first, last, 0, 1, producer, is_control) for first, last, producer, is_control in rows]
    assert aborted_ranges(log, [(7, 0)]) == [(0, 1)]
    assert aborted_ranges(log, [(7, 4), (8, 2)]) == [(2, 2), (4, 5)]
    assert without([AcquiredRows(0, 5, 1)], [(0, 1), (4, 4)]) == (AcquiredRows(2, 3, 1), AcquiredRows(5, 5, 1))


DISJOINT: Final = st.lists(st.tuples(st.integers(1, 4), st.integers(1, 4)), max_size=8)
"""Lengths of gaps, and of the ranges behind them."""


@given(DISJOINT, DISJOINT)
def test_rows_without_ranges_have_the_other_offsets(rows: list[tuple[int, int]], ranges: list[tuple[int, int]]) -> None:
    def placed(lengths: list[tuple[int, int]]) -> list[tuple[int, int]]:
        ends = [*accumulate(gap + size for gap, size in lengths)]
        return [(end - size, end - 1) for end, (_, size) in zip(ends, lengths, strict=True)]

    def offsets(pairs: Iterable[tuple[int, int]]) -> list[int]:
        return [offset for first, last in pairs for offset in range(first, last + 1)]

    gone = set(offsets(placed(ranges)))
    left = without([AcquiredRows(*pair, 1) for pair in placed(rows)], placed(ranges))
    assert offsets(row[:2] for row in left) == [one for one in offsets(placed(rows)) if one not in gone]
    assert all(row.first <= row.last for row in left)


def calls_of(work: Callable[[], object]) -> int:
    count = 0

    def profile(frame: object, event: str, arg: object) -> None:
        nonlocal count
        count += event == "call"

    sys.setprofile(profile)
    try:
        work()
    finally:
        sys.setprofile(None)
    return count


def test_thousands_of_records_cost_few_steps_each() -> None:
    """A member may acknowledge every other record; other requests wait meanwhile."""
    many = 2000
    single = [StateBatch(at, at, at % 2 * 2, 1) for at in range(many)]
    aborted = [(at, at) for at in range(0, many, 2)]
    rows = [AcquiredRows(at, at, 1) for at in range(many)]
    assert calls_of(lambda: combined(combined((), single, 0), single, 0)) < 20 * many
    assert calls_of(lambda: without(rows, aborted)) < 20 * many


def test_where_a_group_begins() -> None:
    assert [reset_timestamp(name, 10**6) for name in ("earliest", "Latest", "latest")] == [-2, -1, -1]
    assert reset_timestamp("by_duration:PT1M2.5S", 10**6) == 10**6 - 62_500
    assert reset_timestamp("by_duration:P1DT1H", 10**9) == 10**9 - 90_000_000
    assert [reset_timestamp(f"by_duration:{many}", 10**9) for many in ("P9999999999D", f"PT{'9' * 400}H")] == [0, 0]
    assert reset_timestamp("by_duration:P30000D", 10**9) == 0


BATCHES = st.lists(
    st.builds(
        lambda first, size, state, count: StateBatch(first, first + size, state, count),
        st.integers(0, 30), st.integers(0, 8), st.sampled_from([0, 2, 3, 4]), st.integers(0, 5),
    )
)  # fmt: skip


def by_offset(batches: Iterable[StateBatch]) -> dict[int, tuple[int, int]]:
    return {offset: (one.state, one.deliveries) for one in batches for offset in range(one.first, one.last + 1)}


@given(st.lists(BATCHES, max_size=4), st.integers(-1, 20))
def test_stored_batches_are_combined_offset_by_offset(several: list[list[StateBatch]], start: int) -> None:
    found: tuple[StateBatch, ...] = ()
    model: dict[int, tuple[int, int]] = {}
    for batches in several:
        found = combined(found, batches, start)
        model |= by_offset(batches)
    model = {offset: one for offset, one in model.items() if offset >= start}
    assert by_offset(found) == model
    assert list(found) == sorted(found) and sum(one.last - one.first + 1 for one in found) == len(model)


def test_a_change_without_numbers_leaves_them() -> None:
    state = ShareState(3, 2, 5, 7, 1, 10, 11, (StateBatch(7, 9, 2, 1),))
    change = Change(-1, -1, 2, (StateBatch(10, 10, 2, 1),))
    assert changed(state, change) == state._replace(complete=2, batches=(StateBatch(7, 10, 2, 1),))
    assert changed(state, Change(6, 9, 0, ())) == state._replace(
        leader_epoch=6, start=9, complete=0, batches=(StateBatch(9, 9, 2, 1),)
    )


MEMBERS: Final = ("m", "n")
MOST: Final = 12


class WindowBesideModel(RuleBasedStateMachine):
    """The model has a state for each offset; the stored states must always give it back."""

    def __init__(self) -> None:
        super().__init__()
        self.window = EMPTY
        self.now_ms = 0
        self.model: dict[int, tuple[str, int, str, int]] = {}  # state, deliveries, member, deadline
        self.start = 0
        self.stored: tuple[StateBatch, ...] = ()
        self.log_start = 0

    def apply(self, plan: Plan) -> None:
        self.window = plan.window
        self.stored = combined(self.stored, plan.batches, plan.stored_start)
        while self.model.get(self.start, ("",))[0] == "complete":
            self.start += 1

    @rule(member=st.sampled_from(MEMBERS), records=st.integers(1, 6), size=st.integers(1, 4), is_exact=st.booleans())
    def fetch(self, member: str, records: int, size: int, is_exact: bool) -> None:
        at = next_offset(self.window, MOST)
        available = [offset for offset, one in sorted(self.model.items()) if one[0] == "available"]
        end = max(self.model, default=self.log_start - 1) + 1
        room = MOST - (end - self.start)
        assert at == (available[0] if available else max(end, self.log_start) if room > 0 else None)
        if at is None:
            return
        log = [(base, base + size - 1) for base in range(at - at % size, at + 40, size)]
        deadline_ms = self.now_ms + LOCK_MS
        plan = acquire(self.window, member, at, log, Limits(records, MOST, deadline_ms, LIMIT, size, is_exact))
        assert plan.rows and plan.rows[0].first == at
        taken = [offset for row in plan.rows for offset in range(row.first, row.last + 1)]
        assert not is_exact or len(taken) <= records
        for row in plan.rows:
            assert row.first <= row.last
            for offset in range(row.first, row.last + 1):
                state, count, _, _ = self.model.get(offset, ("available", 0, "", 0))
                assert state == "available" and row.deliveries == count + 1
                assert count < LIMIT - 1 or len(taken) == 1, "the last delivery is alone"
                self.model[offset] = ("acquired", count + 1, member, deadline_ms)
        self.apply(plan)

    @rule(
        member=st.sampled_from(MEMBERS), back=st.integers(0, 12), is_one=st.booleans(),
        types=st.lists(st.integers(0, 4), min_size=1, max_size=4),
    )  # fmt: skip
    def complete(self, member: str, back: int, types: list[int], is_one: bool) -> None:
        first = max(0, self.window.end - back)
        last = first + len(types) - 1
        one = AcknowledgedRange(first, last, types[:1] if is_one else types)
        kinds = dict(zip(range(first, last + 1), types[:1] * len(types) if is_one else types, strict=True))
        seen = {offset: kind for offset, kind in kinds.items() if offset >= self.start}
        mine = all(self.model.get(offset, ("", 0, ""))[0:3:2] == ("acquired", member) for offset in seen)
        renewed_ms = self.now_ms + LOCK_MS
        try:
            plan = acknowledge(self.window, member, [one], ENDING, renewed_ms)
        except AcknowledgementRefused:
            assert not mine
            return
        assert mine
        for offset, kind in seen.items():
            count = self.model[offset][1]
            if kind == RENEW:
                self.model[offset] = ("acquired", count, member, renewed_ms)
            else:
                self.model[offset] = self.given_back(count) if kind == RELEASE else ("complete", count, "", 0)
        self.apply(plan)

    def given_back(self, count: int) -> tuple[str, int, str, int]:
        return ("available" if count < LIMIT else "complete", count, "", 0)

    @rule(member=st.sampled_from(MEMBERS))
    def leave(self, member: str) -> None:
        plan = release(self.window, member, ENDING)
        for offset, (state, count, owner, _) in self.model.items():
            if (state, owner) == ("acquired", member):
                self.model[offset] = self.given_back(count)
        self.apply(plan)

    @rule(after_ms=st.integers(0, LOCK_MS))
    def wait(self, after_ms: int) -> None:
        self.now_ms += after_ms
        plan = expire(self.window, self.now_ms, ENDING)
        for offset, (state, count, _, deadline_ms) in self.model.items():
            if state == "acquired" and deadline_ms <= self.now_ms:
                self.model[offset] = self.given_back(count)
        self.apply(plan)

    @rule(records=st.integers(1, 4))
    def delete_records(self, records: int) -> None:
        self.log_start = self.start + records
        self.window = begin_at(self.window, self.log_start)
        self.model = {offset: one for offset, one in self.model.items() if offset >= self.log_start}
        self.start = self.log_start
        while self.model.get(self.start, ("",))[0] == "complete":
            self.start += 1

    @rule()
    def restart(self) -> None:
        """Locks are lost; the deliveries under way do not count."""
        self.leave_all()
        self.window = begin_at(loaded(self.start, self.stored), self.log_start)

    def leave_all(self) -> None:
        stored = by_offset(self.stored)
        for offset, (state, _, _, _) in self.model.items():
            if state == "acquired":
                self.model[offset] = ("available", stored.get(offset, (0, 0))[1], "", 0)
        known = [offset for offset in stored if offset >= self.start]
        end = max(known, default=self.start - 1)
        self.model = {offset: one for offset, one in self.model.items() if offset <= end}

    @invariant()
    def agrees(self) -> None:
        names = {RecordState.AVAILABLE: "available", RecordState.ACQUIRED: "acquired"}
        found = {
            offset: (names.get(run.state, "complete"), run.deliveries, run.member, run.deadline_ms)
            for run in self.window.runs for offset in range(run.first, run.last + 1)
        }  # fmt: skip
        assert self.window.start == self.start
        assert found == {offset: one for offset, one in self.model.items() if offset >= self.start}
        assert self.window.end == max(self.model, default=self.start - 1) + 1 or not found
        runs = self.window.runs
        assert all(before.last + 1 == after.first and before[2:] != after[2:] for before, after in pairwise(runs))
        assert self.window.complete == sum(one[0] == "complete" for one in found.values())


TestWindowBesideModel = WindowBesideModel.TestCase
TestWindowBesideModel.settings = settings(max_examples=80, stateful_step_count=30, deadline=None)
