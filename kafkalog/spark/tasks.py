"""Work of ours as tasks of a Spark job: one task for each item, results in the order of the items."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple, TypeVar

from kafkalog.errors import KafkalogError
from kafkalog.spark.executors import failed
from kafkalog.spark.progress import Tell, watched

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

Item = TypeVar("Item")
Result = TypeVar("Result")


class Raised(NamedTuple):
    """An error of ours that a task met: it travels as a value, so that Spark does not try the same again."""

    error: KafkalogError


class _Guarded:
    """The work of a task; an object of a module, so that it travels by its name."""

    def __init__(self, work: Callable[[Any], Any]) -> None:
        self._work = work

    def __call__(self, items: Iterable[Any]) -> Iterator[Any]:
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
    """What `work` came to for each item; an error of ours is a `Raised` in its place.

    `work` is a function of a module of this package (or a partial of one); items and results are pickled. Items are
    begun in their order, so the largest go first. `what` names the job in Spark's interface, `tell` is called with how
    far it is. JobFailed where Spark gives up, such as when executors are lost again and again.
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
    """The results; the first error of ours is raised."""
    found: list[Result] = []
    for one in done:
        if isinstance(one, Raised):
            raise one.error
        found.append(one)
    return found
