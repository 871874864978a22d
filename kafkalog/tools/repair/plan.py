"""Plan of one partition's repair, made in memory from the findings of `verify`; nothing here writes."""

from __future__ import annotations

import os
from collections.abc import Collection, Sequence
from dataclasses import dataclass, field, replace
from typing import Final, NamedTuple

from kafkalog.errors import StorageError
from kafkalog.storage import names
from kafkalog.tools.repair.excise import below_end, damaged_pieces, sound_ranges, with_lost_markers
from kafkalog.tools.repair.index import IndexRules, rebuilt_indexes
from kafkalog.tools.repair.txn import TxnReplay
from kafkalog.tools.verify.job import SegmentJob, SegmentOutcome, State, check_segment
from kafkalog.tools.verify.partition import join_partition, plan_partition
from kafkalog.tools.verify.report import Finding, Severity
from kafkalog.tools.verify.segment import Progress, SegmentFacts
from kafkalog.util.fileio import FileSystem

_SNAPSHOT_KINDS: Final = frozenset({"snapshot", "snapshot-entry", "snapshot-ahead"})
_WITH_POSITIONS: Final = (names.INDEX_SUFFIX, names.TIME_INDEX_SUFFIX)
_ENTRY_BYTES: Final = {names.INDEX_SUFFIX: 8, names.TIME_INDEX_SUFFIX: 12, names.TXN_INDEX_SUFFIX: 34}


class RepairOptions(NamedTuple):
    """Permitted repairs: wrong indexes, torn tails, checkpoints; `all_indexes` rebuilds sound indexes too.

    `excise` rewrites segments without their damaged bytes.
    """

    rebuild_indexes: bool = True
    truncate_tail: bool = True
    all_indexes: bool = False
    checkpoints: bool = True
    excise: bool = False


@dataclass(frozen=True)
class Change:
    """One change: "rebuild", "cut", "remove", or "excise".

    "rebuild": the file gets the content `data`. "cut": it ends at byte `size_after`. "excise": a segment is rewritten
    without its damaged `pieces`. `size_before` is -1 for a file that does not exist. The content of a rebuild may be on
    disk already, in the file `staged` beside its target; then `data` is None.
    """

    kind: str
    path: str
    what: str
    size_before: int
    size_after: int
    offset: int | None = None
    data: bytes | None = field(default=None, repr=False)
    staged: str | None = field(default=None, repr=False)
    pieces: tuple[Finding, ...] = ()

    def without_data(self) -> Change:
        """Return the change for reports, without the content to write."""
        return replace(self, data=None, staged=None)

    def as_json(self) -> dict[str, object]:
        """Return the change as plain values, without its data, with `type` "change"."""
        found: dict[str, object] = {
            "type": "change", "kind": self.kind, "path": self.path, "what": self.what, "offset": self.offset,
            "size_before": self.size_before, "size_after": self.size_after,
        }  # fmt: skip
        if self.pieces:
            found["pieces"] = [piece_json(one) for one in self.pieces]
        return found


def piece_json(piece: Finding) -> dict[str, object]:
    """Return a damaged piece as plain values, with the name of the file that keeps its bytes in the backup."""
    return {
        "segment": os.path.basename(piece.path), "position": piece.position, "bytes": piece.size,
        "last_sound_offset": piece.last_sound_offset, "next_sound_offset": piece.next_sound_offset,
        "reason": piece.kind, "what": piece.what, "file": saved_name(piece.path, piece.position or 0),
    }  # fmt: skip


def saved_name(path: str, position: int) -> str:
    """Return the backup's name for the bytes of a file from `position` on."""
    return f"{os.path.basename(path)}.from-{position}"


class PartitionRepair(NamedTuple):
    """The changes to a partition, indexes before logs, and the findings that no repair resolves.

    `end_offset` is the log end after them; None if that is not certain. With `is_empty` the partition has no segments,
    and its log ends where it starts.
    """

    path: str
    changes: list[Change]
    left: list[Finding]
    end_offset: int | None = None
    facts: tuple[SegmentFacts, ...] = ()
    is_empty: bool = False

    @property
    def sound_ends(self) -> dict[int, int]:
        """The end offsets, by base offset, of segments without damage or foreign bytes."""
        return {one.base_offset: one.next_offset for one in self.facts if not one.places}


def plan_repair(
    path: str,
    state: State,
    options: RepairOptions,
    rules: IndexRules,
    fs: FileSystem,
    progress: Progress | None = None,
) -> PartitionRepair:
    """Plan the repair of the partition directory `path`; StorageError if it cannot be listed."""
    plan = plan_partition(path, state, fs)
    outcomes = [check_segment(job, deep=False, check_crc=True, fs=fs, progress=progress) for job in plan.jobs]
    joined = join_partition(plan, outcomes, is_compacted=False, fs=fs)
    segments = list(zip(plan.segments, outcomes, strict=False))
    replay = _replay(segments, options, fs)
    cuts = _cuts(list(zip(plan.jobs, outcomes, strict=True)), options)
    changes: list[Change] = []
    excised: list[Change] = []
    for job, outcome in segments:
        facts = outcome.facts
        if facts is None:
            continue
        pieces = damaged_pieces(job, facts, with_tail=options.truncate_tail) if options.excise else ()
        index_changes = _index_changes(job, outcome, facts, pieces, options, rules, replay, fs)
        if pieces or job.path in cuts:
            index_changes += _txn_end_change(job, facts, index_changes, fs)
        if pieces:
            excised += [*index_changes, _excision(facts, pieces)]
            cuts.pop(job.path, None)
        else:
            changes += index_changes
    facts_of = tuple(outcome.facts for _, outcome in segments if outcome.facts is not None)
    repaired = {*cuts, *(change.path for change in excised)}
    is_whole = len(facts_of) == len(segments)
    end = _log_end_after(facts_of, repaired, with_tail=options.truncate_tail) if is_whole else None
    if options.checkpoints:
        changes += _removals(joined.findings, fs)
        if repaired and end is not None:
            gone = {change.path for change in changes}
            changes += _snapshots_above([one for one in plan.snapshots if one not in gone], end, fs)
    changes += [*excised, *cuts.values()]
    left = _unresolved(joined.findings, changes)
    return PartitionRepair(path, changes, left, end, facts_of, is_empty=not plan.segments)


def _cuts(files: Sequence[tuple[SegmentJob, SegmentOutcome]], options: RepairOptions) -> dict[str, Change]:
    """Return the cuts after the last sound batches, by path."""
    found = {}
    for job, outcome in files:
        if options.truncate_tail and job.is_last and outcome.facts is not None:
            change = cut_of(outcome.facts)
            if change is not None:
                found[job.path] = change
    return found


def cut_of(facts: SegmentFacts) -> Change | None:
    """Return the change that cuts a file after its last sound batch; None if it ends with one."""
    tail = facts.tail
    if tail is None:
        return None
    what = f"{tail.size} bytes after the last sound batch: {tail.what}"
    return Change("cut", facts.path, what, facts.size, tail.position, facts.next_offset)


def _excision(facts: SegmentFacts, pieces: tuple[Finding, ...]) -> Change:
    """Return the change that rewrites a segment without its damaged pieces."""
    gone = sum(piece.size or 0 for piece in pieces)
    what = f"without {gone} damaged bytes in {len(pieces)} place{'' if len(pieces) == 1 else 's'}"
    return Change("excise", facts.path, what, facts.size, facts.size - gone, pieces[0].offset, pieces=pieces)


def _log_end_after(facts: Sequence[SegmentFacts], repaired: Collection[str], *, with_tail: bool) -> int | None:
    """Return the log end once the files at the paths `repaired` are cut or excised; None if it is not certain."""
    # a torn end counts as damage if the directory was closed cleanly; batches after damage make a second range
    if not facts or any((one.damaged or len(one.good) > 1) and one.path not in repaired for one in facts):
        return None
    return facts[-1].next_offset if with_tail or facts[-1].tail is None else None


def _unresolved(findings: Sequence[Finding], changes: Sequence[Change]) -> list[Finding]:
    """Return the findings that no change resolves."""
    replaced = {change.path for change in changes if change.kind in ("rebuild", "remove")}
    cut = {change.path for change in changes if change.kind == "cut"}
    excised = {change.path for change in changes if change.kind == "excise"}
    pieces = {(piece.path, piece.position) for change in changes for piece in change.pieces}
    return [
        one
        for one in findings
        if one.severity != Severity.NOTE
        and one.path not in replaced
        and (one.path, one.position) not in pieces
        and not (one.kind == "more" and one.path in excised)
        and not (one.path in cut and one.kind.startswith("tail-"))
    ]


def _removals(findings: Sequence[Finding], fs: FileSystem) -> list[Change]:
    """Return the removals of wrong snapshots: the next opening takes an older one, or reads the log again."""
    wrong: dict[str, Finding] = {}
    for one in findings:
        if one.severity == Severity.REPAIRABLE and one.kind in _SNAPSHOT_KINDS and one.path:
            wrong.setdefault(one.path, one)
    return [
        Change("remove", path, one.what, fs.stat(path).st_size, 0, one.offset)
        for path, one in wrong.items()
        if fs.exists(path)
    ]


def _snapshots_above(snapshots: Sequence[str], end: int, fs: FileSystem) -> list[Change]:
    """Return the removals of snapshots above the new end: the next verification would report them as too high."""
    changes = []
    for path in snapshots:
        offset = names.parse_base_offset(path)
        if offset is not None and offset > end:
            what = f"it is for offset {offset}, but the log will end at {end}"
            changes.append(Change("remove", path, what, fs.stat(path).st_size, 0, offset))
    return changes


def _replay(
    segments: Sequence[tuple[SegmentJob, SegmentOutcome]], options: RepairOptions, fs: FileSystem
) -> TxnReplay | None:
    """Return the log's aborted transactions if one of its transaction indexes must be rebuilt, else None."""
    if not options.rebuild_indexes:
        return None
    is_needed = options.all_indexes or any(
        one.path.endswith(names.TXN_INDEX_SUFFIX) and one.severity == Severity.REPAIRABLE
        for _, outcome in segments
        for one in outcome.findings.all()
    )
    if not is_needed or any(outcome.facts is None for _, outcome in segments):
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
    pieces: Sequence[Finding],
    options: RepairOptions,
    rules: IndexRules,
    replay: TxnReplay | None,
    fs: FileSystem,
) -> list[Change]:
    """Return the changes to a segment's indexes; both that hold positions are rebuilt if bytes are left out."""
    wrong = {one.path for one in outcome.findings.all() if one.severity == Severity.REPAIRABLE}
    suffixes = [
        suffix
        for suffix in names.INDEX_SUFFIXES
        if options.rebuild_indexes and (options.all_indexes or job.beside(suffix) in wrong)
        or (pieces and suffix in _WITH_POSITIONS)
    ]  # fmt: skip
    contents: dict[str, bytes] = {}
    if names.INDEX_SUFFIX in suffixes or names.TIME_INDEX_SUFFIX in suffixes:
        ranges = sound_ranges(pieces, facts.good_end) if pieces else None
        contents |= zip(_WITH_POSITIONS, rebuilt_indexes(facts, rules, fs, joined=ranges), strict=True)
    if names.TXN_INDEX_SUFFIX in suffixes and replay is not None:
        path = job.beside(names.TXN_INDEX_SUFFIX)
        contents[names.TXN_INDEX_SUFFIX] = with_lost_markers(replay.entries_of(job.path), path, pieces, fs)
    changes = []
    for suffix in suffixes:
        if suffix in contents:
            is_moved = bool(pieces) and suffix in _WITH_POSITIONS
            change = _rebuild(job.beside(suffix), contents[suffix], _ENTRY_BYTES[suffix], fs, force=is_moved)
            if change is not None:
                changes.append(change)
    return changes


def _txn_end_change(
    job: SegmentJob, facts: SegmentFacts, index_changes: Sequence[Change], fs: FileSystem
) -> list[Change]:
    """Return the change that removes the entries above the new end of a segment from its transaction index."""
    path = job.beside(names.TXN_INDEX_SUFFIX)
    if any(change.path == path for change in index_changes):
        return []
    end = facts.next_offset if job.next_base_offset is None else job.next_base_offset
    data = below_end(path, end, fs)
    change = None if data is None else _rebuild(path, data, _ENTRY_BYTES[names.TXN_INDEX_SUFFIX], fs)
    return [] if change is None else [change]


def _rebuild(
    path: str, data: bytes, entry_bytes: int, fs: FileSystem, *, force: bool = False
) -> Change | None:
    """Return the change that makes `data` the content of an index; None if it is that already."""
    size, same, current = -1, 0, b""
    try:
        with fs.open_file(path, "r") as file:
            size = file.size()
            current = file.pread(min(size, len(data)), 0)
    except FileNotFoundError:
        if not data and path.endswith(names.TXN_INDEX_SUFFIX):
            return None  # it is created with its first entry
    except OSError as error:
        raise StorageError.from_os(error, "read the index", path=path) from error
    if size == len(data) and current == data and not force:
        return None
    while same < min(len(current), len(data)) and current[same : same + entry_bytes] == data[same : same + entry_bytes]:
        same += entry_bytes
    new, old = len(data) // entry_bytes, max(size, 0) // entry_bytes
    what = f"{new} entries, of which the first {min(same // entry_bytes, new)} are already there"
    if size < 0:
        what = f"{new} entries; the file is missing"
    elif old > new and same >= len(data):
        what = f"{new} entries are already there; {size - len(data)} bytes after them are removed"
    return Change("rebuild", path, what, size, len(data), data=data)


def partition_owner(path: str, fs: FileSystem) -> tuple[int, int, int]:
    """Return (user, group, permission bits) for a new file beside `path`: those of the file, or of its directory."""
    for where in (path, os.path.dirname(path)):
        try:
            status = fs.stat(where)
        except FileNotFoundError:
            continue
        mode = status.st_mode & 0o777 if where == path else status.st_mode & 0o666
        return status.st_uid, status.st_gid, mode
    raise FileNotFoundError(path)
