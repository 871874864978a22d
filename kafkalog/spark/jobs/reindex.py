"""The job `reindex`: offset, time and transaction indexes made anew from the `.log` files of a whole tree.

Who holds what: the driver takes the locks of all data directories before the first task begins and gives them back
after the last change, so no broker and no writer can come in between. Tasks, one or several partitions each, read logs
and write new indexes *aside*, under a name that is the attempt's own; the driver, which has the lock, saves the old
ones and renames the new ones into place. A task that is tried again, runs twice by speculation or outlives its driver
can thus change nothing that anybody reads: its files are swept by the driver of this run or of the next.
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
from kafkalog.tools.directories import path_list
from kafkalog.tools.repair_apply import NEW_SUFFIX, stage
from kafkalog.tools.repair_directory import (
    DirectoryRepair,
    PartitionWork,
    backups_for,
    check_interval,
    find_groups,
    plan_partition_work,
)
from kafkalog.tools.repair_plan import PartitionRepair, RepairOptions
from kafkalog.tools.repair_report import RepairReport
from kafkalog.tools.verify import total_bytes
from kafkalog.util.fileio import OS

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

Path = str | os.PathLike[str]
_STAGED: Final = re.compile(rf".+index{re.escape(NEW_SUFFIX)}-[0-9a-f]{{8}}-[0-9a-f]{{8}}")
"""What a task writes aside: the index's name, the job's and the attempt's."""


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
    """The indexes of data directories or partition directories, made anew as recovery makes them; or what would change.

    It is `kafkalog.repair(rebuild_indexes=True, all_indexes=True)`, with tails and checkpoints left alone, and its
    report: an index that is what it should be already is no change. With `only_wrong` those that `verify` finds sound
    are left as they are. `index_interval_bytes` is the topic's setting by default, 4096 where it is not known.

    Without `apply` nothing on disk changes. With it old indexes are first copied to `backup_dir`, by default beside
    each data directory. Damage in a log is in `left`, and indexes have its sound batches.

    DirectoryLocked, before anything is changed anywhere, where one of the data directories is in use, also without
    `apply`: the indexes of a log that grows are always behind. PartitionNotFound, NotAPartition, IllegalArgument as
    for `repair`; MissingRequirement for executors without this package; StorageError; JobFailed.
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
    """What the tasks made of the partitions; where `job` is given what they staged lies on disk, else nothing does."""
    tasks = packed(work, lambda one: total_bytes([one.path]), spark.sparkContext.defaultParallelism)
    done = run_tasks(spark, partial(_plan, job=job), tasks, "reindex", tell)
    return [plan for plans in results(done) for plan in plans]


def _plan(work: Sequence[PartitionWork], *, job: str | None) -> list[PartitionRepair]:
    """A task: the plans of its partitions, with new indexes written aside where `job` says whose they are."""
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
    """Removes what tasks left in a partition directory; what cannot be removed stays.

    For the driver that has the directory's lock: a task of a job that is over would take what the next one's wrote.
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
