"""The REST interface of the registry, called as its documentation has it, over HTTP."""

from __future__ import annotations

import base64
import json
import socket
from collections.abc import Iterator
from urllib.parse import urlsplit

import pytest

pytest.importorskip("kio", reason="the extra `server` is not installed")

from kafkalog.errors import IllegalState
from kafkalog.server.registry.listener import MAX_BODY_BYTES
from kafkalog.testing import KafkaServer, kafka_server
from kafkalog.testing.controlled import Snapshot
from tests.server.registry.calls import Rest, body, record

OLD, NEW, WRONG = record(id="long"), record(id="long", paid=("boolean", False)), record(id="string")
WITHOUT_IMPORT = base64.b64encode(b"\n\x01a\x1a\x01b").decode()  # name "a", dependency "b"
SCHEMAS = "/subjects/orders-value/versions"


@pytest.fixture(scope="module")
def running() -> Iterator[tuple[KafkaServer, Snapshot]]:
    with kafka_server(registry=True) as server:
        yield server, server.snapshot()


@pytest.fixture
def server(running: tuple[KafkaServer, Snapshot]) -> Iterator[KafkaServer]:
    server, empty = running
    server.restore(empty)
    yield server
    assert "ERROR" not in server.log()


@pytest.fixture
def rest(server: KafkaServer) -> Rest:
    return Rest(server.registry_url)


def test_versions_of_a_subject(rest: Rest) -> None:
    assert rest.ok("GET", "/subjects") == []
    assert rest.register("orders-value", OLD) == 1
    assert rest.register("orders-value", OLD) == 1, "a schema is registered once"
    assert rest.register("orders-value", NEW) == 2
    assert rest.register("a/b c", OLD) == 1, "a schema has one id in all subjects"
    assert rest.ok("GET", "/subjects") == ["a/b c", "orders-value"]
    assert rest.ok("GET", "/subjects?subjectPrefix=ord") == ["orders-value"]
    assert rest.ok("GET", SCHEMAS) == [1, 2]
    latest = rest.ok("GET", f"{SCHEMAS}/latest")
    assert latest == rest.ok("GET", f"{SCHEMAS}/2") == rest.ok("GET", f"{SCHEMAS}/-1")
    assert json.loads(latest.pop("schema")) == NEW
    assert latest == {"subject": "orders-value", "version": 2, "id": 2}
    assert rest.ok("GET", f"{SCHEMAS}/1/schema") == OLD
    assert [one["version"] for one in rest.ok("GET", "/schemas?subjectPrefix=orders")] == [1, 2]
    assert [one["version"] for one in rest.ok("GET", "/schemas?latestOnly=true")] == [1, 2]
    assert rest.ok("GET", "/schemas?offset=1&limit=1")[0]["subject"] == "orders-value"


def test_ids(rest: Rest) -> None:
    rest.register("orders-value", OLD)
    rest.register("copies-value", OLD)
    assert json.loads(rest.ok("GET", "/schemas/ids/1")["schema"]) == OLD
    assert rest.ok("GET", "/schemas/ids/1/schema") == OLD
    assert rest.ok("GET", "/schemas/ids/1?fetchMaxId=true")["maxId"] == 1
    assert rest.ok("GET", "/schemas/ids/1/subjects") == ["copies-value", "orders-value"]
    assert {"subject": "orders-value", "version": 1} in rest.ok("GET", "/schemas/ids/1/versions")
    assert rest.ok("GET", "/schemas/types") == ["PROTOBUF", "JSON", "AVRO"]
    assert rest.ok("GET", "/") == {} and rest.ok("GET", "/contexts") == ["."]


def test_lookup(rest: Rest) -> None:
    rest.register("orders-value", OLD)
    found = rest.ok("POST", "/subjects/orders-value", body(OLD))
    assert (found["subject"], found["version"], found["id"]) == ("orders-value", 1, 1)
    assert rest.code("POST", "/subjects/orders-value", body(NEW)) == 40403
    assert rest.code("POST", "/subjects/nothing", body(OLD)) == 40401


def test_normalize(rest: Rest) -> None:
    odd = {"name": "Order", "fields": [{"type": {"type": "long"}, "name": "id"}], "namespace": "shop", "type": "record"}
    plain = {"type": "record", "name": "shop.Order", "fields": [{"name": "id", "type": "long"}]}
    rest.register("orders-value", odd)
    assert rest.code("POST", "/subjects/orders-value", body(plain)) == 40403
    assert rest.ok("POST", "/subjects/orders-value?normalize=true", body(plain))["version"] == 1
    assert rest.ok("POST", f"{SCHEMAS}?normalize=true", body(plain)) == {"id": 1}
    rest.ok("POST", "/subjects/new-value/versions?normalize=true", body(odd))
    assert rest.ok("GET", "/subjects/new-value/versions/1/schema") == plain


@pytest.fixture(scope="module")
def one_version(running: tuple[KafkaServer, Snapshot]) -> Rest:
    """A registry with one version, which no test of the errors changes."""
    server, empty = running
    server.restore(empty)
    rest = Rest(server.registry_url)
    rest.register("orders-value", OLD)
    return rest


@pytest.mark.parametrize(
    ("method", "path", "content", "code"),
    [
        ("GET", "/subjects/nothing/versions", None, 40401),
        ("GET", "/subjects/nothing/versions/1", None, 40401),
        ("DELETE", "/subjects/nothing", None, 40401),
        ("GET", f"{SCHEMAS}/9", None, 40402),
        ("GET", f"{SCHEMAS}/nine", None, 42202),
        ("GET", f"{SCHEMAS}/0", None, 42202),
        ("GET", f"{SCHEMAS}/2147483648", None, 42202),
        ("GET", "/schemas/ids/77", None, 40403),
        ("GET", "/schemas/ids/x", None, 40403),
        ("POST", SCHEMAS, {}, 42201),
        ("POST", SCHEMAS, body("nothing of the kind"), 42201),
        ("POST", SCHEMAS, body({"type": "record", "name": "a-b", "fields": []}), 42201),
        ("POST", SCHEMAS, body(record(id=("long", "no number"))), 42201),
        ("POST", SCHEMAS, body(OLD, schemaType="XML"), 42201),
        ("POST", SCHEMAS, body({"type": "int"}, schemaType="JSON"), 42201),
        ("POST", SCHEMAS, body('{"maxLength": 1e400}', schemaType="JSON"), 42201),
        ("POST", SCHEMAS, body(json.dumps(record(id="long", n=("double", 7))).replace("7", "1e400")), 42201),
        ("POST", SCHEMAS, body({"$ref": "#/definitions/X"}, schemaType="JSON"), 42201),
        ("POST", SCHEMAS, body(WITHOUT_IMPORT, schemaType="PROTOBUF"), 42201),
        ("POST", SCHEMAS, body('"\\ud800"', schemaType="JSON"), 42201),
        ("POST", SCHEMAS, body(OLD, references=[{"name": "X", "subject": "nothing", "version": 1}]), 42201),
        ("POST", SCHEMAS, body(OLD, references=[{"name": "X"}]), 42201),
        ("POST", SCHEMAS, [], 422),
        ("POST", SCHEMAS, body(OLD, id=5), 42205),
        ("POST", SCHEMAS, body(NEW, version=1), 42201),
        ("POST", SCHEMAS, body(NEW, version=3), 42201),
        ("POST", SCHEMAS, body(NEW, version=2**31), 422),
        ("POST", SCHEMAS, body(WRONG), 409),
        ("PUT", "/config", {"compatibility": "SIDEWARD"}, 42203),
        ("PUT", "/config/orders-value", {}, 42203),
        ("GET", "/config/orders-value", None, 40408),
        ("DELETE", "/config/orders-value", None, 40408),
        ("GET", "/mode/orders-value", None, 40409),
        ("PUT", "/mode", {"mode": "READONLY"}, 405),
        ("GET", "/nothing/here", None, 404),
        ("GET", "/subjects?limit=many", None, 422),
    ],
)  # fmt: skip
def test_errors(one_version: Rest, method: str, path: str, content: object, code: int) -> None:
    assert one_version.code(method, path, content) == code
    assert one_version.ok("GET", SCHEMAS) == [1], "nothing was stored"


def test_levels(rest: Rest) -> None:
    first, second, third = record(a="long"), record(a="long", b=("long", 1)), record(a="long", b="long")
    assert rest.ok("GET", "/config") == {"compatibilityLevel": "BACKWARD"}
    rest.register("orders-value", first)
    rest.register("orders-value", second)
    check = "/compatibility/subjects/orders-value/versions"
    assert rest.ok("POST", f"{check}/latest", body(third)) == {"is_compatible": True}
    found = rest.ok("POST", f"{check}/1?verbose=true", body(third))
    assert not found["is_compatible"] and "READER_FIELD_MISSING_DEFAULT_VALUE at /b" in found["messages"][0]
    assert rest.ok("PUT", "/config/orders-value", {"compatibility": "BACKWARD_TRANSITIVE"}) == {
        "compatibility": "BACKWARD_TRANSITIVE"
    }
    assert rest.ok("POST", check, body(third)) == {"is_compatible": False}
    assert rest.ok("GET", "/config/orders-value") == {"compatibilityLevel": "BACKWARD_TRANSITIVE"}
    assert rest.ok("GET", "/config") == {"compatibilityLevel": "BACKWARD"}
    assert rest.ok("DELETE", "/config/orders-value") == {"compatibility": "BACKWARD_TRANSITIVE"}
    assert rest.ok("GET", "/config/orders-value?defaultToGlobal=true") == {"compatibilityLevel": "BACKWARD"}
    rest.ok("PUT", "/config", {"compatibility": "none"})
    assert rest.ok("GET", "/config") == {"compatibilityLevel": "NONE"}
    rest.register("orders-value", WRONG)
    assert rest.ok("GET", "/mode") == {"mode": "READWRITE"}
    assert rest.code("POST", f"{check}/9", body(third)) == 40402


def test_a_protobuf_schema_that_is_written_otherwise_is_the_same(rest: Rest) -> None:
    """As the original and Karapace have it; the files here differ in their name, and text could do in its spaces."""
    a, b = (base64.b64encode(b"\n\1" + name + b"\x22\3\n\1M").decode() for name in (b"a", b"b"))
    assert rest.register("m", a, schemaType="PROTOBUF") == 1
    assert rest.register("m", b, schemaType="PROTOBUF") == 1
    assert rest.ok("POST", "/subjects/m", body(b, schemaType="PROTOBUF"))["version"] == 1
    assert rest.ok("GET", "/subjects/m/versions") == [1]


def test_a_schema_is_compatible_with_a_subject_that_has_none(rest: Rest) -> None:
    check = "/compatibility/subjects/new-value/versions"
    assert rest.ok("POST", f"{check}/latest", body(OLD)) == {"is_compatible": True}
    assert rest.ok("POST", check, body(OLD)) == {"is_compatible": True}
    assert rest.code("POST", f"{check}/1", body(OLD)) == 40402


def test_an_invalid_schema_is_a_reason_for_those_who_ask_for_reasons(rest: Rest) -> None:
    check = "/compatibility/subjects/new-value/versions/latest"
    assert rest.code("POST", check, body("no schema")) == 42201
    found = rest.ok("POST", f"{check}?verbose=true", body("no schema"))
    assert not found["is_compatible"] and found["messages"][0].startswith("Invalid schema")


def test_soft_and_permanent_deletes(rest: Rest) -> None:
    rest.register("orders-value", OLD)
    rest.register("orders-value", NEW)
    rest.ok("PUT", "/config/orders-value", {"compatibility": "FULL"})
    assert rest.code("DELETE", f"{SCHEMAS}/1?permanent=true") == 40407
    assert rest.ok("DELETE", f"{SCHEMAS}/1") == 1
    assert rest.code("DELETE", f"{SCHEMAS}/1") == 40406
    assert rest.code("GET", f"{SCHEMAS}/1") == 40402
    assert rest.ok("GET", f"{SCHEMAS}/1?deleted=true")["id"] == 1
    assert rest.ok("GET", "/schemas/ids/1/schema") == OLD, "records with its id are still decoded"
    assert rest.ok("GET", f"{SCHEMAS}?deleted=true") == [1, 2] and rest.ok("GET", SCHEMAS) == [2]
    assert rest.register("orders-value", OLD) == 1, "it comes back with its id"
    assert rest.ok("GET", SCHEMAS) == [2, 3]
    assert rest.code("DELETE", "/subjects/orders-value?permanent=true") == 40405
    assert rest.ok("DELETE", "/subjects/orders-value") == [2, 3]
    assert rest.code("DELETE", "/subjects/orders-value") == 40404
    assert rest.ok("GET", "/subjects") == [] and rest.ok("GET", "/subjects?deleted=true") == ["orders-value"]
    assert rest.code("GET", "/config/orders-value") == 40408, "its level went with it"
    assert rest.ok("DELETE", "/subjects/orders-value?permanent=true") == [1, 2, 3]
    assert rest.ok("GET", "/subjects?deleted=true") == []
    assert rest.code("GET", "/schemas/ids/1") == 40403
    assert rest.register("orders-value", WRONG) == 3, "an id is never used again"
    assert rest.ok("GET", SCHEMAS) == [1]


def test_the_latest_version_to_delete_is_one_that_is_not_deleted(rest: Rest) -> None:
    rest.register("orders-value", OLD)
    rest.register("orders-value", NEW, version=2)
    assert rest.ok("DELETE", f"{SCHEMAS}/2") == 2
    assert rest.code("DELETE", f"{SCHEMAS}/latest?permanent=true") == 40407
    assert rest.ok("DELETE", f"{SCHEMAS}/latest") == 1
    assert rest.ok("GET", f"{SCHEMAS}?deleted=true") == [1, 2]


def test_references(rest: Rest) -> None:
    rest.register("ids", {"type": "fixed", "name": "shop.Id", "size": 4})
    uses = [{"name": "shop.Id", "subject": "ids", "version": 1}]
    number = rest.register("orders-value", record(id="shop.Id"), references=uses)
    assert rest.ok("GET", f"{SCHEMAS}/1")["references"] == uses
    assert rest.ok("GET", f"/schemas/ids/{number}")["references"] == uses
    assert rest.ok("GET", "/subjects/ids/versions/1/referencedby") == [number]
    assert rest.code("DELETE", "/subjects/ids/versions/1") == rest.code("DELETE", "/subjects/ids") == 42206
    rest.ok("DELETE", "/subjects/orders-value")
    assert rest.ok("DELETE", "/subjects/ids") == [1]


def test_a_reference_to_version_minus_one_is_to_the_latest(rest: Rest) -> None:
    uses = [{"name": "shop.Id", "subject": "ids", "version": -1}]
    order = record(id="shop.Id")
    assert rest.code("POST", SCHEMAS, body(order, references=uses)) == 42201
    rest.register("ids", {"type": "fixed", "name": "shop.Id", "size": 4})
    rest.ok("PUT", "/config/ids", {"compatibility": "NONE"})
    rest.register("ids", {"type": "fixed", "name": "shop.Id", "size": 8}, version=2)
    number = rest.register("orders-value", order, references=uses)
    assert rest.ok("GET", f"{SCHEMAS}/1")["references"] == [{**uses[0], "version": 2}]
    assert rest.ok("POST", "/subjects/orders-value", body(order, references=uses))["id"] == number
    assert rest.ok("POST", f"/compatibility{SCHEMAS}/1", body(order, references=uses))["is_compatible"]


def test_a_new_schema_does_not_refer_to_a_version_that_is_deleted(rest: Rest) -> None:
    rest.register("ids", {"type": "fixed", "name": "shop.Id", "size": 4})
    rest.ok("DELETE", "/subjects/ids/versions/1")
    for version in (1, -1):
        uses = [{"name": "shop.Id", "subject": "ids", "version": version}]
        given = body(record(id="shop.Id"), references=uses)
        assert rest.code("POST", SCHEMAS, given) == 42201
        assert not rest.ok("POST", f"/compatibility{SCHEMAS}?verbose=true", given)["is_compatible"]


def test_a_body_that_is_too_large_or_ends_early(server: KafkaServer) -> None:
    for head, wanted in (
        (f"Content-Length: {MAX_BODY_BYTES + 1}", b"413"),
        ("Content-Length: many", b"400"),
        ("Transfer-Encoding: chunked", b"411"),
        ("Content-Length: 10", b""),  # it never comes: the connection closes without an answer
    ):
        with socket.create_connection(("127.0.0.1", urlsplit(server.registry_url).port or 0), 30) as sock:
            sock.sendall(f"POST {SCHEMAS} HTTP/1.1\r\n{head}\r\n\r\n".encode())
            sock.shutdown(socket.SHUT_WR)
            answer = b"".join(iter(lambda sock=sock: sock.recv(4096), b""))  # type: ignore[misc]
        assert answer.split(b" ")[1:2] == ([wanted] if wanted else []), answer
    assert Rest(server.registry_url).ok("GET", "/subjects") == []


def test_a_server_without_a_registry_says_so(tmp_path: object) -> None:
    with kafka_server() as server, pytest.raises(IllegalState, match="registry=True"):
        server.registry_url  # noqa: B018
