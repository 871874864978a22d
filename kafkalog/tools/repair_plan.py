"""What a repair would do to one partition: planned from what `verify` finds, in memory; nothing here writes."""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Final, NamedTuple

from kafkalog.errors import StorageError
from kafkalog.storage import names
from kafkalog.tools.repair_index import IndexRules, rebuilt_indexes
from kafkalog.tools.repair_txn import TxnReplay
from kafkalog.tools.verify_job import SegmentJob, SegmentOutcome, State, check_segment
from kafkalog.tools.verify_partition import join_partition, plan_partition
from kafkalog.tools.verify_report import Finding, Severity
from kafkalog.tools.verify_segment import Progress, SegmentFacts
from kafkalog.util.fileio import FileSystem

_SNAPSHOT_KINDS: Final = frozenset({"snapshot", "snapshot-entry", "snapshot-ahead"})
_ENTRY_BYTES: Final = {names.INDEX_SUFFIX: 8, names.TIME_INDEX_SUFFIX: 12, names.TXN_INDEX_SUFFIX: 34}


class RepairOptions(NamedTuple):
    """What may be repaired: wrong indexes, torn tails, checkpoints; and whether sound indexes are made anew too."""

    rebuild_indexes: bool = True
    truncate_tail: bool = True
    all_indexes: bool = False
    checkpoints: bool = True


@dataclass(frozen=True)
class Change:
    """One change: "rebuild" (the file gets the content `data`), "cut" (it ends at byte `size_after`) or "remove".

    `size_before` is -1 for a file that does not exist. The content of a rebuild may lie on disk already, in the file
    `staged` beside the one that it is for; then `data` is None.
    """

    kind: str
    path: str
    what: str
    size_before: int
    size_after: int
    offset: int | None = None
    data: bytes | None = field(default=None, repr=False)
    staged: str | None = field(default=None, repr=False)

    def without_data(self) -> Change:
        """The change as it is told: what to write is not in it."""
        return replace(self, data=None, staged=None)

    def as_json(self) -> dict[str, Any]:
        """The change as plain values, without its data, with `type` "change"."""
        return {
            "type": "change", "kind": self.kind, "path": self.path, "what": self.what, "offset": self.offset,
            "size_before": self.size_before, "size_after": self.size_after,
        }  # fmt: skip


class PartitionRepair(NamedTuple):
    """The changes to a partition, indexes before logs, and the findings that no repair touches.

    `end_offset` is where its log ends after them; None where that is not certain.
    """

    path: str
    changes: list[Change]
    left: list[Finding]
    end_offset: int | None = None
    facts: tuple[SegmentFacts, ...] = ()


def plan_repair(
    path: str,
    state: State,
    options: RepairOptions,
    rules: IndexRules,
    fs: FileSystem,
    progress: Progress | None = None,
) -> PartitionRepair:
    """The repair of the partition directory `path`; StorageError when it cannot be listed."""
    plan = plan_partition(path, state, fs)
    outcomes = [check_segment(job, deep=False, check_crc=True, fs=fs, progress=progress) for job in plan.jobs]
    joined = join_partition(plan, outcomes, is_compacted=False, fs=fs)
    changes: list[Change] = []
    cuts: list[Change] = []
    segments = list(zip(plan.segments, outcomes, strict=False))
    replay = _replay(segments, options, fs)
    for job, outcome in segments:
        facts = outcome.facts
        if facts is None:
            continue
        if options.rebuild_indexes:
            changes += _index_changes(job, outcome, facts, options, rules, replay, fs)
        if options.truncate_tail and job.is_last and facts.tail is not None:
            tail = facts.tail
            what = f"{tail.size} bytes behind the last sound batch: {tail.what}"
            cuts.append(Change("cut", job.path, what, facts.size, tail.position, facts.next_offset))
    tails = {change.path for change in cuts}
    facts_of = tuple(outcome.facts for _, outcome in segments if outcome.facts is not None)
    # a torn end counts as damage where the directory was closed well; batches behind damage make a second range
    is_certain = len(facts_of) == len(segments) and all(
        len(one.good) <= 1 and (not one.damaged or one.path in tails) for one in facts_of
    )
    last = facts_of[-1] if facts_of else None
    end = last.next_offset if is_certain and last and (last.tail is None or last.path in tails) else None
    if options.checkpoints:
        changes += _removals(joined.findings, fs)
        if cuts and end is not None:
            gone = {change.path for change in changes}
            changes += _overtaken([one for one in plan.snapshots if one not in gone], end, fs)
    touched = {change.path for change in changes}
    left = [
        one
        for one in joined.findings
        if one.severity != Severity.NOTE
        and one.path not in touched
        and not (one.path in tails and one.kind.startswith("tail-"))
    ]
    return PartitionRepair(path, changes + cuts, left, end, facts_of)


def _removals(findings: Sequence[Finding], fs: FileSystem) -> list[Change]:
    """Snapshots that say what is not so: whoever opens the log next takes an older one, or reads the log anew."""
    wrong: dict[str, Finding] = {}
    for one in findings:
        if one.severity == Severity.REPAIRABLE and one.kind in _SNAPSHOT_KINDS and one.path:
            wrong.setdefault(one.path, one)
    return [
        Change("remove", path, one.what, fs.stat(path).st_size, 0, one.offset)
        for path, one in wrong.items()
        if fs.exists(path)
    ]


def _overtaken(snapshots: Sequence[str], end: int, fs: FileSystem) -> list[Change]:
    """The snapshots of offsets that a cut takes away: the next look at the directory would find them ahead of it."""
    changes = []
    for path in snapshots:
        offset = names.parse_base_offset(path)
        if offset is not None and offset > end:
            what = f"it is of offset {offset}, but the log will end at {end}"
            changes.append(Change("remove", path, what, fs.stat(path).st_size, 0, offset))
    return changes


def _replay(
    segments: Sequence[tuple[SegmentJob, SegmentOutcome]], options: RepairOptions, fs: FileSystem
) -> TxnReplay | None:
    """The aborted transactions of the whole log, where one of its transaction indexes is to be made anew."""
    if not options.rebuild_indexes:
        return None
    wanted = options.all_indexes or any(
        one.path.endswith(names.TXN_INDEX_SUFFIX) and one.severity == Severity.REPAIRABLE
        for _, outcome in segments
        for one in outcome.findings.all()
    )
    if not wanted or any(outcome.facts is None for _, outcome in segments):
        return None
    replay = TxnReplay(fs)
    for _, outcome in segments:
        if outcome.facts is not None:
            replay.add(outcome.facts)
    return replay


def _index_changes(
    job: SegmentJob,
    outcome: SegmentOutcome,
    facts: SegmentFacts,
    options: RepairOptions,
    rules: IndexRules,
    replay: TxnReplay | None,
    fs: FileSystem,
) -> list[Change]:
    """The indexes of one segment whose content would be another."""
    wrong = {one.path for one in outcome.findings.all() if one.severity == Severity.REPAIRABLE}
    wanted = [suffix for suffix in names.INDEX_SUFFIXES if options.all_indexes or job.beside(suffix) in wrong]
    made: dict[str, bytes] = {}
    if names.INDEX_SUFFIX in wanted or names.TIME_INDEX_SUFFIX in wanted:
        made[names.INDEX_SUFFIX], made[names.TIME_INDEX_SUFFIX] = rebuilt_indexes(facts, rules, fs)
    if names.TXN_INDEX_SUFFIX in wanted and replay is not None:
        made[names.TXN_INDEX_SUFFIX] = replay.entries_of(job.path)
    changes = []
    for suffix in wanted:
        if suffix in made:
            change = _rebuild(job.beside(suffix), made[suffix], _ENTRY_BYTES[suffix], fs)
            if change is not None:
                changes.append(change)
    return changes


def _rebuild(path: str, data: bytes, entry_bytes: int, fs: FileSystem) -> Change | None:
    """The change that makes `data` the content of an index; None where it is that already."""
    size, same, kept = -1, 0, b""
    try:
        with fs.open_file(path, "r") as file:
            size = file.size()
            kept = file.pread(min(size, len(data)), 0)
    except FileNotFoundError:
        if not data and path.endswith(names.TXN_INDEX_SUFFIX):
            return None  # it is made with its first entry
    except OSError as error:
        raise StorageError.from_os(error, "read the index", path=path) from error
    if size == len(data) and kept == data:
        return None
    while same < min(len(kept), len(data)) and kept[same : same + entry_bytes] == data[same : same + entry_bytes]:
        same += entry_bytes
    new, old = len(data) // entry_bytes, max(size, 0) // entry_bytes
    what = f"{new} entries, of which the first {min(same // entry_bytes, new)} stand there now"
    if size < 0:
        what = f"{new} entries, where no file is"
    elif old > new and same >= len(data):
        what = f"{new} entries stand there now; {size - len(data)} bytes behind them go"
    return Change("rebuild", path, what, size, len(data), data=data)


def partition_owner(path: str, fs: FileSystem) -> tuple[int, int, int]:
    """(user, group, permission bits) that a file made beside `path` gets: those of the file, or of its directory."""
    for where in (path, os.path.dirname(path)):
        try:
            status = fs.stat(where)
        except FileNotFoundError:
            continue
        mode = status.st_mode & 0o777 if where == path else status.st_mode & 0o666
        return status.st_uid, status.st_gid, mode
    raise FileNotFoundError(path)
