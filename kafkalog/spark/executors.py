"""What a job finds out about executors before it gives them work: have they this package, and do they see the files?"""

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
    """What one executor said: its host, the version of its kafkalog or why there is none, the paths it misses."""

    host: str
    version: str | None
    why: str
    missing: tuple[str, ...]


def probe(paths: Sequence[str]) -> Callable[[Iterable[int]], Iterable[Probed]]:
    """The work of a probe task; it travels by value, since an executor may have no kafkalog to import it from."""
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
    """Runs one tiny task for each core there is, and says what is wrong before any work is begun.

    `paths` are absolute, and there on the driver. MissingRequirement where an executor has no kafkalog or another
    version, PartitionNotFound where it does not see one of the paths, JobFailed where it runs no task at all.
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
    """Raises what `check_executors` raises for what the probes said; `driver` is the driver's host."""
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
    """JobFailed for an error of Spark, with the line that says most; any other error as it is."""
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
    """Whether a call of Spark raises such an error: its own, the bridge's to Java, or that of a lost connection."""
    from py4j.protocol import Py4JError
    from pyspark.errors import PySparkException

    return isinstance(error, PySparkException | Py4JError | ConnectionError)


def has_ended(error: BaseException) -> bool:
    """Whether a call of Spark raises such an error when its virtual machine is gone.

    The connection's errors are only those of the calls after it; the one that waits meanwhile gets an error without
    Java's trace, which no virtual machine that runs would leave out.
    """
    from py4j.protocol import Py4JError, Py4JNetworkError

    if type(error) is Py4JError:
        return str(error).startswith("An error occurred while calling") and "Trace:" not in str(error)
    return isinstance(error, ConnectionError | Py4JNetworkError)


def java_message(error: BaseException) -> str | None:
    """What Java says of an error that it raised, or that it can no longer be asked; None for any other error."""
    cause = getattr(error, "java_exception", None)
    if cause is None:
        return None
    with though_ended():
        return str(cause.getMessage() or cause.toString())
    return ENDED


@contextmanager
def though_ended() -> Iterator[None]:
    """What is done inside is left undone where Spark's virtual machine is gone."""
    try:
        yield
    except Exception as error:
        if not has_ended(error):
            raise


def last_line(text: str) -> str:
    """The line of a trace that names the error: where there is a Python trace in it, that of the last one's error."""
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    traces = [n for n, line in enumerate(lines) if "Traceback (most recent call last)" in line]
    for line in lines[traces[-1] + 1 :] if traces else ():
        if _NAMED.match(line):
            return line.removeprefix(_OURS)
    return lines[0] if lines else "it did not say why"
