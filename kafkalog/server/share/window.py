"""The records in flight of a share partition (KIP-932), as values; each operation returns a new window.

A window covers the offsets from the first record whose delivery is not complete up to the next record that was never
delivered. It has no clock and no log, so that each rule can be tested by itself.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Callable, Iterable, Iterator, Sequence
from collections.abc import Set as AbstractSet
from enum import IntEnum
from operator import itemgetter
from typing import Final, NamedTuple

from kafkalog.server.error_codes import ErrorCode

NOBODY: Final = ""
_MOST_DELIVERIES: Final = 2**15 - 2
"""Largest count that can still be increased in an answer."""


class RecordState(IntEnum):
    """State of a record, by the numbers of stored states."""

    AVAILABLE = 0
    ACQUIRED = 1
    ACKNOWLEDGED = 2
    ARCHIVING = 3
    """It is not delivered again, and is archived once its dead letter is written."""
    ARCHIVED = 4


COMPLETE: Final = frozenset({RecordState.ACKNOWLEDGED, RecordState.ARCHIVED})
"""States in which a record is never delivered again."""
_STAYING: Final = COMPLETE | {RecordState.ARCHIVING}
"""Stored states that a restart keeps."""
GAP, ACCEPT, RELEASE, REJECT, RENEW = range(5)
"""Types of acknowledgements."""


class Run(NamedTuple):
    """Consecutive offsets in one state; `member` has acquired them until `deadline_ms`."""

    first: int
    last: int
    state: RecordState
    deliveries: int
    member: str = NOBODY
    deadline_ms: int = 0


class StateBatch(NamedTuple):
    """Consecutive offsets with a stored state and delivery count."""

    first: int
    last: int
    state: int
    deliveries: int


class AcquiredRows(NamedTuple):
    """Offsets that a fetch acquired, with the number of this delivery."""

    first: int
    last: int
    deliveries: int


class Window(NamedTuple):
    """The offsets `start` ... `end` - 1; `runs` cover them in order and without holes."""

    start: int
    end: int
    runs: tuple[Run, ...] = ()

    @property
    def size(self) -> int:
        """Number of offsets, which is limited by the group's setting."""
        return self.end - self.start

    @property
    def complete(self) -> int:
        """Number of offsets whose delivery is complete."""
        return sum(run.last - run.first + 1 for run in self.runs if run.state in COMPLETE)

    @property
    def next_deadline_ms(self) -> int | None:
        """Time at which the first lock expires; None without acquired records."""
        return min((run.deadline_ms for run in self.runs if run.state is RecordState.ACQUIRED), default=None)


class DeadLetters(NamedTuple):
    """Consecutive offsets whose dead letters have to be written, and how often they were delivered."""

    first: int
    last: int
    deliveries: int
    is_rejected: bool


class Ending(NamedTuple):
    """The end of deliveries: their limit, and the state of records that are not delivered again."""

    delivery_limit: int
    dead: RecordState = RecordState.ARCHIVED


class Limits(NamedTuple):
    """Limits of one fetch: `is_exact` ends it at `max_records`, otherwise at the end of a batch of the log.

    `max_locks` limits the window, `batch_size` is the size at which acquired rows are divided. Records that were
    delivered often without success come in smaller parts, the last time one by one, since one of them may be the cause.
    """

    max_records: int
    max_locks: int
    deadline_ms: int
    delivery_limit: int
    batch_size: int
    is_exact: bool

    def most_after(self, count: int, size: int) -> int | None:
        """Return how many of `size` consecutive records may come after `count` deliveries, and nothing else with them.

        None after so few deliveries that there is no such limit.
        """
        throttled = count - max(2, (self.delivery_limit + 1) // 2)
        if throttled < 0:
            return None
        return 1 if count >= self.delivery_limit - 1 else max(1, size >> throttled + 1)


class AcknowledgedRange(NamedTuple):
    """Offsets with their acknowledgement types: one for all of them, or one for each."""

    first: int
    last: int
    types: Sequence[int]


class Plan(NamedTuple):
    """Result of an operation: the new window, and the states to store. `complete` counts before the start moves."""

    window: Window
    stored_start: int
    complete: int
    batches: tuple[StateBatch, ...] = ()
    rows: tuple[AcquiredRows, ...] = ()
    letters: tuple[DeadLetters, ...] = ()


class AcknowledgementRefused(Exception):
    """Error that answers an acknowledgement; nothing of it takes effect."""

    def __init__(self, code: ErrorCode, message: str) -> None:
        super().__init__(message)
        self.code = code
        self.message = message


def loaded(start: int, batches: Iterable[StateBatch]) -> Window:
    """Return the window of a stored state. Offsets between its batches are available, as they were never stored."""
    runs: list[Run] = []
    at = start
    for one in batches:
        first = max(one.first, at)
        if first > one.last:
            continue
        if first > at:
            runs.append(Run(at, first - 1, RecordState.AVAILABLE, 0))
        state = RecordState(one.state) if one.state in _STAYING else RecordState.AVAILABLE
        runs.append(Run(first, one.last, state, min(max(one.deliveries, 0), _MOST_DELIVERIES)))
        at = one.last + 1
    return _moved(Window(start, at, _merged(runs)))


def next_offset(window: Window, max_locks: int) -> int | None:
    """Return the offset at which a fetch reads: the first available one; None while the window is full."""
    for run in window.runs:
        if run.state is RecordState.AVAILABLE:
            return run.first
    return window.end if window.size < max_locks else None


def acquire(
    window: Window, member: str, read_from: int, batches: Iterable[tuple[int, int]], limits: Limits
) -> Plan:
    """Acquire available records of the log's batches, each (first, last offset), for a member.

    The batches were read from offset `read_from` on. Offsets before or between them have no records and are archived.
    """
    at = read_from
    rows: list[AcquiredRows] = []
    left = limits.max_records
    for base, last in batches:
        if left <= 0 or at > window.end:
            break
        if base > at:
            window = _moved(_without_records(window, at, base - 1))
        first = max(base, at)
        if last < first:
            continue
        for part in _available(window, first, last, limits):
            size = part.last - part.first + 1
            most = limits.most_after(part.deliveries, size)
            if most is not None and rows:
                left = 0
                break
            size = size if most is None else most
            if limits.is_exact:
                size = min(size, left)
            row = AcquiredRows(part.first, part.first + size - 1, part.deliveries + 1)
            window = _put(window, Run(*row[:2], RecordState.ACQUIRED, row.deliveries, member, limits.deadline_ms))
            rows.append(row)
            left -= size
            if most is not None or (limits.is_exact and left <= 0):
                left = 0
                break
        at = last + 1
    return Plan(window, window.start, window.complete, rows=_joined(rows, limits.batch_size))


def _available(window: Window, first: int, last: int, limits: Limits) -> list[Run]:
    """Return the available parts of a range; what is behind the window counts as one, unless the window is full."""
    found = [run for run in _within(window, first, last) if run.state is RecordState.AVAILABLE]
    begin = max(first, window.end)
    if last >= begin and window.size < limits.max_locks:
        end = min(last, window.start + limits.max_locks - 1) if limits.is_exact else last
        found.append(Run(begin, max(begin, end), RecordState.AVAILABLE, 0))
    return found


def _without_records(window: Window, first: int, last: int) -> Window:
    """Archive available offsets that the log has no records for."""
    for run in _within(window, first, last):
        if run.state is RecordState.AVAILABLE:
            window = _put(window, run._replace(state=RecordState.ARCHIVED))
    begin = max(first, window.end)
    return window if begin > last else _put(window, Run(begin, last, RecordState.ARCHIVED, 0))


def _joined(rows: list[AcquiredRows], batch_size: int) -> tuple[AcquiredRows, ...]:
    """Join neighbouring rows of one delivery count until they have `batch_size` offsets."""
    found: list[AcquiredRows] = []
    for row in rows:
        before = found[-1] if found else None
        if (
            before is not None and before.last + 1 == row.first and before.deliveries == row.deliveries
            and before.last - before.first + 1 < batch_size
        ):  # fmt: skip
            found[-1] = before._replace(last=row.last)
        else:
            found.append(row)
    return tuple(found)


def archive(window: Window, ranges: Iterable[tuple[int, int]]) -> Plan:
    """Archive acquired records that readers must not see, as those of an aborted transaction."""
    changed: list[Run] = []
    for first, last in ranges:
        for run in _within(window, first, last):
            if run.state is RecordState.ACQUIRED:
                changed.append(Run(run.first, run.last, RecordState.ARCHIVED, run.deliveries))
                window = _put(window, changed[-1])
    return _plan(window, changed)


def acknowledge(
    window: Window, member: str, ranges: Iterable[AcknowledgedRange], ending: Ending, renewed_ms: int
) -> Plan:
    """Apply a member's acknowledgements. AcknowledgementRefused if it has not acquired all of the offsets.

    `renewed_ms` is the deadline of renewed locks. Offsets below the window are passed over.
    """
    changed: list[Run] = []
    rejected: set[Run] = set()
    for one in ranges:
        if one.last < window.start:
            continue
        _check_range(window, one)
        for first, last, kind in _by_type(one):
            for run in _within(window, max(first, window.start), last):
                _check_owner(run, member)
                new = _acknowledged(run, kind, ending, renewed_ms)
                window = _put(window, new)
                if kind != RENEW:
                    changed.append(new)
                if kind == REJECT:
                    rejected.add(new)
    return _plan(window, changed, rejected)


def _check_range(window: Window, one: AcknowledgedRange) -> None:
    if one.first >= window.end:
        if not window.runs:
            raise AcknowledgementRefused(
                ErrorCode.INVALID_RECORD_STATE,
                "Batch record not found. The request batch offsets are not found in the cache.",
            )
        raise AcknowledgementRefused(
            ErrorCode.INVALID_REQUEST, "Batch record not found. The first offset in request is past acquired records."
        )
    if one.last >= window.end:
        raise AcknowledgementRefused(
            ErrorCode.INVALID_REQUEST, "Batch record not found. The last offset in request is past acquired records."
        )


def _check_owner(run: Run, member: str) -> None:
    if run.state is not RecordState.ACQUIRED:
        message = "The batch cannot be acknowledged. The batch is not in the acquired state."
    elif run.member != member:
        message = "Member is not the owner of batch record"
    else:
        return
    raise AcknowledgementRefused(ErrorCode.INVALID_RECORD_STATE, message)


def _by_type(one: AcknowledgedRange) -> Iterator[tuple[int, int, int]]:
    """Yield (first, last, type) for each group of consecutive offsets with the same type."""
    if len(one.types) == 1:
        yield one.first, one.last, one.types[0]
        return
    begin = 0
    for index in range(1, len(one.types) + 1):
        if index == len(one.types) or one.types[index] != one.types[begin]:
            yield one.first + begin, one.first + index - 1, one.types[begin]
            begin = index


def _acknowledged(run: Run, kind: int, ending: Ending, renewed_ms: int) -> Run:
    if kind == RENEW:
        return run._replace(deadline_ms=renewed_ms)
    if kind == RELEASE:
        return _given_back(run, ending)
    state = RecordState.ACKNOWLEDGED if kind == ACCEPT else RecordState.ARCHIVED if kind == GAP else ending.dead
    return Run(run.first, run.last, state, run.deliveries)


def _given_back(run: Run, ending: Ending) -> Run:
    """Return a run that its member no longer holds; it ends after its last delivery."""
    state = RecordState.AVAILABLE if run.deliveries < ending.delivery_limit else ending.dead
    return Run(run.first, run.last, state, run.deliveries)


def release(window: Window, member: str, ending: Ending) -> Plan:
    """Release the records of a member whose session ends."""
    changed = [
        _given_back(run, ending)
        for run in window.runs if run.state is RecordState.ACQUIRED and run.member == member
    ]  # fmt: skip
    return _all_put(window, changed)


def expire(window: Window, now_ms: int, ending: Ending) -> Plan:
    """Release the records whose lock has expired."""
    changed = [
        _given_back(run, ending)
        for run in window.runs if run.state is RecordState.ACQUIRED and run.deadline_ms <= now_ms
    ]  # fmt: skip
    return _all_put(window, changed)


def archived(window: Window, first: int, last: int) -> Plan:
    """Archive the records in a range whose dead letters are written."""
    runs = (run for run in _within(window, first, last) if run.state is RecordState.ARCHIVING)
    return _all_put(window, [run._replace(state=RecordState.ARCHIVED) for run in runs])


def unwritten(window: Window, delivery_limit: int) -> tuple[DeadLetters, ...]:
    """Return the dead letters that a loaded window lacks. Those of the last delivery count as not rejected."""
    return _letters(window.runs, lambda run: run.deliveries < delivery_limit)


def _letters(runs: Iterable[Run], is_rejected: Callable[[Run], bool]) -> tuple[DeadLetters, ...]:
    return tuple(
        DeadLetters(run.first, run.last, run.deliveries, is_rejected(run))
        for run in runs if run.state is RecordState.ARCHIVING
    )  # fmt: skip


def begin_at(window: Window, log_start: int) -> Window:
    """Drop the offsets below the log's first one."""
    if log_start <= window.start:
        return window
    end = max(window.end, log_start)
    return _moved(Window(log_start, end, tuple(_within(window, log_start, end - 1))))


def _all_put(window: Window, changed: Sequence[Run]) -> Plan:
    for run in changed:
        window = _put(window, run)
    return _plan(window, changed)


def _plan(window: Window, changed: Sequence[Run], rejected: AbstractSet[Run] = frozenset()) -> Plan:
    batches = [StateBatch(run.first, run.last, int(run.state), run.deliveries) for run in sorted(changed)]
    letters = _letters(changed, lambda run: run in rejected)
    return Plan(_moved(window), window.start, window.complete, joined_batches(batches), letters=letters)


def joined_batches(batches: Iterable[StateBatch]) -> tuple[StateBatch, ...]:
    """Join neighbouring batches of the same state and delivery count."""
    found: list[StateBatch] = []
    for one in batches:
        if found and found[-1][2:] == one[2:] and found[-1].last + 1 == one.first:
            found[-1] = found[-1]._replace(last=one.last)
        else:
            found.append(one)
    return tuple(found)


# Runs

_FIRST: Final[Callable[[Run], int]] = itemgetter(0)


def _within(window: Window, first: int, last: int) -> list[Run]:
    """Return the runs of a range of offsets, cut at its ends."""
    runs = window.runs
    found = []
    for index in range(max(0, bisect_right(runs, first, key=_FIRST) - 1), len(runs)):
        run = runs[index]
        if run.first > last:
            break
        if run.last >= first:
            found.append(run._replace(first=max(run.first, first), last=min(run.last, last)))
    return found


def _put(window: Window, new: Run) -> Window:
    """Replace the offsets of a run; it may begin at the window's end, and extends it then."""
    runs = window.runs
    low = max(0, bisect_right(runs, new.first, key=_FIRST) - 2)
    high = bisect_right(runs, new.last, key=_FIRST) + 1
    near = runs[low:high]
    parts = [run._replace(last=min(run.last, new.first - 1)) for run in near if run.first < new.first]
    parts.append(new)
    parts += [run._replace(first=max(run.first, new.last + 1)) for run in near if run.last > new.last]
    return Window(window.start, max(window.end, new.last + 1), (*runs[:low], *_merged(parts), *runs[high:]))


def _merged(runs: Iterable[Run]) -> tuple[Run, ...]:
    found: list[Run] = []
    for run in runs:
        if found and found[-1][2:] == run[2:]:
            found[-1] = found[-1]._replace(last=run.last)
        else:
            found.append(run)
    return tuple(found)


def _moved(window: Window) -> Window:
    """Move the start behind the records that are complete."""
    runs = window.runs
    index = next((at for at, run in enumerate(runs) if run.state not in COMPLETE), len(runs))
    start = runs[index].first if index < len(runs) else window.end
    return Window(start, window.end, runs[index:])
