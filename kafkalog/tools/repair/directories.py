"""`repair`: rebuild files derived from a log and cut a torn end; a sound batch is never dropped.

Without `apply` nothing on disk changes: the plan is made in memory, from the findings of `verify`.
"""

from __future__ import annotations

import os
from collections.abc import Iterable

from kafkalog.errors import IllegalArgument
from kafkalog.tools.directories import Path, path_list
from kafkalog.tools.repair.directory import DirectoryRepair, backups_for, check_interval, find_groups
from kafkalog.tools.repair.opening import NextOpening
from kafkalog.tools.repair.plan import Change, RepairOptions
from kafkalog.tools.repair.report import PartitionReport, RepairReport
from kafkalog.tools.verify.segment import Progress
from kafkalog.util.fileio import OS, FileSystem

__all__ = ["Change", "PartitionReport", "RepairReport", "repair"]


def repair(
    paths: Path | Iterable[Path],
    *,
    apply: bool = False,
    rebuild_indexes: bool = True,
    truncate_tail: bool = True,
    all_indexes: bool = False,
    checkpoints: bool = True,
    excise: bool = False,
    index_interval_bytes: int | None = None,
    backup_dir: Path | None = None,
    progress: Progress | None = None,
    fs: FileSystem = OS,
) -> RepairReport:
    """Repair data directories or partition directories; without `apply`, report the changes only.

    Indexes that `verify` finds wrong are rebuilt as recovery does, sound ones too with `all_indexes`; the last segment
    is cut after its last sound batch. A damaged batch followed by sound ones stays: it is in `left`. With `excise` its
    segment is rewritten without it, and its offsets are missing, as compaction leaves them. With `checkpoints` wrong
    snapshots are removed, leader epochs are taken from the log if their file is malformed or late, and the offset
    checkpoints of a data directory are adjusted to its logs, if it is given whole. `index_interval_bytes` is the
    topic's setting by default, 4096 if that is unknown.

    With `apply` the data directory's lock is held, and every byte to be removed is first written to `backup_dir` (by
    default a new directory beside the data directory; for several data directories it has one for each). Each file
    changes in one step. A cut or a removed snapshot also removes the clean-shutdown marker, so that the next opening
    checks the log's end and its producers again. Files that the system refuses to read are left, and reported.
    `openings` reports the bytes that the next opening for writing will cut from a partition that is changed, or was not
    closed cleanly.

    PartitionNotFound, NotAPartition, IllegalArgument for invalid arguments; with `apply` DirectoryLocked while a broker
    or a writer, also one in this process, holds the directory, StorageError if the system refuses.

    >>> log.close()
    >>> os.truncate("data/orders-0/00000000000000000000.log", 100)    # zeros at its end, as a power cut leaves them
    >>> report = repair("data")
    >>> report.summary(), report.changes[0].kind, report.changes[0].size_after
    ('1 change to make, nothing was changed: give --apply', 'cut', 92)
    >>> repair("data", apply=True, backup_dir="before").ok
    True
    """
    options = RepairOptions(rebuild_indexes, truncate_tail, all_indexes, checkpoints, excise)
    if not (rebuild_indexes or truncate_tail or checkpoints or excise):
        raise IllegalArgument("every kind of repair is disabled", hint="enable one of them")
    check_interval(index_interval_bytes)
    groups = find_groups(path_list(paths), fs)
    reports: list[PartitionReport] = []
    openings: list[NextOpening] = []
    backups: list[str] = []
    by_directory = backups_for(groups, None if backup_dir is None else os.fspath(backup_dir), fs)
    for backup in by_directory.values() if apply else ():
        for directory in groups:
            backup.check(directory)
    for directory, backup in by_directory.items():
        directory_repair = DirectoryRepair(directory, groups[directory], options, index_interval_bytes, progress, fs)
        if apply:
            directory_repair.apply(backup)
        else:
            directory_repair.plan()
        reports += directory_repair.reports
        openings += directory_repair.openings
        backups += [backup.path] if backup.is_used else []
    return RepairReport(tuple(reports), apply, os.pathsep.join(backups) or None, tuple(openings))
