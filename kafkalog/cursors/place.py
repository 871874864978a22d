"""Start positions of cursors, and detection of a log that was replaced or truncated."""

from __future__ import annotations

import operator
import struct
from typing import TYPE_CHECKING, Final, Literal, NamedTuple

from kafkalog._core.bytes.crc import crc32c
from kafkalog.errors import IllegalArgument, KafkalogError, OffsetOutOfRange
from kafkalog.reading.chunks import check_tail
from kafkalog.reading.lookup import record_at
from kafkalog.reading.source import end_of, isolation_of
from kafkalog.util.keywords import closest_match

if TYPE_CHECKING:
    from kafkalog.cursors.store import CursorState
    from kafkalog.reading.source import LogSource

Reset = Literal["error", "earliest", "latest"]
START_WORDS: Final = ("earliest", "latest")
RESETS: Final = ("error", *START_WORDS)
AUTO_COMMIT_MS: Final = 5000
_MARK: Final = struct.Struct(">qqqq")


class Options(NamedTuple):
    """Options of a cursor: see `Log.cursor`."""

    start: str | int = "earliest"
    reset: Reset = "error"
    isolation: str | None = None
    auto_commit_ms: int | None = AUTO_COMMIT_MS
    sync: bool = True

    def check(self) -> Options:
        """Return these options; raise IllegalArgument for an invalid one."""
        isolation_of(self.isolation)
        if self.reset not in RESETS:
            raise IllegalArgument(f"reset is {self.reset!r}", hint=_meant(self.reset, RESETS))
        period = self.auto_commit_ms
        if period is not None and (isinstance(period, bool) or not isinstance(period, int) or period < 0):
            raise IllegalArgument(f"auto_commit_ms is {period!r}", hint="milliseconds, or None to commit by hand only")
        return self


def _meant(given: object, known: tuple[str, ...]) -> str:
    nearest = closest_match(str(given), known)
    return (f"did you mean {nearest!r}? " if nearest else "") + "Known are " + ", ".join(map(repr, known))


def place_of(engine: LogSource, where: int | str, end: int) -> int:
    """Return the offset of "earliest", "latest" or a number; `end` is where reading ends. Raises OffsetOutOfRange."""
    first = engine.log_start_offset
    if isinstance(where, str):
        if where not in START_WORDS:
            raise IllegalArgument(f"{where!r} is no place in a log", hint=_meant(where, START_WORDS) + ", or an offset")
        return first if where == "earliest" else max(first, end)
    offset = operator.index(where)
    if offset < 0:
        return max(first, end + offset)
    if not first <= offset <= engine.log_end_offset:
        check_tail(engine, offset)
        raise OffsetOutOfRange(
            f"log {engine.name} holds offsets from {first} to its end {engine.log_end_offset}",
            path=engine.path, offset=offset,
        )  # fmt: skip
    return offset


def out_of_log(engine: LogSource, position: int) -> str | None:
    """Return the reason why a position is no longer in the log; None if it is."""
    start, end = engine.log_start_offset, engine.log_end_offset
    if position < start:
        return f"the records from {position} on are deleted, the log begins at {start}"
    return f"the log was cut, it ends at {end}" if position > end else None


def why_lost(engine: LogSource, topic_id: str | None, kept: CursorState) -> str | None:
    """Return the reason why a committed position is invalid in this log; None if reading may continue there."""
    lost = out_of_log(engine, kept.position)
    if lost is not None:
        return lost
    if None not in (topic_id, kept.topic_id) and topic_id != kept.topic_id:
        return "the topic was deleted and made again"
    if kept.record_crc is not None and record_mark(engine, kept.position) not in (None, kept.record_crc):
        return f"record {kept.position - 1} is another than the one that was read: the log was cut and grew again"
    return None


def record_mark(engine: LogSource, position: int) -> int | None:
    """Return a checksum of the record before `position`; None if that record cannot be read.

    It does not depend on batches, codec and format, so it survives compaction and conversion of the log.
    """
    if not engine.log_start_offset < position <= engine.log_end_offset:
        return None
    try:
        record = record_at(engine, position - 1)
    except KafkalogError:
        return None  # a gap, a control record, damage: nothing to compare with
    key, value = record.key, record.value
    sizes = (-1 if part is None else len(part) for part in (key, value))
    return crc32c(value or b"", crc32c(key or b"", crc32c(_MARK.pack(record.offset, record.timestamp, *sizes))))


def lag_of(engine: LogSource, position: int) -> int | None:
    """Return the distance of a position from the log end; None if the position is not in the log."""
    return None if out_of_log(engine, position) else end_of(engine, "log_end") - position
