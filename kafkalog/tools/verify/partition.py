"""Check of one partition directory: its files, and their agreement."""

from __future__ import annotations

import os
from bisect import bisect_right
from collections.abc import Collection, Sequence
from dataclasses import dataclass, field
from itertools import takewhile
from typing import Final, NamedTuple

from kafkalog.storage import names
from kafkalog.storage.leader_epoch import EpochEntry
from kafkalog.tools.verify.job import SegmentJob, SegmentOutcome, State
from kafkalog.tools.verify.report import Finding, Findings, Severity, Sums
from kafkalog.tools.verify.segment import SegmentFacts
from kafkalog.tools.verify.small_files import check_epochs, check_snapshot, check_topic_id
from kafkalog.util.fileio import FileSystem
from kafkalog.util.os_errors import list_names

CHECKPOINT_SUFFIX: Final = ".checkpoint"


@dataclass
class PartitionPlan:
    """The files to check in a partition directory: its segments in order, its snapshots, and the rest."""

    path: str
    state: State
    segments: list[SegmentJob] = field(default_factory=list)
    batch_files: list[SegmentJob] = field(default_factory=list)
    snapshots: list[str] = field(default_factory=list)
    has_orphans: bool = False
    findings: Findings = field(init=False)

    def __post_init__(self) -> None:
        self.findings = Findings(self.path)

    @property
    def jobs(self) -> list[SegmentJob]:
        """All jobs, in the order in which they are reported."""
        return [*self.segments, *self.batch_files]


def plan_partition(path: str, state: State, fs: FileSystem) -> PartitionPlan:
    """List the files of a partition directory; StorageError if it cannot be listed.

    Leftovers of an unfinished cleaning or delete are a note, and not checked.
    """
    plan = PartitionPlan(path, state)
    listed = list_names(path, fs)
    logs = [name for name in listed if names.is_log_file(name)]
    bases = {names.parse_base_offset(name) for name in logs}
    for name, following in zip(logs, [*logs[1:], None], strict=False):
        next_base = None if following is None else names.parse_base_offset(following)
        job = make_job(os.path.join(path, name), state, following is None, fs, next_base_offset=next_base)
        if job is not None:
            plan.segments.append(job)
        elif os.path.islink(os.path.join(path, name)):
            plan.findings.add(
                Severity.DAMAGE, "link", "a symbolic link whose target is missing, with the name of a segment",
                path=os.path.join(path, name), hint="restore its target, or remove the link",
            )  # fmt: skip
    for name in listed:
        full = os.path.join(path, name)
        if name.endswith(names.SNAPSHOT_SUFFIX) and names.parse_base_offset(name) is not None:
            plan.snapshots.append(full)
        elif name.endswith(CHECKPOINT_SUFFIX) and name[:1].isdigit():
            job = make_job(full, state, True, fs, base_offset=0, with_indexes=False)
            plan.batch_files += [job] if job is not None else []
        elif names.is_index_file(name) and names.parse_base_offset(name) not in bases and not state.is_live:
            plan.has_orphans = True
            what = "an index without its segment: the next open removes it"
            plan.findings.add(Severity.NOTE, "orphan", what, path=full)
        elif names.lacks_base_offset(name) and not fs.is_directory(full):
            what = "the name has no base offset, so it is not checked; a broker does not start until it is moved away"
            plan.findings.add(Severity.NOTE, "foreign", what, path=full)
        elif name.endswith((names.CLEANED_SUFFIX, names.SWAP_SUFFIX)) and not state.is_live:
            plan.findings.add(
                Severity.NOTE, "in-transit", "left by an unfinished cleaning: the next open resolves it",
                path=full,
            )  # fmt: skip
    return plan


def make_job(
    path: str,
    state: State,
    is_last: bool,
    fs: FileSystem,
    *,
    base_offset: int | None = None,
    with_indexes: bool = True,
    require_indexes: bool = True,
    next_base_offset: int | None = None,
) -> SegmentJob | None:
    """Return the job for a file of batches; None if it is gone."""
    try:
        status = fs.stat(path)
        size = status.st_size
    except FileNotFoundError:
        return None
    except OSError:
        size = 0
    base = base_offset if base_offset is not None else names.parse_base_offset(path) or 0
    return SegmentJob(path, base, size, is_last, state, with_indexes, require_indexes, next_base_offset)


class PartitionOutcome(NamedTuple):
    """Result of a partition: `end_offset` is None if the end of the log is not certain."""

    findings: list[Finding]
    sums: Sums
    start_offset: int | None
    end_offset: int | None


def join_partition(
    plan: PartitionPlan, outcomes: Sequence[SegmentOutcome], *, is_compacted: bool, fs: FileSystem
) -> PartitionOutcome:
    """Combine the results of a plan's jobs, in its order, and check the small files.

    `is_compacted`: the cleaner has worked on it, so that missing offsets are not reported.
    """
    findings = plan.findings
    segments = outcomes[: len(plan.segments)]
    facts = [outcome.facts for outcome in segments if outcome.facts is not None]
    whole = len(facts) == len(segments)
    _set_neighbour_offsets(segments)
    end = _log_end(plan, facts) if whole else None
    _check_emptiness(plan, findings)
    start = plan.segments[0].base_offset if plan.segments else None
    _check_joints(facts, findings, whole and not is_compacted, _logs_behind_indexes(segments))
    epochs = check_epochs(plan.path, findings, fs)
    _check_epochs(facts, epochs, plan.state, findings)
    check_topic_id(plan.path, findings, fs)
    for path in plan.snapshots:
        known_end = None if plan.state.is_live else end
        check_snapshot(path, known_end, findings, fs, is_clean=plan.state.is_clean)
    sums = Sums(partitions=1, segments=len(facts), files=len(plan.snapshots))
    found: list[Finding] = []
    for outcome in outcomes:
        sums.add(outcome.sums)
        found += outcome.findings.all()
    return PartitionOutcome(found + findings.all(), sums, start, end)


def _log_end(plan: PartitionPlan, facts: Sequence[SegmentFacts]) -> int | None:
    """Return the end of the log; None if it is not certain. A log without segments ends where it starts."""
    if not plan.segments:
        return plan.state.log_start_offset
    return facts[-1].next_offset if facts[-1].tail is None else None


def _check_emptiness(plan: PartitionPlan, findings: Findings) -> None:
    """Report a partition without segments whose other files show that it had some."""
    if plan.segments or plan.state.is_live or not (plan.has_orphans or plan.snapshots):
        return
    findings.add(
        Severity.DAMAGE, "no-segments", "every .log file is missing, but other files of segments are here",
        hint="restore the partition from a replica or a backup; the next opening for writing creates an empty log",
    )  # fmt: skip


def _set_neighbour_offsets(segments: Sequence[SegmentOutcome]) -> None:
    """Set the sound offsets around damaged places at segment ends from the neighbouring segments."""
    lasts: list[int | None] = []
    last: int | None = None
    for outcome in segments:
        lasts.append(last)
        facts = outcome.facts
        last = facts.next_offset - 1 if facts is not None and facts.first_offset >= 0 else last
    following: int | None = None
    for outcome, before in zip(reversed(segments), reversed(lasts), strict=True):
        outcome.findings.set_ends(before, following)
        facts = outcome.facts
        if facts is not None:
            facts.places = [place.between(before, following) for place in facts.places]
        following = facts.first_offset if facts is not None and facts.first_offset >= 0 else following


def _logs_behind_indexes(segments: Sequence[SegmentOutcome]) -> set[str]:
    """Return the paths of the segments that end before the entries of their indexes do."""
    found = (one for outcome in segments for one in outcome.findings.all() if one.kind == "index-behind")
    return {os.path.splitext(one.path)[0] + names.LOG_SUFFIX for one in found}


def _check_joints(
    facts: Sequence[SegmentFacts], findings: Findings, report_gaps: bool, behind_indexes: Collection[str]
) -> None:
    """Check that each segment begins at or above the end of the one before it.

    A gap after a segment of `behind_indexes` is lost records, not compaction.
    """
    gaps: list[tuple[str, int, int, int]] = []
    thinned = any(one.thinned for one in facts)
    for one in facts:
        if one.last_gap is not None:
            gap = one.last_gap
            gaps.append((one.path, gap.position, gap.end_offset, gap.next_offset))
    for before, after in zip(facts, facts[1:], strict=False):
        if before.batches and before.next_offset > after.base_offset:
            findings.add(
                Severity.DAMAGE, "overlap",
                f"the segment ends at offset {before.next_offset - 1}, but the next one begins at {after.base_offset}",
                path=before.path, offset=after.base_offset, position=before.good_end,
                hint="a base offset or a file name is wrong: compare both segments with a replica",
            )  # fmt: skip
        elif after.first_offset > before.next_offset and not before.damaged and before.tail is None:
            if before.path in behind_indexes:
                findings.add(
                    Severity.DAMAGE, "cut-short",
                    "the segment ends before the entries of its index do: its last batches are lost",
                    path=before.path, offset=before.next_offset, position=before.good_end, size=0,
                    last_sound_offset=before.next_offset - 1 if before.batches else None,
                    next_sound_offset=after.first_offset,
                    hint="a replica or a backup may have these batches; once the index is rebuilt this is only a gap",
                )  # fmt: skip
            else:
                gaps.append((after.path, 0, before.next_offset, after.first_offset))
    if report_gaps and not thinned and gaps:
        path, position, end, following = gaps[0]
        count = len(gaps) - 1
        more = f", and {count} more segment{' has' if count == 1 else 's have'} such a gap" if count else ""
        lost = f"offset {end} is" if following == end + 1 else f"offsets {end} to {following - 1} are"
        findings.add(
            Severity.NOTE, "gap",
            f"{lost} missing{more}: normal in a log that was compacted or copied, "
            "otherwise a base offset is wrong or a segment was removed",
            path=path, offset=end, position=position,
        )  # fmt: skip


def _check_epochs(
    facts: Sequence[SegmentFacts], epochs: tuple[EpochEntry, ...] | None, state: State, findings: Findings
) -> None:
    """Check that leader epochs never go down and match the checkpoint, which may lag after a crash."""
    runs = [(one.path, *run) for one in facts for run in one.epoch_runs]
    lowest_after = [2**31] * (len(runs) + 1)
    for n in range(len(runs) - 1, -1, -1):
        epoch = runs[n][1]
        lowest_after[n] = min(lowest_after[n + 1], epoch) if epoch >= 0 else lowest_after[n + 1]
    known = list(takewhile(lambda run: run[1] >= 0, reversed(runs)))  # a follower's batch of an old format clears all
    severity = Severity.REPAIRABLE if state.is_clean and not state.is_live else Severity.NOTE
    hint = "recovery adds it: the broker died before it wrote the checkpoint"
    visible = [run for run in known if run[4] >= state.log_start_offset]  # an opening forgets those below the log start
    if epochs == () and visible:
        path, epoch, position, first, _ = visible[-1]
        what = f"leader epoch {epoch} begins here, and leader-epoch-checkpoint is empty"
        findings.add(severity, "epoch-late", what, path=path, offset=first, position=position, hint=hint)
    highest = -1
    starts = [entry.start_offset for entry in epochs or ()]
    for n, (path, epoch, position, first, last) in enumerate(runs):
        if epoch == -1:
            continue
        stated = _epoch_at(epochs or (), starts, first)
        if stated in (None, epoch):
            stated = _epoch_at(epochs or (), starts, last)
        contradicts = stated is not None and stated != epoch
        late = contradicts and epochs and epoch > epochs[-1].epoch and lowest_after[n + 1] >= epoch
        if late:
            what = f"leader epoch {epoch} begins here, and leader-epoch-checkpoint ends with epoch {stated}"
            findings.add(severity, "epoch-late", what, path=path, offset=first, position=position, hint=hint)
        elif epoch < -1 or contradicts or (stated is None and epoch < highest):
            other = f"leader-epoch-checkpoint says {stated}" if contradicts else f"earlier batches have {highest}"
            what = f"batches up to offset {last} have leader epoch {epoch}, but {other}"
            compare = "the checksum does not cover this field: compare with a replica"
            findings.add(Severity.DAMAGE, "epoch", what, path=path, offset=first, position=position, hint=compare)
        if not contradicts:
            highest = max(highest, epoch)


def _epoch_at(epochs: Sequence[EpochEntry], starts: Sequence[int], offset: int) -> int | None:
    """Return the checkpoint's epoch for an offset; None before its first entry."""
    at = bisect_right(starts, offset)
    return epochs[at - 1].epoch if at else None
