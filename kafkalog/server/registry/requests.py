"""Requests of the REST interface: what their path, query and body say."""

from __future__ import annotations

import json
from typing import Any, Final, NamedTuple
from urllib.parse import parse_qsl, unquote

from kafkalog.server.registry.errors import RestError, invalid_schema
from kafkalog.server.registry.parsing import KINDS
from kafkalog.server.registry.records import TopicRecord
from kafkalog.values.schemas.source import AVRO, Reference

LATEST: Final = "latest"
MOST_NUMBER: Final = (1 << 31) - 1
MOST_NAME_CHARS: Final = 1000


class Plan(NamedTuple):
    """The JSON to answer with, and the records to append before."""

    answer: Any
    records: tuple[TopicRecord, ...] = ()


class Given(NamedTuple):
    """A schema in the body of a request; its id and version are None unless they are 1 or more."""

    kind: str
    text: str
    references: tuple[Reference, ...]
    id: int | None
    version: int | None


class Request(NamedTuple):
    """A request: its method, the parts of its path, its query and its body."""

    method: str
    parts: tuple[str, ...]
    query: dict[str, str]
    body: bytes = b""

    def flag(self, name: str) -> bool:
        """Return True if the query says so."""
        return self.query.get(name, "").lower() == "true"

    def content(self) -> dict[str, Any]:
        """Return the body. RestError 422 for what is no JSON object."""
        try:
            found = json.loads(self.body)
        except (ValueError, RecursionError) as error:
            raise RestError(422, f"The body is not JSON: {error}") from None
        if not isinstance(found, dict):
            raise RestError(422, "The body is no JSON object")
        return found

    def schema(self) -> Given:
        """Return the schema in the body. RestError 42201 for none, or one of another type."""
        found = self.content()
        text, kind = found.get("schema"), found.get("schemaType") or AVRO
        if kind not in KINDS:
            raise invalid_schema(f"the type {kind!r:.60} is none of {', '.join(KINDS)}")
        if not isinstance(text, str) or not text.strip():
            raise invalid_schema("it is empty")
        numbers = [_number(name, found.get(name)) for name in ("id", "version")]
        return Given(kind, text, _references(found.get("references")), *numbers)


def _number(name: str, given: Any) -> int | None:
    """Return an id or version, None if it is left to the registry: clients then send none, 0 or -1."""
    if given is None:
        return None
    if isinstance(given, bool) or not isinstance(given, int) or given > MOST_NUMBER:
        raise RestError(422, f"The {name} is {given!r:.60}, not a number up to 2^31-1")
    return given if given > 0 else None


def _references(given: Any) -> tuple[Reference, ...]:
    try:
        return tuple(Reference(*(one[name] for name in Reference._fields)) for one in _checked(given or []))
    except (LookupError, TypeError):
        raise invalid_schema("its references are no list of name, subject and version") from None


def _checked(given: Any) -> list[dict[str, Any]]:
    if not isinstance(given, list):
        raise TypeError
    for one in given:
        if not (isinstance(one["name"], str) and isinstance(one["subject"], str) and type(one["version"]) is int):
            raise TypeError
    return given


def request_of(method: str, target: str, body: bytes = b"") -> Request:
    """Return the request for a target, a path with its query.

    >>> request_of("GET", "/subjects/a%2Fb/versions?deleted=true").parts
    ('subjects', 'a/b', 'versions')
    """
    path, _, query = target.partition("?")
    parts = tuple(unquote(part) for part in path.strip("/").split("/") if part)
    if any(len(part) > MOST_NAME_CHARS or "\0" in part or "\ufffd" in part for part in parts):
        raise RestError(42208, "The subject's name is not valid")
    return Request(method, parts, dict(parse_qsl(query, max_num_fields=50)), body)


def version_number(text: str) -> int | None:
    """Return the number of a version, None for the latest. RestError 42202 for anything else.

    >>> version_number("latest"), version_number("12")
    (None, 12)
    """
    if text in (LATEST, "-1"):
        return None
    if not (text.isascii() and text.isdecimal() and len(text) < 20 and 1 <= int(text) <= MOST_NUMBER):
        raise RestError(
            42202,
            f"The specified version '{text:.60}' is not a valid version id. Allowed values are between [1, 2^31-1] and "
            'the string "latest"',
        )
    return int(text)
