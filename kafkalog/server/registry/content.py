"""The content of a registry: all that the records of its topic say."""

from __future__ import annotations

from collections.abc import Iterator

from kafkalog.server.registry import records
from kafkalog.server.registry.records import Change, Stored
from kafkalog.values.schemas.source import Schema, UnknownSchema, schema_from_json

DEFAULT_LEVEL = "BACKWARD"
DEFAULT_MODE = "READWRITE"


class Content:
    """Subjects with their versions, levels and modes. It changes by the topic's records only."""

    def __init__(self) -> None:
        self._subjects: dict[str, dict[int, Stored]] = {}
        self.levels: dict[str | None, str] = {}
        self.modes: dict[str | None, str] = {}
        self.last_id = 0

    def copied(self) -> Content:
        """Return a copy: records that are applied to it do not change this content."""
        made = Content()
        made._subjects = {subject: dict(versions) for subject, versions in self._subjects.items()}
        made.levels, made.modes, made.last_id = dict(self.levels), dict(self.modes), self.last_id
        return made

    def apply(self, change: Change) -> None:
        """Apply a record. ValueError, LookupError or TypeError for a value that is none of its kind."""
        kind, subject, version, value = change
        if kind == records.SCHEMA and subject is not None:
            self._apply_schema(subject, version, value)
        elif kind == records.DELETE_SUBJECT and subject is not None and value is not None:
            known = self._subjects.get(subject, {})
            for number in [number for number in known if number <= value["version"]]:
                known[number] = known[number]._replace(is_deleted=True)
        elif kind == records.CLEAR_SUBJECT and subject is not None:
            known = self._subjects.get(subject, {})
            for number in [number for number, one in known.items() if one.is_deleted]:
                self._remove(subject, number)
        elif kind == records.CONFIG:
            self._set(self.levels, subject, None if value is None else value.get("compatibilityLevel"))
        elif kind == records.MODE:
            self._set(self.modes, subject, None if value is None else value["mode"])
        elif kind == records.NOOP and value is not None:
            if not isinstance(value["lastId"], int):
                raise ValueError("its last id is no whole number")
            self.last_id = max(self.last_id, value["lastId"])

    def _apply_schema(self, subject: str, version: int, value: object) -> None:
        if value is None:
            self._remove(subject, version)
            return
        found = schema_from_json(value, records.SCHEMA)
        assert found.id is not None and isinstance(value, dict)
        text = found.content.decode()
        one = Stored(
            subject, version, found.id, found.kind, text, found.references, bool(value.get("deleted", False))
        )
        self._subjects.setdefault(subject, {})[version] = one
        self.last_id = max(self.last_id, found.id)

    def _remove(self, subject: str, version: int) -> None:
        known = self._subjects.get(subject, {})
        known.pop(version, None)
        if not known:
            self._subjects.pop(subject, None)

    def _set(self, values: dict[str | None, str], subject: str | None, value: str | None) -> None:
        if value is None:
            values.pop(subject, None)
        else:
            values[subject] = value

    # What is asked

    def all_versions(self) -> Iterator[Stored]:
        """Yield all versions of all subjects, those marked as deleted, too, ordered by subject and version."""
        for subject in sorted(self._subjects):
            yield from self.versions(subject, deleted=True)

    def versions(self, subject: str, *, deleted: bool = False) -> list[Stored]:
        """Return the versions of a subject in order; `deleted` with those that are marked as deleted."""
        known = self._subjects.get(subject, {})
        return [known[number] for number in sorted(known) if deleted or not known[number].is_deleted]

    def version(self, subject: str, number: int) -> Stored | None:
        """Return one version, which may be marked as deleted."""
        return self._subjects.get(subject, {}).get(number)

    def with_id(self, number: int) -> list[Stored]:
        """Return all versions that have this id."""
        return [one for one in self.all_versions() if one.id == number]

    def id_of(self, wanted: Stored) -> int | None:
        """Return the id of a schema that some subject has, or had before it was marked as deleted."""
        return next((one.id for one in self.all_versions() if one.schema == wanted.schema), None)

    def users_of(self, subject: str, version: int) -> list[Stored]:
        """Return the versions, not marked as deleted, that refer to this one."""
        return [
            one
            for one in self.all_versions()
            if not one.is_deleted and any(ref.subject == subject and ref.version == version for ref in one.references)
        ]

    def level(self, subject: str) -> str:
        """Return the compatibility level that applies to a subject."""
        return self.levels.get(subject) or self.levels.get(None) or DEFAULT_LEVEL

    def mode(self, subject: str | None) -> str:
        """Return the mode that applies to a subject, or the global one."""
        return self.modes.get(subject) or self.modes.get(None) or DEFAULT_MODE

    # As a place of schemas: kafkalog.values.schemas.source.SchemaSource

    def by_id(self, number: int) -> Schema:
        """Return the schema with an id; UnknownSchema if there is none."""
        found = self.with_id(number)
        if not found:
            raise UnknownSchema(f"schema {number} is missing")
        return _schema(found[0])

    def by_version(self, subject: str, version: int | None = None) -> Schema:
        """Return a version of a subject, the latest for None; UnknownSchema if there is none."""
        if version is None:
            found = next(iter(self.versions(subject)[-1:]), None)
        else:
            found = self.version(subject, version)
        if found is None:
            raise UnknownSchema(f"version {version or 'latest'} of {subject} is missing")
        return _schema(found)


def _schema(one: Stored) -> Schema:
    return Schema(one.text.encode("utf-8", "surrogatepass"), one.kind, one.id, one.references)
