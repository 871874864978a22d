"""What the jobs that change data directories have in common: a look at all partitions, and the directories' locks.

The lock of a directory is held by the process that changes it, a task's; the driver only looks whether it is free.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterable, Sequence
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
"""How long a task that is tried again, or runs twice, waits for the one before it to give the lock back."""

P = TypeVar("P", bound=OfflinePlan)
T = TypeVar("T")


def looked_at(
    spark: SparkSession, plans: Sequence[P], look: Callable[[Sequence[P]], Sequence[T]], what: str, tell: Tell | None
) -> list[T]:
    """What `look`, a task's function, says of the partitions of all plans; nothing is locked.

    MissingRequirement, JobFailed, and the first error of a task.
    """
    check_executors(spark, list(dict.fromkeys(plan.directory for plan in plans)))
    tasks = packed(plans, lambda _: 1, spark.sparkContext.defaultParallelism)
    return [one for some in results(run_tasks(spark, look, tasks, what, tell)) for one in some]


def check_free(directories: Iterable[str], done: str) -> None:
    """DirectoryLocked where one of the directories is in use: nothing was `done` anywhere yet."""
    for directory in directories:
        if is_locked(directory, fs=OS):
            raise DirectoryLocked(
                f"the data directory is in use, and nothing was {done} anywhere",
                path=os.path.join(directory, LOCK_FILE),
            )


def once_unlocked(change: Callable[[], T], patience_s: float = PATIENCE_S) -> T:
    """What `change`, a task's work, gives. One that is tried again waits for the lock that its forerunner may hold."""
    from pyspark import TaskContext

    context = TaskContext.get()
    end = time.monotonic() + (patience_s if context is not None and context.attemptNumber() else 0.0)
    while True:
        try:
            return change()
        except DirectoryLocked:
            if time.monotonic() >= end:
                raise
            time.sleep(1.0)
