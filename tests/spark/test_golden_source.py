"""Through Spark, the rows of every partition of the golden capture are those that the real consumer read."""

from typing import TYPE_CHECKING, Any

import pytest

from tests import golden_cases
from tests.golden.test_consume import decoded, expected, is_consumed
from tests.golden_cases import Case

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = pytest.mark.golden
TYPES = {"CreateTime": 0, "LogAppendTime": 1, "NoTimestampType": -1}


def consumed_cases() -> list[Case]:
    """The partitions whose consumption is known, a directory of each name."""
    cases = [case for kind in ("logdir", "legacy") for case in golden_cases.partitions(kind)]
    return list({case.directory.name: case for case in reversed(cases) if is_consumed(case)}.values())


def as_row(case: Case, row: dict[str, Any]) -> tuple[Any, ...]:
    """A line of the consumer's listing as the columns of a row; headers are null where there are none."""
    headers = [(name, decoded(value)) for name, value in row["headers"]]
    topic, _, partition = case.directory.name.rpartition("-")
    return (
        decoded(row["key"]), decoded(row["value"]), topic, int(partition), row["offset"], row["timestamp"] * 1000,
        TYPES[row["timestampType"]], headers or None,
    )  # fmt: skip


def as_bytes(data: bytearray | None) -> bytes | None:
    return None if data is None else bytes(data)


@pytest.mark.parametrize("level", ["read_uncommitted", "read_committed"])
def test_rows_are_those_that_the_consumer_read(spark: "SparkSession", level: str) -> None:
    cases = consumed_cases()
    assert len(cases) > 30
    reader = spark.read.format("kafkalog").options(isolationLevel=level, includeHeaders="true")
    frame = reader.load([str(case.directory) for case in cases])
    found: dict[tuple[str, int], list[tuple[Any, ...]]] = {}
    for row in frame.withColumn("timestamp", frame.timestamp.cast("double")).collect():
        headers = None if row.headers is None else [(one.key, as_bytes(one.value)) for one in row.headers]
        micros = round(row.timestamp * 1_000_000)
        one = (
            as_bytes(row.key), as_bytes(row.value), row.topic, row.partition, row.offset, micros, row.timestampType,
            headers
        )  # fmt: skip
        found.setdefault((row.topic, row.partition), []).append(one)
    for case in cases:
        rows = [as_row(case, row) for row in expected(case, level)]
        key = (rows[0][2], rows[0][3]) if rows else None
        got = sorted(found.pop(key, []), key=lambda row: row[4]) if key else []
        assert got == rows, case.id
    assert not found
