"""Start positions of cursors, and detection of a log that was replaced or truncated."""

from __future__ import annotations

import operator
import struct
from typing import TYPE_CHECKING, Final, Literal, NamedTuple

from kafkalog._core.bytes.crc import crc32c
from kafkalog.cursors.store import CONTENT_BITS, PLACE_BITS, PLACE_SHIFT
from kafkalog.errors import IllegalArgument, KafkalogError, OffsetOutOfRange
from kafkalog.reading.chunks import check_tail
from kafkalog.reading.lookup import record_at
from kafkalog.reading.source import end_of, isolation_of
from kafkalog.util.keywords import closest_match

if TYPE_CHECKING:
    from kafkalog._core.batch.record import Record
    from kafkalog.cursors.store import CursorState
    from kafkalog.reading.source import LogSource

Reset = Literal["error", "earliest", "latest"]
START_WORDS: Final = ("earliest", "latest")
RESETS: Final = ("error", *START_WORDS)
AUTO_COMMIT_MS: Final = 5000
_CHECKSUM_HEADER: Final = struct.Struct(">qqqq")
_PLACE: Final = struct.Struct(">qq")


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
            raise IllegalArgument(f"reset is {self.reset!r}", hint=_suggestion(self.reset, RESETS))
        period = self.auto_commit_ms
        if period is not None and (isinstance(period, bool) or not isinstance(period, int) or period < 0):
            hint = "give milliseconds, or None to commit only by commit()"
            raise IllegalArgument(f"auto_commit_ms is {period!r}", hint=hint)
        return self


def _suggestion(given: object, known: tuple[str, ...]) -> str:
    nearest = closest_match(str(given), known)
    return (f"did you mean {nearest!r}? " if nearest else "") + "Known are " + ", ".join(map(repr, known))


def resolve_position(source: LogSource, where: int | str, end: int) -> int:
    """Return the offset of "earliest", "latest" or a number; `end` is where reading ends. Raises OffsetOutOfRange."""
    first = source.log_start_offset
    if isinstance(where, str):
        if where not in START_WORDS:
            hint = _suggestion(where, START_WORDS) + ", or an offset"
            raise IllegalArgument(f"{where!r} is not a position in a log", hint=hint)
        return first if where == "earliest" else max(first, end)
    offset = operator.index(where)
    if offset < 0:
        return max(first, end + offset)
    if not first <= offset <= source.log_end_offset:
        check_tail(source, offset)
        raise OffsetOutOfRange(
            f"log {source.name} has offsets from {first} to its end {source.log_end_offset}",
            path=source.path, offset=offset,
        )  # fmt: skip
    return offset


def out_of_log(source: LogSource, position: int) -> str | None:
    """Return the reason why a position is no longer in the log; None if it is."""
    start, end = source.log_start_offset, source.log_end_offset
    if position < start:
        return f"the records from {position} on were deleted, the log starts at {start}"
    return f"the log was truncated, it ends at {end}" if position > end else None


def loss_reason(source: LogSource, topic_id: str | None, stored: CursorState) -> str | None:
    """Return the reason why a committed position is invalid in this log; None if reading may continue there."""
    lost = out_of_log(source, stored.position)
    return lost or difference(source, stored.topic_id, topic_id, stored.position, stored.record_crc)


def difference(
    source: LogSource, known_id: str | None, topic_id: str | None, position: int, checksum: int | None
) -> str | None:
    """Return the reason why this log is not the one that was read up to a position; None if it may be.

    `known_id` and `checksum` are those of the topic and of the record before the position, as of then.
    """
    if None not in (topic_id, known_id) and topic_id != known_id:
        return "the topic was deleted and created again"
    if checksum is not None and record_checksum(source, position, checksum) not in (None, checksum):
        return f"record {position - 1} differs from the one that was read: the log was truncated and appended to"
    return None


def record_checksum(source: LogSource, position: int, known: int | None = None) -> int | None:
    """Return a checksum of the record before `position`; None if that record cannot be read.

    Return `known` if the record may be the one with that checksum, redacted since: the offset and the timestamp are
    equal, and it has neither a value nor headers.
    """
    if not source.log_start_offset < position <= source.log_end_offset:
        return None
    try:
        record = record_at(source, position - 1)
        found = checksum_of(record)
        is_emptied = not record.value and not record.headers
    except KafkalogError:
        return None  # a gap, a control record, damage: nothing to compare with
    if known is None:
        return found
    is_same = (found ^ known) & (1 << CONTENT_BITS) - 1 == 0
    return known if is_same or (is_emptied and found >> PLACE_SHIFT == known >> PLACE_SHIFT) else found


def checksum_of(record: Record) -> int:
    """Return a checksum of a record: its lower 32 bits cover the whole record, its upper 30 the offset and timestamp.

    It does not depend on batches, codec or format, so it survives compaction and conversion of the log. The upper bits
    of a checksum that an earlier release stored are 0.
    """
    key, value = record.key, record.value
    sizes = (-1 if part is None else len(part) for part in (key, value))
    header = _CHECKSUM_HEADER.pack(record.offset, record.timestamp, *sizes)
    place = crc32c(_PLACE.pack(record.offset, record.timestamp)) >> 32 - PLACE_BITS or 1
    return place << PLACE_SHIFT | crc32c(value or b"", crc32c(key or b"", crc32c(header)))


def lag_of(source: LogSource, position: int) -> int | None:
    """Return the distance of a position from the log end; None if the position is not in the log."""
    return None if out_of_log(source, position) else end_of(source, "log_end") - position
