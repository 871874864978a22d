"""Functions run as tasks of a Spark job: one task for each item, results in the order of the items."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple, TypeVar

from kafkalog.errors import KafkalogError
from kafkalog.spark.failures import failed
from kafkalog.spark.progress import Tell, watched

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

Item = TypeVar("Item")
Result = TypeVar("Result")


class Raised(NamedTuple):
    """A KafkalogError of a task, returned as a value so that Spark does not retry the task."""

    error: KafkalogError


class _Guarded:
    """The work of a task; an instance of a module's class, so that it is pickled by name."""

    def __init__(self, work: Callable[[Any], object]) -> None:
        self._work = work

    def __call__(self, items: Iterable[object]) -> Iterator[object]:
        for item in items:
            try:
                yield self._work(item)
            except KafkalogError as error:
                yield Raised(error)


def run_tasks(
    spark: SparkSession,
    work: Callable[[Item], Result],
    items: Sequence[Item],
    what: str,
    tell: Tell | None = None,
) -> list[Result | Raised]:
    """Return the result of `work` for each item; a KafkalogError is a `Raised` in its place.

    `work` is a function of a module of this package (or a partial of one); items and results are pickled. Items start
    in their order, so the largest go first. `what` names the job in Spark's interface; `tell` is called with its
    progress. Raises JobFailed if Spark gives up, such as when executors are lost again and again.
    """
    if not items:
        return []
    context = spark.sparkContext
    try:
        with watched(spark, what, tell):
            done: list[Result | Raised] = context.parallelize(items, len(items)).mapPartitions(_Guarded(work)).collect()
    except KafkalogError:
        raise
    except Exception as error:
        raise failed(error, f"the job {what!r} failed") from error
    return done


def results(done: Iterable[Result | Raised]) -> list[Result]:
    """Return the results; raise the first KafkalogError."""
    found: list[Result] = []
    for one in done:
        if isinstance(one, Raised):
            raise one.error
        found.append(one)
    return found
