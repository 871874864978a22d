"""Values with a schema registry's header: JSON, Avro and Protobuf, with a directory of schemas."""

import io
import json
import struct
import sys
from pathlib import Path
from typing import Any

import pytest

from kafkalog.errors import IllegalArgument, MissingPackage
from kafkalog.tools.decoders.named import decoder
from kafkalog.tools.decoders.plain import DecodeError
from tests.builder import uvarint

USER = {
    "type": "record",
    "name": "User",
    "fields": [{"name": "name", "type": "string"}, {"name": "age", "type": ["null", "int"]}],
}


def header(number: int) -> bytes:
    return b"\0" + struct.pack(">I", number)


def test_json_with_a_header(tmp_path: Path) -> None:
    decode = decoder("jsonschema", schemas=str(tmp_path))
    assert decode(header(2**32 - 1) + b'{"a":1}') == {"a": 1}
    for data in (b"", b"\0\0\0\0", b"\x01" + bytes(4) + b"{}", header(1) + b"{"):
        with pytest.raises(DecodeError):
            decode(data)


@pytest.fixture
def user(tmp_path: Path) -> Any:
    """(decoder, encoder) of Avro users with schema 7."""
    fastavro = pytest.importorskip("fastavro", reason="the extra `schemas` is not installed")
    (tmp_path / "7.avsc").write_text(json.dumps(USER))

    def encode(value: Any) -> bytes:
        out = io.BytesIO()
        fastavro.schemaless_writer(out, fastavro.parse_schema(USER), value)
        return out.getvalue()

    return decoder("avro", schemas=str(tmp_path)), encode


def test_avro(user: Any, tmp_path: Path) -> None:
    decode, encode = user
    ada = {"name": "Ada", "age": 36}
    data = header(7) + encode(ada)
    assert decode(data) == ada
    (tmp_path / "7.avsc").unlink()
    assert decode(data) == ada, "a schema is read once"
    for bad in (data[:-1], data + b"x", header(7), header(8) + data[5:], b"\x01" + data[1:]):
        with pytest.raises(DecodeError):
            decode(bad)
    (tmp_path / "9.avsc").write_text("{")
    with pytest.raises(IllegalArgument, match="the file is not a schema"):
        decode(header(9))


def descriptors() -> bytes:
    """A descriptor set: messages Outer (with Outer.Inner) and Second."""
    pytest.importorskip("google.protobuf", reason="the extra `schemas` is not installed")
    from google.protobuf import descriptor_pb2

    kind = descriptor_pb2.FieldDescriptorProto
    file = descriptor_pb2.FileDescriptorProto(name="shop.proto", package="shop", syntax="proto3")
    outer = file.message_type.add(name="Outer")
    outer.field.add(name="item_name", number=1, type=kind.TYPE_STRING, label=kind.LABEL_OPTIONAL)
    outer.nested_type.add(name="Inner").field.add(
        name="count", number=2, type=kind.TYPE_INT32, label=kind.LABEL_OPTIONAL
    )
    file.message_type.add(name="Second").field.add(
        name="flag", number=1, type=kind.TYPE_BOOL, label=kind.LABEL_OPTIONAL
    )
    return bytes(descriptor_pb2.FileDescriptorSet(file=[file]).SerializeToString())


def test_protobuf(tmp_path: Path) -> None:
    (tmp_path / "3.desc").write_bytes(descriptors())
    decode = decoder("protobuf", schemas=str(tmp_path))
    assert decode(header(3) + b"\0" + b"\x0a\x02pi") == {"item_name": "pi"}
    assert decode(header(3) + b"\x02\x02" + b"\x08\x01") == {"flag": True}
    assert decode(header(3) + b"\x04\0\0" + b"\x10\x05") == {"count": 5}
    zigzag_minus_one = b"\x02\x01"
    for bad in (b"", b"\x02", b"\x02\x08", b"\0\x0a\x09pi", zigzag_minus_one, uvarint(2**32 - 2), b"\xff" * 6):
        with pytest.raises(DecodeError):
            decode(header(3) + bad)


def test_packages_that_are_not_there_are_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "fastavro", None)
    monkeypatch.setitem(sys.modules, "google.protobuf.descriptor_pb2", None)
    for name in ("avro", "protobuf"):
        with pytest.raises(MissingPackage, match=r"kafkalog\[schemas\]"):
            decoder(name, schemas=str(tmp_path))
