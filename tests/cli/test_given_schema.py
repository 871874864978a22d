"""`--schema` and `--message`: values without a registry's id, in the commands that show or change them."""

import io
import json
from pathlib import Path
from typing import Any

import pytest

import kafkalog
from kafkalog import decoders
from tests.commands import kafkalog as command
from tests.commands import ok

fastavro = pytest.importorskip("fastavro")
pytest.importorskip("pyarrow")
ORDER = {
    "type": "record", "name": "Order", "fields": [
        {"name": "id", "type": "long"}, {"name": "user", "type": ["null", "string"], "default": None},
    ],
}  # fmt: skip
ORDERS: list[dict[str, Any]] = [{"id": 1, "user": "ada"}, {"id": 2, "user": None}, {"id": 2**53 + 1, "user": "bob"}]


def avro(order: dict[str, Any]) -> bytes:
    out = io.BytesIO()
    fastavro.schemaless_writer(out, fastavro.parse_schema(ORDER), order)
    return out.getvalue()


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "order.avsc").write_text(json.dumps(ORDER))
    data = tmp_path / "data"
    data.mkdir()
    with kafkalog.open(data / "orders-0", "a") as log:
        log.append([(b"k%d" % one["id"], avro(one)) for one in ORDERS])
    return data


def flags(folder: Path, *more: object) -> list[object]:
    return ["-d", folder, "-t", "orders", "-s", "value=avro", "--schema", folder.parent / "order.avsc", *more]


def test_consume_prints_and_filters_by_the_schema(folder: Path) -> None:
    assert [json.loads(line) for line in ok("consume", *flags(folder)).splitlines()] == ORDERS
    found = ok("consume", *flags(folder, "--where", "value.id == 9007199254740993", "-f", r"%o %s\n"))
    assert found == b'2 {"id":9007199254740993,"user":"bob"}\n'
    found = ok("consume", *flags(folder, "--where", "value.user is null", "--project", "offset,value.id"))
    assert found == b'{"offset":1,"value.id":2}\n'
    # both are named, only the key is looked into: the schema stays that of the value
    found = ok("consume", *flags(folder, "-s", "key=string", "--where", "key == 'k1'"))
    assert json.loads(found) == ORDERS[0]


def test_an_id_in_schemas_gives_the_readers_schema(folder: Path) -> None:
    schemas = folder.parent / "schemas"
    schemas.mkdir()
    (schemas / "7.avsc").write_text(json.dumps(ORDER))
    only_user = {**ORDER, "fields": ORDER["fields"][1:]}
    (schemas / "8.avsc").write_text(json.dumps(only_user))
    with kafkalog.open(folder / "framed-0", "a") as log:
        log.append([b"\0\0\0\0\7" + avro(one) for one in ORDERS])
    given = ["-d", folder, "-t", "framed", "-s", "value=avro", "--schemas", schemas, "--schema", "8"]
    assert [json.loads(line) for line in ok("consume", *given).splitlines()] == [
        {"user": one["user"]} for one in ORDERS
    ]


def test_consume_takes_the_message_of_a_protobuf_schema(folder: Path) -> None:
    protobuf = pytest.importorskip("google.protobuf.descriptor_pb2")
    kind = protobuf.FieldDescriptorProto
    file = protobuf.FileDescriptorProto(name="a.proto", syntax="proto3")
    for name in ("First", "User"):
        file.message_type.add(name=name).field.add(
            name=f"{name.lower()}_name", number=1, type=kind.TYPE_STRING, label=kind.LABEL_OPTIONAL
        )
    described = folder.parent / "a.desc"
    described.write_bytes(protobuf.FileDescriptorSet(file=[file]).SerializeToString())
    with kafkalog.open(folder / "users-0", "a") as log:
        log.append([b"\x0a\x03Ada", b"\x0a\x03Bob"])
    given = ["-d", folder, "-t", "users", "-s", "value=protobuf", "--schema", described, "--message", "User"]
    assert ok("consume", *given, "--where", "value.user_name == 'Bob'") == b'{"user_name":"Bob"}\n'


def test_redact_finds_records_by_the_schema(folder: Path) -> None:
    given = flags(folder, "--where", "value.user == 'bob'", "--apply")
    ok("redact", *given)
    with kafkalog.open(folder / "orders-0") as log:
        assert [record.value for record in log.records()] == [avro(ORDERS[0]), avro(ORDERS[1]), b""]


def test_a_value_that_does_not_fit_is_named(folder: Path) -> None:
    with kafkalog.open(folder / "orders-0", "a") as log:
        log.append([b"\x02"])
    done = command("consume", *flags(folder))
    assert done.returncode == 1 and len(done.stdout.splitlines()) == 3
    assert b"offset 3" in done.stderr and b"it ends inside a value" in done.stderr
    assert command("redact", *flags(folder, "--where", "value.user == 'bob'")).returncode == 1


@pytest.mark.parametrize("more", [[], ["-s", "value=string"], ["-s", "key=avro", "-s", "value=string"]])
def test_a_schema_without_a_decoder_that_takes_it_is_wrong_usage(folder: Path, more: list[str]) -> None:
    for name in ("consume", "browse"):
        done = command(name, "-d", folder, "-t", "orders", "--schema", folder.parent / "order.avsc", *more)
        assert done.returncode == 2 and b"give -s" in done.stderr, (name, done.stderr)


def test_one_value_at_a_time(tmp_path: Path) -> None:
    path = tmp_path / "order.avsc"
    path.write_text(json.dumps(ORDER))
    decode = decoders.decoder("avro", schema=str(path))
    assert decode(avro(ORDERS[2])) == ORDERS[2]
    with pytest.raises(decoders.DecodeError, match="it ends inside a value"):
        decode(b"\x02")
