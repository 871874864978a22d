"""The job `sync` without Spark: the driver runs the tasks itself, so that it can be killed at a step and started often.

    python -m tests.spark.killed_sync DATA TARGET STEP      dies at a call or return of the step that commits
"""

import pickle
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any, cast

import pytest

import kafkalog.spark.jobs.sync as job
from tests.kills import die_at


class _Session:
    """The part of a session that the driver uses."""

    class sparkContext:
        defaultParallelism = 2


def run_here(_: object, work: Any, items: Sequence[Any], *given: object) -> list[Any]:
    """Run each task with what it would get, and return what the driver would get."""
    return [pickle.loads(pickle.dumps(pickle.loads(pickle.dumps(work))(one))) for one in items]


def sync_here(data: Path, target: str, **given: Any) -> None:
    """Write what the table lacks of `orders`, in tasks of this process."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(job, "run_tasks", run_here)
        patch.setattr(job, "check_executors", lambda *_: None)
        job.sync(cast(Any, _Session), data, "orders", target, **given)


if __name__ == "__main__":
    sys.setprofile(die_at(int(sys.argv[3]), {"kafkalog/lake/sync": {"_commit"}}))
    sync_here(Path(sys.argv[1]), sys.argv[2])
