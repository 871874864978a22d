"""Records of the topic `_schemas`: keys and values are JSON, as the original registry writes them."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any, Final, NamedTuple

from kafkalog.values.schemas.source import AVRO, Reference

SCHEMA, CONFIG, MODE, DELETE_SUBJECT, CLEAR_SUBJECT, NOOP = (
    "SCHEMA", "CONFIG", "MODE", "DELETE_SUBJECT", "CLEAR_SUBJECT", "NOOP",
)  # fmt: skip
_MAGIC: Final = {SCHEMA: 1}


class Stored(NamedTuple):
    """A version of a subject as it is stored."""

    subject: str
    version: int
    id: int
    kind: str
    text: str
    references: tuple[Reference, ...] = ()
    is_deleted: bool = False

    @property
    def schema(self) -> tuple[str, str, tuple[Reference, ...]]:
        """The parts that make a schema: versions with the same ones have one id."""
        return self.kind, self.text, self.references


class TopicRecord(NamedTuple):
    """A record to append; a value of None removes the key."""

    key: bytes
    value: bytes | None


def _compact(content: Mapping[str, object]) -> bytes:
    """Return the JSON of a key or value. ValueError for half of a surrogate pair."""
    return json.dumps(content, separators=(",", ":"), ensure_ascii=False).encode()


def _key(kind: str, fields: Mapping[str, object]) -> bytes:
    return _compact({"keytype": kind, **fields, "magic": _MAGIC.get(kind, 0)})


def references_json(references: tuple[Reference, ...]) -> list[dict[str, object]]:
    """Return references as the REST interface and the topic have them."""
    return [one._asdict() for one in references]


def schema_record(one: Stored) -> TopicRecord:
    """Return the record of a version.

    >>> schema_record(Stored("s", 1, 7, "AVRO", '"int"')).key
    b'{"keytype":"SCHEMA","subject":"s","version":1,"magic":1}'
    """
    value: dict[str, object] = {"subject": one.subject, "version": one.version, "id": one.id}
    if one.kind != AVRO:
        value["schemaType"] = one.kind
    if one.references:
        value["references"] = references_json(one.references)
    return TopicRecord(_schema_key(one), _compact({**value, "schema": one.text, "deleted": one.is_deleted}))


def _schema_key(one: Stored) -> bytes:
    return _key(SCHEMA, {"subject": one.subject, "version": one.version})


def removal_record(one: Stored) -> TopicRecord:
    """Return the record that removes a version for good."""
    return TopicRecord(_schema_key(one), None)


def delete_subject_record(subject: str, version: int) -> TopicRecord:
    """Return the record that marks all versions of a subject up to this one as deleted."""
    return TopicRecord(
        _key(DELETE_SUBJECT, {"subject": subject}), _compact({"subject": subject, "version": version})
    )


def config_record(subject: str | None, level: str | None) -> TopicRecord:
    """Return the record of a compatibility level, global for no subject; None removes it."""
    value = None if level is None else _compact({"subject": subject, "compatibilityLevel": level})
    return TopicRecord(_key(CONFIG, {"subject": subject}), value)


def noop_record(last_id: int = 0) -> TopicRecord:
    """Return the record with which a registry begins, or one that keeps the last id; other registries pass over it."""
    return TopicRecord(_key(NOOP, {}), _compact({"lastId": last_id}) if last_id else None)


class Change(NamedTuple):
    """The meaning of a record: the kind and the subject of its key, and its value."""

    kind: str
    subject: str | None
    version: int
    value: Any


def change_of(key: bytes | None, value: bytes | None) -> Change:
    """Return what a record means. ValueError, LookupError, TypeError or RecursionError if it is none of a registry."""
    name = json.loads(key or b"null")
    kind, subject, version = name["keytype"], name.get("subject"), name.get("version", 0)
    if not isinstance(subject, str | None) or not isinstance(version, int):
        raise ValueError("its subject or version is of another type")
    if kind in (SCHEMA, DELETE_SUBJECT, CLEAR_SUBJECT) and subject is None:
        raise ValueError("it has no subject")
    return Change(kind, subject, version, None if value is None else json.loads(value))
