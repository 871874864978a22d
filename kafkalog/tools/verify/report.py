"""Results of `verify`: findings and sums, as text and as JSON."""

from __future__ import annotations

import json
import os
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any, Final, NamedTuple

from kafkalog.util.text import one_message, plural

MAX_FINDINGS_A_FILE: Final = 100
"""Maximum number of reported findings of one severity in a file; the rest are counted."""


class Severity(StrEnum):
    """Severity of a finding; all but NOTE make a report not ok."""

    NOTE = "note"
    """Nothing is wrong: reserved space, offsets that compaction leaves out, a file in transit."""
    REPAIRABLE = "repairable"
    """Derived data is wrong, or the log ends in a torn batch: recovery or `kafkalog repair` corrects it."""
    DAMAGE = "damage"
    """Batches are lost or contradict each other: only a replica or a backup has the missing data."""
    UNREADABLE = "unreadable"
    """The system refused to read it: its state is unknown."""


KINDS: Final = frozenset(
    {
        "crc", "size", "torn", "magic", "header", "order", "range",
        "tail-torn", "tail-crc", "tail-size", "tail-zeros", "link", "overlap", "gap", "cut-short", "no-segments",
        "epoch", "epoch-late", "record", "record-time",
        "index-entry", "index-order", "index-size", "index-behind", "index-missing", "index-odd", "index-room",
        "txn-entry", "txn-missing", "txn-size", "txn-version", "snapshot", "snapshot-entry", "snapshot-ahead",
        "checkpoint", "meta-properties", "log-end", "topic-id", "unreadable",
        "unclean", "in-transit", "orphan", "changed", "foreign", "partition-missing",
    }
)  # fmt: skip
"""Kinds of findings that a check reports; docs/verify.md explains each. "more" stands for those past the limit."""


class Finding(NamedTuple):
    """One finding: `kind`, one of KINDS, is its name for programs; fields that do not apply are None.

    A place in a segment has its `position` and `size` in bytes, `offset` as the lowest that it may have held, and the
    offsets of the sound batches around it: the last one before, which is None where the log begins, and the next one
    after, which is None where the log ends.
    """

    severity: Severity
    kind: str
    path: str
    what: str
    offset: int | None = None
    position: int | None = None
    hint: str | None = None
    size: int | None = None
    last_sound_offset: int | None = None
    next_sound_offset: int | None = None

    @property
    def lost(self) -> tuple[int, int] | None:
        """The offsets between the sound batches around a damaged place: the first, and the one after the last.

        None if it is no such place, or has no sound batch after it. A compacted log had fewer of them.
        """
        if self.severity != Severity.DAMAGE or self.size is None or self.next_sound_offset is None:
            return None
        first = self.offset if self.last_sound_offset is None else self.last_sound_offset + 1
        return (first or 0, self.next_sound_offset)

    @property
    def where(self) -> str:
        """The place as text: "position 93 (81 bytes), offsets 5 to 9"; "" if it has none."""
        named = []
        if self.position is not None:
            size = "" if self.size is None else f" ({self.size:,} bytes)"
            named.append(f"position {self.position:,}{size}")
        if self.lost is not None:
            first, end = self.lost
            many = f"offsets {first:,} to {end - 1:,}" if end > first + 1 else f"offset {first:,}"
            named.append(many if end > first else "no offset")
        elif self.offset is not None:
            named.append(f"offset {self.offset:,}{'' if self.size is None else ' and on'}")
        return ", ".join(named)

    def __str__(self) -> str:
        where = self.where
        text = f"{self.severity}: {self.path}{f' ({where})' if where else ''}: {self.what}"
        return f"{text}. Hint: {self.hint}" if self.hint else text

    def as_json(self) -> dict[str, Any]:
        """Return the finding as plain values, under the names of its fields, with `type` "finding"."""
        return {"type": "finding", **self._asdict(), "severity": str(self.severity)}


@dataclass
class Sums:
    """Amounts that were checked. `bytes` are those of segment files, `files` counts every file."""

    partitions: int = 0
    segments: int = 0
    files: int = 0
    bytes: int = 0
    batches: int = 0
    records: int = 0

    def add(self, other: Sums) -> None:
        """Add the sums of another part."""
        for name in self.__dataclass_fields__:
            setattr(self, name, getattr(self, name) + getattr(other, name))


@dataclass(frozen=True)
class Report:
    """The outcome of a verification: `findings` in the order of the files, `sums` of what was checked.

    `ok` is True if there are only notes; iterating gives the findings that make it not ok.
    """

    findings: tuple[Finding, ...]
    sums: Sums = field(default_factory=Sums)

    @property
    def ok(self) -> bool:
        """True if all is sound: at most notes."""
        return not any(True for _ in self)

    @property
    def problems(self) -> tuple[Finding, ...]:
        """The findings other than notes."""
        return tuple(self)

    @property
    def notes(self) -> tuple[Finding, ...]:
        """The findings that are only notes."""
        return tuple(finding for finding in self.findings if finding.severity == Severity.NOTE)

    def count(self, severity: Severity) -> int:
        """Return the number of findings with that severity."""
        return sum(finding.severity == severity for finding in self.findings)

    @property
    def lost_offsets(self) -> int:
        """Number of offsets in damaged places that are followed by sound batches; each counts once."""
        places = {(os.path.dirname(one.path), one.lost) for one in self.findings if one.lost is not None}
        return sum(max(lost[1] - lost[0], 0) for _, lost in places if lost is not None)

    def __iter__(self) -> Iterator[Finding]:
        return (finding for finding in self.findings if finding.severity != Severity.NOTE)

    def __repr__(self) -> str:
        state = "ok" if self.ok else f"{len(self.problems)} problems"
        return f"<Report {state}, {len(self.notes)} notes, {self.sums.segments} segments>"

    def __str__(self) -> str:
        return "\n".join(self.lines())

    def lines(self, *, with_notes: bool = True) -> Iterator[str]:
        """Yield the report as text, line by line: the findings by file, then the summary."""
        yield from lines_of(self.findings if with_notes else tuple(self))
        yield self.summary()

    def summary(self) -> str:
        """Return one line: the amounts checked, and the verdict."""
        sums = self.sums
        checked = [plural(sums.partitions, "partition"), plural(sums.segments, "segment"), f"{sums.bytes:,} bytes"]
        if sums.batches:
            checked += [plural(sums.batches, "batch"), plural(sums.records, "record")]
        words = [(Severity.DAMAGE, "damaged"), (Severity.REPAIRABLE, "repairable"), (Severity.UNREADABLE, "unreadable")]
        found = [f"{self.count(severity):,} {word}" for severity, word in words if self.count(severity)]
        if self.lost_offsets:
            found.insert(1, f"{plural(self.lost_offsets, 'offset')} in damaged places")
        verdict = ", ".join(found) or "sound"
        notes = f" ({plural(len(self.notes), 'note')})" if self.notes else ""
        return f"{', '.join(checked)}: {verdict}{notes}"

    def as_json(self) -> dict[str, Any]:
        """Return the sums and the verdict as plain values, with `type` "report"; findings have separate lines."""
        counts = {str(severity): self.count(severity) for severity in Severity}
        return {"type": "report", "ok": self.ok, **vars(self.sums), **counts, "lost_offsets": self.lost_offsets}

    def json_lines(self) -> Iterator[str]:
        """Yield JSON objects, one a line: each finding, then the report."""
        for one in (*(finding.as_json() for finding in self.findings), self.as_json()):
            yield json.dumps(one, ensure_ascii=True)


def lines_of(findings: Iterable[Finding]) -> Iterator[str]:
    """Yield the findings as text, file by file."""
    last = None
    for finding in findings:
        if finding.path != last:
            last = finding.path
            yield printable(last)
        where = finding.where
        yield f"  {finding.severity:<10} {f'{where}: ' if where else ''}{finding.what}"
        if finding.hint and finding.severity != Severity.NOTE:
            yield f"  {'':<10} -> {finding.hint}"


def printable(text: str) -> str:
    """Return the text with non-UTF-8 bytes of file names replaced, so that it is safe for any output."""
    return one_message(os.fsencode(text).decode("utf-8", "replace"))


class Findings:
    """Collects the findings about one file; those of one severity past the first 100 are only counted."""

    def __init__(self, path: str) -> None:
        self.path = path
        self._findings: list[Finding] = []
        self._counts: dict[Severity, int] = {}

    def add(
        self,
        severity: Severity,
        kind: str,
        what: str,
        *,
        offset: int | None = None,
        position: int | None = None,
        hint: str | None = None,
        path: str | None = None,
        size: int | None = None,
        last_sound_offset: int | None = None,
        next_sound_offset: int | None = None,
    ) -> None:
        """Add one finding."""
        assert kind in KINDS, kind
        count = self._counts.get(severity, 0) + 1
        self._counts[severity] = count
        if count <= MAX_FINDINGS_A_FILE:
            place = (size, last_sound_offset, next_sound_offset)
            self._findings.append(Finding(severity, kind, path or self.path, what, offset, position, hint, *place))

    def extend(self, findings: Iterable[Finding]) -> None:
        """Add findings from elsewhere."""
        self._findings += findings

    def set_ends(self, before: int | None, after: int | None) -> None:
        """Set the sound offsets around the file in the places at its ends."""
        for number, one in enumerate(self._findings):
            if one.size is not None:
                last = before if one.last_sound_offset is None else one.last_sound_offset
                following = after if one.next_sound_offset is None else one.next_sound_offset
                self._findings[number] = one._replace(last_sound_offset=last, next_sound_offset=following)

    def all(self) -> list[Finding]:
        """Return the findings, and one more for those that were only counted."""
        more = [
            Finding(severity, "more", self.path, f"and {count - MAX_FINDINGS_A_FILE:,} more like these")
            for severity, count in self._counts.items()
            if count > MAX_FINDINGS_A_FILE
        ]
        return self._findings + more

    def problems(self) -> set[tuple[str, str, int | None]]:
        """Return (path, kind, position) of each finding that is no note."""
        return {(one.path, one.kind, one.position) for one in self._findings if one.severity != Severity.NOTE}

    def drop_unconfirmed(self, before: Findings) -> None:
        """Drop the problems that were not in `before`, an earlier check of the same files."""
        seen = before.problems()
        self._findings = [
            one for one in self._findings if one.severity == Severity.NOTE or (one.path, one.kind, one.position) in seen
        ]
