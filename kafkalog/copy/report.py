"""The result of a copy, or of its dry run: partitions, and a table of what is not kept."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass
from typing import NamedTuple

from kafkalog.util.text import plural


class NotKept(NamedTuple):
    """Something that the target does not get: its topic, partition or group, a name, and the reason."""

    where: str
    what: str
    why: str


class CopiedPartition(NamedTuple):
    """A partition: its offsets [start, stop) in the source, the offsets [first, end) in the target, and the progress.

    `before` counts offsets of the source that earlier runs copied, `records` and `size` (bytes) what this run wrote.
    `offsets` is "kept" or "new".
    """

    topic: str
    partition: int
    start: int
    stop: int
    first: int
    end: int
    before: int
    records: int
    size: int
    offsets: str


@dataclass(frozen=True)
class CopyReport:
    """The result of `copy_topics`; in a dry run nothing was written, and records and bytes count what would be read.

    `groups` is the number of groups whose offsets were committed, or are to be; those of `groups_left` were not.

    >>> from kafkalog.copy import copy_topics
    >>> log.flush()
    >>> report = copy_topics("data", "copied", ["orders"], apply=True)
    >>> report.records, report.size, report.ok, report.not_kept, report.groups_left
    (2, 92, True, (), ())
    >>> str(report).splitlines()[0], len(list(report.lines())), len(list(report.json_lines()))
    ('orders-0: offsets 0 to 2 have the same offsets; 2 records copied now', 3, 2)
    >>> report.summary()
    'copied 2 records in 92 bytes: 1 topic, 1 partition, 0 groups'
    """

    source: str
    target: str
    partitions: tuple[CopiedPartition, ...]
    not_kept: tuple[NotKept, ...]
    groups: int
    applied: bool
    groups_left: tuple[str, ...] = ()

    @property
    def records(self) -> int:
        """Number of records that this run wrote."""
        return sum(one.records for one in self.partitions)

    @property
    def size(self) -> int:
        """Bytes of the batches that this run wrote."""
        return sum(one.size for one in self.partitions)

    @property
    def ok(self) -> bool:
        """True if the offsets of all groups were committed."""
        return not self.groups_left

    def __str__(self) -> str:
        return "\n".join(self.lines())

    def lines(self) -> Iterator[str]:
        """Yield the report as text: a line for each partition, the table of what is not kept, and the summary."""
        for one in self.partitions:
            yield f"{one.topic}-{one.partition}: {self._describe(one)}"
        if self.not_kept:
            yield "not kept:"
            widths = [max(len(row[column]) for row in self.not_kept) for column in (0, 1)]
            for where, what, why in self.not_kept:
                yield f"  {where:{widths[0]}}  {what:{widths[1]}}  {why}"
        else:
            yield "everything is kept"
        yield self.summary()

    def _describe(self, one: CopiedPartition) -> str:
        pending = one.stop - one.start - one.before
        source = f"offsets {one.start} to {one.stop}"
        if not self.applied:
            return f"{source}, {f'{one.before} copied before, ' if one.before else ''}{pending} to copy"
        target = f"offsets {one.first} to {one.end}" if one.offsets == "new" else "the same offsets"
        return f"{source} have {target}; {plural(one.records, 'record')} copied now"

    def summary(self) -> str:
        """Return one line with the totals."""
        topics = plural(len({one.topic for one in self.partitions}), "topic")
        scope = f"{topics}, {plural(len(self.partitions), 'partition')}, {plural(self.groups, 'group')}"
        if not self.applied:
            return f"{scope}: nothing was written, give --apply"
        return f"copied {plural(self.records, 'record')} in {self.size:,} bytes: {scope}"

    def json_lines(self) -> Iterator[str]:
        """Yield JSON objects, one per line: the partitions, what is not kept, then the totals."""
        for one in self.partitions:
            yield json.dumps({"type": "partition", **one._asdict()})
        for missing in self.not_kept:
            yield json.dumps({"type": "not kept", **missing._asdict()})
        totals = {"type": "copy", "applied": self.applied, "source": self.source, "target": self.target}
        yield json.dumps({**totals, "records": self.records, "bytes": self.size, "groups": self.groups})
