"""The topic `_schemas` of a registry, read from a data directory: every schema that it ever stored."""

from __future__ import annotations

import json
import os
import threading
from typing import Any, Final

from kafkalog.errors import IllegalArgument
from kafkalog.reading.chunks import records
from kafkalog.storage.readonly.view import LogView
from kafkalog.values.schemas.source import Schema, UnknownSchema, schema_from_json

TOPIC: Final = "_schemas"
PARTITION: Final = f"{TOPIC}-0"
MOST_PROBLEMS: Final = 100


class SchemaTopic:
    """The schemas in a data directory's `_schemas-0`, read once, and again from there on when an id is not known.

    `problems` lists its records that could not be understood (the first 100). IllegalArgument if the directory has no
    such topic.
    """

    def __init__(self, directory: str | os.PathLike[str]) -> None:
        self.path = os.path.join(os.fspath(directory), PARTITION)
        if not os.path.isdir(self.path):
            raise IllegalArgument(f"there is no topic {TOPIC} in the directory", path=os.fspath(directory))
        self.problems: list[str] = []
        self._lock = threading.Lock()
        self._next_offset = 0
        self._ids: dict[int, Schema] = {}
        self._versions: dict[str, dict[int, int]] = {}
        self._deleted: set[tuple[str, int]] = set()

    def by_id(self, number: int) -> Schema:
        """Return the schema with an id, also of a subject that was deleted."""
        if number not in self._ids:
            self.refresh()
        if number not in self._ids:
            raise UnknownSchema(f"schema {number} is missing: it is not in {self.path}")
        return self._ids[number]

    def by_version(self, subject: str, version: int | None = None) -> Schema:
        """Return a version of a subject; the latest that is not deleted for None."""
        self.refresh()
        known = dict(self._versions.get(subject, {}))  # another thread may read more records meanwhile
        if version is None:
            version = max((v for v in known if (subject, v) not in self._deleted), default=None)
        if version is None or version not in known:
            words = subject if version is None else f"version {version} of {subject}"
            raise UnknownSchema(f"{words} is missing: it is not in {self.path}")
        return self._ids[known[version]]

    def schemas_of(self, subject: str | None) -> list[Schema]:
        """Return the schemas of a subject, the latest version first; all of them for one that is not known."""
        self.refresh()
        if (subject or "") not in self._versions:
            return [self._ids[number] for number in sorted(self._ids, reverse=True)]
        known = dict(self._versions[subject or ""])
        return [self._ids[known[one]] for one in sorted(known, reverse=True) if (subject, one) not in self._deleted]

    def refresh(self) -> None:
        """Read the records that were appended since the last read."""
        with self._lock, LogView(self.path) as log:
            start = max(self._next_offset, log.log_start_offset)
            stop = log.log_end_offset
            if start < stop:
                for record in records(log, start, stop):
                    self._take(record.offset, record.key, record.value)
            self._next_offset = stop

    def _take(self, offset: int, key: bytes | None, value: bytes | None) -> None:
        try:
            name = json.loads(key or b"null")
            kind = name["keytype"]
            if kind == "SCHEMA":
                self._take_schema(name["subject"], _version(name), value)
            elif kind == "DELETE_SUBJECT" and value is not None:
                last = _version(json.loads(value))
                for version in self._versions.get(name["subject"], ()):
                    if version <= last:
                        self._deleted.add((name["subject"], version))
        except (ValueError, LookupError, TypeError, AttributeError, RecursionError) as error:
            if len(self.problems) < MOST_PROBLEMS:
                self.problems.append(f"offset {offset}: {type(error).__name__}: {error}")

    def _take_schema(self, subject: str, version: int, value: bytes | None) -> None:
        if value is None:
            self._versions.get(subject, {}).pop(version, None)
            return
        found: Any = json.loads(value)
        schema = schema_from_json(found, self.path)
        assert schema.id is not None
        self._ids[schema.id] = schema
        self._versions.setdefault(subject, {})[version] = schema.id
        if found.get("deleted"):
            self._deleted.add((subject, version))
        else:
            self._deleted.discard((subject, version))

    def __repr__(self) -> str:
        return f"<SchemaTopic {self.path}: {len(self._ids)} schemas>"


def _version(found: Any) -> int:
    """Return the version; TypeError if it is not an integer, since it could not be compared with others."""
    version = found["version"]
    if type(version) is not int:
        raise TypeError(f"the version is {version!r:.60}")
    return version
