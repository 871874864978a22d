"""Report of a repair: changes, planned or made, and remaining findings, as text and JSON."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, Final

from kafkalog.tools.repair.opening import NextOpening, opening_lines
from kafkalog.tools.repair.plan import Change
from kafkalog.tools.verify.report import Finding, printable

_VERBS: Final = {"rebuild": "rebuilt", "cut": "cut", "remove": "removed", "excise": "excised"}


@dataclass(frozen=True)
class PartitionReport:
    """The changes to one partition, planned or made, and its remaining findings.

    A data directory has one too, for its own checkpoints.
    """

    path: str
    changes: tuple[Change, ...]
    left: tuple[Finding, ...]

    @property
    def ok(self) -> bool:
        """True if nothing was found."""
        return not self.changes and not self.left

    def as_json(self) -> dict[str, Any]:
        """Return the counts as plain values, with `type` "partition"."""
        return {"type": "partition", "path": self.path, "changes": len(self.changes), "left": len(self.left)}


@dataclass(frozen=True)
class RepairReport:
    """The changes of a repair, made if `applied`, and the remaining findings, by partition.

    `backup` is the directory with the original bytes, None if nothing was changed. `openings` are the effects of the
    next opening for writing on partitions that are changed, or were not closed cleanly.
    """

    partitions: tuple[PartitionReport, ...]
    applied: bool
    backup: str | None = None
    openings: tuple[NextOpening, ...] = ()

    @property
    def changes(self) -> tuple[Change, ...]:
        """All changes, partition by partition, then those of the data directory."""
        return tuple(change for one in self.partitions for change in one.changes)

    @property
    def left(self) -> tuple[Finding, ...]:
        """All findings that the repair does not resolve."""
        return tuple(finding for one in self.partitions for finding in one.left)

    @property
    def ok(self) -> bool:
        """True if no change is pending and no finding remains."""
        return not self.left and (self.applied or not self.changes)

    def __str__(self) -> str:
        return "\n".join(self.lines())

    def lines(self) -> Iterator[str]:
        """Yield the report as text, line by line; among several partitions each unsound one has an extra line."""
        several = len(self.partitions) > 1
        for one in self.partitions:
            for change in one.changes:
                path, verb = printable(change.path), _VERBS[change.kind] if self.applied else change.kind
                size = f"{max(change.size_before, 0)} to {change.size_after} bytes"
                yield f"{verb:<8} {path} ({size}): {change.what}"
                for piece in change.pieces:
                    yield f"         {piece.where}: {printable(piece.what)}"
            for finding in one.left:
                yield printable(f"left     {finding}")
            if several and not one.ok:
                counts = f"{_count_changes(len(one.changes))}, {len(one.left)} left unrepaired"
                yield f"         {printable(one.path)}: {counts}"
        yield from opening_lines(self.openings)
        yield self.summary()

    def summary(self) -> str:
        """Return one line with the number of changes, and the place of the backup."""
        count = _count_changes(len(self.changes))
        left = f"; {len(self.left)} left unrepaired" if self.left else ""
        if not self.changes:
            return f"nothing to repair{left}"
        if not self.applied:
            return f"{count} to make, nothing was changed: give --apply{left}"
        return f"{count} made, the original data is in {printable(self.backup or '')}{left}"

    def as_json(self) -> dict[str, Any]:
        """Return the verdict as plain values, with `type` "repair"; changes and findings have separate lines."""
        return {
            "type": "repair", "ok": self.ok, "applied": self.applied, "changes": len(self.changes),
            "left": len(self.left), "partitions": len(self.partitions), "backup": self.backup,
        }  # fmt: skip

    def json_lines(self) -> Iterator[str]:
        """Yield JSON objects, one a line: changes and remaining findings, partitions, next openings, then the report.
        """
        objects = [one.as_json() for one in self.changes] + [one.as_json() for one in self.left]
        objects += [one.as_json() for one in self.partitions] + [one.as_json() for one in self.openings]
        for one in (*objects, self.as_json()):
            yield json.dumps(one, ensure_ascii=True)


def _count_changes(changes: int) -> str:
    return f"{changes} change{'' if changes == 1 else 's'}"
