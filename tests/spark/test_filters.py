"""A read after its filters, without a JVM: exactly the matching rows, or more where Spark filters again."""

from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any, NamedTuple

from hypothesis import given
from hypothesis import strategies as st

from kafkalog.spark.batch_plan import plan_batch
from kafkalog.spark.filters import Pruning
from kafkalog.where.bounds import EVERY
from tests.spark.topics import TIME, batch_positions, first_segment, flip, make_topic, source_options


class _Filter(NamedTuple):
    attribute: tuple[str, ...]
    value: Any = None


class EqualTo(_Filter): ...
class GreaterThan(_Filter): ...
class GreaterThanOrEqual(_Filter): ...
class LessThan(_Filter): ...
class LessThanOrEqual(_Filter): ...
class In(_Filter): ...
class IsNull(_Filter): ...
class IsNotNull(_Filter): ...
class StringStartsWith(_Filter): ...


class Not(NamedTuple):
    child: Any


EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
HOLDS: dict[type, Callable[[int, Any], bool]] = {
    EqualTo: lambda a, b: a == b,
    GreaterThan: lambda a, b: a > b,
    GreaterThanOrEqual: lambda a, b: a >= b,
    LessThan: lambda a, b: a < b,
    LessThanOrEqual: lambda a, b: a <= b,
    In: lambda a, b: a in b,
}
numbers = st.integers(-3, 12)
comparisons = st.builds(lambda kind, n: kind(("offset",), n), st.sampled_from(list(HOLDS)[:-1]), numbers)
sets = st.lists(numbers | st.none(), max_size=4).map(lambda values: In(("offset",), values))


@given(st.lists(comparisons | sets, max_size=4))
def test_what_is_left_is_what_the_filters_leave(filters: list[Any]) -> None:
    pruning = Pruning()
    again = [one for one in filters if not pruning.apply(one)]
    first, stop = pruning.offsets.span()
    contains = [n for n in range(10) if all(HOLDS[type(one)](n, one.value) for one in filters)]
    handed = range(max(first, 0), min(stop, 10))
    assert [n for n in handed if all(HOLDS[type(one)](n, one.value) for one in again)] == contains


@given(st.lists(st.one_of(comparisons, sets), max_size=4), numbers)
def test_partitions_are_left_exactly(filters: list[Any], number: int) -> None:
    pruning = Pruning()
    for one in filters:
        assert pruning.apply(one._replace(attribute=("partition",)))
    contains = number >= 0 and all(HOLDS[type(one)](number, one.value) for one in filters)
    assert pruning.partitions.contains(number) == contains


def test_what_is_not_understood_is_left_to_spark() -> None:
    pruning = Pruning()
    others = [
        Not(EqualTo(("partition",), 1)), EqualTo(("value",), b"x"), StringStartsWith(("topic",), "o"),
        EqualTo(("offset",), None), EqualTo(("offset",), True), EqualTo(("offset",), 1.0), In(("topic",), ["a", 1]),
        IsNotNull(("key",)), EqualTo(("headers", "key"), "x"), GreaterThan(("topic",), "a"),
        GreaterThan(("timestamp",), 5),
    ]  # fmt: skip
    assert not any(pruning.apply(one) for one in others)
    assert pruning.topics is None and pruning.times == EVERY and pruning.offsets.span() == Pruning().offsets.span()


def test_columns_that_are_never_null() -> None:
    pruning = Pruning()
    assert all(pruning.apply(IsNotNull((name,))) for name in ("topic", "partition", "offset", "timestamp"))
    assert not pruning.nothing
    assert pruning.apply(IsNull(("offset",))) and pruning.nothing


moments = st.integers(-3, 12).map(lambda half: EPOCH + timedelta(microseconds=500 * half))
at_times = st.builds(lambda kind, one: kind(("timestamp",), one), st.sampled_from(list(HOLDS)[:-1]), moments)
in_times = st.lists(moments | st.none(), max_size=4).map(lambda values: In(("timestamp",), tuple(values)))


@given(st.lists(at_times | in_times, max_size=4))
def test_times_are_left_exactly(filters: list[Any]) -> None:
    """Kafka's times are whole milliseconds, Spark's are microseconds."""
    pruning = Pruning()
    assert not any(pruning.apply(one) for one in filters)
    contains = [
        n for n in range(-5, 15)
        if all(HOLDS[type(one)](EPOCH + timedelta(milliseconds=n), one.value) for one in filters)
    ]  # fmt: skip
    assert [n for n in range(-5, 15) if any(first <= n < stop for first, stop in pruning.times)] == contains


def test_a_time_leaves_out_offsets_that_are_too_old(tmp_path: Path) -> None:
    make_topic(tmp_path, batches=12, internal_segment_bytes=2000)
    bases = sorted(int(path.name[:20]) for path in (tmp_path / "orders-0").glob("*.log"))
    first = bases[1] + 3
    since = EPOCH + timedelta(milliseconds=TIME + first)
    for one, start in (
        (GreaterThanOrEqual(("timestamp",), since), first),
        (EqualTo(("timestamp",), since), first),
        (GreaterThan(("timestamp",), since), first + 1),
        (GreaterThan(("timestamp",), since + timedelta(days=1)), 300),
        (EqualTo(("timestamp",), since + timedelta(microseconds=1)), 300),
        (LessThan(("timestamp",), since), 0),
    ):
        pruning = Pruning()
        assert not pruning.apply(one)
        ranges = plan_batch(source_options(tmp_path), pruning)
        assert [(found.start, found.stop) for found in ranges] == ([(start, 300)] if start < 300 else [])


def test_behind_damage_that_is_skipped_there_may_be_any_time(tmp_path: Path) -> None:
    make_topic(tmp_path, batches=6)
    path = first_segment(tmp_path)
    flip(path, batch_positions(path)[2][0] + 70)
    pruning = Pruning()
    since = datetime.fromtimestamp(TIME / 1000, UTC) + timedelta(milliseconds=100)
    pruning.apply(GreaterThanOrEqual(("timestamp",), since))
    options = source_options(tmp_path, onDamage="skip")
    assert [(one.start, one.stop) for one in plan_batch(options, pruning)] == [(0, 150)]
