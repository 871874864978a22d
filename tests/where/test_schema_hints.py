"""A field that only another schema of the topic has: the error says which."""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import kafkalog
from kafkalog.errors import IllegalArgument
from kafkalog.values.schemas.source import AVRO, Schema, schemas_of
from tests.commands import kafkalog as command
from tests.values.test_schemas import Registry

pytest.importorskip("kafkalog.values.avro")


def user(*names: str) -> str:
    fields: list[dict[str, Any]] = [{"name": name, "type": "string", "default": "?"} for name in names]
    inner = {"type": "record", "name": "Home", "fields": [{"name": "city", "type": "string"}]}
    if "home" in names:
        fields[names.index("home")] = {"name": "home", "type": ["null", inner], "default": None}
    return json.dumps({"type": "record", "name": "User", "fields": fields})


@pytest.fixture
def path(tmp_path: Path) -> Path:
    folder = tmp_path / "data"
    folder.mkdir()
    with kafkalog.open(folder / "users-0", "a") as log:
        log.append([b"\0\0\0\0\3\x06Ada"])
    return folder / "users-0"


@pytest.fixture
def registry() -> Iterator[Registry]:
    made = Registry()
    yield made
    made.close()


def refused(path: Path, where: str, **options: Any) -> str:
    with kafkalog.open(path) as log, pytest.raises(IllegalArgument) as error:
        log.scan(["offset"], where=where, value="avro", **options)
    return str(error.value)


def test_a_directory_of_schemas(path: Path, tmp_path: Path) -> None:
    schemas = tmp_path / "schemas"
    schemas.mkdir()
    for number, names in [(3, ["name"]), (7, ["name", "email"]), (8, ["name", "email", "home"]), (9, ["name"])]:
        (schemas / f"{number}.avsc").write_text(user(*names))
    (schemas / "10.avsc").write_text("{no schema")
    (schemas / "notes.txt").write_text("")
    given = {"schemas": str(schemas)}
    hint = "value has no field 'email', at character 1 of the expression. Hint: its fields are name; schema 8 has it"
    assert hint in refused(path, "value.email == 'x'", **given)
    assert "schema 8 has it: give schema=8 (--schema 8)" in refused(path, "value.home.city == 'x'", **given)
    assert "home has no field 'street'" in refused(path, "value.home.street == 'x'", **given, schema=8)
    assert "has it" not in refused(path, "value.emial == 'x'", **given)
    with kafkalog.open(path) as log:
        with pytest.raises(IllegalArgument, match="schema 8 has it"):
            log.scan(project=["value.email"], value="avro", **given)
        scan = log.scan(project=["value.email"], value="avro", schema=8, **given)
        assert scan.table().to_pylist() == [{"value.email": "?"}], "the hint helps"
    flags = ["-d", path.parent, "-t", "users", "-s", "value=avro", "--schemas", schemas]
    done = command("consume", *flags, "--where", "value.email == 'x'")
    assert done.returncode == 2 and b"--schema 8" in done.stderr


def test_the_topic_of_a_registry(path: Path) -> None:
    def stored(version: int, number: int, text: str, **more: Any) -> tuple[bytes, bytes]:
        key = {"keytype": "SCHEMA", "subject": "users-value", "version": version, "magic": 1}
        value = {"subject": "users-value", "version": version, "id": number, "schema": text, "deleted": False, **more}
        return json.dumps(key).encode(), json.dumps(value).encode()

    with kafkalog.open(path.parent / "_schemas-0", "a") as log:
        log.append([
            stored(1, 3, user("name")), stored(2, 7, user("name", "email")), stored(3, 8, user("name")),
            stored(4, 9, user("name", "email", "phone"), deleted=True),
        ])  # fmt: skip
    assert "schema 7 has it" in refused(path, "value.email == 'x'", schemas=str(path.parent))
    assert "has it" not in refused(path, "value.phone == 'x'", schemas=str(path.parent)), "it is deleted"


def test_a_registry_by_its_address(path: Path, registry: Registry) -> None:
    versions = {1: (3, user("name")), 2: (7, user("name", "email")), 3: (8, user("name"))}
    for version, (number, text) in versions.items():
        answer = {"subject": "users-value", "version": version, "id": number, "schema": text}
        registry.answers[f"/subjects/users-value/versions/{version}"] = answer
        registry.answers[f"/schemas/ids/{number}"] = {"schema": text}
    registry.answers["/subjects/users-value/versions/latest"] = answer
    registry.answers["/subjects/users-value/versions"] = json.dumps([1, 2, 3]).encode()
    assert "schema 7 has it" in refused(path, "value.email == 'x'", registry=registry.url)
    del registry.answers["/subjects/users-value/versions"]
    assert "did you mean" not in refused(path, "value.email == 'x'", registry=registry.url)
    registry.answers["/subjects/users-value/versions"] = b'{"no": "list"'
    assert "its fields are name" in refused(path, "value.email == 'x'", registry=registry.url)


def test_only_the_latest_versions_are_fetched() -> None:
    class Registered:
        def schemas_of(self, subject: str | None) -> Iterator[Schema]:
            for number in range(1000, 0, -1):
                fetched.append(number)
                yield Schema(b"{}", AVRO, number)

    fetched: list[int] = []
    assert [one.id for one in schemas_of(Registered(), "users-value")] == fetched == [*range(1000, 980, -1)]


def test_protobuf(tmp_path: Path) -> None:
    protobuf = pytest.importorskip("google.protobuf.descriptor_pb2")
    kind = protobuf.FieldDescriptorProto
    for number, names in [(3, ["name"]), (7, ["name", "email"])]:
        file = protobuf.FileDescriptorProto(name="user.proto", syntax="proto3")
        made = file.message_type.add(name="User")
        for at, name in enumerate(names, 1):
            made.field.add(name=name, number=at, type=kind.TYPE_STRING, label=kind.LABEL_OPTIONAL)
        described = protobuf.FileDescriptorSet(file=[file]).SerializeToString()
        (tmp_path / f"{number}.desc").write_bytes(described)
    with kafkalog.open(tmp_path / "users-0", "a") as log:
        log.append([b"\0\0\0\0\3\0\x0a\x03Ada"])
        with pytest.raises(IllegalArgument, match=r"schema 7 has it: give schema=7"):
            log.scan(["offset"], where="value.email == 'x'", value="protobuf", schemas=str(tmp_path))
