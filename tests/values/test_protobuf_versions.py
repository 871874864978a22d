"""Protobuf schemas of a registry: two ids of one subject, messages that are too wide, settled columns, protoc."""

import base64
import os
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from google.protobuf import descriptor_pb2, text_format

from kafkalog import values
from kafkalog.errors import IllegalArgument
from kafkalog.values.protobuf_columns import MOST_COLUMNS
from kafkalog.values.protobuf_schemas import descriptor_files, descriptor_set
from kafkalog.values.schemas.source import Schema, UnknownSchema

FIRST = """name: "o.proto" package: "o" syntax: "proto3" message_type { name: "Order"
    field { name: "id" number: 1 type: TYPE_INT64 label: LABEL_OPTIONAL }
    field { name: "sum" number: 2 type: TYPE_INT32 label: LABEL_OPTIONAL }
    field { name: "old" number: 3 type: TYPE_STRING label: LABEL_OPTIONAL } } message_type { name: "Other" }"""
SECOND = """name: "o.proto" package: "o" syntax: "proto3" message_type { name: "Order"
    field { name: "total" number: 2 type: TYPE_INT32 label: LABEL_OPTIONAL }
    field { name: "id" number: 1 type: TYPE_INT64 label: LABEL_OPTIONAL }
    field { name: "tags" number: 4 type: TYPE_STRING label: LABEL_REPEATED } } message_type { name: "Other" }"""


class Subject:
    """A place with two versions of one subject."""

    def __init__(self) -> None:
        self.schemas = {
            number: Schema(base64.b64encode(parsed(text).SerializeToString()), "PROTOBUF", number)
            for number, text in ((1, FIRST), (2, SECOND))
        }

    def by_id(self, number: int) -> Schema:
        if number not in self.schemas:
            raise UnknownSchema(f"schema {number} is missing")
        return self.schemas[number]

    def by_version(self, subject: str, version: int | None = None) -> Schema:
        if subject != "orders-value":
            raise UnknownSchema(f"{subject} is missing")
        return self.schemas[version or 2]


def parsed(text: str) -> Any:
    return text_format.Parse(text, descriptor_pb2.FileDescriptorProto())


def header(number: int, indexes: bytes = b"\0") -> bytes:
    return b"\0" + number.to_bytes(4, "big") + indexes


ROWS = pa.array([
    header(1) + b"\x08\x05\x10\x07\x1a\x03old", header(2) + b"\x10\x09\x08\x06\x22\x01a\x22\x01b", header(2),
    header(2, b"\2\2"),
])  # fmt: skip


def test_values_of_two_ids_of_one_subject() -> None:
    """The columns are those of the latest version or of the first value's: numbers find the fields in both."""
    latest = values.decoder("protobuf", schemas=Subject(), subject="orders-value", message="Order")
    found = latest.decode(ROWS)
    assert found.values.to_pylist() == [
        {"total": 7, "id": 5, "tags": []}, {"total": 9, "id": 6, "tags": ["a", "b"]},
        {"total": 0, "id": 0, "tags": []}, None,
    ]  # fmt: skip
    assert found.failed == 1 and "another type of its schema" in found.errors[3].as_py()
    first = values.decoder("protobuf", schemas=Subject()).decode(ROWS)
    assert first.values.to_pylist() == [
        {"id": 5, "sum": 7, "old": "old"}, {"id": 6, "sum": 9, "old": ""}, {"id": 0, "sum": 0, "old": ""}, None,
    ]  # fmt: skip


@pytest.mark.parametrize("options", [{"subject": "orders-value", "message": "Order"}, {}])
def test_what_settles_the_columns_gives_them_again(options: dict[str, Any]) -> None:
    """Also the indexes that headers have to repeat, though the schema is given as bytes."""
    decoder = values.decoder("protobuf", schemas=Subject(), **options)
    if not options:
        with pytest.raises(IllegalArgument, match="first value"):
            _ = decoder.settled
    wanted = decoder.decode(ROWS)
    again = values.decoder("protobuf", **decoder.settled)
    assert again.arrow_type == decoder.arrow_type
    assert again.decode(ROWS).values == wanted.values and again.decode(ROWS).errors == wanted.errors


def wide(columns: int) -> bytes:
    """A message type with fields of a message of 128 fields; about `columns` in all."""
    file = descriptor_pb2.FileDescriptorProto(name="w.proto", syntax="proto3")
    inner, outer = file.message_type.add(name="Inner"), file.message_type.add(name="Outer")
    for number in range(1, 129):
        inner.field.add(name=f"f{number}", number=number, type=5, label=1)
    for number in range(1, columns // 129 + 1):
        outer.field.add(name=f"m{number}", number=number, type=11, label=1, type_name=".Inner")
    return descriptor_pb2.FileDescriptorSet(file=[file]).SerializeToString()


def test_a_message_of_more_columns_than_the_limit() -> None:
    with pytest.raises(IllegalArgument, match=f"more than {MOST_COLUMNS} columns") as error:
        values.decoder("protobuf", schema=wide(MOST_COLUMNS + 129), message="Outer")
    assert "fields=" in str(error.value.hint)
    few = values.decoder("protobuf", schema=wide(MOST_COLUMNS + 129), message="Outer", fields=["m7.f3", "m128"])
    found = few.decode(pa.array([b"\x3a\x02\x18\x05"]))
    assert found.values[0].as_py()["m7"] == {"f3": 5} and len(few.arrow_type.field("m128").type) == 128
    most = values.decoder("protobuf", schema=wide(MOST_COLUMNS - 129), message="Outer")
    assert most.decode(pa.array([b"\x0a\x02\x08\x05"])).values[0].as_py()["m1"]["f1"] == 5


INTERRUPTED = """
from kafkalog import values
from kafkalog.values import protobuf_schemas
protobuf_schemas.find_spec = lambda name: None
values.decoder("protobuf", schema='syntax = "proto3"; message A { int32 x = 1; }')
"""


WITH_IMPORTS = """
from kafkalog.values import protobuf_schemas
protobuf_schemas.find_spec = lambda name: None
protobuf_schemas.descriptor_files(b"message A {}", imports={"d/a.proto": b"first\\n", "d/b.proto": b"second\\n"})
"""


def test_protoc_ends_with_the_program_that_is_interrupted(tmp_path: Path) -> None:
    pipe = tmp_path / "pid"
    os.mkfifo(pipe)
    protoc = tmp_path / "protoc"
    protoc.write_text(f"#!/bin/sh\necho $$ > {pipe}\nexec sleep 600\n")
    protoc.chmod(0o755)
    path = f"{tmp_path}{os.pathsep}{os.environ['PATH']}"
    command = [sys.executable, "-c", INTERRUPTED]
    with subprocess.Popen(command, env={**os.environ, "PATH": path}, stderr=subprocess.PIPE) as process:
        started = int(pipe.read_text())
        process.send_signal(signal.SIGINT)
        errors = process.communicate(timeout=60)[1]
    assert b"KeyboardInterrupt" in errors
    with pytest.raises(ProcessLookupError):
        os.kill(started, 0)


@pytest.mark.parametrize("names", [["x", "x/y.proto"], ["x/y.proto", "x"], ["a\0"], ["a" * 300], ["\ud800"]], ids=ascii)
def test_names_of_imports_that_are_no_files(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, names: list[str]) -> None:
    protoc = tmp_path / "protoc"
    protoc.touch(0o755)
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(IllegalArgument, match="cannot be written for protoc") as error:
        descriptor_files(b'syntax = "proto3"; message A {}', imports=dict.fromkeys(names, b'syntax = "proto3";'))
    assert error.value.path is None


def test_imports_lie_beside_the_schema_for_protoc(tmp_path: Path) -> None:
    protoc = tmp_path / "protoc"
    protoc.write_text('#!/bin/sh\ncat "${3#-I}"/*/*.proto >&2\nexit 1\n')
    protoc.chmod(0o755)
    command = [sys.executable, "-c", WITH_IMPORTS]
    path = f"{tmp_path}{os.pathsep}{os.environ['PATH']}"
    found = subprocess.run(command, env={**os.environ, "PATH": path}, stderr=subprocess.PIPE, text=True)
    assert "the schema is no Protobuf: first; second" in found.stderr


@pytest.mark.parametrize("files", [100, 101, 2000])
def test_a_long_row_of_imports(files: int) -> None:
    found = descriptor_pb2.FileDescriptorSet()
    for number in reversed(range(files)):
        file = found.file.add(name=f"{number}.proto")
        file.message_type.add(name=f"M{number}")
        if number:
            file.dependency.append(f"{number - 1}.proto")
    if files == 100:
        assert len(descriptor_set(descriptor_files(found.SerializeToString()).message("M99").file)) > 100
        return
    with pytest.raises(IllegalArgument, match="more than 100 files import each other in a row"):
        descriptor_files(found.SerializeToString())
