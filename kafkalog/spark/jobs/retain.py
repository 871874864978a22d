"""The job `retain`: applies retention to the data directories of a whole tree, or reports what it would delete.

First, tasks inspect all partitions without a lock. Then, to delete, each data directory with something to delete gets
one task. It takes the directory's lock in its own process, inspects again, deletes, and releases the lock. The process
that changes a directory thus always holds the lock, even if the driver dies. A repeated task finds less to delete,
never anything else.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING

from kafkalog.spark.jobs.offline import inspect_all, retry_while_locked, work_of
from kafkalog.spark.progress import Tell
from kafkalog.spark.tasks import Raised, results, run_tasks
from kafkalog.tools.directories import Path
from kafkalog.tools.offline_partition import OfflinePlan
from kafkalog.tools.offline_survey import OfflineSurvey
from kafkalog.tools.retain.directories import RetainReport, plan_retain
from kafkalog.tools.retain.partition import DueSegment, delete_due, look
from kafkalog.util.clock import SYSTEM_CLOCK
from kafkalog.util.fileio import OS

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


def retain(
    spark: SparkSession,
    paths: Path | Iterable[Path],
    *,
    apply: bool = False,
    topics: Sequence[str] = (),
    settings: Mapping[str, object] | None = None,
    store: Mapping[str, object] | None = None,
    now_ms: int | None = None,
    tell: Tell | None = None,
) -> RetainReport:
    """Report what retention deletes from data directories or partition directories; with `apply`, delete it.

    Arguments and report are those of `kafkalog retain`. The driver reads settings and time once.

    With `apply` a data directory in use raises DirectoryLocked before anything is deleted anywhere. A later failure in
    one directory (StorageError, a broker that was started meanwhile) does not stop the others: the first such error is
    raised when all are finished. Other errors are those of `retain`, and MissingRequirement and JobFailed.
    """
    survey = OfflineSurvey.of(paths, topics, settings, store, now_ms)
    plans, kept = plan_retain(survey)
    due = inspect_all(spark, plans, _look, "retain: look", tell)
    if apply and due:
        due = _delete(spark, plans, due, tell)
    order = {plan.place.path: n for n, plan in enumerate(plans)}
    due.sort(key=lambda one: (order[os.path.dirname(one.path)], one.base_offset))
    return RetainReport(tuple(due), tuple(kept), len(survey.found), apply)


def _delete(
    spark: SparkSession, plans: Sequence[OfflinePlan], due: Sequence[DueSegment], tell: Tell | None
) -> list[DueSegment]:
    """Delete segments and return those deleted: the tasks' results, and due segments missing after a lost task."""
    work = work_of(plans, {os.path.dirname(one.path) for one in due}, "deleted")
    done = run_tasks(spark, _delete_in, list(work.values()), "retain: delete", tell)
    deleted = {one.path: one for some in done if not isinstance(some, Raised) for one in some}
    for one in due:
        if one.path not in deleted and not os.path.exists(one.path):
            deleted[one.path] = one
    results(done)
    return list(deleted.values())


def _look(plans: Sequence[OfflinePlan]) -> list[DueSegment]:
    """Run a task: return what retention would delete from its partitions."""
    return [one for plan in plans for one in look(plan, OS)]


def _delete_in(plans: Sequence[OfflinePlan]) -> list[DueSegment]:
    """Run a task: delete from the partitions of one data directory and return what was deleted."""
    return retry_while_locked(lambda: delete_due(plans, OS, SYSTEM_CLOCK))
