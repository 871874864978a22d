"""The paths of the REST interface, and the function that decides each."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

from kafkalog.server.registry import changing, lookups
from kafkalog.server.registry.content import Content
from kafkalog.server.registry.errors import RestError
from kafkalog.server.registry.requests import Plan, Request

Decide = Callable[[Content, tuple[str, ...], Request], Plan]
_PARAMETER: Final = "*"


def _asks(function: Callable[..., Any]) -> Decide:
    """Return the decision of a function of the content, the parameters of the path, and the request."""
    return lambda content, given, request: Plan(function(content, *given, request))


def _changes(function: Callable[..., Plan]) -> Decide:
    return lambda content, given, request: function(content, *given, request)


_ROUTES: Final[dict[str, dict[str, Decide]]] = {
    "": {"GET": lambda *_: Plan({})},
    "contexts": {"GET": lambda *_: Plan(["."])},
    "subjects": {"GET": _asks(lookups.subjects)},
    "subjects/*": {"POST": _asks(lookups.lookup), "DELETE": _changes(changing.delete_subject)},
    "subjects/*/versions": {"GET": _asks(lookups.versions), "POST": _changes(changing.register)},
    "subjects/*/versions/*": {"GET": _asks(lookups.version), "DELETE": _changes(changing.delete_version)},
    "subjects/*/versions/*/schema": {"GET": _asks(lookups.version_schema)},
    "subjects/*/versions/*/referencedby": {
        "GET": lambda content, given, _: Plan(lookups.referenced_by(content, *given)),
    },
    "compatibility/subjects/*/versions": {
        "POST": lambda content, given, request: Plan(lookups.compatibility(content, given[0], None, request)),
    },
    "compatibility/subjects/*/versions/*": {"POST": _asks(lookups.compatibility)},
    "schemas": {"GET": _asks(lookups.schemas)},
    "schemas/types": {"GET": lambda *_: Plan(lookups.types())},
    "schemas/ids/*": {"GET": _asks(lookups.schema_of_id)},
    "schemas/ids/*/schema": {"GET": _asks(lookups.text_of_id)},
    "schemas/ids/*/subjects": {"GET": _asks(lookups.subjects_of_id)},
    "schemas/ids/*/versions": {"GET": _asks(lookups.versions_of_id)},
    "config": {
        "GET": lambda content, _, request: Plan(lookups.level(content, None, request)),
        "PUT": lambda content, _, request: changing.put_level(content, None, request),
        "DELETE": lambda content, *_: changing.delete_level(content, None),
    },
    "config/*": {
        "GET": _asks(lookups.level),
        "PUT": _changes(changing.put_level),
        "DELETE": lambda content, given, _: changing.delete_level(content, *given),
    },
    "mode": {"GET": lambda content, _, request: Plan(lookups.mode(content, None, request))},
    "mode/*": {"GET": _asks(lookups.mode)},
}  # fmt: skip
_PATHS: Final = {tuple(path.split("/")) if path else (): methods for path, methods in _ROUTES.items()}


def decide(content: Content, request: Request) -> Plan:
    """Return the answer to a request and the records to append before it. RestError, 404 and 405 among them.

    >>> decide(Content(), Request("GET", ("schemas", "types"), {})).answer
    ['PROTOBUF', 'JSON', 'AVRO']
    """
    for path, methods in _PATHS.items():
        if len(path) != len(request.parts):
            continue
        if all(wanted in (_PARAMETER, part) for wanted, part in zip(path, request.parts, strict=True)):
            given = tuple(part for wanted, part in zip(path, request.parts, strict=True) if wanted == _PARAMETER)
            if request.method not in methods:
                raise RestError(405, "HTTP 405 Method Not Allowed")
            return methods[request.method](content, given, request)
    raise RestError(404, "HTTP 404 Not Found")
