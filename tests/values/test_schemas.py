"""Sources of schemas: files, a registry's server, the topic `_schemas` of a data directory."""

import json
import struct
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest

import kafkalog
from kafkalog import values
from kafkalog.decoders import decoder as record_decoder
from kafkalog.errors import IllegalArgument, InvalidRecord, Unauthorized
from kafkalog.values.avro_default import long_bytes
from kafkalog.values.schemas import opener
from kafkalog.values.schemas.directory import SchemaDirectory
from kafkalog.values.schemas.registry import SchemaRegistry
from kafkalog.values.schemas.topic import SchemaTopic

pa = pytest.importorskip("pyarrow", reason="the extra `arrow` is not installed")

USER = {"type": "record", "name": "User", "fields": [{"name": "name", "type": "string"}]}
WIDER = {"type": "record", "name": "User", "fields": [*USER["fields"], {"name": "age", "type": "int", "default": 3}]}


def framed(number: int, text: str) -> bytes:
    return b"\0" + struct.pack(">I", number) + long_bytes(len(text)) + text.encode()


class Registry:
    """A registry's server with a few answers; `status` makes it fail."""

    def __init__(self) -> None:
        self.answers: dict[str, Any] = {}
        self.asked: list[tuple[str, str | None]] = []
        self.status = 0
        self.drips = False
        self.stop = threading.Event()
        outer = self

        class Handler(BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                outer.asked.append((self.path, self.headers.get("Authorization")))
                found = outer.answers.get(self.path)
                data = found if isinstance(found, bytes) else json.dumps(found or {"error_code": 40403}).encode()
                self.send_response(outer.status or (200 if found else 404))
                if outer.status == 302:
                    self.send_header("Location", "http://127.0.0.1:9/elsewhere")
                self.send_header("Content-Length", str(len(data)))
                self.end_headers()
                for byte in data if outer.drips else ():
                    self.wfile.write(bytes([byte]))
                    outer.stop.wait(0.02)
                if not outer.drips:
                    self.wfile.write(data)

            def log_message(self, format: str, *args: object) -> None:
                pass

        self.server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.thread = threading.Thread(target=self.server.serve_forever, args=(0.01,))
        self.thread.start()

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.server.server_port}"

    def close(self) -> None:
        self.stop.set()
        self.server.shutdown()
        self.server.server_close()
        self.thread.join()


@pytest.fixture
def registry() -> Iterator[Registry]:
    made = Registry()
    made.answers["/schemas/ids/7"] = {"schema": json.dumps(USER)}
    made.answers["/subjects/users-value/versions/latest"] = {
        "subject": "users-value", "version": 2, "id": 8, "schema": json.dumps(WIDER)
    }  # fmt: skip
    yield made
    made.close()


def test_values_of_two_writers_become_columns_of_the_latest(registry: Registry) -> None:
    registry.answers["/schemas/ids/8"] = {"schema": json.dumps(WIDER)}
    decode = values.decoder("avro", registry=registry.url, subject="users-value")
    found = decode.decode(pa.array([framed(7, "Ada"), framed(8, "Bo") + long_bytes(40), framed(9, "?"), None, b"\1"]))
    assert found.values.to_pylist() == [{"name": "Ada", "age": 3}, {"name": "Bo", "age": 40}, None, None, None]
    assert found.failed == 2 and found.errors is not None
    assert "schema 9 is missing" in found.errors[2].as_py()
    assert "header" in found.errors[4].as_py()
    count = len(registry.asked)
    decode.decode(pa.array([framed(7, "Ada"), framed(9, "?")]))
    assert len(registry.asked) == count, "known and missing ids are asked for once"


def test_the_first_values_schema_gives_the_columns(registry: Registry) -> None:
    decode = values.decoder("avro", registry=registry.url)
    with pytest.raises(IllegalArgument, match="first value"):
        print(decode.arrow_type)
    empty = decode.decode(pa.array([None, b"x", framed(99, "?")], pa.binary()))
    assert empty.values.null_count == 3 and empty.failed == 2
    found = decode.decode(pa.array([None, b"x", framed(99, "?"), framed(7, "Ada")]))
    assert found.values.to_pylist() == [None, None, None, {"name": "Ada"}]
    assert decode.arrow_type == pa.struct([("name", pa.string())])


def test_a_login_is_sent_and_never_shown(registry: Registry) -> None:
    address = registry.url.replace("//", "//me:s%40cret@")
    source = SchemaRegistry(address)
    source.by_id(7)
    assert registry.asked[-1][1] == "Basic bWU6c0BjcmV0"
    assert "cret" not in repr(source) and "cret" not in source.by_id(7).place
    registry.status = 401
    with pytest.raises(Unauthorized) as refused:
        source.by_id(6)
    assert "cret" not in str(refused.value)
    SchemaRegistry(registry.url, token="abc")
    registry.status = 0
    SchemaRegistry(registry.url, token="abc").by_id(7)
    assert registry.asked[-1][1] == "Bearer abc"
    for wrong in ("ftp://me:cret@host", "HTTPS://me:cret@host"):
        with pytest.raises(IllegalArgument, match="neither http:// nor https://") as other:
            values.decoder("avro", schemas=wrong)
        assert "cret" not in str(other.value)


def test_known_schemas_are_used_while_the_registry_is_down(registry: Registry, tmp_path: Path) -> None:
    decode = values.decoder("avro", registry=registry.url, subject="users-value", cache=tmp_path)
    column = pa.array([framed(7, "Ada")])
    wanted = decode.decode(column).values
    registry.status = 500
    assert decode.decode(column).values == wanted
    again = values.decoder("avro", registry=registry.url, subject="users-value", cache=tmp_path)
    assert again.decode(column).values == wanted, "a new process has them from the disk"
    for status in (500, 302):
        registry.status = status
        with pytest.raises(values.RegistryUnavailable, match=f"status {status}"):
            again.decode(pa.array([framed(11, "?")]))
    for file in tmp_path.iterdir():
        file.write_bytes(b"{")
    registry.status = 0
    fresh = values.decoder("avro", registry=registry.url, subject="users-value", cache=tmp_path)
    assert fresh.decode(column).values == wanted, "damaged files are fetched again"


def test_a_registry_that_is_slow_or_nowhere_is_an_error(registry: Registry, monkeypatch: pytest.MonkeyPatch) -> None:
    registry.answers["/schemas/ids/5"] = b"<html>"
    registry.answers["/schemas/ids/4"] = {"schema": 4}
    source = SchemaRegistry(registry.url)
    for number in (5, 4):
        with pytest.raises(values.RegistryUnavailable, match="no schema"):
            source.by_id(number)
    registry.answers["/schemas/ids/6"] = b" " * 5000
    registry.drips = True
    monkeypatch.setattr(opener, "SLOWEST", 0.1)  # else one byte that is late would end it in another way
    with pytest.raises(values.RegistryUnavailable, match="took too long"):
        SchemaRegistry(registry.url, timeout_s=10).by_id(6)
    with pytest.raises(values.RegistryUnavailable, match="was not reached"):
        SchemaRegistry("http://127.0.0.1:9", timeout_s=0.5).by_id(1)
    for wrong in ("ftp://x", "http://", "http://x:y", "http://x?y"):
        with pytest.raises(IllegalArgument, match="address"):
            SchemaRegistry(wrong)


def test_an_answer_that_is_too_large_is_an_error(
    registry: Registry, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It is read up to the limit, and neither kept nor cached."""
    monkeypatch.setattr("kafkalog.values.schemas.registry.MAX_SCHEMA_BYTES", 1000)
    source = SchemaRegistry(registry.url, cache=tmp_path / "cache")
    text = json.dumps({"schema": json.dumps(USER)})
    registry.answers["/schemas/ids/7"] = text.ljust(1000).encode()
    registry.answers["/schemas/ids/8"] = text.ljust(1001).encode()
    assert json.loads(source.by_id(7).content) == USER
    for _ in range(2):
        with pytest.raises(values.RegistryUnavailable, match="schema 8 with more than 1000 bytes"):
            source.by_id(8)
    assert [path for path, _ in registry.asked].count("/schemas/ids/8") == 2
    decoder = values.decoder("avro", schemas=source, schema=USER)
    with pytest.raises(values.RegistryUnavailable):
        decoder.decode(pa.array([framed(8, "Ada")]))


def test_references_are_read_before_the_schema_that_uses_them(registry: Registry) -> None:
    one = {"name": "a.Id", "subject": "id", "version": 1}
    registry.answers["/schemas/ids/3"] = {
        "schema": json.dumps({"type": "array", "items": "a.Id"}), "references": [one]
    }  # fmt: skip
    fixed = {"type": "fixed", "name": "a.Id", "size": 2}
    registry.answers["/subjects/id/versions/1"] = {"id": 2, "schema": json.dumps(fixed)}
    found = values.decoder("avro", registry=registry.url, schema=3).decode(pa.array([b"\0\0\0\0\3" + b"\2ab\0"]))
    assert found.values.to_pylist() == [[b"ab"]]
    registry.answers["/subjects/id/versions/1"]["references"] = [{**one, "subject": "id"}]
    with pytest.raises(IllegalArgument, match="circle"):
        values.decoder("avro", registry=registry.url, schema=3)


def test_a_schema_of_another_kind_is_the_text_of_its_rows(registry: Registry) -> None:
    registry.answers["/schemas/ids/2"] = {"schema": "{}", "schemaType": "JSON"}
    found = values.decoder("avro", registry=registry.url, schema=7).decode(pa.array([framed(2, "?"), framed(7, "Ada")]))
    assert found.values.to_pylist() == [None, {"name": "Ada"}]
    assert found.errors is not None and "type JSON" in found.errors[0].as_py()


def test_the_topic_of_a_registry_in_a_data_directory(tmp_path: Path) -> None:
    def key(kind: str, subject: str, version: int | None = None) -> bytes:
        return json.dumps({"keytype": kind, "subject": subject, "version": version, "magic": 1}).encode()

    def value(id: int, schema: Any, **more: Any) -> bytes:
        found = {"subject": "users-value", "version": 1, "id": id, "schema": json.dumps(schema), **more}
        return json.dumps(found).encode()

    with kafkalog.open(tmp_path / "_schemas-0", "a") as log:
        log.append([(key("NOOP", ""), None), (key("SCHEMA", "users-value", 1), value(7, USER)), (b"?", b"?")])
        source = SchemaTopic(tmp_path)
        assert json.loads(source.by_id(7).content) == USER
        assert source.by_version("users-value").id == 7
        assert len(source.problems) == 1 and "offset 2" in source.problems[0]
        with pytest.raises(values.UnknownSchema):
            source.by_id(8)
        log.append([(key("SCHEMA", "users-value", "1"), value(9, USER))])  # type: ignore[arg-type]
        assert source.by_version("users-value").id == 7, "no number of a version"
        assert len(source.problems) == 2 and "the version is '1'" in source.problems[1]
        log.append([(key("SCHEMA", "users-value", 2), value(8, WIDER))], compression="gzip")
        assert source.by_version("users-value").id == 8, "what was appended is found"
        found = values.decoder("avro", schemas=tmp_path, subject="users-value").decode(pa.array([framed(7, "Ada")]))
        assert found.values.to_pylist() == [{"name": "Ada", "age": 3}]
        log.append([(key("SCHEMA", "users-value", 2), value(8, WIDER, deleted=True))])
        assert source.by_version("users-value").id == 7, "a deleted version is not the latest"
        gone = json.dumps({"subject": "users-value", "version": 2}).encode()
        log.append([(key("DELETE_SUBJECT", "users-value"), gone)])
        with pytest.raises(values.UnknownSchema, match="users-value"):
            source.by_version("users-value")
        assert source.by_id(8).id == 8, "its values are still in the log"
    pytest.importorskip("fastavro")
    assert record_decoder("avro", schemas=str(tmp_path))(framed(7, "Ada")) == {"name": "Ada"}


def test_a_directory_of_files(tmp_path: Path) -> None:
    (tmp_path / "7.avsc").write_text(json.dumps(USER))
    decode = values.decoder("avro", schemas=tmp_path, schema=7)
    found = decode.decode(pa.array([framed(7, "Ada"), framed(2**32 - 1, "?")]))
    assert found.values.to_pylist() == [{"name": "Ada"}, None]
    assert found.errors is not None and "4294967295.avsc" in found.errors[1].as_py()
    with pytest.raises(IllegalArgument, match="no subject"):
        SchemaDirectory(tmp_path).by_version("users-value")
    with pytest.raises(IllegalArgument, match="does not exist"):
        values.decoder("avro", schemas=tmp_path / "nowhere")
    with pytest.raises(IllegalArgument, match="login"):
        values.decoder("avro", schemas=tmp_path, login=("a", "b"))
    assert issubclass(values.UnknownSchema, InvalidRecord)
