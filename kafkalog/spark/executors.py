"""Checks of executors before a job starts: whether they have this package and see the files."""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from kafkalog import __version__
from kafkalog.errors import JobFailed, MissingRequirement, PartitionNotFound

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

MOST_PROBES: Final = 64
ENDED: Final = "Spark's virtual machine ended"
_NAMED: Final = re.compile(r"[A-Za-z_][\w.]*: ")
_OURS: Final = "kafkalog.errors."
HOW_TO_SHIP: Final = (
    f"install it on every node (pip install 'kafkalog[spark]=={__version__}'), or ship an environment with "
    "--conf spark.archives=env.tar.gz#env (see docs/spark.md)"
)


class Probed(NamedTuple):
    """Answer of one executor: its host, its kafkalog version or the import error, and the paths it does not see."""

    host: str
    version: str | None
    why: str
    missing: tuple[str, ...]


def probe(paths: Sequence[str]) -> Callable[[Iterable[int]], Iterable[Probed]]:
    """Return the function of a probe task; it is sent by value, since an executor may lack kafkalog."""
    wanted = tuple(paths)

    def look(items: Iterable[int]) -> Iterable[Any]:
        import os
        import socket

        version, why = None, ""
        try:
            import kafkalog
            import kafkalog._core.scan
            import kafkalog.spark.tasks

            version = kafkalog.__version__
        except ImportError as error:
            why = str(error)
        missing = tuple(path for path in wanted if not os.path.exists(path))
        return [(socket.gethostname(), version, why, missing) for _ in items]

    return look


def check_executors(spark: SparkSession, paths: Iterable[str] = ()) -> None:
    """Run one tiny task for each core and raise an error for any problem before work begins.

    `paths` are absolute and exist on the driver. Raises MissingRequirement if an executor has no kafkalog or another
    version, PartitionNotFound if it does not see one of the paths, JobFailed if no task can run.
    """
    context = spark.sparkContext
    try:
        count = max(1, min(context.defaultParallelism, MOST_PROBES))
        context.setJobDescription("kafkalog: are the executors ready?")
        said = context.parallelize(range(count), count).mapPartitions(probe([*paths])).collect()
    except Exception as error:
        raise failed(error, "the executors run no task") from error
    finally:
        with though_ended():
            context.setJobDescription(None)
    judge([Probed(*one) for one in said], os.uname().nodename)


def judge(said: Iterable[Probed], driver: str) -> None:
    """Raise the error of `check_executors` for the probes' answers; `driver` is the driver's host."""
    for one in said:
        if one.version is None:
            raise MissingRequirement(
                f"the executor on {one.host} cannot import kafkalog ({one.why}), the driver on {driver} has version "
                f"{__version__}", hint=HOW_TO_SHIP,
            )  # fmt: skip
        if one.version != __version__:
            raise MissingRequirement(
                f"the executor on {one.host} has kafkalog {one.version}, the driver on {driver} has {__version__}",
                hint=HOW_TO_SHIP,
            )
        if one.missing:
            raise PartitionNotFound(
                f"the executor on {one.host} does not see what the driver on {driver} sees", path=one.missing[0],
                hint="directories must lie on a file system that every node mounts in the same place",
            )  # fmt: skip


def failed(error: Exception, what: str) -> Exception:
    """Return JobFailed, with the most informative line, for an error of Spark; any other error unchanged."""
    if not is_of_spark(error):
        return error
    if has_ended(error):
        return JobFailed(
            f"{what}: {ENDED}",
            hint="it may have had too little memory (spark.driver.memory), or was killed; -v shows what it said",
        )
    text = java_message(error) or str(error)
    return JobFailed(f"{what}: {last_line(text)}", hint="Spark's own log has the rest; -v shows it")


def is_of_spark(error: BaseException) -> bool:
    """Return True for errors that a Spark call raises: Spark's own, those of the bridge to Java, lost connections."""
    from py4j.protocol import Py4JError
    from pyspark.errors import PySparkException

    return isinstance(error, PySparkException | Py4JError | ConnectionError)


def has_ended(error: BaseException) -> bool:
    """Return True for errors that a Spark call raises when its virtual machine is gone.

    Connection errors come only from later calls. A call in progress gets an error without Java's trace, which a running
    virtual machine would always include.
    """
    from py4j.protocol import Py4JError, Py4JNetworkError

    if type(error) is Py4JError:
        return str(error).startswith("An error occurred while calling") and "Trace:" not in str(error)
    return isinstance(error, ConnectionError | Py4JNetworkError)


def java_message(error: BaseException) -> str | None:
    """Return Java's message for an error that it raised, or ENDED if Java is gone; None for any other error."""
    cause = getattr(error, "java_exception", None)
    if cause is None:
        return None
    with though_ended():
        return str(cause.getMessage() or cause.toString())
    return ENDED


@contextmanager
def though_ended() -> Iterator[None]:
    """Ignore errors of the block if Spark's virtual machine is gone."""
    try:
        yield
    except Exception as error:
        if not has_ended(error):
            raise


def last_line(text: str) -> str:
    """Return the line of a trace that names the error; with Python traces in it, that of the last one's error."""
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    traces = [n for n, line in enumerate(lines) if "Traceback (most recent call last)" in line]
    for line in lines[traces[-1] + 1 :] if traces else ():
        if _NAMED.match(line):
            return line.removeprefix(_OURS)
    return lines[0] if lines else "it did not say why"
