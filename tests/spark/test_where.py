"""The option `where`: a task returns the rows that `log.scan` does, and a plan leaves out what it rules out."""

import io
import json
from pathlib import Path
from typing import TYPE_CHECKING, Any

import fastavro
import pytest

import kafkalog
from kafkalog.errors import IllegalArgument, InvalidRecord, StorageError
from kafkalog.spark.batch_plan import plan_batch
from kafkalog.spark.reading import arrow_batches
from tests.spark.topics import TIME, batch_positions, first_segment, flip, make_topic, rows_of, source_options

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

CONDITIONS = [
    "key like 'k1%' and offset < 50",
    "key matches '^k[0-9]?7$' or header.trace is not null",
    f"time >= {TIME + 40} and time < '2023-11-14T22:13:20.060Z'",
    "not (value == 'v3' or offset >= 6)",
    "partition == 1 and size == 2",
    "offset in (3, 99) and key_size > 1",
    "offset > 1000",
]


@pytest.fixture
def data(tmp_path: Path) -> Path:
    """Two partitions of 100 records, and one with headers in each."""
    make_topic(tmp_path / "data", partitions=2)
    for partition in (0, 1):
        with kafkalog.open(tmp_path / "data" / f"orders-{partition}", "a") as log:
            log.append([kafkalog.Record(b"last", b"h", TIME + 100, {"trace": b"x"})])
    return tmp_path / "data"


def library_rows(data: Path, where: str) -> list[tuple[Any, ...]]:
    """Partition, offset, key and value of the rows that a scan of each log returns."""
    found: list[tuple[Any, ...]] = []
    for partition in (0, 1):
        with kafkalog.open(data / f"orders-{partition}") as log:
            rows = log.scan(["partition", "offset", "key", "value"], where=where).table().to_pylist()
            assert [row["offset"] for row in rows] == [one.offset for one in log.records(where=where)]
            found += [tuple(row.values()) for row in rows]
    return found


@pytest.mark.parametrize("where", CONDITIONS)
def test_tasks_return_the_rows_of_the_library(data: Path, where: str) -> None:
    options = source_options(data, where=where)
    rows = [(row["partition"], row["offset"], row["key"], row["value"]) for row in rows_of(options)]
    assert sorted(rows) == library_rows(data, where)


def test_batches_keep_spark_s_types_and_the_columns_asked_for(data: Path) -> None:
    for names in ("headers,timestamp", "timestampType", "headers,key,value,topic,partition,offset,timestamp"):
        plain, options = source_options(data, columns=names), source_options(data, columns=names, where="size >= 3")
        (whole, *_), (found, *_) = (
            [batch for one in plan_batch(o) for batch in arrow_batches(one, o.columns, o)] for o in (plain, options)
        )
        assert found.schema.equals(whole.schema) and found.num_rows == 91
        assert found.slice(90).to_pylist() == whole.slice(100).to_pylist()


def test_a_plan_leaves_out_what_the_condition_rules_out(data: Path) -> None:
    def planned(where: str) -> list[tuple[int, int, int]]:
        return [(one.partition, one.start, one.stop) for one in plan_batch(source_options(data, where=where))]

    assert planned("partition == 1 and offset >= 10 and offset < 20") == [(1, 10, 20)]
    assert planned("offset > 5 and offset < 5") == planned(f"time > {TIME + 1000}") == []
    assert planned("key == 'k1'") == [(0, 0, 101), (1, 0, 101)]


def test_damage_that_is_skipped(data: Path) -> None:
    path = first_segment(data)
    (_, _), (position, _), *_ = batch_positions(path)
    flip(path, position + 70)
    options = source_options(data, where="partition == 0 and key like 'k%'", onDamage="skip")
    assert [row["offset"] for row in rows_of(options)] == [*range(25), *range(50, 100)]


def test_a_wrong_condition_is_told_when_the_options_are_read(data: Path) -> None:
    for where, message in [("ofset > 1", "did you mean offset"), ("key > 1", "key is bytes"), ("value.a > 1", "bytes")]:
        with pytest.raises(IllegalArgument, match=message):
            source_options(data, where=where)


AVRO = """{"type": "record", "name": "Order", "fields": [
    {"name": "total", "type": "long"}, {"name": "customer", "type": ["null", "string"]}]}"""
TYPED = [
    ({"value": "json"}, "value.total > 10 and value.customer.country == 'DE'"),
    ({"value": "json"}, "value.customer.country is not null and offset < 40"),
    ({"value": "json", "onUndecodable": "null"}, "value.total in (3, 30) or value.customer.country like 'F%'"),
    ({"value": "json", "key": "string"}, "key like 'k7%' and value.total >= 20"),
    ({"value": "json"}, "not (value.other < 7 or value.total is null) and value.customer.country is null"),
    ({"value": "string"}, "value like '%DE%' and size > 50"),
    ({"key": "string"}, "key in ('k1', 'k9')"),
]


@pytest.fixture
def typed(tmp_path: Path) -> Path:
    """Two partitions of JSON values, of which one has no country, and one another type of total."""
    for partition in (0, 1):
        with kafkalog.open(tmp_path / "data" / f"orders-{partition}", "a") as log:
            for start in range(0, 100, 25):
                log.append([(b"k%d" % n, order(n), TIME + n) for n in range(start, start + 25)])
    return tmp_path / "data"


def order(n: int) -> bytes:
    customer = {"country": ["DE", "FR", None][n % 3]} if n % 5 else None
    return json.dumps({"total": n if n != 8 else "eight", "other": 7, "customer": customer}).encode()


@pytest.mark.parametrize(("decoders", "where"), TYPED)
def test_paths_into_values_select_the_rows_of_the_library(
    typed: Path, decoders: dict[str, str], where: str
) -> None:
    options = source_options(typed, where=where, maxRecordsPerPartition="30", **decoders)
    rows = [(row["partition"], row["offset"], row["key"], row["value"]) for row in rows_of(options)]
    expected = typed_rows(typed, where, decoders)
    assert sorted(rows) == expected and 0 < len(expected) < 200


def typed_rows(data: Path, where: str, decoders: dict[str, str]) -> list[tuple[Any, ...]]:
    given = {"on_undecodable" if name == "onUndecodable" else name: text for name, text in decoders.items()}
    found: list[tuple[Any, ...]] = []
    for partition in (0, 1):
        with kafkalog.open(data / f"orders-{partition}") as log:
            records = [one.record for one in log.records(where=where, **given)]
            found += [(partition, one.offset, one.key, one.value) for one in records]
    return found


def test_schemas_of_the_decoders(tmp_path: Path) -> None:
    with kafkalog.open(tmp_path / "data" / "orders-0", "a") as log:
        schema = fastavro.parse_schema(json.loads(AVRO))
        for n in range(20):
            out = io.BytesIO()
            fastavro.schemaless_writer(out, schema, {"total": n, "customer": "c" if n % 2 else None})
            log.append(b"\0\0\0\0\7" + out.getvalue())
    schemas = tmp_path / "schemas"
    schemas.mkdir()
    (schemas / "7.avsc").write_text(AVRO)
    where = "value.total >= 10 and value.customer is not null"
    options = source_options(tmp_path / "data", where=where, value="avro", schemas=str(schemas))
    assert [row["offset"] for row in rows_of(options)] == [*range(11, 20, 2)]


def test_a_schema_that_a_node_lacks_is_no_loss_of_records(tmp_path: Path) -> None:
    make_topic(tmp_path / "data")
    schema = tmp_path / "order.avsc"
    schema.write_text(AVRO)
    options = source_options(
        tmp_path / "data", where="value.total > 1", value="avro", schema=str(schema), failOnDataLoss="false"
    )
    (planned,) = plan_batch(options)
    schema.unlink()
    with pytest.raises(StorageError, match="cannot read the schema"):
        list(arrow_batches(planned, options.columns, options))


def test_a_value_that_does_not_decode_is_no_damage_to_skip(typed: Path) -> None:
    with kafkalog.open(typed / "orders-0", "a") as log:
        log.append([b"no json", order(90)])
    where = "value.total == 90"
    options = source_options(typed, where=where, value="json", onDamage="skip")
    with pytest.raises(InvalidRecord, match="does not decode"):
        rows_of(options)
    lenient = source_options(typed, where=where, value="json", onUndecodable="null")
    assert [(row["partition"], row["offset"]) for row in rows_of(lenient)] == [(0, 90), (0, 101), (1, 90)]


def test_types_are_those_of_values_behind_damage_that_is_skipped(tmp_path: Path) -> None:
    """A path that needs types of the first values, in a log whose first batch is damaged."""
    with kafkalog.open(tmp_path / "data" / "orders-0", "a") as log:
        for number in range(4):
            log.append([(b"k", b'{"a.b": %d}' % number)])
    flip(first_segment(tmp_path / "data"), 70)
    options = source_options(tmp_path / "data", where='value."a.b" > 1', value="json", onDamage="skip")
    assert [row["offset"] for row in rows_of(options)] == [2, 3]


def test_wrong_decoders_are_told_before_a_task_runs(typed: Path) -> None:
    with pytest.raises(IllegalArgument, match="schemas is given, but nothing is decoded"):
        source_options(typed, schemas="/schemas")
    for wrong, message in [
        ({"where": "value.total > 1", "value": "jsonn"}, "unknown decoder"),
        ({"where": "key > 1", "value": "json"}, "key is bytes"),
        ({"where": "key == 'a'", "value": "string", "onUndecodable": "skip"}, "on_undecodable is 'skip'"),
    ]:
        with pytest.raises(IllegalArgument, match=message):
            plan_batch(source_options(typed, **wrong))


@pytest.mark.spark
def test_spark_returns_the_rows_of_the_library_for_decoded_values(spark: "SparkSession", typed: Path) -> None:
    """Keys and values that a schema has as binary stay bytes, and the condition looks into them."""
    for decoders, where in TYPED:
        read = spark.read.format("kafkalog").options(subscribe="orders", where=where, **decoders)
        frame = read.schema("partition int, offset long, key binary, value binary").load(str(typed))
        rows = sorted((row.partition, row.offset, bytes(row.key), bytes(row.value)) for row in frame.collect())
        assert rows == typed_rows(typed, where, decoders)


@pytest.mark.spark
def test_spark_returns_the_rows_of_the_library(spark: "SparkSession", data: Path) -> None:
    for where in CONDITIONS:
        frame = spark.read.format("kafkalog").options(subscribe="orders", where=where).load(str(data))
        rows = sorted((row.partition, row.offset, row.key, row.value) for row in frame.collect())
        assert [(p, o, bytes(k), bytes(v)) for p, o, k, v in rows] == library_rows(data, where)
        few = frame.where("offset >= 5")
        assert few.count() == sum(offset >= 5 for _, offset, _, _ in library_rows(data, where))
