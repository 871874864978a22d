"""The verdict on one read of a damaged log."""

from collections import Counter
from collections.abc import Sequence
from enum import Enum
from pathlib import Path
from typing import Any, NamedTuple

import pyarrow

import kafkalog
from kafkalog.errors import IllegalState, KafkalogError, OffsetOutOfRange
from tests.damage.logs import FIRST_TIME, STEP_MS, Row
from tests.damage.oracle import NO_END, Claim, Oracle, has_odd_magic
from tests.damage.txns import as_written, committed_rows
from tests.damage.ways import Read


class Verdict(Enum):
    """Verdict on a read."""

    COMPLETE = "complete"
    RAISED = "raised"
    RAISED_APART = "raised, no damage in its range"
    WARNED = "short, after a warning of the opening"
    EXACT = "skip exact"
    OTHER = "skip exact by another reading of the offsets"
    EARLY = "raised before all sound records in front of the damage were given"
    WRONG_FIRST = "raised after records with wrong offsets"
    LOSS = "SILENT LOSS"
    UNREPORTED = "DAMAGE NOT REPORTED"
    WRONG = "WRONG RECORDS"
    ALARM = "FALSE ALARM"
    UNTYPED = "UNTYPED ERROR"
    INEXACT = "SKIP NOT EXACT"
    MISREPORTED = "SKIP'S REPORT WRONG"

    @property
    def is_failure(self) -> bool:
        """True for what must never happen."""
        return self.value.isupper()


class Result(NamedTuple):
    """Records of a read, and the error that ended it."""

    items: list[Any]
    error: Exception | None


def is_typed(error: Exception | None) -> bool:
    """True for an error that says what is wrong with the log; IllegalState speaks of the caller, or of a mistake."""
    return isinstance(error, KafkalogError | pyarrow.ArrowException | OSError) and not isinstance(error, IllegalState)


def run(read: Read, log: kafkalog.Log) -> Result:
    """All that the read gives."""
    items: list[Any] = []
    try:
        items.extend(read.call(log))  # keeps what came before an error
    except Exception as error:
        return Result(items, error)
    return Result(items, None)


def judge(read: Read, result: Result, oracle: Oracle, has_warned: bool = False) -> tuple[Verdict, str]:
    """The verdict on a read that raises at damage, with the reason for a bad one."""
    if read.kind == "committed":
        return _judge_committed(read, result, oracle, has_warned)
    expected = _expected(read, oracle)
    broken = oracle.broken_in(read.start, read.stop)
    if result.error is not None:
        return _judge_error(read, result, oracle, expected, bool(broken), has_warned)
    given = result.items
    if read.kind == "end":
        if given[0] >= expected[0]:
            return Verdict.COMPLETE, ""
        return _short(oracle, has_warned, f"{given[0]}, the log ends at {expected[0]}")
    if read.kind == "time":
        return _judge_time(read, given[0], oracle, expected, has_warned)
    missing = Counter(expected) - Counter(given)
    if missing:
        is_suffix = not given or min(missing) > max(set(given) & set(expected), default=min(missing))
        return _short(oracle, has_warned and is_suffix, f"{_text(missing)} missing, no error")
    wrong = Counter(given) - Counter(expected)
    allowed = oracle.originals if read.kind != "batches" else oracle.ends
    if any(count > 1 or item not in allowed for item, count in wrong.items()) or given != sorted(given):
        return Verdict.WRONG, f"{_text(wrong)} given, no error"
    silent = [one for one in broken if not (_is_seen(one.claim, read, given) or is_out_of_sight(one.claim, read))]
    if silent:
        verdict = Verdict.WARNED if has_warned else Verdict.UNREPORTED
        return verdict, f"offsets {silent[0].first} to {silent[0].stop - 1} are left out without an error"
    return Verdict.COMPLETE, ""


def _judge_committed(read: Read, result: Result, oracle: Oracle, has_warned: bool) -> tuple[Verdict, str]:
    must, may = committed_rows(oracle, read.start, read.stop)
    end = min(as_written(oracle.kind).end, read.stop)
    broken = oracle.broken_in(read.start, end)
    given = result.items
    if result.error is not None:
        if wrong := [row for row in given if row not in may]:
            return Verdict.WRONG, f"{_text(Counter(wrong))} given before {type(result.error).__name__}"
        return _judge_error(read, result, oracle, must, bool(broken), has_warned)
    if missing := [row for row in must if row not in given]:
        return _short(oracle, has_warned, f"{_text(Counter(missing))} missing, no error")
    if wrong := [row for row in given if row not in may]:
        return Verdict.WRONG, f"{_text(Counter(wrong))} given, no error"
    silent = [one for one in broken if not (_is_seen(one.claim, read, given) or is_out_of_sight(one.claim, read))]
    if silent:
        verdict = Verdict.WARNED if has_warned else Verdict.UNREPORTED
        return verdict, f"offsets {silent[0].first} to {silent[0].stop - 1} are left out without an error"
    return Verdict.COMPLETE, ""


def missing_offsets(read: Read, result: Result, oracle: Oracle) -> set[int]:
    """The offsets of sound records, or batches, that the read left out."""
    missing = Counter(_expected(read, oracle)) - Counter(result.items)
    return {item.offset if isinstance(item, Row) else item for item in missing}


def _expected(read: Read, oracle: Oracle) -> list[Any]:
    if read.kind == "batches":
        return oracle.batches_in(read.start, read.stop)
    return [oracle.end] if read.kind == "end" else list(oracle.rows_in(read.start, read.stop))


def _text(items: Counter[Any]) -> str:
    offsets = sorted(item.offset if isinstance(item, Row) else item for item in items)
    return f"{len(offsets)} ({', '.join(map(str, offsets[:5]))}{', …' if len(offsets) > 5 else ''})"


def _short(oracle: Oracle, has_warned: bool, why: str) -> tuple[Verdict, str]:
    """The verdict on missing sound records: only recovery of a log that was not closed may cut them, with a warning."""
    return (Verdict.WARNED if has_warned and not oracle.kind.is_closed else Verdict.LOSS), why


def _is_seen(claim: Claim, read: Read, given: Sequence[Any]) -> bool:
    """True where a whole batch with a wrong offset was given under its own one all the same."""
    if read.kind == "batches":
        return (claim.whole or has_odd_magic(claim.piece.data)) and claim.batch.last in given
    rows = [row for row in claim.batch.rows if read.start <= row.offset < read.stop]
    return claim.whole and all(row in given for row in rows)


def is_out_of_sight(claim: Claim, read: Read) -> bool:
    """True where only the records inside show that an offset is wrong, and the read does not meet all of them."""
    is_wrapper = claim.batch.data[16] < 2 and claim.batch.data[17] & 7 != 0
    return claim.whole and is_wrapper and (read.kind == "batches" or read.start > 0 or read.stop < NO_END)


def _judge_error(
    read: Read, result: Result, oracle: Oracle, expected: list[Any], is_broken: bool, has_warned: bool
) -> tuple[Verdict, str]:
    error = result.error
    what = f"{type(error).__name__}: {str(error)[:160]}"
    if not is_typed(error):
        return Verdict.UNTYPED, what
    if isinstance(error, OffsetOutOfRange):
        if read.kind in ("rows", "one", "batches", "committed") and expected and not result.items:
            return _short(oracle, has_warned, what)
        if is_broken and not all(is_out_of_sight(s.claim, read) for s in oracle.broken_in(read.start, read.stop)):
            return (Verdict.WARNED if has_warned else Verdict.UNREPORTED), what
        return Verdict.COMPLETE, ""
    if read.kind != "batches" and any(isinstance(item, Row) and item not in oracle.originals for item in result.items):
        wrong = [item for item in result.items if item not in oracle.originals and item not in oracle.rows]
        if wrong:
            return Verdict.WRONG_FIRST, f"{_text(Counter(wrong))} given before {what}"
    is_torn = not any(has_odd_magic(claim.piece.data) for claim in oracle.tail)
    if not oracle.broken and not oracle.guessed and oracle.is_ordered and is_torn and not _has_gap(oracle):
        return Verdict.ALARM, what
    if is_broken and _is_early(read, result.items, oracle):
        return Verdict.EARLY, f"{len(result.items)} given before {what}"
    return (Verdict.RAISED if is_broken else Verdict.RAISED_APART), what


def _is_early(read: Read, given: list[Any], oracle: Oracle) -> bool:
    """True where an iterator of records ended before the damage in its range; tables give nothing beside an error."""
    if read.kind != "rows" or read.text.startswith(("table", "to_pandas")) or "pyarrow" in read.text:
        return False
    first = min(span.first for span in oracle.broken_in(read.start, read.stop))
    return any(row not in given for row in oracle.rows_in(read.start, first))


def _has_gap(oracle: Oracle) -> bool:
    """True where a batch was taken out of the log or doubled, which a reader may hold for damage."""
    return [claim.batch for claim in oracle.claims if claim not in oracle.tail and claim.piece.data] != [
        batch
        for segment in oracle.kind.segments
        for batch in segment.batches
        if batch not in [claim.batch for claim in oracle.tail]
    ]


def _judge_time(read: Read, found: Any, oracle: Oracle, expected: list[Any], has_warned: bool) -> tuple[Verdict, str]:
    wanted = FIRST_TIME + read.start * STEP_MS
    later = [row for row in oracle.rows if row.timestamp >= wanted]
    first = min(later, key=lambda row: row.timestamp, default=None)
    given = None if found is None else (found.offset, found.timestamp)
    if given is not None and any(given == (row.offset, row.timestamp) for row in oracle.originals):
        if first is None or given[1] <= first.timestamp:
            return Verdict.COMPLETE, ""
    right = None if first is None else (first.offset, first.timestamp)
    if given != right:
        return _short(oracle, has_warned, f"{given} found, {right} is the first")
    stop = NO_END if first is None else first.timestamp
    before = [
        span
        for span in oracle.broken
        if any(wanted <= row.timestamp < stop for row in span.claim.batch.rows)
        and not is_out_of_sight(span.claim, read)
    ]
    if before:
        verdict = Verdict.WARNED if has_warned else Verdict.UNREPORTED
        return verdict, f"{given} found, offsets {before[0].first} to {before[0].stop - 1} left out without an error"
    return Verdict.COMPLETE, ""


# Reads that skip


def judge_skip(read: Read, result: Result, skipped: list[Any], oracle: Oracle, path: Path) -> tuple[Verdict, str]:
    """The verdict on a read that skips damage, and on its report of what it left out."""
    if read.kind == "committed":
        return _judge_committed_skip(read, result, oracle)
    if result.error is not None:
        if isinstance(result.error, OffsetOutOfRange) and not _expected(read, oracle):
            return Verdict.EXACT, ""
        return Verdict.INEXACT, f"{type(result.error).__name__}: {str(result.error)[:160]}"
    given = result.items
    if read.kind == "batches":
        given = [last for last in given if last not in oracle.odd_ends]
    misreported = ""
    for reading in oracle.readings:
        if not _is_reading(read, given, reading):
            continue
        is_true = all(claim in oracle.sound for claim in reading) and all(one in reading for one in oracle.guessed)
        wrong = _wrong_report(read, skipped, reading, oracle, path)
        if not wrong:
            return (Verdict.EXACT if is_true else Verdict.OTHER), ""
        misreported = misreported or wrong
    if misreported:
        return Verdict.MISREPORTED, misreported
    expected = _reading_items(read, oracle.readings[0])
    if oracle.kind.is_wrapped and any(claim.whole and not claim.is_honest for claim in oracle.claims):
        if set(expected) < set(given) <= oracle.originals and given == sorted(given):
            return Verdict.OTHER, "records of a wrapper with a wrong offset given under their own"
    missing, wrong_ones = Counter(expected) - Counter(result.items), Counter(result.items) - Counter(expected)
    return Verdict.INEXACT, f"{_text(missing)} missing, {_text(wrong_ones)} too many"


def _judge_committed_skip(read: Read, result: Result, oracle: Oracle) -> tuple[Verdict, str]:
    why = ""
    for reading in oracle.readings:
        must, may = committed_rows(oracle, read.start, read.stop, reading)
        if result.error is not None and (must or not isinstance(result.error, OffsetOutOfRange)):
            return Verdict.INEXACT, f"{type(result.error).__name__}: {str(result.error)[:160]}"
        missing = [row for row in must if row not in result.items]
        wrong = [row for row in result.items if row not in may]
        if not (missing or wrong):
            return Verdict.EXACT, ""
        why = why or f"{_text(Counter(missing))} missing, {_text(Counter(wrong))} too many"
    return Verdict.INEXACT, why


def _reading_items(read: Read, reading: list[Claim]) -> list[Any]:
    if read.kind == "batches":
        return [claim.last for claim in reading if claim.last >= read.start and claim.base < read.stop]
    return [row for claim in reading for row in claim.rows if read.start <= row.offset < read.stop]


def _is_reading(read: Read, given: list[Any], reading: list[Claim]) -> bool:
    """True where this was given of these sound batches; of a wrapper the header says the last offset alone."""
    if given == _reading_items(read, reading):
        return True
    return read.kind == "batches" and given == [one.last for one in reading if read.start <= one.last < read.stop]


def _needs_report(read: Read, claim: Claim, skipped: list[Any], reading: list[Claim], oracle: Oracle) -> bool:
    """True where a batch that was left out has to be in the report.

    A copy of a batch that was given costs nothing. Of batches that are in each other's places the report has one.
    """
    if claim.is_honest and (skipped or any(one.base == claim.base for one in reading)):
        return False
    if read.kind == "batches" and claim.last in oracle.odd_ends:
        return False  # given as it is
    return read.start <= claim.batch.base and claim.batch.last < read.stop and bool(claim.piece.data)


def _wrong_report(read: Read, skipped: list[Any], reading: list[Claim], oracle: Oracle, path: Path) -> str | None:
    """Why the list of what was left out is wrong; None where it is right."""
    spans: dict[str, list[tuple[int, int]]] = {}
    for item in skipped:
        name = str(Path(item.path).relative_to(path))
        is_empty = item.size_bytes <= 0 and item.offset == item.next_offset  # a lost end has offsets alone
        if is_empty or item.offset > item.next_offset or not item.reason:
            return f"{item} is no piece of a log"
        spans.setdefault(name, []).append((item.position, item.position + item.size_bytes))
    for claim in oracle.claims:
        name = oracle.kind.segments[claim.segment].name
        first, stop = claim.position, claim.position + len(claim.piece.data)
        covered = any(a < stop and b > first for a, b in spans.get(name, ()))
        if claim in reading:
            if covered:
                return f"the sound batch at {first} of {name} is said to be left out"
            continue
        if claim not in oracle.tail and not covered and _needs_report(read, claim, skipped, reading, oracle):
            return f"the damaged batch at {first} of {name} is not reported"
    return None
