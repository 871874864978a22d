"""The report of a redaction, as text and as JSON: segments, other copies, names without a record, and the proof."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, NamedTuple


class RedactedSegment(NamedTuple):
    """A segment with records that are redacted, or are to be; `size_after` is None before it was rewritten.

    Sizes in bytes. All of a segment is rewritten.
    """

    topic: str
    partition: int
    path: str
    base_offset: int
    records: int
    size: int
    size_after: int | None


class Copy(NamedTuple):
    """Another copy of records of the partition that may hold those wanted; `what` it is, and `removed` if it was."""

    path: str
    what: str
    removed: bool = False


@dataclass(frozen=True)
class RedactReport:
    """The result of `redact`.

    `missing` names keys and offsets of which there is no record. `copies` may hold the records and were not redacted.
    `left` is the number of records that the search after the redaction found, 0 if it succeeded; None without one.

    >>> from kafkalog.redact import redact
    >>> report = redact(log.path, "orders", keys=[b"u-1"], change="empty")
    >>> report.records, report.size > 0, report.ok, report.applied, report.left, report.missing
    (1, True, True, False, None, ())
    >>> list(report.lines())[-1] == report.summary(), len(list(report.json_lines()))
    (True, 2)
    """

    segments: tuple[RedactedSegment, ...]
    missing: tuple[str, ...]
    copies: tuple[Copy, ...]
    partitions: int
    change: str
    applied: bool
    left: int | None = None

    @property
    def records(self) -> int:
        """Number of records redacted, or to be redacted."""
        return sum(one.records for one in self.segments)

    @property
    def size(self) -> int:
        """Bytes of the segments that are rewritten."""
        return sum(one.size for one in self.segments)

    @property
    def ok(self) -> bool:
        """True if every key and offset has a record, and the search after the redaction found none that is left."""
        return not self.missing and not self.left

    def __str__(self) -> str:
        return "\n".join(self.lines())

    def lines(self) -> Iterator[str]:
        """Yield the report as text, line by line."""
        verb = "redacted" if self.applied else "redact"
        for one in self.segments:
            count = f"{one.records:,} record{'' if one.records == 1 else 's'}"
            sizes = f"{one.size:,} bytes" + ("" if one.size_after is None else f", now {one.size_after:,}")
            yield f"{verb} {count} in {one.path} ({sizes})"
        for copy in self.copies:
            yield f"{'removed' if copy.removed else 'not redacted'}: {copy.path}: {copy.what}"
        for missing in self.missing:
            yield f"not found: {missing}"
        yield self.summary()
        if self.left is not None:
            yield "searched again: " + ("none of the records is left" if not self.left else f"{self.left:,} are left")

    def summary(self) -> str:
        """Return one line with the totals."""
        of = f"of {self.partitions} partition{'' if self.partitions == 1 else 's'}"
        if not self.segments:
            return f"nothing to redact {of}"
        segments = f"{len(self.segments)} segment{'' if len(self.segments) == 1 else 's'} {of}"
        count = f"{self.records:,} record{'' if self.records == 1 else 's'} in {segments}"
        sizes = f"{self.size:,} bytes {'rewritten' if self.applied else 'to rewrite'}, with {self.change}"
        return f"{count}, {sizes}" + ("" if self.applied else ": nothing was changed, give --apply")

    def json_lines(self) -> Iterator[str]:
        """Yield JSON objects, one a line: each segment, each copy, each missing name, then the report."""
        for one in self.segments:
            yield json.dumps({"type": "segment", **one._asdict()})
        for copy in self.copies:
            yield json.dumps({"type": "copy", **copy._asdict()})
        for missing in self.missing:
            yield json.dumps({"type": "missing", "what": missing})
        totals: dict[str, Any] = {"type": "redact", "applied": self.applied, "with": self.change}
        totals |= {"records": self.records, "bytes": self.size, "partitions": self.partitions, "left": self.left}
        yield json.dumps(totals)
