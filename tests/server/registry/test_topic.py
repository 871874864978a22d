"""The topic `_schemas`: the records in it, and that they are all that the registry needs."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

pytest.importorskip("kio", reason="the extra `server` is not installed")
pa = pytest.importorskip("pyarrow", reason="the extra `arrow` is not installed")

from kafkalog import values  # noqa: E402
from kafkalog.server.registry.content import Content  # noqa: E402
from kafkalog.server.registry.errors import RestError  # noqa: E402
from kafkalog.server.registry.records import TopicRecord, change_of  # noqa: E402
from kafkalog.server.registry.requests import request_of  # noqa: E402
from kafkalog.server.registry.routes import decide  # noqa: E402
from kafkalog.testing import kafka_server  # noqa: E402
from kafkalog.values.avro_default import long_bytes  # noqa: E402
from kafkalog.values.schemas.topic import SchemaTopic  # noqa: E402
from tests.server.registry.calls import Rest, body, record  # noqa: E402

OLD, NEW = record(id="long"), record(id="long", paid=("boolean", True))
SUBJECT = "orders-value"


def test_the_records_are_those_of_the_original(tmp_path: Path) -> None:
    with kafka_server(directory=tmp_path / "data", registry=True) as server:
        rest = Rest(server.registry_url)
        rest.register(SUBJECT, OLD)
        rest.register("j", {"type": "string"}, schemaType="JSON")
        rest.ok("PUT", "/config", {"compatibility": "FULL"})
        rest.ok("PUT", "/config/j", {"compatibility": "NONE"})
        rest.ok("DELETE", f"/subjects/{SUBJECT}/versions/1")
        rest.ok("DELETE", "/subjects/j")
        rest.ok("DELETE", "/subjects/j?permanent=true")
        found = [
            (record.key.decode(), None if record.value is None else json.loads(record.value))
            for record in server.records("_schemas")
            if record.key is not None
        ]
        assert server.record_count("_schemas") == len(found)
    first = {"subject": SUBJECT, "version": 1, "id": 1, "schema": json.dumps(OLD, separators=(",", ":"))}
    text = {"subject": "j", "version": 1, "id": 2, "schemaType": "JSON", "schema": '{"type":"string"}'}
    assert found == [
        ('{"keytype":"NOOP","magic":0}', None),
        (f'{{"keytype":"SCHEMA","subject":"{SUBJECT}","version":1,"magic":1}}', {**first, "deleted": False}),
        ('{"keytype":"SCHEMA","subject":"j","version":1,"magic":1}', {**text, "deleted": False}),
        ('{"keytype":"CONFIG","subject":null,"magic":0}', {"subject": None, "compatibilityLevel": "FULL"}),
        ('{"keytype":"CONFIG","subject":"j","magic":0}', {"subject": "j", "compatibilityLevel": "NONE"}),
        (f'{{"keytype":"SCHEMA","subject":"{SUBJECT}","version":1,"magic":1}}', {**first, "deleted": True}),
        ('{"keytype":"DELETE_SUBJECT","subject":"j","magic":0}', {"subject": "j", "version": 1}),
        ('{"keytype":"CONFIG","subject":"j","magic":0}', None),
        ('{"keytype":"NOOP","magic":0}', {"lastId": 2}),
        ('{"keytype":"SCHEMA","subject":"j","version":1,"magic":1}', None),
    ]


def test_values_are_decoded_from_the_topic_and_over_http(tmp_path: Path) -> None:
    with kafka_server(directory=tmp_path / "data", registry=True) as server:
        rest = Rest(server.registry_url)
        numbers = [rest.register(SUBJECT, OLD), rest.register(SUBJECT, NEW)]
        column = pa.array([
            b"\0" + numbers[0].to_bytes(4, "big") + long_bytes(5),
            b"\0" + numbers[1].to_bytes(4, "big") + long_bytes(6) + b"\0",
        ])  # fmt: skip
        for place in (server.registry_url, server.directory):
            found = values.decoder("avro", schemas=place, subject=SUBJECT).decode(column)
            assert found.values.to_pylist() == [{"id": 5, "paid": True}, {"id": 6, "paid": False}]
        rest.ok("DELETE", f"/subjects/{SUBJECT}")
        topic = SchemaTopic(server.directory)
        assert topic.by_id(numbers[0]).id == numbers[0] and topic.problems == []
        with pytest.raises(values.UnknownSchema):
            topic.by_version(SUBJECT)


def test_a_crash_and_a_snapshot(tmp_path: Path) -> None:
    with kafka_server(directory=tmp_path / "data", registry=True) as server:
        rest = Rest(server.registry_url)
        rest.register(SUBJECT, OLD)
        before = server.snapshot()
        rest.register(SUBJECT, NEW)
        server.kill()
        server.start()
        assert rest.url == server.registry_url
        assert rest.ok("GET", f"/subjects/{SUBJECT}/versions") == [1, 2]
        server.restore(before)
        assert rest.ok("GET", f"/subjects/{SUBJECT}/versions") == [1]
        server.delete_topics(["_schemas"])
        assert rest.ok("GET", "/subjects") == []


def test_what_another_registry_wrote_meanwhile_is_served(tmp_path: Path) -> None:
    producer_of = pytest.importorskip("confluent_kafka").Producer
    with kafka_server(directory=tmp_path / "data", registry=True) as server:
        rest = Rest(server.registry_url)
        rest.ok("GET", "/subjects")
        producer = producer_of({"bootstrap.servers": server.bootstrap})
        for key, value in (
            (b"nothing of a registry", b"x"),
            (b'{"magic":1,"subject":"s","version":3,"keytype":"SCHEMA"}',
             b'{"subject":"s","version":3,"id":41,"schema":"\\"int\\"","deleted":false,"md5":"","ruleSet":null}'),
            (b'{"keytype":"MODE","subject":"s","magic":0}', b'{"mode":"READONLY"}'),
        ):  # fmt: skip
            producer.produce("_schemas", value, key)
        assert producer.flush(30) == 0
        assert rest.ok("GET", "/subjects/s/versions/latest")["id"] == 41
        assert rest.ok("GET", "/mode/s") == {"mode": "READONLY"}
        assert rest.code("POST", "/subjects/s/versions", body('"long"')) == 42205
        assert rest.register("t", '"long"') == 42
        assert "skipped the record at offset 1 of _schemas-0" in server.log()


def _changed(content: Content, method: str, target: str, given: object = None) -> list[TopicRecord]:
    """Apply a change and return its records."""
    plan = decide(content, request_of(method, target, json.dumps(given).encode()))
    for key, value in plan.records:
        content.apply(change_of(key, value))
    return [*plan.records]


def test_an_id_is_not_used_again_after_a_compaction() -> None:
    content, written = Content(), {}
    for method, target, given in (
        ("POST", "/subjects/s/versions", body('"int"')),
        ("DELETE", "/subjects/s", None),
        ("DELETE", "/subjects/s?permanent=true", None),
    ):
        written |= dict(_changed(content, method, target, given))
    later = Content()
    for key, value in written.items():
        if value is not None:
            later.apply(change_of(key, value))
    [(_, value)] = _changed(later, "POST", "/subjects/t/versions", body('"long"'))
    assert json.loads(value or b"")["id"] == 2


def test_an_import_replaces_nothing() -> None:
    content = Content()
    content.apply(change_of(b'{"keytype":"MODE"}', b'{"mode":"IMPORT"}'))
    content.apply(change_of(b'{"keytype":"CONFIG"}', b'{"compatibilityLevel":"NONE"}'))
    _changed(content, "POST", "/subjects/s/versions", body('"int"', id=7, version=3))
    for given in (body('"long"', id=7, version=4), body('"long"', id=8, version=3)):
        with pytest.raises(RestError) as caught:
            _changed(content, "POST", "/subjects/s/versions", given)
        assert caught.value.code == 42205
    _changed(content, "POST", "/subjects/s/versions", body('"long"', id=8, version=1))
    assert [(one.version, one.id) for one in content.versions("s")] == [(1, 8), (3, 7)]


@pytest.mark.parametrize(("level", "is_compared"), [("NONE", False), ("FULL", False), ("FULL_TRANSITIVE", True)])
def test_a_version_that_is_no_schema_matters_to_the_levels_that_compare_it(level: str, is_compared: bool) -> None:
    content = Content()
    for key, value in (
        (b'{"keytype":"SCHEMA","subject":"s","version":1}', b'{"id":1,"schema":"x"}'),
        (b'{"keytype":"SCHEMA","subject":"s","version":2}', b'{"id":2,"schema":"\\"int\\""}'),
        (b'{"keytype":"CONFIG"}', json.dumps({"compatibilityLevel": level}).encode()),
    ):
        content.apply(change_of(key, value))
    given = body(json.dumps({"type": "int", "doc": "new"}))
    for target in ("/subjects/s/versions", "/compatibility/subjects/s/versions"):
        if is_compared:
            with pytest.raises(RestError):
                _changed(content, "POST", target, given)
        else:
            _changed(content, "POST", target, given)


def test_a_deleted_subject_is_cleared() -> None:
    content = Content()
    for key, value in (
        (b'{"keytype":"SCHEMA","subject":"s","version":1}', b'{"id":1,"schema":"x"}'),
        (b'{"keytype":"DELETE_SUBJECT","subject":"s"}', b'{"version":1}'),
        (b'{"keytype":"CLEAR_SUBJECT","subject":"s"}', b"{}"),
    ):
        content.apply(change_of(key, value))
    assert not content.versions("s", deleted=True) and content.last_id == 1
