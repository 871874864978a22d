"""Checks of executors before a job starts: whether they have this package and see the files."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Sequence
from typing import TYPE_CHECKING, Final, NamedTuple

from kafkalog._version import __version__
from kafkalog.errors import MissingRequirement, PartitionNotFound
from kafkalog.spark.failures import failed, ignore_if_ended

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

MAX_PROBES: Final = 64
HOW_TO_SHIP: Final = (
    f"install it on every node (pip install 'kafkalog[spark]=={__version__}'), or ship an environment with "
    "--conf spark.archives=env.tar.gz#env (see docs/spark.md)"
)


ONE_FILE_SYSTEM: Final = "directories must be on a file system that every node mounts at the same path"


class Probed(NamedTuple):
    """Answer of one executor: its host, its kafkalog version or the import error, and the paths it does not see."""

    host: str
    version: str | None
    import_error: str
    missing: tuple[str, ...]


def probe(paths: Sequence[str]) -> Callable[[Iterable[int]], Iterable[tuple[str, str | None, str, tuple[str, ...]]]]:
    """Return the function of a probe task; it is sent by value, since an executor may lack kafkalog."""
    wanted = tuple(paths)

    def look(items: Iterable[int]) -> Iterable[tuple[str, str | None, str, tuple[str, ...]]]:
        import os
        import socket

        version, import_error = None, ""
        try:
            import kafkalog
            import kafkalog._core.batch.scan
            import kafkalog.spark.tasks

            version = kafkalog.__version__
        except ImportError as error:
            import_error = str(error)
        missing = tuple(path for path in wanted if not os.path.exists(path))
        return [(socket.gethostname(), version, import_error, missing) for _ in items]

    return look


def check_executors(spark: SparkSession, paths: Iterable[str] = ()) -> None:
    """Run one tiny task for each core and raise an error for any problem before work begins.

    `paths` are absolute and exist on the driver. Raises MissingRequirement if an executor has no kafkalog or another
    version, PartitionNotFound if it does not see one of the paths, JobFailed if no task can run.
    """
    context = spark.sparkContext
    try:
        count = max(1, min(context.defaultParallelism, MAX_PROBES))
        context.setJobDescription("kafkalog: check the executors")
        answers = context.parallelize(range(count), count).mapPartitions(probe([*paths])).collect()
    except Exception as error:
        raise failed(error, "the executors cannot run a task") from error
    finally:
        with ignore_if_ended():
            context.setJobDescription(None)
    check_answers([Probed(*one) for one in answers], os.uname().nodename)


def check_answers(answers: Iterable[Probed], driver: str) -> None:
    """Raise the error of `check_executors` for the probes' answers; `driver` is the driver's host."""
    for one in answers:
        if one.version is None:
            raise MissingRequirement(
                f"the executor on {one.host} cannot import kafkalog ({one.import_error}), but the driver on {driver} "
                f"has version {__version__}", hint=HOW_TO_SHIP,
            )  # fmt: skip
        if one.version != __version__:
            raise MissingRequirement(
                f"the executor on {one.host} has kafkalog {one.version}, but the driver on {driver} has {__version__}",
                hint=HOW_TO_SHIP,
            )
        if one.missing:
            raise PartitionNotFound(
                f"the executor on {one.host} cannot see a path that the driver on {driver} sees", path=one.missing[0],
                hint=ONE_FILE_SYSTEM,
            )  # fmt: skip
