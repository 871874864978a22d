"""The job `reindex`: rebuilds offset, time and transaction indexes from the `.log` files of a whole tree.

The driver takes the locks of all data directories before the first task begins and releases them after the last change,
so that no broker or other writer can interfere. Tasks, each with one or several partitions, read logs and write new
indexes *aside*, under a name unique to the attempt. The driver, which holds the locks, saves the old indexes and
renames the new ones into place. A task that is repeated, runs twice by speculation or outlives its driver thus changes
no file that anyone reads: the driver of this run or of the next deletes its files.
"""

from __future__ import annotations

import os
import re
import uuid
from collections.abc import Iterable, Sequence
from contextlib import ExitStack
from functools import partial
from itertools import chain
from typing import TYPE_CHECKING, Final

from kafkalog.errors import StorageError
from kafkalog.spark.executors import check_executors
from kafkalog.spark.packing import packed
from kafkalog.spark.progress import Tell
from kafkalog.spark.tasks import results, run_tasks
from kafkalog.tools.directories import Path, path_list
from kafkalog.tools.repair.apply import NEW_SUFFIX, stage
from kafkalog.tools.repair.directory import (
    DirectoryRepair,
    PartitionWork,
    backups_for,
    check_interval,
    find_groups,
    plan_partition_work,
)
from kafkalog.tools.repair.plan import PartitionRepair, RepairOptions
from kafkalog.tools.repair.report import RepairReport
from kafkalog.tools.verify.directories import total_bytes
from kafkalog.util.fileio import OS

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_STAGED: Final = re.compile(rf".+index{re.escape(NEW_SUFFIX)}-[0-9a-f]{{8}}-[0-9a-f]{{8}}")
"""Name of a file that a task writes aside: that of the index, the job and the attempt."""


def reindex(
    spark: SparkSession,
    paths: Path | Iterable[Path],
    *,
    apply: bool = False,
    only_wrong: bool = False,
    index_interval_bytes: int | None = None,
    backup_dir: Path | None = None,
    tell: Tell | None = None,
) -> RepairReport:
    """Rebuild the indexes of data directories or partition directories as recovery does, or report what would change.

    This is `kafkalog.repair(rebuild_indexes=True, all_indexes=True)` without changes to tails and checkpoints, with its
    report: an index that is already right is no change. With `only_wrong` indexes that `verify` finds sound are kept.
    `index_interval_bytes` defaults to the topic's setting, 4096 if that is unknown. Without `apply` nothing on disk
    changes. With it old indexes are first copied to `backup_dir`, by default beside each data directory. Damage in a
    log is in `left`, and indexes have its sound batches.

    Raises DirectoryLocked, before anything is changed anywhere, if one of the data directories is in use, also without
    `apply`: the indexes of a growing log are always behind. PartitionNotFound, NotAPartition, IllegalArgument as for
    `repair`; MissingRequirement for executors without this package; StorageError; JobFailed.
    """
    check_interval(index_interval_bytes)
    groups = find_groups(path_list(paths), OS)
    backups = backups_for(groups, None if backup_dir is None else os.fspath(backup_dir), OS)
    for backup in backups.values() if apply else ():
        for directory in groups:
            backup.check(directory)
    options = RepairOptions(True, False, not only_wrong, False)
    repairs = [
        DirectoryRepair(directory, group, options, index_interval_bytes, None, OS)
        for directory, group in groups.items()
    ]
    for one in repairs:
        one.refuse_in_use()
    check_executors(spark, groups)
    with ExitStack() as held:
        locks = [held.enter_context(one.held()) for one in repairs] if apply else []
        work = [one.work() for one in repairs]
        job = uuid.uuid4().hex[:8] if apply else None
        if apply:
            every = [some.path for each in work for some in each]
            _sweep_all(every)
            held.callback(_sweep_all, every)
        planned = {plan.path: plan for plan in _planned(spark, list(chain(*work)), job, tell)}
        for n, one in enumerate(repairs):
            for some in work[n]:
                if apply:
                    one.carry_out(planned[some.path], locks[n], backups[list(groups)[n]])
                else:
                    one.note(planned[some.path])
    reports = tuple(report for one in repairs for report in one.reports)
    kept = [backup.path for backup in backups.values() if backup.is_used]
    return RepairReport(reports, apply, os.pathsep.join(kept) or None)


def _planned(
    spark: SparkSession, work: Sequence[PartitionWork], job: str | None, tell: Tell | None
) -> list[PartitionRepair]:
    """Plan the repairs of the partitions in tasks; with a `job` the tasks also stage the new indexes on disk."""
    tasks = packed(work, lambda one: total_bytes([one.path]), spark.sparkContext.defaultParallelism)
    done = run_tasks(spark, partial(_plan, job=job), tasks, "reindex", tell)
    return [plan for plans in results(done) for plan in plans]


def _plan(work: Sequence[PartitionWork], *, job: str | None) -> list[PartitionRepair]:
    """Run a task: plan its partitions and, with a `job`, write the new indexes aside under the job's name."""
    plans = []
    for one in work:
        plan = plan_partition_work(one, OS)
        changes = plan.changes
        if job is None:
            changes = [change.without_data() for change in changes]
        else:
            suffix = f"{NEW_SUFFIX}-{job}-{uuid.uuid4().hex[:8]}"
            try:
                changes = [stage(change, suffix, OS) for change in changes]
            except OSError as error:
                raise StorageError.from_os(error, "write a new index", path=error.filename or one.path) from error
        plans.append(plan._replace(changes=changes, facts=()))
    return plans


def _sweep_all(partitions: Sequence[str]) -> None:
    for path in partitions:
        sweep(path)


def sweep(partition: str) -> None:
    """Delete what tasks left in a partition directory; files that cannot be deleted stay.

    The caller is the driver that holds the directory's lock. A task of an ended job would otherwise take the next job's
    files.
    """
    try:
        names = OS.names(partition)
    except OSError:
        return
    for name in names:
        if _STAGED.fullmatch(name) is not None:
            try:
                OS.unlink_if_exists(os.path.join(partition, name))
            except OSError:
                continue
