"""JSON Schema as types of columns: what has one type becomes columns, all else stays JSON text."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from typing import Any, Final
from urllib.parse import unquote

from kafkalog.errors import IllegalArgument
from kafkalog.values.json_types import JSON, MOST_LEVELS, JsonType

MOST_SCHEMAS: Final = 1 << 17
"""Schemas that one stands for, as each reference is followed: a few words can stand for any number of them."""
MOST_DEPTH: Final = 100
"""Schemas that stand in each other, or are reached from each other by references."""
MOST_BRACKETS: Final = 4 * MOST_DEPTH
"""Brackets open at a place of a schema's text: a level of a schema has two or three."""
_NO_BRACKETS: Final = re.compile(r'"[^"\\]*(?:\\.[^"\\]*)*"?|[^"\[\]{}]+', re.DOTALL)
SIMPLE: Final = {"boolean": "bool", "integer": "int64", "number": "double", "string": "string"}
TEXT_FORMATS: Final = {"date-time": "timestamp", "date": "date"}


def schema_type(schema: Any, others: Mapping[str, Any] | None = None) -> JsonType:
    """Return the type that a JSON Schema gives; `others` are documents that it refers to, by the names it uses.

    `type` (a list with "null" too), `properties`, `items`, `additionalProperties` (a map), `enum`, `const`, `format`
    of text (date-time, date), `$ref`, `allOf` of one schema or of objects, and `anyOf` and `oneOf` of null and one
    schema become columns. What several types may be, what refers to itself and what has no type stays JSON text.
    `properties` beside `allOf` are joined with those of its objects. IllegalArgument for what is no schema, a `$ref`
    that leads nowhere, or a schema that stands for too many others or is nested more than MOST_DEPTH deep.

    >>> schema_type({"type": "object", "properties": {"n": {"type": ["integer", "null"]}}})
    JsonType(kind='struct', children=(('n', JsonType(kind='int64', children=())),))
    """
    return _Reader({"": schema, **(others or {})}).type(schema, "", ())


def parse_schema(text: str | bytes, place: str = "") -> Any:
    """Return the document of a schema; IllegalArgument for text that is no JSON object, or nested too deeply."""
    try:
        if isinstance(text, bytes):
            text = text.decode(json.detect_encoding(text), "surrogatepass")
        if not _is_flat(text):
            raise ValueError(f"it is nested more than {MOST_BRACKETS} brackets deep")
        found = json.loads(text)
    except ValueError as error:
        raise IllegalArgument(f"it is not a JSON Schema: {error}", path=place or None) from None
    if not isinstance(found, dict | bool):
        raise IllegalArgument("a JSON Schema is an object", path=place or None)
    return found


def _is_flat(text: str) -> bool:
    """Return False if more than MOST_BRACKETS brackets of the JSON are open at a place."""
    depth = 0
    for bracket in _NO_BRACKETS.sub("", text):
        depth += 1 if bracket in "[{" else -1
        if depth > MOST_BRACKETS:
            return False
    return True


class _Reader:
    def __init__(self, documents: dict[str, Any]) -> None:
        self._documents = documents
        self._left = MOST_SCHEMAS
        self._depth = 0

    def type(self, schema: Any, document: str, open_refs: tuple[str, ...], level: int = 1) -> JsonType:
        """Return the type of a schema of a document, within the references that lead to it."""
        if self._depth >= MOST_DEPTH:
            raise IllegalArgument(
                f"the JSON Schema is nested more than {MOST_DEPTH} schemas deep, as each $ref is followed",
                hint="leave it out, and give fields= with their types",
            )
        self._depth += 1
        try:
            return self._type(schema, document, open_refs, level)
        finally:
            self._depth -= 1

    def _type(self, schema: Any, document: str, open_refs: tuple[str, ...], level: int) -> JsonType:
        self._left -= 1
        if self._left < 0:
            raise IllegalArgument(
                f"the JSON Schema stands for more than {MOST_SCHEMAS} schemas, as each $ref is followed",
                hint="leave it out, and give fields= with their types",
            )
        if isinstance(schema, bool) or level > MOST_LEVELS:
            return JSON
        if not isinstance(schema, dict):
            raise IllegalArgument(f"a JSON Schema has {schema!r} where a schema is expected")
        if "$ref" in schema:
            return self._referred(schema["$ref"], document, open_refs, level)
        if "allOf" in schema and schema.get("properties"):
            return self._extended(schema, document, open_refs, level)
        for word in ("anyOf", "oneOf", "allOf"):
            if word in schema and not {"type", "properties"} <= schema.keys():
                return self._combined(word, schema, document, open_refs, level)
        kinds = self._kinds(schema)
        if kinds == {"integer", "number"}:
            kinds = {"number"}
        if len(kinds) != 1:
            return JSON
        (kind,) = kinds
        if kind == "array":
            return self._array(schema, document, open_refs, level)
        if kind == "object":
            return self._object(schema, document, open_refs, level)
        if kind == "string":
            return JsonType(TEXT_FORMATS.get(str(schema.get("format")), "string"))
        return JsonType(SIMPLE[kind])

    def _kinds(self, schema: dict[str, Any]) -> set[str]:
        """Return the types that a schema allows, without null."""
        given = schema.get("type")
        if given is None:
            samples = [schema["const"]] if "const" in schema else schema.get("enum")
            if not samples or not isinstance(samples, list):
                return {"object"} if "properties" in schema else {"array"} if "items" in schema else set()
            given = [_type_of(value) for value in samples]
        words = given if isinstance(given, list) else [given]
        for word in words:
            if not isinstance(word, str) or word not in ("null", "array", "object", *SIMPLE):
                raise IllegalArgument(f"a JSON Schema has the unknown type {word!r:.60}")
        return set(words) - {"null"}

    def _array(self, schema: dict[str, Any], document: str, open_refs: tuple[str, ...], level: int) -> JsonType:
        items = schema.get("items", True)
        mixed = isinstance(items, list) or "prefixItems" in schema
        item = JSON if mixed else self.type(items, document, open_refs, level + 1)
        return JsonType("list", (("item", item),))

    def _object(self, schema: dict[str, Any], document: str, open_refs: tuple[str, ...], level: int) -> JsonType:
        properties = schema.get("properties")
        if properties:
            if not isinstance(properties, dict):
                raise IllegalArgument("the properties of a JSON Schema are no object")
            return JsonType(
                "struct",
                tuple((name, self.type(one, document, open_refs, level + 1)) for name, one in properties.items()),
            )
        more = schema.get("additionalProperties")
        if isinstance(more, dict) and not schema.get("patternProperties"):
            return JsonType("map", (("value", self.type(more, document, open_refs, level + 1)),))
        return JSON

    def _combined(
        self, word: str, schema: dict[str, Any], document: str, open_refs: tuple[str, ...], level: int
    ) -> JsonType:  # fmt: skip
        parts = _parts(schema, word)
        rest = [part for part in parts if not (isinstance(part, dict) and part.get("type") == "null")]
        types = [self.type(part, document, open_refs, level) for part in rest]
        if len(types) == 1 or len(set(types)) == 1:
            return types[0]
        if word == "allOf" and types and all(type.kind == "struct" for type in types):
            return _joined(types)
        if {type.kind for type in types} == {"int64", "double"}:
            return JsonType("double")
        return JSON

    def _extended(
        self, schema: dict[str, Any], document: str, open_refs: tuple[str, ...], level: int
    ) -> JsonType:  # fmt: skip
        """Return the type of an object with its own properties and those of the objects in allOf.

        Other parts of allOf are conditions, which give no columns.
        """
        own = {word: part for word, part in schema.items() if word != "allOf"}
        types = [self.type(part, document, open_refs, level) for part in (own, *_parts(schema, "allOf"))]
        return _joined([type for type in types if type.kind == "struct"]) if types[0].kind == "struct" else types[0]

    def _referred(self, ref: Any, document: str, open_refs: tuple[str, ...], level: int) -> JsonType:
        if not isinstance(ref, str):
            raise IllegalArgument("a $ref of a JSON Schema is no string")
        name, _, pointer = ref.partition("#")
        target = name or document
        if target not in self._documents:
            target = next((known for known in self._documents if known and target.endswith("/" + known)), target)
        full = f"{target}#{pointer}"
        if full in open_refs:
            return JSON  # it refers to itself
        if target not in self._documents:
            raise IllegalArgument(f"a $ref of a JSON Schema leads to {ref!r}, which is nowhere")
        found = self._documents[target]
        for step in filter(None, pointer.split("/")):
            step = unquote(step).replace("~1", "/").replace("~0", "~")
            try:
                found = found[int(step) if isinstance(found, list) else step]
            except (LookupError, TypeError, ValueError):
                raise IllegalArgument(f"a $ref of a JSON Schema leads to {ref!r}, which is nowhere") from None
        return self.type(found, target, (*open_refs, full), level)


def _parts(schema: dict[str, Any], word: str) -> list[Any]:
    parts = schema[word]
    if not isinstance(parts, list) or not parts:
        raise IllegalArgument(f"{word} of a JSON Schema is no list of schemas")
    return parts


def _joined(types: Sequence[JsonType]) -> JsonType:
    """Return the type of values that are of all these types: the narrowest one, or the fields of all."""
    known = [type for type in types if type != JSON]
    kinds = {type.kind for type in known}
    if kinds == {"struct"}:
        fields: dict[str, list[JsonType]] = {}
        for type in known:
            for name, one in type.children:
                fields.setdefault(name, []).append(one)
        return JsonType("struct", tuple((name, _joined(found)) for name, found in fields.items()))
    if kinds == {"int64", "double"}:
        return JsonType("int64")
    return known[0] if known and all(type == known[0] for type in known) else JSON


def _type_of(value: Any) -> str:
    if value is None:
        return "null"
    if isinstance(value, bool):
        return "boolean"
    for kind, word in ((int, "integer"), (float, "number"), (str, "string"), (list, "array")):
        if isinstance(value, kind):
            return word
    return "object"
