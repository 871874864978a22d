"""The options `value` and `key`: typed columns with the rows of the library's scan, in batches and streams."""

import json
import pickle
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pytest
from google.protobuf import descriptor_pb2

import kafkalog
from kafkalog.errors import IllegalArgument, InvalidRecord, InvalidTimestamp
from kafkalog.spark.batch_plan import plan_batch
from kafkalog.spark.reading import arrow_batches
from kafkalog.spark.typed_columns import TypedColumns, fitting, plan_types
from kafkalog.values.protobuf_schemas import descriptor_set
from tests.spark.topics import first_segment, flip, source_options
from tests.values.avro_cases import encoded

pytest.importorskip("pyspark", reason="PySpark is not installed")

from kafkalog.spark.source import KafkalogDataSource

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

ORDER: dict[str, Any] = {"type": "record", "name": "Order", "fields": [
    {"name": "id", "type": "long"}, {"name": "customer", "type": ["null", "string"], "default": None},
    {"name": "tags", "type": {"type": "map", "values": "int"}},
    {"name": "items", "type": {"type": "array", "items": {"type": "record", "name": "Item", "fields": [
        {"name": "cents", "type": "int"}]}}},
    {"name": "hash", "type": {"type": "fixed", "name": "Hash", "size": 4}},
    {"name": "at", "type": {"type": "long", "logicalType": "timestamp-millis"}},
]}  # fmt: skip
WIDER = {**ORDER, "fields": [*ORDER["fields"], {"name": "currency", "type": "string", "default": "EUR"}]}


def order(n: int) -> dict[str, Any]:
    return {"id": n, "customer": f"c{n % 3}" if n % 4 else None, "tags": {"n": n}, "hash": b"%04d" % n,
            "items": [{"cents": n}] * (n % 3), "at": n * 1000, "currency": "DKK"}  # fmt: skip


def register(data: Path, id: int, schema: Any) -> None:
    """Add a version to the subject of the topic in the registry's own topic."""
    key = {"keytype": "SCHEMA", "subject": "orders-value", "version": id, "magic": 1}
    value = {"subject": "orders-value", "version": id, "id": id, "schema": json.dumps(schema)}
    with kafkalog.open(data / "_schemas-0", "a") as log:
        log.append([(json.dumps(key).encode(), json.dumps(value).encode())])


def append(data: Path, schema: Any, id: int, numbers: range) -> None:
    for partition in (0, 1):
        with kafkalog.open(data / f"orders-{partition}", "a") as log:
            log.append([
                (b"k%d" % n, b"\0" + id.to_bytes(4, "big") + encoded(schema, order(n))) for n in numbers
            ])  # fmt: skip


@pytest.fixture
def data(tmp_path: Path) -> Path:
    """Two partitions with values of two writers, and both schemas in the topic `_schemas`."""
    data = tmp_path / "data"
    data.mkdir()
    register(data, 1, ORDER)
    append(data, ORDER, 1, range(20))
    register(data, 2, WIDER)
    append(data, WIDER, 2, range(20, 40))
    return data


def library_rows(data: Path, **given: Any) -> list[dict[str, Any]]:
    names = ["partition", "offset", "key", "value"]
    with kafkalog.open_dirs(data) as dirs:
        found: list[dict[str, Any]] = dirs.scan("orders", names, **given).table().to_pylist(maps_as_pydicts="strict")
        return found


def typed_rows(options: Any) -> list[dict[str, Any]]:
    typed = plan_types(options, options.columns)
    assert typed is not None
    sent = pickle.loads(pickle.dumps(typed))
    found = []
    for one in plan_batch(options):
        for batch in arrow_batches(one, tuple(typed.schema.names), options, typed=sent):
            assert batch.schema == typed.schema
            found += batch.to_pylist(maps_as_pydicts="strict")
    return found


def test_tasks_return_what_a_scan_decodes(data: Path) -> None:
    """The columns are those of the subject's latest version, for values of both writers."""
    given = {"value": "avro", "key": "string", "schemas": str(data)}
    options = source_options(data, columns="partition,offset,key,value", maxRecordsPerPartition="7", **given)
    rows = sorted(typed_rows(options), key=lambda row: (row["partition"], row["offset"]))
    assert rows == library_rows(data, **given)
    assert [row["value"]["currency"] for row in rows[:40:20]] == ["EUR", "DKK"] and rows[3]["key"] == "k3"
    where = "value.id >= 10 and value.customer == 'c1'"
    options = source_options(data, columns="partition,offset,key,value", where=where, **given)
    rows = sorted(typed_rows(options), key=lambda row: (row["partition"], row["offset"]))
    assert rows == library_rows(data, where=where, **given) and 0 < len(rows) < 40


def test_a_schema_that_is_registered_later_changes_no_query_that_was_planned(data: Path) -> None:
    options = source_options(data, columns="offset,value", value="avro", schemas=str(data))
    typed = plan_types(options, options.columns)
    assert typed is not None
    newest = {**WIDER, "fields": [*WIDER["fields"], {"name": "more", "type": ["null", "int"], "default": None}]}
    register(data, 3, newest)
    append(data, {**newest, "fields": newest["fields"]}, 3, range(40, 42))
    parts = plan_batch(options)
    found = [row for one in parts for batch in arrow_batches(one, options.columns, options, typed=typed)
             for row in batch.to_pylist()]  # fmt: skip
    assert len(found) == 84 and all("more" not in row["value"] for row in found)
    assert "more" in str(plan_types(options, options.columns).schema)  # type: ignore[union-attr]


def test_types_of_json_are_those_of_all_partitions(tmp_path: Path) -> None:
    data = tmp_path / "data"
    for partition, values in enumerate(([b'{"a": 1}', b"no json"], [b'{"a": 2.5, "b": "x"}', b'{"a": []}'])):
        with kafkalog.open(data / f"orders-{partition}", "a") as log:
            log.append([(b'{"k": %d}' % partition, value) for value in values])
    given = {"value": "json", "key": "json"}
    options = source_options(data, columns="partition,offset,key,value", onUndecodable="null", **given)
    rows = typed_rows(options)
    expected = library_rows(data, on_undecodable="null", **given)
    assert sorted(rows, key=lambda row: (row["partition"], row["offset"])) == expected
    assert rows[1]["value_error"] is not None and rows[0]["value_error"] is None
    strict = source_options(data, value="json", onDamage="skip")
    with pytest.raises(InvalidRecord, match="does not decode") as error:
        typed_rows(strict)
    assert error.value.path == str(data / "orders-0") and "onUndecodable" in str(error.value.hint)


def test_damage_is_skipped_and_types_come_from_behind_it(tmp_path: Path) -> None:
    with kafkalog.open(tmp_path / "data" / "orders-0", "a") as log:
        for number in range(4):
            log.append([(b"k", b'{"a": %d}' % number)])
    flip(first_segment(tmp_path / "data"), 70)
    options = source_options(tmp_path / "data", value="json", onDamage="skip", columns="offset,value")
    assert typed_rows(options) == [{"offset": n, "value": {"a": n}} for n in (1, 2, 3)]


def test_types_that_spark_does_not_have_become_wider(tmp_path: Path) -> None:
    fields = [("a", pa.uint8()), ("b", pa.uint32()), ("c", pa.uint64()), ("d", pa.time32("ms")), ("e", pa.time64("us")),
              ("f", pa.binary(2)), ("g", pa.timestamp("ns", "UTC")), ("h", pa.timestamp("ms")),
              ("i", pa.map_(pa.string(), pa.list_(pa.uint16())))]  # fmt: skip
    row = {"a": 255, "b": 2**32 - 1, "c": 2**64 - 1, "d": 5, "e": 6, "f": b"xy", "g": 1500, "h": 7,
           "i": [("k", [65535])]}  # fmt: skip
    type = pa.struct(fields)
    from pyspark.sql.pandas.types import from_arrow_type, to_arrow_type

    fit = fitting(type)
    spark_type = from_arrow_type(fit)
    assert to_arrow_type(spark_type, timezone="UTC") == fit
    column = pa.array([row, None], type).cast(fit, safe=False)
    assert int(column[0].as_py()["c"]) == 2**64 - 1 and column[0].as_py()["i"] == [("k", [65535])]

    option = descriptor_pb2.UninterpretedOption(positive_int_value=2**64 - 1)
    with kafkalog.open(tmp_path / "data" / "orders-0", "a") as log:
        log.append(option.SerializeToString())
    schema = tmp_path / "type.desc"
    schema.write_bytes(descriptor_set(descriptor_pb2.DESCRIPTOR))
    given = {"value": "protobuf", "schema": str(schema), "message": "google.protobuf.UninterpretedOption"}
    (row,) = typed_rows(source_options(tmp_path / "data", columns="value", **given))
    assert int(row["value"]["positive_int_value"]) == 2**64 - 1


def test_what_cannot_be_planned(data: Path, tmp_path: Path) -> None:
    def planned(**given: Any) -> TypedColumns | None:
        options = source_options(data, **given)
        return plan_types(options, options.columns)

    with kafkalog.open(data / "users-0", "a") as log:
        log.append(b'"Ada"')
    with kafkalog.open(data / "empty-0", "a"):
        pass
    for wrong, message in [
        ({"value": "json", "subscribe": "orders,users"}, "value is given for 2 topics"),
        ({"value": "jsonn"}, "unknown decoder"),
        ({"value": "json", "subscribe": "empty"}, "there is no value yet"),
        ({"value": "string", "onUndecodable": "skip"}, "on_undecodable is 'skip'"),
    ]:
        with pytest.raises(IllegalArgument, match=message):
            planned(**wrong)
    assert planned(value="string", subscribe="users,empty") is not None
    assert planned(value="json", columns="offset,key") is None
    assert planned(value="avro", schema=json.dumps(ORDER), schemas=str(data), subscribe="orders,users") is not None


def test_a_schema_of_one_s_own(data: Path) -> None:
    from pyspark.sql.types import BinaryType, LongType, StringType, StructType

    source = KafkalogDataSource({"path": str(data), "subscribe": "orders", "value": "avro", "schemas": str(data)})
    made = source.schema()
    assert isinstance(made, StructType) and made.names[:2] == ["key", "value"]
    assert set(made["value"].dataType.names) == set(order(0))  # type: ignore[attr-defined]
    own = StructType().add("offset", LongType()).add("value", made["value"].dataType)
    reader: Any = KafkalogDataSource(source.options).reader(own)
    rows = [row for one in reader.partitions() for batch in reader.read(one) for row in batch.to_pylist()]
    assert reader.columns == ("offset", "value") and rows[0]["value"]["id"] == 0
    raw: Any = KafkalogDataSource(source.options).reader(StructType().add("value", BinaryType()))
    assert raw.typed is None and raw.columns == ("value",)
    with pytest.raises(IllegalArgument, match="the column value is struct<.*, not string"):
        KafkalogDataSource(source.options).reader(StructType().add("value", StringType()))


def test_what_a_schema_of_one_s_own_leaves_out_is_not_decoded(tmp_path: Path) -> None:
    from pyspark.sql.types import LongType, StringType, StructType

    with kafkalog.open(tmp_path / "data" / "orders-0", "a") as log:
        log.append([(b"\xff", b"text"), (b"k", b"text")])
    given = {"path": str(tmp_path / "data"), "subscribe": "orders", "key": "string", "value": "string"}
    for schema, row in (
        (StructType().add("offset", LongType()), {"offset": 0}),
        (StructType().add("offset", LongType()).add("value", StringType()), {"offset": 0, "value": "text"}),
    ):
        reader: Any = KafkalogDataSource(given).reader(schema)
        rows = [one for part in reader.partitions() for batch in reader.read(part) for one in batch.to_pylist()]
        assert len(rows) == 2 and rows[0] == row


def test_what_a_condition_cannot_decode_is_told_with_its_file(tmp_path: Path) -> None:
    with kafkalog.open(tmp_path / "data" / "orders-0", "a") as log:
        log.append([b'{"a": 1}', b"bad"])
    for columns in ("offset,value", "offset"):
        options = source_options(tmp_path / "data", value="json", where="value.a > 0", columns=columns)
        with pytest.raises(InvalidRecord, match="does not decode") as error:
            for one in plan_batch(options):
                list(arrow_batches(one, options.columns, options, typed=plan_types(options, options.columns)))
        assert error.value.path == str(tmp_path / "data" / "orders-0") and "onUndecodable" in str(error.value.hint)


def test_a_condition_in_a_partition_without_json(tmp_path: Path) -> None:
    for partition, value in enumerate((b'{"a": null, "b": 1}', b"no JSON", b'{"a": "x", "b": 2}')):
        with kafkalog.open(tmp_path / "data" / f"orders-{partition}", "a") as log:
            log.append([(b"k", value)])
    for where in ("value.a is null and value.b > 0", "value is null"):
        given = {"value": "json", "where": where}
        columns = "partition,offset,key,value"
        found = typed_rows(source_options(tmp_path / "data", columns=columns, onUndecodable="null", **given))
        assert len(found) == 1 and found == library_rows(tmp_path / "data", on_undecodable="null", **given)


def test_times_that_spark_does_not_have_are_no_others(tmp_path: Path) -> None:
    """The largest number of milliseconds stands for "never": as microseconds it would be in 1969."""
    schema = {"type": "long", "logicalType": "timestamp-millis"}
    with kafkalog.open(tmp_path / "data" / "orders-0", "a") as log:
        log.append([encoded("long", 5), encoded("long", 2**63 - 1)])
    options = source_options(tmp_path / "data", value="avro", schema=json.dumps(schema), columns="offset,value")
    with pytest.raises(InvalidTimestamp, match="offsets 0 to 1 is outside the range") as error:
        typed_rows(options)
    assert error.value.path == str(tmp_path / "data" / "orders-0")


def test_a_stream_s_tasks_have_its_types(data: Path) -> None:
    source = KafkalogDataSource({
        "path": str(data), "subscribe": "orders", "value": "avro", "schemas": str(data), "columns": "offset,value",
        "startingOffsets": "earliest",
    })  # fmt: skip
    schema: Any = source.schema()
    reader: Any = pickle.loads(pickle.dumps(source)).streamReader(schema)
    try:
        begin = reader.initialOffset()
        (part,) = reader.partitions(begin, reader.next_end(begin, limited=False))
        register(data, 3, {**WIDER, "fields": WIDER["fields"][:1]})
        task: Any = pickle.loads(pickle.dumps(reader))
        rows = [row for batch in task.read(part) for row in batch.to_pylist(maps_as_pydicts="strict")]
    finally:
        reader.stop()
    assert len(rows) == 80 and rows[0].keys() == {"offset", "value"}
    assert [row["value"]["items"] for row in rows[:3]] == [order(n)["items"] for n in range(3)]


def test_the_job_that_exports_takes_no_condition_and_no_decoder(data: Path, tmp_path: Path) -> None:
    from kafkalog.spark.jobs.export import export

    no_session: Any = None
    for name, value in (("where", "offset > 1"), ("value", "json"), ("Key", "string")):
        with pytest.raises(IllegalArgument, match=f"{name.lower()} is not an option of the job"):
            export(no_session, data, tmp_path / "out", {name: value})
    assert not (tmp_path / "out").exists()


@pytest.mark.spark
def test_spark_returns_the_rows_of_the_library_s_scan(spark: "SparkSession", data: Path, tmp_path: Path) -> None:
    """Batches, one with a condition, a temporary view, and a stream that goes on after a schema was registered."""
    from tests.spark.test_stream import to_the_end

    given = {"value": "avro", "key": "string", "schemas": str(data)}
    for where in ({}, {"where": "value.id >= 10 and value.customer == 'c1'"}):
        read = spark.read.format("kafkalog").options(subscribe="orders", **given, **where)
        frame = read.load(str(data)).select("partition", "offset", "key", "value")
        assert shown(frame.collect()) == [plain(row) for row in library_rows(data, **given, **where)]
    assert frame.selectExpr("sum(value.items[0].cents) AS cents").collect()[0].cents > 0

    options = {"subscribe": "orders", "startingOffsets": "earliest", **given}
    found: list[Any] = []

    def run() -> None:
        stream = spark.readStream.format("kafkalog").options(**options).load(str(data))
        writer = stream.writeStream.foreachBatch(lambda rows, _: found.extend(rows.collect()))
        to_the_end(writer, tmp_path / "checkpoint")

    run()
    assert shown(found) == [plain(row) for row in library_rows(data, **given)]
    newest = {**WIDER, "fields": [*WIDER["fields"], {"name": "more", "type": "int", "default": 7}]}
    register(data, 3, newest)
    append(data, WIDER, 2, range(40, 41))
    found.clear()
    run()
    assert [row.value.more for row in found] == [7, 7]


def shown(rows: list[Any]) -> list[dict[str, Any]]:
    """Spark's rows in the order of the log, with the columns of `library_rows`."""
    found = [row.asDict(recursive=True) for row in rows]
    found = [{name: row[name] for name in ("partition", "offset", "key", "value")} for row in found]
    return sorted(map(plain, found), key=lambda row: (row["partition"], row["offset"]))


def plain(row: dict[str, Any]) -> dict[str, Any]:
    """A row with times as numbers: Spark gives those of the session's zone, without one."""
    value = row["value"]
    return {**row, "value": {**value, "hash": bytes(value["hash"]), "at": value["at"].timestamp()}}
