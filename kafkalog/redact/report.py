"""The report of a redaction, as text and as JSON: segments, other copies, names without a record, and the proof."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, Final, NamedTuple

from kafkalog.util.text import plural

_HELD: Final = "no event of it is in `__remote_log_metadata`, so no copy can replace it: delete the object in the store"


class RedactedSegment(NamedTuple):
    """A segment with records that are redacted, or are to be; `size_after` is None if it was not rewritten.

    Sizes in bytes. All of a segment is rewritten. `path` is the URL of an object in a store.
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
    `held` are tiered segments with such records that no event describes; `unsearched` says what was not searched.
    `left` is the number of records that the search after the redaction found, with those of `held`: 0 if it succeeded,
    None without such a search, or if there is something `unsearched`. `searched` names what was searched.

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
    searched: str = "these directories"
    held: tuple[RedactedSegment, ...] = ()
    unsearched: str | None = None

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
        """True if every key and offset has a record, all of them can be redacted, and no search found one left."""
        return not self.missing and not self.left and not self.held and self.unsearched is None

    def __str__(self) -> str:
        return "\n".join(self.lines())

    def lines(self) -> Iterator[str]:
        """Yield the report as text, line by line."""
        verb = "redacted" if self.applied else "redact"
        for one in self.segments:
            sizes = f"{one.size:,} bytes" + ("" if one.size_after is None else f", now {one.size_after:,}")
            yield f"{verb} {plural(one.records, 'record')} in {one.path} ({sizes})"
        for one in self.held:
            yield f"not redacted: {plural(one.records, 'record')} in {one.path} ({one.size:,} bytes): {_HELD}"
        if self.unsearched is not None:
            yield f"not searched: {self.unsearched}"
        for copy in self.copies:
            yield f"{'removed' if copy.removed else 'not redacted'}: {copy.path}: {copy.what}"
        for missing in self.missing:
            yield f"not found: {missing}"
        yield self.summary()
        if self.left:
            yield f"searched again: {plural(self.left, 'record')} left in {self.searched}"
        elif self.left is not None:
            others = any(not copy.removed for copy in self.copies)
            but = ", but what was not redacted may hold them" if others else ""
            yield f"searched again: none of the records is left in {self.searched}{but}"

    def summary(self) -> str:
        """Return one line with the totals."""
        of = f"of {self.partitions} partition{'' if self.partitions == 1 else 's'}"
        if not self.segments:
            return f"nothing to redact {of}"
        segments = f"{len(self.segments)} segment{'' if len(self.segments) == 1 else 's'} {of}"
        count = f"{plural(self.records, 'record')} in {segments}"
        sizes = f"{self.size:,} bytes {'rewritten' if self.applied else 'to rewrite'}, with {self.change}"
        return f"{count}, {sizes}" + ("" if self.applied else ": nothing was changed, give --apply")

    def json_lines(self) -> Iterator[str]:
        """Yield JSON objects, one a line: each segment, each copy, each missing name, then the report."""
        for one in self.segments:
            yield json.dumps({"type": "segment", **one._asdict()})
        for one in self.held:
            yield json.dumps({"type": "held", **one._asdict(), "why": _HELD})
        if self.unsearched is not None:
            yield json.dumps({"type": "unsearched", "what": self.unsearched})
        for copy in self.copies:
            yield json.dumps({"type": "copy", **copy._asdict()})
        for missing in self.missing:
            yield json.dumps({"type": "missing", "what": missing})
        totals: dict[str, Any] = {"type": "redact", "applied": self.applied, "with": self.change}
        totals |= {"records": self.records, "bytes": self.size, "partitions": self.partitions, "left": self.left}
        yield json.dumps(totals)
