"""Calls of a registry's REST interface, as its documentation has them."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any
from urllib.error import HTTPError
from urllib.parse import quote
from urllib.request import Request, urlopen


class Rest:
    """A registry at an address: each call returns the status and the JSON of the response."""

    def __init__(self, url: str) -> None:
        self.url = url

    def call(self, method: str, path: str, content: Any = None) -> tuple[int, Any]:
        data = None if content is None else json.dumps(content).encode()
        headers = {"Content-Type": "application/vnd.schemaregistry.v1+json"}
        try:
            with urlopen(Request(self.url + path, data, headers, method=method), timeout=60) as answer:
                return answer.status, json.loads(answer.read())
        except HTTPError as error:
            with error:
                return error.code, json.loads(error.read())

    def ok(self, method: str, path: str, content: Any = None) -> Any:
        status, found = self.call(method, path, content)
        assert status == 200, found
        return found

    def code(self, method: str, path: str, content: Any = None) -> int:
        status, found = self.call(method, path, content)
        assert str(found["error_code"]).startswith(str(status)) and found["message"]
        return int(found["error_code"])

    def register(self, subject: str, schema: object, **more: Any) -> int:
        return int(self.ok("POST", f"/subjects/{quote(subject, safe='')}/versions", body(schema, **more))["id"])


def body(schema: object, **more: Any) -> Mapping[str, Any]:
    """Return the body with a schema; `more` are schemaType and references."""
    return {"schema": schema if isinstance(schema, str) else json.dumps(schema), **more}


def record(name: str = "Order", **fields: object) -> dict[str, object]:
    """Return an Avro record; a field is a type, or a type with its default."""
    made = []
    for key, given in fields.items():
        kind, *default = given if isinstance(given, tuple) else (given,)
        made.append({"name": key, "type": kind} | ({"default": default[0]} if default else {}))
    return {"type": "record", "name": name, "fields": made}
