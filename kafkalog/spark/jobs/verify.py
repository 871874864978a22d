"""The job `verify`: runs `kafkalog.verify` on a whole tree, with a cluster's tasks checking the segments."""

from __future__ import annotations

import os
from collections.abc import Iterable, Sequence
from functools import partial
from typing import TYPE_CHECKING

from kafkalog.errors import IllegalArgument, PartitionNotFound
from kafkalog.spark.executors import ONE_FILE_SYSTEM, check_executors
from kafkalog.spark.packing import packed
from kafkalog.spark.progress import Tell
from kafkalog.spark.tasks import results, run_tasks
from kafkalog.tools.directories import Path, path_list
from kafkalog.tools.verify.directories import verify_elsewhere
from kafkalog.tools.verify.job import SegmentJob, SegmentOutcome, check_segment
from kafkalog.tools.verify.report import Finding, Report
from kafkalog.util.fileio import OS

if TYPE_CHECKING:
    from pyspark.sql import SparkSession



def verify(
    spark: SparkSession,
    paths: Path | Iterable[Path],
    *,
    deep: bool = False,
    indexes_only: bool = False,
    tell: Tell | None = None,
) -> Report:
    """Return the report of `kafkalog.verify`, word for word, on data directories, partition directories and files.

    The driver lists the directories. Tasks check segments, each with its indexes, so that a large partition is spread
    over many tasks. The driver compares their results with each other and with the checkpoints. Each segment sends back
    some hundred bytes and its findings. No lock is taken, and a broker may run meanwhile.

    Raises the errors of `kafkalog.verify` for paths, MissingRequirement for executors without this package,
    PartitionNotFound for executors that do not see the files (so a report never covers files that were not read),
    JobFailed.
    """
    if deep and indexes_only:
        raise IllegalArgument("deep and indexes_only are both given", hint="omit one of them")
    given = {os.path.abspath(path): os.fspath(path) for path in path_list(paths)}
    check_executors(spark, [path for path in given if os.path.exists(path)])

    def look_all(jobs: Sequence[SegmentJob]) -> list[SegmentOutcome]:
        tasks = packed(jobs, lambda one: one.size, spark.sparkContext.defaultParallelism)
        work = partial(_look, deep=deep, check_crc=not indexes_only)
        found = results(run_tasks(spark, work, tasks, "verify", tell))
        outcomes: dict[SegmentJob, SegmentOutcome] = {}
        for task, some in zip(tasks, found, strict=True):
            outcomes.update(zip(task, some, strict=True))
        for job, outcome in outcomes.items():
            if outcome.facts is None and outcome.files == 0 and os.path.exists(job.path):
                raise PartitionNotFound(
                    "an executor did not find a file that the driver sees", path=job.path, hint=ONE_FILE_SYSTEM
                )
        return [outcomes[job] for job in jobs]

    report = verify_elsewhere(given, look_all, deep=deep, indexes_only=indexes_only)
    return Report(tuple(as_given(one, given) for one in report.findings), report.sums)


def _look(jobs: Sequence[SegmentJob], *, deep: bool, check_crc: bool) -> list[SegmentOutcome]:
    """Run a task: check its segments and return the outcomes."""
    return [check_segment(job, deep=deep, check_crc=check_crc, fs=OS) for job in jobs]



def as_given(finding: Finding, given: dict[str, str]) -> Finding:
    """Return the finding with the caller's form of its path: executors use absolute paths."""
    for absolute, path in given.items():
        if finding.path == absolute or finding.path.startswith(absolute + os.sep):
            below = finding.path[len(absolute) :]
            return finding._replace(path=(path.rstrip("/") or path) + below)
    return finding
