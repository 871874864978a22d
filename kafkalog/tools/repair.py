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
from kafkalog.tools.repair_index import IndexRules
from kafkalog.tools.repair_plan import Change, PartitionRepair, RepairOptions, plan_repair
from kafkalog.tools.verify import is_partition
from kafkalog.tools.verify_directory import list_partitions, state_of
from kafkalog.tools.verify_report import Finding, Findings, printable
from kafkalog.tools.verify_segment import Progress
from kafkalog.util.fileio import OS, FileSystem, atomic_write

__all__ = ["Change", "RepairReport", "repair"]

Path = str | os.PathLike[str]
_MOST_MARKER_BYTES: Final = 1 << 16


@dataclass(frozen=True)
class RepairReport:
    """What a repair changes, or has changed where `applied`, and the findings it does not touch.

    `backup` is the directory that holds what was changed, None where nothing was.
    """

    changes: tuple[Change, ...]
    left: tuple[Finding, ...]
    applied: bool
    backup: str | None = None

    @property
    def ok(self) -> bool:
        """True when nothing is left to do or to worry about."""
        return not self.left and (self.applied or not self.changes)

    def __str__(self) -> str:
        return "\n".join(self.lines())

    def lines(self) -> Iterator[str]:
        """The report as text, a line at a time."""
        verbs = {"rebuild": "rebuilt", "cut": "cut"} if self.applied else {"rebuild": "rebuild", "cut": "cut"}
        for change in self.changes:
            path = printable(change.path)
            size = f"{max(change.size_before, 0)} to {change.size_after} bytes"
            yield f"{verbs[change.kind]:<8} {path} ({size}): {change.what}"
        for finding in self.left:
            yield printable(f"left     {finding}")
        yield self.summary()

    def summary(self) -> str:
        """One line: how much was or would be done, and where the backup is."""
        count = f"{len(self.changes)} change{'' if len(self.changes) == 1 else 's'}"
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
            "left": len(self.left), "backup": self.backup,
        }  # fmt: skip

    def json_lines(self) -> Iterator[str]:
        """One JSON object a line: each change, each finding that is left, then the report."""
        import json

        told = [one.as_json() for one in self.changes] + [one.as_json() for one in self.left]
        for one in (*told, self.as_json()):
            yield json.dumps(one, ensure_ascii=True)


def repair(
    paths: Path | Iterable[Path],
    *,
    apply: bool = False,
    rebuild_indexes: bool = True,
    truncate_tail: bool = True,
    all_indexes: bool = False,
    index_interval_bytes: int | None = None,
    backup_dir: Path | None = None,
    progress: Progress | None = None,
    fs: FileSystem = OS,
) -> RepairReport:
    """Repairs data directories or partition directories, or tells what it would do.

    Indexes that `verify` finds wrong are made anew as recovery does, sound ones too with `all_indexes`; the last
    segment is cut behind its last sound batch. A damaged batch with sound ones behind it stays: it is in `left`.
    `index_interval_bytes` is the topic's setting by default, 4096 where it is not known.

    With `apply` the data directory's lock is held, and every byte that goes is first written to `backup_dir` (by
    default a new directory beside the data directory). Each file changes in one step. The mark of a clean shutdown
    goes with a cut, so that whoever opens the log next looks at its end again.

    PartitionNotFound, NotAPartition, IllegalArgument for what makes no sense; with `apply` DirectoryLocked while a
    broker or a writer, also one in this process, holds the directory, StorageError when the system refuses.
    """
    options = RepairOptions(rebuild_indexes, truncate_tail, all_indexes)
    if not (rebuild_indexes or truncate_tail):
        raise IllegalArgument("neither indexes nor tails may be repaired", hint="leave one of them on")
    if index_interval_bytes is not None and not 0 <= index_interval_bytes < 1 << 31:
        raise IllegalArgument(f"index.interval.bytes is {index_interval_bytes}: give 0 to 2147483647")
    several = [paths] if isinstance(paths, (str, os.PathLike)) else list(paths)
    groups = _groups([os.fspath(path) for path in several], fs)
    if backup_dir is not None and len(groups) > 1:
        raise IllegalArgument("one backup directory for several data directories", hint="repair them one by one")
    changes: list[Change] = []
    left: list[Finding] = []
    backups: list[str] = []
    for directory, partitions in groups.items():
        backup = Backup(os.fspath(backup_dir) if backup_dir else _beside(directory, fs), fs)
        work = _DirectoryRepair(directory, partitions, options, index_interval_bytes, progress, fs)
        if apply:
            backup.check(directory)
            work.apply(backup)
        else:
            work.plan()
        changes += work.changes
        left += work.left
        backups += [backup.path] if backup.is_used else []
    return RepairReport(tuple(changes), tuple(left), apply, os.pathsep.join(backups) or None)


class _DirectoryRepair:
    """The repair of partitions of one data directory, one by one: the indexes of one partition are in memory."""

    def __init__(
        self,
        directory: str,
        partitions: list[str],
        options: RepairOptions,
        index_interval_bytes: int | None,
        progress: Progress | None,
        fs: FileSystem,
    ) -> None:
        self.changes: list[Change] = []
        self.left: list[Finding] = []
        self._directory = directory
        self._partitions = partitions
        self._options = options
        self._interval = index_interval_bytes
        self._progress = progress
        self._fs = fs

    def plan(self) -> None:
        """Fills `changes` and `left`; nothing on disk changes."""
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
                    backup.save(one.path, one.changes)
                    log_dir.before_first_write()
                    for change in one.changes:
                        apply_change(change, self._fs)
                self._note(one)

    def _plans(self) -> Iterator[PartitionRepair]:
        state = state_of(self._directory, self._fs)._replace(is_live=False)
        for path in self._partitions:
            yield plan_repair(path, state, self._options, self._rules(path), self._fs, self._progress)

    def _note(self, repair: PartitionRepair) -> None:
        self.changes += [Change(**{**vars(change), "data": None}) for change in repair.changes]
        self.left += repair.left

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
        """Puts the mark of a clean shutdown back as it was, unless a log was cut or an error came."""
        path = log_dir.marker_path
        content = self._fs.read_file(path, _MOST_MARKER_BYTES) if log_dir.marker_found else None
        yield
        if content is not None and self.changes and not any(change.kind == "cut" for change in self.changes):
            atomic_write(self._fs, path, content)


def _groups(paths: list[str], fs: FileSystem) -> dict[str, list[str]]:
    """The partitions to repair, by data directory."""
    groups: dict[str, list[str]] = {}
    for given in paths:
        path = os.path.abspath(given)
        if not os.path.exists(path):
            raise PartitionNotFound("there is no such directory", path=given, hint="check the path")
        if not os.path.isdir(path):
            hint = f"give its directory, {os.path.dirname(path)}"
            raise NotAPartition("a file is repaired with its partition", path=given, hint=hint)
        if is_partition(path, fs):
            groups.setdefault(os.path.dirname(path), []).append(path)
            continue
        found = list_partitions(path, Findings(path), fs)
        if not found:
            raise NotAPartition("there is no partition in the directory", path=given, hint="check the path")
        groups.setdefault(path, []).extend(os.path.join(path, name) for name in found)
    return {directory: list(dict.fromkeys(partitions)) for directory, partitions in groups.items()}


def _beside(directory: str, fs: FileSystem) -> str:
    """A name beside the data directory that is free, with the time in UTC."""
    made = f"{directory.rstrip('/')}.repair-{time.strftime('%Y%m%dT%H%M%SZ', time.gmtime())}"
    name, number = made, 1
    while fs.exists(name):
        name, number = f"{made}-{number}", number + 1
    return name
