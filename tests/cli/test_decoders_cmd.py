"""One decoder, one meaning: the API, `consume -s` and `dump` show the same of a value, whatever batch it is in."""

import base64
import io
import json
import struct
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import pytest

import kafkalog
from kafkalog import decoders
from kafkalog.cli.main import run
from kafkalog.records.builder import RecordsBuilder
from kafkalog.records.format import CompressionType
from kafkalog.records.legacy import LegacyBuilder

HEADER = b"\0" + struct.pack(">I", 7)
SCHEMA = {"type": "record", "name": "User", "fields": [{"name": "name", "type": "string"}]}


class Known(NamedTuple):
    """A decoder by name, bytes for it, what they mean, and how that is printed."""

    name: str
    data: bytes
    meaning: Any
    text: str


PLAIN = [
    Known("string", "café".encode(), "café", "café"),
    Known("text", b"a\xffb", "a\ufffdb", "a\ufffdb"),
    Known("json", b'{"a": [1, null, true]}', {"a": [1, None, True]}, '{"a":[1,null,true]}'),
    Known("integer", b"\xff\xff\xff\xfe", -2, "-2"),
    Known("long", struct.pack(">q", 2**40), 2**40, str(2**40)),
    Known("bytes", b"\x00\xff", b"\x00\xff", "00ff"),
    Known(">i <hs$", struct.pack(">i", 5) + struct.pack("<h", -7) + b" rest", "5 -7 rest", "5 -7 rest"),
    Known("jsonschema", HEADER + b'{"b":2}', {"b": 2}, '{"b":2}'),
    Known("own_decoders:double", b"xy", "xyxy", "xyxy"),
    Known("org.apache.kafka.tools.api.IntegerDecoder", b"\0\0\0\1", 1, "1"),
]


def avro_value() -> Known:
    """A user named Ada, by Avro's own writer."""
    import fastavro

    out = io.BytesIO()
    fastavro.schemaless_writer(out, fastavro.parse_schema(SCHEMA), {"name": "Ada"})
    return Known("avro", HEADER + out.getvalue(), {"name": "Ada"}, '{"name":"Ada"}')


def protobuf_value(schemas: Path) -> Known:
    """A message with one string, its descriptor set in the directory."""
    from google.protobuf import descriptor_pb2

    kind = descriptor_pb2.FieldDescriptorProto
    file = descriptor_pb2.FileDescriptorProto(name="user.proto", syntax="proto3")
    file.message_type.add(name="User").field.add(
        name="name", number=1, type=kind.TYPE_STRING, label=kind.LABEL_OPTIONAL
    )
    (schemas / "7.desc").write_bytes(descriptor_pb2.FileDescriptorSet(file=[file]).SerializeToString())
    return Known("protobuf", HEADER + b"\0" + b"\x0a\x03Ada", {"name": "Ada"}, '{"name":"Ada"}')


@pytest.fixture
def schemas(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A directory of schemas, with a module of the user's own decoders on the path."""
    (tmp_path / "own_decoders.py").write_text("def double(data):\n    return data.decode() * 2\n")
    monkeypatch.syspath_prepend(str(tmp_path))
    directory = tmp_path / "schemas"
    directory.mkdir()
    (directory / "7.avsc").write_text(json.dumps(SCHEMA))
    return directory


def written(directory: Path, data: bytes) -> Path:
    """A partition with a tombstone and the value as key and value, in every format, compressed and not."""
    with kafkalog.open(directory / "t-0", "a") as log:
        for magic, codec in ((0, CompressionType.NONE), (1, CompressionType.GZIP), (2, CompressionType.NONE),
                             (2, CompressionType.ZSTD)):  # fmt: skip
            made: RecordsBuilder | LegacyBuilder
            if magic == 2:
                made = RecordsBuilder(log.end_offset, compression=codec, leader_epoch=0)
            else:
                made = LegacyBuilder(log.end_offset, magic=magic, compression=codec)
            made.append(5, data, None)
            made.append(5, data, data)
            log.replicate(made.build())
    return directory / "t-0"


def run_and_read(arguments: list[str], capture: pytest.CaptureFixture[bytes]) -> list[str]:
    assert run(arguments) == 0
    done = capture.readouterr()
    assert done.err == b""
    return done.out.decode().splitlines()


def check(known: Known, schemas: Path, capture: pytest.CaptureFixture[bytes]) -> None:
    path = written(schemas.parent, known.data)
    decode: Callable[[bytes], Any] = decoders.decoder(known.name, schemas=str(schemas))
    with kafkalog.open(path) as log:
        values = [record.value for record in log]
    assert [None if value is None else decode(value) for value in values] == [None, known.meaning] * 4
    serdes = ["-s", known.name, "--schemas", str(schemas)]
    flags = ["consume", "-q", "-d", str(path.parent), "-t", "t", *serdes]
    assert run_and_read([*flags, "-K", "=", "-Z"], capture) == [f"{known.text}=NULL", f"{known.text}={known.text}"] * 4
    lines = [json.loads(line) for line in run_and_read([*flags, "-J"], capture)]
    meant = base64.b64encode(known.meaning).decode() if isinstance(known.meaning, bytes) else known.meaning
    assert [(one["key"], one["payload"]) for one in lines] == [(meant, None), (meant, meant)] * 4
    classes = ["--key-decoder-class", known.name, "--value-decoder-class", known.name, "--schemas", str(schemas)]
    dumped = run_and_read(["dump", *classes, str(path / f"{0:020d}.log")], capture)
    ends = [line[line.index("key: ") :] for line in dumped if line.startswith("| ")]
    assert ends == [f"key: {known.text}", f"key: {known.text} payload: {known.text}"] * 4


@pytest.mark.parametrize("known", PLAIN, ids=lambda known: known.name)
def test_decoders(known: Known, schemas: Path, capfdbinary: pytest.CaptureFixture[bytes]) -> None:
    check(known, schemas, capfdbinary)
    sys.modules.pop("own_decoders", None)


def test_avro(schemas: Path, capfdbinary: pytest.CaptureFixture[bytes]) -> None:
    pytest.importorskip("fastavro", reason="the extra `schemas` is not installed")
    check(avro_value(), schemas, capfdbinary)


def test_protobuf(schemas: Path, capfdbinary: pytest.CaptureFixture[bytes]) -> None:
    pytest.importorskip("google.protobuf", reason="the extra `schemas` is not installed")
    check(protobuf_value(schemas), schemas, capfdbinary)
