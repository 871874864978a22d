"""`repair`: what is derived from a log is made anew, a torn end is cut off, and no sound batch is ever dropped.

Without `apply` nothing on disk changes: the plan is made in memory, from what `verify` finds.
"""

from __future__ import annotations

import os
import time
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, Final

from kafkalog.config import LogConfig
from kafkalog.errors import (
    CorruptCheckpoint,
    DirectoryLocked,
    IllegalArgument,
    NotAPartition,
    PartitionNotFound,
    StorageError,
)
from kafkalog.manager.log_dir import LogDir, is_locked
from kafkalog.manager.topics import TopicStore
from kafkalog.storage import names
from kafkalog.tools.repair_apply import Backup, apply_change
from kafkalog.tools.repair_checkpoints import plan_checkpoints, plan_epochs
from kafkalog.tools.repair_index import IndexRules
from kafkalog.tools.repair_plan import Change, PartitionRepair, RepairOptions, plan_repair
from kafkalog.tools.verify import is_partition
from kafkalog.tools.verify_directory import list_partitions, state_of
from kafkalog.tools.verify_report import Finding, Findings, Severity, printable
from kafkalog.tools.verify_segment import Progress
from kafkalog.types import TopicPartition
from kafkalog.util.fileio import OS, FileSystem, atomic_write

__all__ = ["Change", "PartitionReport", "RepairReport", "repair"]

Path = str | os.PathLike[str]
_MOST_MARKER_BYTES: Final = 1 << 16
_CHECKPOINTS: Final = "checkpoints"
_VERBS: Final = {"rebuild": "rebuilt", "cut": "cut", "remove": "removed"}


@dataclass(frozen=True)
class PartitionReport:
    """What a repair changes, or has changed, in one partition, and what it does not touch there.

    A data directory has one too, for its own checkpoints.
    """

    path: str
    changes: tuple[Change, ...]
    left: tuple[Finding, ...]

    @property
    def ok(self) -> bool:
        """True when nothing was found."""
        return not self.changes and not self.left

    def as_json(self) -> dict[str, Any]:
        """The counts as plain values, with `type` "partition"."""
        return {"type": "partition", "path": self.path, "changes": len(self.changes), "left": len(self.left)}


@dataclass(frozen=True)
class RepairReport:
    """What a repair changes, or has changed where `applied`, and the findings it does not touch, by partition.

    `backup` is the directory that holds what was changed, None where nothing was.
    """

    partitions: tuple[PartitionReport, ...]
    applied: bool
    backup: str | None = None

    @property
    def changes(self) -> tuple[Change, ...]:
        """All changes, partition by partition, then those of the data directory."""
        return tuple(change for one in self.partitions for change in one.changes)

    @property
    def left(self) -> tuple[Finding, ...]:
        """All findings that the repair does not touch."""
        return tuple(finding for one in self.partitions for finding in one.left)

    @property
    def ok(self) -> bool:
        """True when nothing is left to do or to worry about."""
        return not self.left and (self.applied or not self.changes)

    def __str__(self) -> str:
        return "\n".join(self.lines())

    def lines(self) -> Iterator[str]:
        """The report as text, a line at a time; of several partitions those that are not sound have a line besides."""
        several = len(self.partitions) > 1
        for one in self.partitions:
            for change in one.changes:
                path, verb = printable(change.path), _VERBS[change.kind] if self.applied else change.kind
                size = f"{max(change.size_before, 0)} to {change.size_after} bytes"
                yield f"{verb:<8} {path} ({size}): {change.what}"
            for finding in one.left:
                yield printable(f"left     {finding}")
            if several and not one.ok:
                yield f"         {printable(one.path)}: {_counted(len(one.changes))}, {len(one.left)} left alone"
        yield self.summary()

    def summary(self) -> str:
        """One line: how much was or would be done, and where the backup is."""
        count = _counted(len(self.changes))
        left = f"; {len(self.left)} left alone" if self.left else ""
        if not self.changes:
            return f"nothing to repair{left}"
        if not self.applied:
            return f"{count} to make, nothing was changed: give --apply{left}"
        return f"{count} made, what was there before is in {printable(self.backup or '')}{left}"

    def as_json(self) -> dict[str, Any]:
        """The verdict as plain values, with `type` "repair"; changes and findings have lines of their own."""
        return {
            "type": "repair", "ok": self.ok, "applied": self.applied, "changes": len(self.changes),
            "left": len(self.left), "partitions": len(self.partitions), "backup": self.backup,
        }  # fmt: skip

    def json_lines(self) -> Iterator[str]:
        """One JSON object a line: each change and finding that is left, the partitions, then the report."""
        import json

        told = [one.as_json() for one in self.changes] + [one.as_json() for one in self.left]
        told += [one.as_json() for one in self.partitions]
        for one in (*told, self.as_json()):
            yield json.dumps(one, ensure_ascii=True)


def _counted(changes: int) -> str:
    return f"{changes} change{'' if changes == 1 else 's'}"


def repair(
    paths: Path | Iterable[Path],
    *,
    apply: bool = False,
    rebuild_indexes: bool = True,
    truncate_tail: bool = True,
    all_indexes: bool = False,
    checkpoints: bool = True,
    index_interval_bytes: int | None = None,
    backup_dir: Path | None = None,
    progress: Progress | None = None,
    fs: FileSystem = OS,
) -> RepairReport:
    """Repairs data directories or partition directories, or tells what it would do.

    Indexes that `verify` finds wrong are made anew as recovery does, sound ones too with `all_indexes`; the last
    segment is cut behind its last sound batch. A damaged batch with sound ones behind it stays: it is in `left`.
    With `checkpoints` snapshots that are wrong go, leader epochs are taken from the log where their file is malformed
    or late, and the offset checkpoints of a data directory are made to fit its logs, where it is given whole.
    `index_interval_bytes` is the topic's setting by default, 4096 where it is not known.

    With `apply` the data directory's lock is held, and every byte that goes is first written to `backup_dir` (by
    default a new directory beside the data directory; for several data directories it has one for each). Each file
    changes in one step. The mark of a clean shutdown goes with a cut and with a snapshot, so that whoever opens the log
    next looks at its end and its producers again. What the system does not let us read is left, and told.

    PartitionNotFound, NotAPartition, IllegalArgument for what makes no sense; with `apply` DirectoryLocked while a
    broker or a writer, also one in this process, holds the directory, StorageError when the system refuses.
    """
    options = RepairOptions(rebuild_indexes, truncate_tail, all_indexes, checkpoints)
    if not (rebuild_indexes or truncate_tail or checkpoints):
        raise IllegalArgument("neither indexes nor tails nor checkpoints may be repaired", hint="leave one of them on")
    if index_interval_bytes is not None and not 0 <= index_interval_bytes < 1 << 31:
        raise IllegalArgument(f"index.interval.bytes is {index_interval_bytes}: give 0 to 2147483647")
    several = [paths] if isinstance(paths, (str, os.PathLike)) else list(paths)
    groups = _groups([os.fspath(path) for path in several], fs)
    reports: list[PartitionReport] = []
    backups: list[str] = []
    kept = _backups(groups, None if backup_dir is None else os.fspath(backup_dir), fs)
    for backup in kept.values() if apply else ():
        for directory in groups:
            backup.check(directory)
    for directory, backup in kept.items():
        work = _DirectoryRepair(directory, groups[directory], options, index_interval_bytes, progress, fs)
        if apply:
            work.apply(backup)
        else:
            work.plan()
        reports += work.reports
        backups += [backup.path] if backup.is_used else []
    return RepairReport(tuple(reports), apply, os.pathsep.join(backups) or None)


@dataclass
class _Group:
    """The partitions of one data directory that are to be repaired; `is_whole` where the directory itself was given."""

    partitions: list[str]
    is_whole: bool = False


class _DirectoryRepair:
    """The repair of partitions of one data directory, one by one: the indexes of one partition are in memory."""

    def __init__(
        self,
        directory: str,
        group: _Group,
        options: RepairOptions,
        index_interval_bytes: int | None,
        progress: Progress | None,
        fs: FileSystem,
    ) -> None:
        self.reports: list[PartitionReport] = []
        self._ends: dict[TopicPartition, int] = {}
        self._directory = directory
        self._group = group
        self._options = options
        self._interval = index_interval_bytes
        self._progress = progress
        self._fs = fs

    def plan(self) -> None:
        """Fills `reports`; nothing on disk changes."""
        for repair in self._plans():
            self._note(repair)

    def apply(self, backup: Backup) -> None:
        """Makes the changes; those noted when an error is raised were made."""
        if is_locked(self._directory, fs=self._fs):
            raise DirectoryLocked(
                "the data directory is in use", path=os.path.join(self._directory, names.LOCK_FILE),
                hint="stop the broker, or close the log, and repair then; without apply a repair needs no lock",
            )  # fmt: skip
        with LogDir.acquire(self._directory, fs=self._fs) as log_dir, self._marker(log_dir):
            for one in self._plans():
                if one.changes:
                    backup.save(one.path, one.changes, _CHECKPOINTS if one.path == self._directory else "")
                    log_dir.before_first_write()
                    for change in one.changes:
                        apply_change(change, self._fs)
                self._note(one)

    def _plans(self) -> Iterator[PartitionRepair]:
        """The partitions one by one, then the data directory itself."""
        state = state_of(self._directory, self._fs)._replace(is_live=False)
        for path in self._group.partitions:
            try:
                one = plan_repair(path, state, self._options, self._rules(path), self._fs, self._progress)
                yield self._with_epochs(one) if self._options.checkpoints else one
            except StorageError as error:
                yield PartitionRepair(path, [], [_unreadable(error, path)])
        if self._group.is_whole and self._options.checkpoints:
            try:
                changes = plan_checkpoints(self._directory, self._ends, self._fs)
                yield PartitionRepair(self._directory, changes, [])
            except StorageError as error:
                yield PartitionRepair(self._directory, [], [_unreadable(error, self._directory)])

    def _with_epochs(self, one: PartitionRepair) -> PartitionRepair:
        """With the change to the leader epochs, where they are malformed or late."""
        path = os.path.join(one.path, names.LEADER_EPOCH_CHECKPOINT)
        about = [f for f in one.left if f.kind == "epoch-late" or (f.kind == "checkpoint" and f.path == path)]
        change = plan_epochs(one.path, one.facts, self._fs) if about else None
        if change is None:
            return one
        return one._replace(changes=[change, *one.changes], left=[f for f in one.left if f not in about])

    def _note(self, repair: PartitionRepair) -> None:
        if repair.end_offset is not None:
            try:
                partition, kind = names.parse_dir(os.path.basename(repair.path))
            except NotAPartition:
                kind = "other"
            if not kind:
                self._ends[partition] = repair.end_offset
        changes = tuple(Change(**{**vars(change), "data": None}) for change in repair.changes)
        if changes or repair.left or repair.path != self._directory:
            self.reports.append(PartitionReport(repair.path, changes, tuple(repair.left)))

    def _rules(self, path: str) -> IndexRules:
        """The topic's settings where this library keeps them, Kafka's defaults otherwise."""
        rules = IndexRules()
        try:
            topic = names.parse_topic_partition_dir(os.path.basename(path)).topic
            entry = TopicStore(self._directory, fs=self._fs).get(topic)
            if entry is not None:
                config = LogConfig.from_stored(entry.settings)
                rules = IndexRules(config.index_interval_bytes, config.segment_index_bytes)
        except (NotAPartition, CorruptCheckpoint, StorageError):
            pass
        return rules if self._interval is None else rules._replace(index_interval_bytes=self._interval)

    @contextmanager
    def _marker(self, log_dir: LogDir) -> Iterator[None]:
        """Puts the mark of a clean shutdown back as it was, unless a log was cut, a snapshot went, or an error came."""
        path = log_dir.marker_path
        content = self._fs.read_file(path, _MOST_MARKER_BYTES) if log_dir.marker_found else None
        yield
        kinds = {change.kind for one in self.reports for change in one.changes}
        if content is not None and kinds == {"rebuild"}:
            atomic_write(self._fs, path, content)


def _unreadable(error: StorageError, path: str) -> Finding:
    return Finding(Severity.UNREADABLE, "unreadable", error.path or path, error.message, hint=error.hint)


def _groups(paths: list[str], fs: FileSystem) -> dict[str, _Group]:
    """The partitions to repair, by data directory."""
    groups: dict[str, _Group] = {}
    for given in paths:
        path = os.path.abspath(given)
        if not os.path.exists(path):
            raise PartitionNotFound("there is no such directory", path=given, hint="check the path")
        if not os.path.isdir(path):
            hint = f"give its directory, {os.path.dirname(path)}"
            raise NotAPartition("a file is repaired with its partition", path=given, hint=hint)
        if is_partition(path, fs):
            found, directory, is_whole = [path], os.path.dirname(path), False
        else:
            listed = list_partitions(path, Findings(path), fs)
            if not listed:
                raise NotAPartition("there is no partition in the directory", path=given, hint="check the path")
            found, directory, is_whole = [os.path.join(path, name) for name in listed], path, True
        group = groups.setdefault(directory, _Group([]))
        group.partitions = list(dict.fromkeys([*group.partitions, *found]))
        group.is_whole = group.is_whole or is_whole
    return groups


def _backups(groups: Iterable[str], backup_dir: str | None, fs: FileSystem) -> dict[str, Backup]:
    """The backup of each data directory: beside it, or in `backup_dir`, where several have a directory each."""
    directories = list(groups)
    if backup_dir is None:
        return {directory: Backup(_beside(directory, fs), fs) for directory in directories}
    if len(directories) == 1:
        return {directories[0]: Backup(backup_dir, fs)}
    made: dict[str, Backup] = {}
    taken: set[str] = set()
    for directory in directories:
        base = os.path.basename(directory)
        name = next(n for n in (base, *(f"{base}-{i}" for i in range(1, len(directories) + 1))) if n not in taken)
        taken.add(name)
        made[directory] = Backup(os.path.join(backup_dir, name), fs, within=backup_dir)
    return made


def _beside(directory: str, fs: FileSystem) -> str:
    """A name beside the data directory that is free, with the time in UTC."""
    made = f"{directory.rstrip('/')}.repair-{time.strftime('%Y%m%dT%H%M%SZ', time.gmtime())}"
    name, number = made, 1
    while fs.exists(name):
        name, number = f"{made}-{number}", number + 1
    return name
