"""The columns of a table follow those of the topic: added, widened; what does not fit is an error before any write."""

import json
from collections.abc import Callable
from decimal import Decimal
from pathlib import Path
from typing import Any

import fastavro
import pyarrow as pa
import pytest
from google.protobuf import descriptor_pb2, descriptor_pool, message_factory
from google.protobuf.descriptor import FieldDescriptor as F
from hypothesis import given, settings
from hypothesis import strategies as st

import kafkalog
from kafkalog.lake.evolution import lake_schema, lake_type, plan_evolution
from kafkalog.lake.failures import TableMismatch
from kafkalog.lake.sync import sync_topic
from tests.lake.tables import FORMATS, Lake


def record(*fields: tuple[str, Any]) -> dict[str, Any]:
    return {
        "type": "record", "name": "Order",
        "fields": [
            {"name": name, "type": kind, **({"default": None} if isinstance(kind, list) else {})}
            for name, kind in fields
        ],
    }  # fmt: skip


def append(data: Path, schema: dict[str, Any], *rows: dict[str, Any], is_keyed: bool = False) -> None:
    """Append rows, with their numbers as keys if `is_keyed`."""
    import io

    parsed = fastavro.parse_schema(schema)
    values = []
    for one in rows:
        out = io.BytesIO()
        fastavro.schemaless_writer(out, parsed, one)
        values.append(out.getvalue())
    with kafkalog.open_dirs(data, "a") as dirs:
        if "orders" not in dirs.topics:
            dirs.create_topic("orders", 1)
        dirs["orders", 0].append([(b"%d" % n if is_keyed else None, one) for n, one in enumerate(values)])


def decimal(precision: int) -> dict[str, Any]:
    return {"type": "bytes", "logicalType": "decimal", "precision": precision, "scale": 2}


INNER = record(("x", "int")) | {"name": "Inner"}
WIDER_INNER = record(("x", "long"), ("y", ["null", "string"])) | {"name": "Inner"}
FIRST = record(("id", "int"), ("price", "float"), ("tax", decimal(6)), ("parts", {"type": "array", "items": INNER}))
SECOND = record(
    ("id", "long"), ("price", "double"), ("tax", decimal(12)), ("parts", {"type": "array", "items": WIDER_INNER}),
    ("by", ["null", "string"]),
)  # fmt: skip
ROW = {"id": 1, "price": 0.5, "tax": Decimal("1.25"), "parts": [{"x": 1}]}
WIDE_ROW = {"id": 2**40, "price": 0.1, "tax": Decimal("1234567890.25"), "parts": [{"x": 2**40, "y": "p"}], "by": "me"}


@pytest.mark.parametrize("partition_by", [[], ["day(timestamp)", "partition"]])
def test_fields_are_added_and_widened(tmp_path: Path, lake: Lake, partition_by: list[str]) -> None:
    data = tmp_path / "data"
    append(data, FIRST, ROW)
    sync_topic(data, "orders", lake.target, value="avro", schema=json.dumps(FIRST), partition_by=partition_by)
    with kafkalog.open_dirs(data, "a") as dirs:
        dirs["orders", 0].delete_before(1)
    append(data, SECOND, WIDE_ROW)
    sync_topic(data, "orders", lake.target, value="avro", schema=json.dumps(SECOND))
    first = {**ROW, "parts": [{"x": 1, "y": None}], "by": None}
    assert lake.read()["value"].to_pylist() == [first, WIDE_ROW]
    assert lake.places() == [(0, 0), (0, 1)]


def test_an_upsert_finds_the_files_of_partitions_with_special_characters(tmp_path: Path, lake: Lake) -> None:
    """delta-rs puts the partition's values into the paths of the files that it writes when a column is widened."""
    data, names = tmp_path / "data", ["a b", "50%", "p+q&r", "a/b", "é#?"]
    columns = {"key": "key", "partition": "partition", "offset": "offset", "by": "value.by", "id": "value.id"}
    for kind in ("int", "long"):  # the second run replaces all rows
        schema = record(("by", "string"), ("id", kind))
        append(data, schema, *({"by": name, "id": n} for n, name in enumerate(names)), is_keyed=True)
        sync_topic(
            data, "orders", lake.target, value="avro", schema=json.dumps(schema), project=columns, upsert=True,
            partition_by=["by"],
        )  # fmt: skip
        with kafkalog.open_dirs(data, "a") as dirs:
            dirs["orders", 0].delete_before(len(names))
    append(data, schema, *({"by": name, "id": 100 + n} for n, name in enumerate(names[:2])), is_keyed=True)
    sync_topic(data, "orders", lake.target, value="avro", schema=json.dumps(schema), project=columns, upsert=True)
    rows = lake.read().to_pylist()
    assert [(one["key"], one["by"], one["id"]) for one in rows] == [
        (b"%d" % n, names[n], 100 + n if n < 2 else n) for n in (2, 3, 4, 0, 1)
    ]


def test_rows_of_an_older_schema_fit_the_wider_table(tmp_path: Path, lake: Lake) -> None:
    data = tmp_path / "data"
    append(data, SECOND, WIDE_ROW)
    sync_topic(data, "orders", lake.target, value="avro", schema=json.dumps(SECOND))
    with kafkalog.open_dirs(data, "a") as dirs:
        dirs["orders", 0].delete_before(1)
    append(data, FIRST, ROW)
    sync_topic(data, "orders", lake.target, value="avro", schema=json.dumps(FIRST))
    first = {**ROW, "parts": [{"x": 1, "y": None}], "by": None}
    assert lake.read()["value"].to_pylist() == [WIDE_ROW, first]


@pytest.mark.parametrize("kind", ["string", "int", "double"])
def test_a_type_that_cannot_be_widened_is_an_error_before_any_write(tmp_path: Path, lake: Lake, kind: str) -> None:
    data = tmp_path / "data"
    schema = record(("id", "long"), ("name", "bytes"))
    append(data, schema, {"id": 1, "name": b"a"})
    sync_topic(data, "orders", lake.target, value="avro", schema=json.dumps(schema))
    before, files = lake.snapshots(), lake.stored()
    other = record(("id", "string"), ("name", kind))
    append(data, other, {"id": "1", "name": {"string": "a", "int": 1, "double": 0.5}[kind]})
    with pytest.raises(TableMismatch, match=r"value\.id is string, and int64 in the table; value\.name is ") as failure:
        sync_topic(data, "orders", lake.target, value="avro", schema=json.dumps(other))
    assert failure.value.columns == ("value.id", "value.name")
    assert (lake.snapshots(), lake.stored()) == (before, files)


def test_a_column_without_a_type_is_added_when_it_has_one(tmp_path: Path, lake: Lake) -> None:
    data = tmp_path / "data"
    with kafkalog.open_dirs(data, "a") as dirs:
        dirs.create_topic("orders", 1)
        dirs["orders", 0].append([(b"k", None)])
        sync_topic(dirs, "orders", lake.target, value="json")
        assert "value" not in lake.read().schema.names
        dirs["orders", 0].append([(b"k", b'{"a": 1}')])
        sync_topic(dirs, "orders", lake.target, value="json")
    assert lake.read()["value"].to_pylist() == [None, {"a": 1}]


TYPES = st.recursive(
    st.sampled_from([
        pa.int8(), pa.int32(), pa.int64(), pa.uint16(), pa.uint32(), pa.uint64(), pa.float32(), pa.float64(),
        pa.bool_(), pa.string(), pa.binary(), pa.binary(4), pa.date32(), pa.timestamp("ms", "UTC"), pa.timestamp("ns"),
        pa.time32("ms"),
        pa.decimal128(9, 2), pa.decimal128(20, 2), pa.duration("us"), pa.dictionary(pa.int32(), pa.string()),
    ]),
    lambda inner: st.one_of(
        st.lists(inner, min_size=1, max_size=3).map(lambda kinds: pa.struct([*zip("abc", kinds, strict=False)])),
        inner.map(pa.list_),
        st.tuples(st.sampled_from([pa.string(), pa.int32()]), inner).map(lambda pair: pa.map_(*pair)),
    ),
    max_leaves=6,
)  # fmt: skip


@given(TYPES, st.booleans())
def test_the_types_of_tables_are_their_own(kind: pa.DataType, has_time: bool) -> None:
    made = lake_type(kind, has_time)
    assert lake_type(made, has_time) == made
    schema = pa.schema([("a", made)])
    assert not plan_evolution("t", schema, schema, is_own=False)


@given(st.lists(TYPES, min_size=1, max_size=3), st.lists(TYPES, min_size=1, max_size=3))
def test_a_plan_takes_both_or_names_what_does_not_fit(have: list[pa.DataType], wanted: list[pa.DataType]) -> None:
    """The plan holds the table's rows and the new ones, and a second plan changes nothing."""
    first, second = (lake_schema(pa.schema([(f"c{n}", t) for n, t in enumerate(types)])) for types in (have, wanted))
    try:
        plan = plan_evolution("t", first, second, is_own=True)
    except TableMismatch as error:
        assert error.columns
        return
    for schema in (first, second):
        assert not plan_evolution("t", plan.schema, schema, is_own=True)
        empty = pa.RecordBatch.from_pylist([], schema)
        for field in schema:
            empty.column(field.name).cast(plan.schema.field(field.name).type)


@settings(deadline=None, max_examples=25)
@given(kind=TYPES)
@pytest.mark.parametrize("format", FORMATS)
def test_every_type_is_stored_and_read_back(
    new_path: Callable[[str], Path], format: str, kind: pa.DataType
) -> None:
    """A decoder of any type: what it decodes to is in the table."""
    root = new_path("types")
    lake = Lake(root / "lake", format)
    made = lake_type(kind, format == "iceberg")
    values = pa.array([None, *[sample(kind)] * 2], kind)
    with kafkalog.open_dirs(root / "data", "a") as dirs:
        dirs.create_topic("orders", 1)
        dirs["orders", 0].append([None, b"1", b"2"])
        sync_topic(dirs, "orders", lake.target, value=Constant(values))
        kept = values.cast(made).to_pylist()
        assert lake.read_files()["value"].to_pylist() == kept
        assert lake.read().num_rows == 3


@settings(deadline=None, max_examples=25)
@given(kind=TYPES)
@pytest.mark.parametrize("format", FORMATS)
def test_rows_that_an_upsert_writes_again_are_as_they_were(
    new_path: Callable[[str], Path], format: str, kind: pa.DataType
) -> None:
    root = new_path("again")
    lake = Lake(root / "lake", format)
    values = pa.array([sample(kind), None, sample(kind)], kind)
    with kafkalog.open_dirs(root / "data", "a") as dirs:
        dirs.create_topic("orders", 1)
        dirs["orders", 0].append([(b"a", b"1"), (b"b", b"2"), (b"c", b"3")])
        sync_topic(dirs, "orders", lake.target, value=Constant(values), upsert=True)
        dirs["orders", 0].append([(b"a", None)])
        sync_topic(dirs, "orders", lake.target, value=Constant(values), upsert=True)
    (file,) = lake.files()
    kept = values.cast(lake_type(kind, format == "iceberg")).to_pylist()[1:]
    assert lake.read_files().select(["key", "value"]).to_pydict() == {"key": [b"b", b"c"], "value": kept}


class Constant:
    """A decoder that always gives the same rows."""

    def __init__(self, values: pa.Array) -> None:
        self.arrow_type = values.type
        self._values = values

    def decode(self, column: pa.Array) -> Any:
        from kafkalog.values import Decoded

        return Decoded(self._values.slice(0, len(column)), None, 0)


def sample(kind: pa.DataType) -> Any:
    """A value of a type."""
    types = pa.types
    if types.is_struct(kind):
        return {one.name: sample(one.type) for one in kind}
    if types.is_list(kind):
        return [sample(kind.value_type)]
    if types.is_map(kind):
        return [(sample(kind.key_type), sample(kind.item_type))]
    if types.is_decimal(kind):
        return Decimal("1.25")
    if types.is_boolean(kind):
        return True
    if types.is_dictionary(kind) or types.is_string(kind):
        return "a"
    if types.is_binary(kind) or types.is_fixed_size_binary(kind):
        return b"abcd"
    if types.is_floating(kind):
        return 0.5
    if types.is_integer(kind):
        return 7
    number = pa.scalar(7, pa.int32() if types.is_date32(kind) or types.is_time32(kind) else pa.int64())
    return number.cast(kind).as_py()


def messages(**fields: tuple[int, str]) -> Any:
    """The class of a message with fields of a number and a type; a type with a dot is a message of (number, name)."""
    file = descriptor_pb2.FileDescriptorProto(name="order.proto", package="shop", syntax="proto3")
    order = file.message_type.add(name="Order")
    part = file.message_type.add(name="Part")
    for name, (number, kind) in fields.items():
        if kind.startswith("parts "):
            inner = kind.split()[1]
            part.field.add(name=inner, number=1, type=F.TYPE_INT64, label=F.LABEL_OPTIONAL)
            order.field.add(
                name=name, number=number, type=F.TYPE_MESSAGE, type_name=".shop.Part", label=F.LABEL_REPEATED
            )  # fmt: skip
        else:
            order.field.add(
                name=name, number=number, type=F.TYPE_INT64 if kind == "int" else F.TYPE_STRING, label=F.LABEL_OPTIONAL
            )  # fmt: skip
    pool = descriptor_pool.DescriptorPool()
    pool.Add(file)
    return message_factory.GetMessageClass(pool.FindMessageTypeByName("shop.Order"))


def test_fields_of_protobuf_are_renamed_by_their_numbers(tmp_path: Path, lake: Lake) -> None:
    """In Iceberg the columns get the new names; a Delta table keeps its own, and the rows of both are in one column."""
    first = messages(id=(1, "int"), total=(2, "int"), parts=(3, "parts sku"))
    second = messages(id=(1, "int"), cents=(2, "int"), items=(3, "parts number"), total=(4, "text"))
    third = messages(id=(1, "int"), cents=(2, "int"), items=(3, "parts number"), by=(5, "text"))
    with kafkalog.open_dirs(tmp_path / "data", "a") as dirs:
        dirs.create_topic("orders", 1)
        dirs["orders", 0].append([first(id=1, total=10, parts=[{"sku": 5}]).SerializeToString()])
        sync_topic(dirs, "orders", lake.target, value="protobuf", schema=first)
        dirs["orders", 0].append([second(id=2, cents=20, items=[{"number": 6}]).SerializeToString()])
        with pytest.raises(TableMismatch, match=r"value\.total is field 4, and the table has field 2 by this name"):
            sync_topic(dirs, "orders", lake.target, value="protobuf", schema=second)
        dirs["orders", 0].append([third(id=3, cents=30, items=[{"number": 7}], by="me").SerializeToString()])
        for _ in range(2):
            sync_topic(dirs, "orders", lake.target, value="protobuf", schema=third)
    cents, items, number = ("cents", "items", "number") if lake.format == "iceberg" else ("total", "parts", "sku")
    assert [(one["id"], one[cents], one[items], one["by"]) for one in lake.read()["value"].to_pylist()] == [
        (1, 10, [{number: 5}], None), (2, 20, [{number: 6}], ""), (3, 30, [{number: 7}], "me"),
    ]  # fmt: skip


@pytest.mark.parametrize("project", [None, {"p": "value.p", "a": "value.o.a", "t": "value.t"}])
def test_json_that_shows_less_than_the_table_fits_it(
    tmp_path: Path, lake: Lake, project: dict[str, str] | None
) -> None:
    """A sync of a few values has whole numbers alone, or only nulls, where the table has fractions and records."""
    values = [
        {"p": 9.5, "o": {"a": True}, "t": "x"}, {"p": 5, "o": {"a": None}, "t": None}, {"p": None, "o": {}}, {},
        {"p": 2**53, "o": None, "t": "y", "new": [1]}, {"p": 1, "new": []},
    ]  # fmt: skip
    options: dict[str, Any] = {"value": "json", "on_undecodable": "raise"}
    if project is not None:
        options["project"] = {"partition": "partition", "offset": "offset", **project}
    with kafkalog.open_dirs(tmp_path / "data", "a") as dirs:
        dirs.create_topic("orders", 1)
        for value in values:
            dirs["orders", 0].append(json.dumps(value).encode())
            assert [one.records for one in sync_topic(dirs, "orders", lake.target, **options)] == [1]
    rows = lake.read().to_pylist()
    shown = [row if project is not None else row["value"] | {"a": (row["value"]["o"] or {}).get("a")} for row in rows]
    assert [(row["p"], row["a"], row["t"]) for row in shown] == [
        (9.5, True, "x"), (5.0, None, None), (None, None, None), (None, None, None), (2.0**53, None, "y"),
        (1.0, None, None),
    ]  # fmt: skip
    with kafkalog.open_dirs(tmp_path / "data", "a") as dirs:
        dirs["orders", 0].append(b'{"p": "text"}')
        with pytest.raises(TableMismatch, match="p is string, and double in the table"):
            sync_topic(dirs, "orders", lake.target, **options)
