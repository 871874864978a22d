"""The job `compact`: cleans the compacted topics of a whole tree, or reports what cleaning would remove.

First, tasks inspect all partitions without a lock. Then each partition with something to clean gets one task. It takes
the lock of the data directory in its own process, cleans, and releases the lock. The process that changes a directory
thus always holds the lock, even if the driver dies. The lock belongs to one process, so partitions of one directory are
cleaned one after another, and those of different directories in parallel. A repeated task finds less to clean, never
anything else.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from itertools import zip_longest
from typing import TYPE_CHECKING

from kafkalog.spark.jobs.offline import inspect_all, retry_while_locked, work_of
from kafkalog.spark.progress import Tell
from kafkalog.spark.tasks import Raised, results, run_tasks
from kafkalog.tools.compact.directories import CompactReport, plan_compact
from kafkalog.tools.compact.partition import MAP_BYTES, Cleaned, CompactPlan, clean_dirty, look
from kafkalog.tools.directories import Path
from kafkalog.tools.offline_survey import OfflineSurvey
from kafkalog.util.clock import SYSTEM_CLOCK
from kafkalog.util.fileio import OS

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


def compact(
    spark: SparkSession,
    paths: Path | Iterable[Path],
    *,
    apply: bool = False,
    topics: Sequence[str] = (),
    settings: Mapping[str, object] | None = None,
    store: Mapping[str, object] | None = None,
    map_bytes: int = MAP_BYTES,
    from_start: bool = False,
    roll: bool = False,
    now_ms: int | None = None,
    tell: Tell | None = None,
) -> CompactReport:
    """Report what a clean removes from data directories or partition directories; with `apply`, clean them.

    Arguments and report are those of `kafkalog compact`; each task uses up to `map_bytes` for its keys. The driver
    reads settings and time once.

    With `apply` a data directory in use raises DirectoryLocked before anything is cleaned anywhere. A later failure in
    one partition (CorruptRecord, StorageError, a broker that was started meanwhile) does not stop the others: the first
    such error is raised when all are finished. Other errors are those of `compact`, and MissingRequirement and
    JobFailed.
    """
    survey = OfflineSurvey.of(paths, topics, settings, store, now_ms)
    plans, kept = plan_compact(survey, map_bytes, from_start=from_start, roll=roll)
    dirty = inspect_all(spark, plans, _look, "compact: look", tell)
    if apply and dirty:
        dirty = _clean(spark, plans, dirty, tell)
    order = {plan.place.path: n for n, plan in enumerate(plans)}
    dirty.sort(key=lambda one: order[one.path])
    return CompactReport(tuple(dirty), tuple(kept), len(survey.found), apply)


def _clean(
    spark: SparkSession, plans: Sequence[CompactPlan], dirty: Sequence[Cleaned], tell: Tell | None
) -> list[Cleaned]:
    """Clean and return the results of the tasks; for a lost task that had cleaned, the result of the inspection."""
    seen = {one.path: one for one in dirty}
    work = work_of(plans, seen.keys(), "cleaned")
    for some in work.values():
        some.sort(key=lambda plan: -seen[plan.place.path].size)  # so that tasks of similar size run in parallel
    done: list[Cleaned | None | Raised] = []
    for together in zip_longest(*work.values()):
        items = [plan for plan in together if plan is not None]
        ended = run_tasks(spark, _clean_one, items, "compact: clean", tell)
        done += [
            seen[plan.place.path] if one is None else one for plan, one in zip(items, ended, strict=True)
        ]
    return [one for one in results(done) if one is not None]


def _look(plans: Sequence[CompactPlan]) -> list[Cleaned]:
    """Run a task: return what a clean would remove from its partitions."""
    return [one for plan in plans if (one := look(plan, OS)) is not None]


def _clean_one(plan: CompactPlan) -> Cleaned | None:
    """Run a task: clean its partition and return what was removed; None if it was clean already."""
    return retry_while_locked(lambda: next(iter(clean_dirty([plan], OS, SYSTEM_CLOCK)), None))
