"""Schemas with an id, and what every place that has them can do."""

from __future__ import annotations

from itertools import islice
from typing import Any, ClassVar, Final, NamedTuple, Protocol

from kafkalog.errors import IllegalArgument, InvalidRecord, KafkalogError

MAX_SCHEMA_BYTES: Final = 64 << 20
MOST_REFERENCES: Final = 1000
LOOK_AGAIN_MS: Final = 30_000
"""Time after which an id that was unknown is looked up again: its schema may be registered later."""
MOST_VERSIONS: Final = 20
"""Schemas of a subject that are looked into for a field that the one in use does not have."""
AVRO, PROTOBUF, JSON = "AVRO", "PROTOBUF", "JSON"


class UnknownSchema(InvalidRecord):
    """A value names a schema that is nowhere."""


class RegistryUnavailable(KafkalogError, ConnectionError):
    """A schema registry did not answer, or not with a schema."""

    retriable: ClassVar[bool] = True
    default_hint = "check the registry's address, or decode with a directory of schemas; known schemas stay usable"


class Reference(NamedTuple):
    """Another schema that a schema uses, by the name it uses for it."""

    name: str
    subject: str
    version: int


class Schema(NamedTuple):
    """A schema as it is stored; `id` is None for one that has none, `content` what its file or the registry has."""

    content: bytes
    kind: str = AVRO
    id: int | None = None
    references: tuple[Reference, ...] = ()
    place: str = ""
    """Where it was found: a path or an address, for messages."""


class SchemaSource(Protocol):
    """A place with schemas: what `schema_source` returns, or an object of yours. Any number of threads may ask it.

    >>> class OneSchema:
    ...     def by_id(self, number):
    ...         return Schema(b'"string"', id=number)
    ...     def by_version(self, subject, version=None):
    ...         return self.by_id(1)
    >>> OneSchema().by_version("orders-value").id
    1
    """

    def by_id(self, number: int) -> Schema:
        """Return the schema with an id; UnknownSchema where there is none, RegistryUnavailable if that is not known."""

    def by_version(self, subject: str, version: int | None = None) -> Schema:
        """Return a version of a subject, the latest for None; UnknownSchema where there is none."""


def schemas_of(source: object, subject: str | None) -> list[Schema]:
    """Return the schemas of a subject, the latest first, at most MOST_VERSIONS; none if the place does not list them.

    A directory has no subjects: these are all of its schemas.
    """
    listed = getattr(source, "schemas_of", None)
    return [] if listed is None else [*islice(listed(subject), MOST_VERSIONS)]


def schema_from_json(found: Any, place: str, number: int | None = None) -> Schema:
    """Return the schema in an answer of a registry, or in a value of its topic; ValueError for anything else."""
    if not isinstance(found, dict) or not isinstance(found.get("schema"), str):
        raise ValueError("it has no 'schema'")
    id = found.get("id", number)
    if not isinstance(id, int):
        raise ValueError("it has no 'id'")
    references = tuple(
        Reference(str(one["name"]), str(one["subject"]), int(one["version"])) for one in found.get("references") or ()
    )
    return Schema(found["schema"].encode(), str(found.get("schemaType") or AVRO), id, references, place)


def referenced(source: SchemaSource, schema: Schema) -> list[tuple[str, Schema]]:
    """Return all schemas that a schema uses, with the names it has for them; each after those that it uses itself.

    A schema that is used by several names is there once for each. IllegalArgument where they go in a circle, or are
    more than MOST_REFERENCES.
    """
    found: dict[Reference, tuple[str, Schema]] = {}
    read: dict[tuple[str, int], Schema] = {}
    open_ones: set[tuple[str, int]] = set()

    def visit(one: Schema) -> None:
        for name, subject, version in one.references:
            key = (subject, version)
            if Reference(name, *key) in found:
                continue
            if key in open_ones or len(open_ones) + len(found) >= MOST_REFERENCES:
                raise IllegalArgument(
                    f"the references of the schema go in a circle, at {subject} version {version}", path=schema.place
                )
            if key not in read:
                open_ones.add(key)
                other = source.by_version(subject, version)
                visit(other)
                open_ones.discard(key)
                read[key] = other
            found[Reference(name, *key)] = (name, read[key])

    try:
        visit(schema)
    except RecursionError:
        raise IllegalArgument("the references of the schema are nested too deeply", path=schema.place) from None
    return list(found.values())
