"""Progress of Spark jobs: finished and total tasks, polled while another thread runs the jobs."""

from __future__ import annotations

import threading
import uuid
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING, Final, NamedTuple

from kafkalog.spark.failures import ignore_if_ended

if TYPE_CHECKING:
    from pyspark import StatusTracker
    from pyspark.sql import SparkSession

EVERY_S: Final = 0.25


class JobProgress(NamedTuple):
    """Finished tasks, and all tasks known so far: a job of several stages learns of them one after another."""

    done: int
    total: int


Tell = Callable[[JobProgress], None]


@contextmanager
def watched(spark: SparkSession, what: str, tell: Tell | None) -> Iterator[None]:
    """Name all Spark jobs that this thread starts inside `what`, and report their progress to `tell`.

    `tell` is called from another thread; without it no thread is started. The jobs form one group: leaving with an
    error (also Ctrl-C) cancels those still running.
    """
    context = spark.sparkContext
    group = f"kafkalog-{uuid.uuid4()}"
    previous = {name: context.getLocalProperty(name) for name in _PROPERTIES}
    context.setJobGroup(group, f"kafkalog: {what}", interruptOnCancel=False)
    ended = threading.Event()
    watcher = None
    if tell is not None:
        watcher = threading.Thread(
            target=_watch, args=(context.statusTracker(), group, tell, ended), name="kafkalog-spark", daemon=True
        )
        watcher.start()
    try:
        yield
    except BaseException:
        with suppress(Exception):  # the original error is raised, not that of the cancellation
            context.cancelJobGroup(group)
        raise
    finally:
        ended.set()
        if watcher is not None:
            watcher.join()
        with ignore_if_ended():
            for name, value in previous.items():
                context.setLocalProperty(name, value)
    if tell is not None:
        total = progress_of(context.statusTracker(), group).total  # Spark's counts may be a task behind
        tell(JobProgress(total, total))


_PROPERTIES: Final = ("spark.jobGroup.id", "spark.job.description", "spark.job.interruptOnCancel")


def _watch(tracker: StatusTracker, group: str, tell: Tell, ended: threading.Event) -> None:
    last = JobProgress(0, 0)
    while not ended.wait(EVERY_S):
        now = last
        with ignore_if_ended():  # the thread that waits for the jobs reports it
            now = progress_of(tracker, group)
        if now != last:
            tell(now)
            last = now


def progress_of(tracker: StatusTracker, group: str) -> JobProgress:
    """Return the progress of a group's jobs; stages that the tracker has forgotten are not counted."""
    stages = {stage for job in tracker.getJobIdsForGroup(group) for stage in _stages_of(tracker, job)}
    infos = [info for info in map(tracker.getStageInfo, sorted(stages)) if info is not None]
    return JobProgress(sum(info.numCompletedTasks for info in infos), sum(info.numTasks for info in infos))


def _stages_of(tracker: StatusTracker, job: int) -> list[int]:
    info = tracker.getJobInfo(job)
    return [] if info is None else list(info.stageIds)
