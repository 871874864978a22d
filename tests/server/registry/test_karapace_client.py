"""The client of Karapace, another registry, against ours."""

from __future__ import annotations

import asyncio
import json

import pytest

pytest.importorskip("kio", reason="the extra `server` is not installed")
client_module = pytest.importorskip("karapace.core.client", reason="Karapace 5 is not installed")

from kafkalog.testing import kafka_server  # noqa: E402
from tests.server.registry.calls import body, record  # noqa: E402

OLD, NEW, OTHER = record(id="long"), record(id="long", paid=("boolean", False)), record(id="string")


async def use(url: str) -> None:
    client = client_module.Client(url)
    try:
        made = await client.post_subjects_versions(subject="a/b", json=body(OLD))
        assert (made.status_code, made.json()) == (200, {"id": 1})
        assert (await client.post_subjects_versions(subject="a/b", json=body(NEW))).json() == {"id": 2}
        refused = await client.post_subjects_versions(subject="a/b", json=body(OTHER))
        assert not refused.ok and refused.json()["error_code"] == 409
        asked = await client.post_compatibility_subject_version(subject="a/b", version="latest", json=body(OTHER))
        assert asked.json()["is_compatible"] is False
        assert (await client.get_subjects()).json() == ["a/b"]
        assert (await client.get_subjects_versions(subject="a/b")).json() == [1, 2]
        latest = (await client.get_subjects_subject_version(subject="a/b", version="latest")).json()
        assert (latest["id"], latest["version"], json.loads(latest["schema"])) == (2, 2, NEW)
        assert json.loads((await client.get_schema_by_id(schema_id=1)).json()["schema"]) == OLD
        found = (await client.get_schema_by_id_versions(schema_id=2)).json()
        assert found == [{"subject": "a/b", "version": 2}]
        assert (await client.get_subjects_subject_version_schema(subject="a/b", version=1)).json() == OLD
        assert (await client.post_subjects(subject="a/b", json=body(OLD))).json()["version"] == 1
        assert (await client.get_types()).json() == ["PROTOBUF", "JSON", "AVRO"]
        assert (await client.put_config_subject(subject="a/b", json={"compatibility": "NONE"})).ok
        config = await client.get_config_subject(subject="a/b")
        assert config.json() == {"compatibilityLevel": "NONE"}
        assert (await client.post_subjects_versions(subject="a/b", json=body(OTHER))).json() == {"id": 3}
        assert (await client.delete_config_subject(subject="a/b")).ok
        assert (await client.get_mode()).json() == {"mode": "READWRITE"}
        assert (await client.delete_subjects_version(subject="a/b", version=3)).json() == 3
        assert (await client.delete_subjects(subject="a/b")).json() == [1, 2]
        missing = await client.get_subjects_versions(subject="a/b")
        assert (missing.status_code, missing.json()["error_code"]) == (404, 40401)
    finally:
        await client.close()


def test_its_calls() -> None:
    with kafka_server(registry=True) as server:
        asyncio.run(use(server.registry_url))
