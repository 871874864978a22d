"""Typed scans of whole topics: all partitions decode to the same types, by partition and by time, in SQL too."""

import json
import threading
from pathlib import Path
from typing import Any

import pytest

import kafkalog
from kafkalog.errors import IllegalArgument, IllegalState
from kafkalog.log.typeless import NothingDecoder
from kafkalog.tables.topic_table import TopicTable

pa = pytest.importorskip("pyarrow")
duckdb = pytest.importorskip("duckdb")
fastavro = pytest.importorskip("fastavro")

ROWS = (  # by partition: the second has no field `note`, the first is empty
    [],
    [{"id": 1, "total": 10}, {"id": 2, "total": 2.5}],
    [{"id": 3, "total": 7, "note": "late"}],
)


@pytest.fixture
def data(tmp_path: Path) -> Path:
    with kafkalog.open_dirs(tmp_path / "data", "a") as dirs:
        dirs.create_topic("orders", len(ROWS))
        for number, rows in enumerate(ROWS):
            if rows:
                dirs["orders", number].append([(None, json.dumps(row).encode(), 1000 * row["id"]) for row in rows])
    return tmp_path / "data"


@pytest.mark.parametrize("order", ["partition", "time"])
def test_partitions_have_one_type(data: Path, order: Any) -> None:
    with kafkalog.open_dirs(data) as dirs:
        scan = dirs.scan("orders", ["offset", "value"], order=order, value="json")
        assert len({str(one.schema) for one in scan.scans}) == 1
        assert [row["id"] for row in scan.table()["value"].to_pylist()] == [1, 2, 3]
        assert [row["total"] for row in scan.table()["value"].to_pylist()] == [10.0, 2.5, 7.0]


def test_a_condition_on_values_of_all_partitions(data: Path) -> None:
    with kafkalog.open_dirs(data) as dirs:
        found = dirs.scan("orders", project={"id": "value.id"}, value="json", where="value.total > 5")
        assert found.table().to_pydict() == {"id": [1, 3]}


def test_projected_fields_by_time(data: Path) -> None:
    with kafkalog.open_dirs(data) as dirs:
        for project in (["value.id"], {"value.id": "value.id", "timestamp": "time"}):
            found = dirs.scan("orders", project=project, value="json", order="time").table()
            assert found.column_names == [*project]
            assert found["value.id"].to_pylist() == [1, 2, 3]


def test_what_does_not_decode_is_counted_over_all_partitions(data: Path) -> None:
    with kafkalog.open_dirs(data, "a") as dirs:
        for number in range(len(ROWS)):
            dirs["orders", number].append([b"{"])
        scan = dirs.scan("orders", value="json", on_undecodable="null")
        assert scan.table()["value_error"].null_count == 3
        assert scan.undecodable == 3


def test_typed_values_in_sql(data: Path) -> None:
    connection = duckdb.connect()
    with kafkalog.duckdb.register(connection, data, value="json"):
        query = "SELECT sum(value.total) FROM orders WHERE value.id >= 2 AND partition > 0"
        assert connection.execute(query).fetchone() == (9.5,)


def test_errors_of_values_in_sql(data: Path) -> None:
    with kafkalog.open_dirs(data, "a") as dirs:
        dirs["orders", 0].append([b"{"])
        connection = duckdb.connect()
        with kafkalog.duckdb.register(connection, dirs, value="json", on_undecodable="null"):
            query = "SELECT count(value), count(value_error) FROM orders"
            assert connection.execute(query).fetchone() == (3, 1)
            query = "SELECT partition FROM orders WHERE value_error IS NOT NULL"
            assert connection.execute(query).fetchall() == [(0,)]


def test_a_topic_that_gets_its_first_values_later(tmp_path: Path) -> None:
    """Values of a type unknown before are not nulls: the table is created again."""
    with kafkalog.open_dirs(tmp_path, "a") as dirs:
        dirs.create_topic("orders", 1)
        connection = duckdb.connect()
        with kafkalog.duckdb.register(connection, dirs, value="json") as tables:
            assert connection.execute("SELECT value FROM orders").fetchall() == []
            dirs["orders", 0].append([b'{"id": 5}'])
            with pytest.raises(Exception, match="first values after its table was made"):
                connection.execute("SELECT value FROM orders").fetchall()
            assert isinstance(tables.failure, IllegalState)
        with kafkalog.duckdb.register(connection, dirs, value="json"):
            assert connection.execute("SELECT value.id FROM orders").fetchall() == [(5,)]


def test_a_registrys_types_are_those_of_the_topics_subject(tmp_path: Path) -> None:
    """The latest version of `orders-value` gives the columns, also of values that an earlier one wrote."""
    old = {"type": "record", "name": "Order", "fields": [{"name": "id", "type": "long"}]}
    new = {**old, "fields": [*old["fields"], {"name": "note", "type": "string", "default": "-"}]}
    with kafkalog.open_dirs(tmp_path, "a") as dirs:
        dirs.create_topic("_schemas", 1)
        dirs.create_topic("orders", 2)
        for version, schema in enumerate((old, new), 1):
            key = {"keytype": "SCHEMA", "subject": "orders-value", "version": version, "magic": 1}
            value = {
                "subject": "orders-value", "version": version, "id": 10 + version, "schema": json.dumps(schema),
                "deleted": False,
            }  # fmt: skip
            dirs["_schemas", 0].append([(json.dumps(key).encode(), json.dumps(value).encode())])
        for number, (schema, row) in enumerate(((old, {"id": 1}), (new, {"id": 2, "note": "x"}))):
            dirs["orders", number].append([framed(11 + number, schema, row)])
        for number in range(2):
            dirs["orders", number].flush()
        scan = dirs.scan("orders", ["value"], value="avro", schemas=tmp_path)
        assert scan.table()["value"].to_pylist() == [{"id": 1, "note": "-"}, {"id": 2, "note": "x"}]


def framed(number: int, schema: dict[str, Any], row: dict[str, Any]) -> bytes:
    """Return a row as Avro data behind the header of a registry's client."""
    import io

    out = io.BytesIO()
    fastavro.schemaless_writer(out, fastavro.parse_schema(schema), row)
    return b"\0" + number.to_bytes(4, "big") + out.getvalue()


def test_a_schema_of_the_subject_that_has_no_columns_is_an_error(tmp_path: Path) -> None:
    """An older schema does not take the place of the subject's latest one."""
    old = {"type": "record", "name": "Node", "fields": [{"name": "id", "type": "long"}]}
    new = {**old, "fields": [*old["fields"], {"name": "next", "type": ["null", "Node"], "default": None}]}
    with kafkalog.open_dirs(tmp_path, "a") as dirs:
        dirs.create_topic("_schemas", 1)
        dirs.create_topic("nodes", 1)
        for version, schema in enumerate((old, new), 1):
            key = {"keytype": "SCHEMA", "subject": "nodes-value", "version": version, "magic": 1}
            value = {
                "subject": "nodes-value", "version": version, "id": 10 + version, "schema": json.dumps(schema),
                "deleted": False,
            }  # fmt: skip
            dirs["_schemas", 0].append([(json.dumps(key).encode(), json.dumps(value).encode())])
        dirs["nodes", 0].append([framed(11, old, {"id": 1})])
        for name in ("_schemas", "nodes"):
            dirs[name, 0].flush()
        with pytest.raises(IllegalArgument, match="contains itself|recursive|itself"):
            dirs.scan("nodes", ["value"], value="avro", schemas=tmp_path)


def test_a_directory_of_schemas_has_no_subjects(tmp_path: Path) -> None:
    schema = {"type": "record", "name": "Order", "fields": [{"name": "id", "type": "long"}]}
    (tmp_path / "schemas").mkdir()
    (tmp_path / "schemas" / "11.avsc").write_text(json.dumps(schema))
    with kafkalog.open_dirs(tmp_path / "data", "a") as dirs:
        dirs.create_topic("orders", 1)
        dirs["orders", 0].append([framed(11, schema, {"id": 1})])
        found = dirs.scan("orders", ["value"], value="avro", schemas=tmp_path / "schemas").table()
        assert found["value"].to_pylist() == [{"id": 1}]


def test_a_value_that_no_type_was_taken_from_is_no_null() -> None:
    """A sample that was empty, by an error or a change of the log, does not turn values into nulls."""
    decoder = NothingDecoder()
    assert decoder.decode(pa.array([None, None], pa.binary())).values.null_count == 2
    with pytest.raises(IllegalState, match="no value was read"):
        decoder.decode(pa.array([None, b"{}"], pa.binary()))


def test_types_that_were_given_to_one_thread_are_those_of_all(data: Path) -> None:
    """A thread that finds others, since the log grew meanwhile, does not replace them."""
    waits, goes_on = threading.Event(), threading.Event()

    class Directories:
        def logs(self, topic: str) -> tuple[kafkalog.Log, ...]:
            if threading.current_thread() is late:
                waits.set()
                goes_on.wait()
            return dirs.logs(topic)

    with kafkalog.open_dirs(data, "a") as dirs:
        table = TopicTable(Directories(), "orders", {"value": "json"})  # type: ignore[arg-type]
        late = threading.Thread(target=lambda: table.schema)
        late.start()
        waits.wait()
        given = table.schema
        dirs["orders", 0].append([b'{"id": "a text", "more": 1}'])
        goes_on.set()
        late.join()
        assert table.schema == given
