"""The job `compact`: a clean of the compacted topics of a whole tree; told, or done.

First tasks look at all partitions, which locks nothing. Then there is one task for each partition with anything to
clean: it takes the lock of its data directory in its own process, cleans, and gives the lock back. So the lock is
always held by whoever changes the directory, whatever becomes of the driver; and since it belongs to one process,
partitions of one directory are cleaned one after another, those of different ones side by side. A task that is tried
again finds less to clean, never something else.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from itertools import zip_longest
from typing import TYPE_CHECKING, Any

from kafkalog.spark.jobs.offline import check_free, looked_at, once_unlocked
from kafkalog.spark.progress import Tell
from kafkalog.spark.tasks import Raised, results, run_tasks
from kafkalog.tools.compact import CompactReport, plan_compact
from kafkalog.tools.compact_partition import MAP_BYTES, Cleaned, CompactPlan, clean_dirty, look
from kafkalog.tools.offline_survey import Path
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
    settings: Mapping[str, Any] | None = None,
    store: Mapping[str, Any] | None = None,
    map_bytes: int = MAP_BYTES,
    from_start: bool = False,
    now_ms: int | None = None,
    tell: Tell | None = None,
) -> CompactReport:
    """What a clean takes from data directories or partition directories; with `apply` it is cleaned.

    Arguments and report are those of `kafkalog compact`; each task takes up to `map_bytes` for its keys. Settings are
    read and the time is taken once, by the driver.

    With `apply` a data directory that is in use is DirectoryLocked before anything is cleaned anywhere. What fails
    later in one partition (CorruptRecord, StorageError, a broker that was started meanwhile) does not keep the others:
    the first such error is raised when all are through. Other errors are those of `compact`, and MissingRequirement
    and JobFailed.
    """
    given = {"topics": topics, "settings": settings, "store": store, "map_bytes": map_bytes, "from_start": from_start}
    found = plan_compact(paths, now_ms=now_ms, **given)  # type: ignore[arg-type]
    dirty = looked_at(spark, found.plans, _look, "compact: look", tell)
    if apply and dirty:
        dirty = _clean(spark, found.plans, dirty, tell)
    order = {plan.place.path: n for n, plan in enumerate(found.plans)}
    dirty.sort(key=lambda one: order[one.path])
    return CompactReport(tuple(dirty), found.kept, found.partitions, apply)


def _clean(
    spark: SparkSession, plans: Sequence[CompactPlan], dirty: Sequence[Cleaned], tell: Tell | None
) -> list[Cleaned]:
    """What was cleaned: as the tasks say, or as it was seen before, where the task that did it was lost."""
    seen = {one.path: one for one in dirty}
    work: dict[str, list[CompactPlan]] = {}
    for plan in plans:
        if plan.place.path in seen:
            work.setdefault(plan.directory, []).append(plan)
    check_free(work, "cleaned")
    for some in work.values():
        some.sort(key=lambda plan: -seen[plan.place.path].size)  # those that run side by side are of like sizes
    done: list[Cleaned | None | Raised] = []
    for together in zip_longest(*work.values()):
        items = [plan for plan in together if plan is not None]
        ended = run_tasks(spark, _clean_one, items, "compact: clean", tell)
        done += [
            seen[plan.place.path] if one is None else one for plan, one in zip(items, ended, strict=True)
        ]
    return [one for one in results(done) if one is not None]


def _look(plans: Sequence[CompactPlan]) -> list[Cleaned]:
    """A task: what would go from its partitions."""
    return [one for plan in plans if (one := look(plan, OS)) is not None]


def _clean_one(plan: CompactPlan) -> Cleaned | None:
    """A task: what went from its partition; None where it was clean already."""
    return once_unlocked(lambda: next(iter(clean_dirty([plan], OS, SYSTEM_CLOCK)), None))
