"""Common parts of the jobs that change data directories: inspection of all partitions, and the directories' locks.

The process that changes a directory, a task's, holds its lock; the driver only checks that it is free.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Collection, Sequence
from typing import TYPE_CHECKING, Final, TypeVar

from kafkalog.errors import DirectoryLocked
from kafkalog.manager.log_dir import is_locked
from kafkalog.spark.executors import check_executors
from kafkalog.spark.packing import packed
from kafkalog.spark.progress import Tell
from kafkalog.spark.tasks import results, run_tasks
from kafkalog.storage.names import LOCK_FILE
from kafkalog.tools.offline_partition import OfflinePlan
from kafkalog.util.fileio import OS

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

PATIENCE_S: Final = 60.0
"""Seconds that a task that is repeated, or runs twice, waits for the previous one to release the lock."""

P = TypeVar("P", bound=OfflinePlan)
T = TypeVar("T")


def inspect_all(
    spark: SparkSession, plans: Sequence[P], look: Callable[[Sequence[P]], Sequence[T]], what: str, tell: Tell | None
) -> list[T]:
    """Run `look`, a task's function, on the partitions of all plans and return its results; nothing is locked.

    Raises MissingRequirement, JobFailed, and the first error of a task.
    """
    check_executors(spark, list(dict.fromkeys(plan.directory for plan in plans)))
    tasks = packed(plans, lambda _: 1, spark.sparkContext.defaultParallelism)
    return [one for some in results(run_tasks(spark, look, tasks, what, tell)) for one in some]


def work_of(plans: Sequence[P], partitions: Collection[str], done: str) -> dict[str, list[P]]:
    """Return the plans of these partitions by data directory.

    Raises DirectoryLocked if one of the directories is in use: nothing was `done` anywhere yet.
    """
    work: dict[str, list[P]] = {}
    for plan in plans:
        if plan.place.path in partitions:
            work.setdefault(plan.directory, []).append(plan)
    for directory in work:
        if is_locked(directory, fs=OS):
            raise DirectoryLocked(
                f"the data directory is in use; nothing was {done} anywhere",
                path=os.path.join(directory, LOCK_FILE),
            )
    return work


def retry_while_locked(change: Callable[[], T]) -> T:
    """Return the result of `change`, a task's work; a repeated task waits for the lock of its predecessor."""
    from pyspark import TaskContext

    context = TaskContext.get()
    end = time.monotonic() + (PATIENCE_S if context is not None and context.attemptNumber() else 0.0)
    while True:
        try:
            return change()
        except DirectoryLocked:
            if time.monotonic() >= end:
                raise
            time.sleep(1.0)
