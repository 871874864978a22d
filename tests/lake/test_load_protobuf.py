"""Tables as sources of topics with Protobuf values: by the columns or a given schema, with or without an id."""

from datetime import date
from decimal import Decimal
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from google.protobuf import descriptor_pb2, message_factory

from kafkalog import values
from kafkalog.errors import IllegalArgument, InvalidRecord
from kafkalog.lake.derived_protobuf import protobuf_schema
from kafkalog.lake.sync import sync_topic
from kafkalog.values.protobuf_encode import encoder
from kafkalog.values.protobuf_schemas import DescriptorFiles, descriptor_set
from tests.commands import ok
from tests.lake.loads import SCHEMA, rows
from tests.lake.tables import Lake
from tests.lake.test_load_avro import check_id_of_columns, load, loaded_values
from tests.lake.test_load_avro import scanned as scanned_by
from tests.values.protobuf_cases import plain
from tests.values.test_protobuf import files_of

ORDER = """name: "shop.proto" package: "shop" syntax: "proto3"
 message_type { name: "Other" field { name: "n" number: 1 type: TYPE_INT32 label: LABEL_OPTIONAL } }
 message_type { name: "Outer" nested_type { name: "Order"
  field { name: "id" number: 4 type: TYPE_INT64 label: LABEL_OPTIONAL }
  field { name: "title" number: 2 type: TYPE_STRING label: LABEL_OPTIONAL json_name: "name" }
  field { name: "note" number: 3 type: TYPE_STRING label: LABEL_OPTIONAL } } }"""


def scanned(data: Path, **given: Any) -> list[Any]:
    return scanned_by(data, **{"value": "protobuf", **given})


def test_rows_come_back_by_the_message_of_the_columns(lake: Lake, tmp_path: Path) -> None:
    lake.create(SCHEMA)
    lake.append(rows(0, 9000))
    assert load(lake, tmp_path / "data", value="protobuf", partitions=2) == 9000
    descriptor = protobuf_schema([*SCHEMA], "back")
    of = message_factory.GetMessageClass(descriptor)
    table = rows(0, 9000).to_pylist()
    found = sorted((of.FromString(one) for one in loaded_values(tmp_path / "data")), key=lambda one: one.id)
    assert [(one.id, one.name, one.data) for one in found] == [(one["id"], one["name"], one["data"]) for one in table]
    assert scanned(tmp_path / "data", schema=descriptor) == table


def test_the_message_of_the_columns_is_stored_under_an_id(lake: Lake, tmp_path: Path) -> None:
    check_id_of_columns(lake, tmp_path, "protobuf", "1.desc", b"\0\0\0\0\1\0")


def test_a_given_message_chooses_columns(lake: Lake, tmp_path: Path) -> None:
    schemas = tmp_path / "schemas"
    schemas.mkdir()
    content = files_of(ORDER)
    (schemas / "7.desc").write_bytes(content)
    lake.create(SCHEMA)
    lake.append(rows(0, 4))
    wanted = [{"id": n, "title": f"n{n}", "note": ""} for n in range(4)]
    given = {"value": "protobuf", "message": "Outer.Order"}
    load(lake, tmp_path / "by_id", schema=7, schemas=schemas, **given)
    head = b"\0\0\0\0\7" + bytes([2 << 1, 1 << 1, 0])  # two indexes: the second message, and its first one
    assert {one[:8] for one in loaded_values(tmp_path / "by_id")} == {head}
    assert scanned(tmp_path / "by_id", schemas=schemas) == wanted
    load(lake, tmp_path / "stored", schema=content, schemas=schemas, **given)
    assert {one[:8] for one in loaded_values(tmp_path / "stored")} == {head}, "it is the schema with that id"
    for framing in ("raw", "delimited"):
        load(lake, tmp_path / framing, schema=content, framing=framing, **given)
        assert scanned(tmp_path / framing, schema=content, message="Outer.Order", framing=framing) == wanted


def test_what_does_not_fit_appends_nothing(lake: Lake, tmp_path: Path) -> None:
    lake.create(SCHEMA)
    lake.append(rows(0, 4))
    content = files_of(ORDER)
    for given, match in (
        ({"schema": content}, "the schema has 2 messages"),
        ({"schema": content, "message": "Other"}, "no field of shop.Other has a column"),
        ({"message": "Other"}, "message names one of a schema"),
        ({"framing": "registry"}, "needs the id of a schema"),
        ({"framing": "length"}, "unknown framing 'length'"),
        ({"value": "avro", "message": "Other"}, "message is for Protobuf values"),
        ({"value": "json", "message": "Other"}, "are for Avro and Protobuf values"),
    ):
        with pytest.raises(IllegalArgument, match=match):
            load(lake, tmp_path / "data", **{"value": "protobuf", **given})
    lake.append(pa.table({name: pa.nulls(1, kind) for name, kind in zip(SCHEMA.names, SCHEMA.types, strict=True)}))
    with pytest.raises(InvalidRecord, match="field title is null, and has no presence"):
        load(lake, tmp_path / "data", value="protobuf", schema=content, message="Outer.Order")
    assert not [*(tmp_path / "data").glob("back-*")]


def test_a_message_of_an_imported_file_cannot_be_named_by_an_id(lake: Lake, tmp_path: Path) -> None:
    user = 'name: "user.proto" dependency: "shop.proto" syntax: "proto3" message_type { name: "User" }'
    (tmp_path / "7.desc").write_bytes(files_of(f"{ORDER} }} file {{ {user}"))
    lake.create(SCHEMA)
    lake.append(rows(0, 1))
    given = {"value": "protobuf", "schema": 7, "schemas": tmp_path, "message": "shop.Outer.Order"}
    with pytest.raises(IllegalArgument, match="a message of a file that the schema imports"):
        load(lake, tmp_path / "data", **given)
    assert load(lake, tmp_path / "data", framing="raw", **given) == 1


INNER = pa.struct([pa.field("x", pa.int64()), pa.field("_x", pa.list_(pa.string()))])
WIDE = pa.schema([
    pa.field("id", pa.int32(), False), pa.field("u", pa.uint64()), pa.field("small", pa.uint8()),
    pa.field("flag", pa.bool_()), pa.field("single", pa.float32()), pa.field("double", pa.float64()),
    pa.field("word", pa.dictionary(pa.int8(), pa.string())), pa.field("data", pa.binary()),
    pa.field("record", INNER), pa.field("record_", INNER), pa.field("records", pa.list_(INNER)),
    pa.field("numbers", pa.list_(pa.int32())), pa.field("map", pa.map_(pa.string(), INNER)),
    pa.field("counts", pa.map_(pa.int32(), pa.float64())), pa.field("orderId", pa.int64()),
    pa.field("order_id", pa.int64()), pa.field("took", pa.duration("us")), pa.field("_flag", pa.int32()),
])  # fmt: skip


def test_all_types_of_columns_have_a_field() -> None:
    inner = {"x": 1, "_x": ["a"]}
    full = {"id": 1, "u": 2**64 - 1, "small": 255, "flag": False, "single": 0.5, "double": 1e300, "word": "w",
            "data": b"\0", "record": inner, "record_": {"x": None, "_x": []}, "records": [inner, inner],
            "numbers": [0, -1], "map": {"a": inner}, "counts": {-1: 0.0}, "orderId": 0, "order_id": 5,
            "took": None, "_flag": 3}  # fmt: skip
    empty = dict.fromkeys(WIDE.names) | {"id": 0, "records": [], "numbers": [], "map": {}, "counts": {}}
    made = pa.RecordBatch.from_pylist([full, empty], WIDE).to_struct_array()
    descriptor = protobuf_schema([*WIDE], "1st-orders")
    assert descriptor.full_name == "_1st_orders"
    found = values.decoder("protobuf", schema=descriptor).decode(encoder(descriptor, made.type)(made))
    assert found.failed == 0
    assert [plain(one, found.values.type) for one in found.values.to_pylist()] == [full, empty]
    again = descriptor_pb2.FileDescriptorSet.FromString(descriptor_set(descriptor.file))
    assert DescriptorFiles(again.file).message("_1st_orders").fields_by_name["orderId"].number == 15


def test_dates_times_and_decimals_are_googles_messages(tmp_path: Path) -> None:
    columns = pa.schema({"day": pa.date32(), "clock": pa.time64("us"), "money": pa.decimal128(9, 2)})
    row = {"day": date(2026, 11, 29), "clock": None, "money": Decimal("-1.50")}
    made = pa.RecordBatch.from_pylist([row], columns).to_struct_array()
    descriptor = protobuf_schema([*columns], "t")
    decoder = values.decoder("protobuf", schema=descriptor_set(descriptor.file), message="t")
    found = decoder.decode(encoder(descriptor, made.type)(made)).values.to_pylist()
    assert found == [{"day": {"year": 2026, "month": 11, "day": 29}, "clock": None, "money": {"value": "-1.50"}}]


@pytest.mark.parametrize(
    ("name", "kind", "match"),
    [
        ("a b", pa.int64(), "column 'a b' has a name that Protobuf does not allow"),
        ("é", pa.string(), "column 'é'"),
        ("a", pa.null(), "column 'a' of type null has no type of Protobuf"),
        ("a", pa.list_(pa.list_(pa.int64())), r"column 'a\[\]' of type list"),
        ("a", pa.map_(pa.float64(), pa.int64()), r"column 'a\{\}' of type double"),
        ("a", pa.struct({"b-c": pa.int64()}), "column 'a.b-c'"),
    ],
)
def test_columns_that_protobuf_does_not_know_are_named(name: str, kind: pa.DataType, match: str) -> None:
    with pytest.raises(IllegalArgument, match=match):
        protobuf_schema([pa.field(name, kind)], "t")


def test_the_command_and_the_way_to_a_table_and_back(lake: Lake, tmp_path: Path) -> None:
    schemas, file = tmp_path / "schemas", tmp_path / "order.desc"
    schemas.mkdir()
    for path in (file, schemas / "7.desc"):
        path.write_bytes(files_of(ORDER))
    lake.create(SCHEMA)
    lake.append(rows(0, 2))
    line = ["table", "load", "-t", "back", "--column", "key=id", "-s", "value=protobuf"]
    ok(*line, lake.target, "-d", tmp_path / "file", "--schema", file, "--message", "Outer.Order")
    wanted = scanned(tmp_path / "file", schema=file, message="Outer.Order")
    assert wanted[1] == {"id": 1, "title": "n1", "note": ""}
    ok(*line, lake.target, "-d", tmp_path / "id", "--schema", "7", "--schemas", schemas, "--message", "Outer.Order")
    fields = {name: f"value.{name}" for name in ("id", "title", "note")}
    target = f"delta:{tmp_path / 'again'}"
    sync_topic(tmp_path / "id", "back", target, value="protobuf", schemas=schemas, project=fields)
    ok(*line, target, "-d", tmp_path / "back", "--schema", file, "--message", "Outer.Order", "--framing", "delimited")
    assert scanned(tmp_path / "back", schema=file, message="Outer.Order", framing="delimited") == wanted
