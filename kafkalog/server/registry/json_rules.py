"""Compatibility of JSON Schemas: documents that the writer's schema allows and the reader's may refuse.

The rules are on the safe side: what they cannot compare counts as incompatible unless both schemas have it alike.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping
from typing import Any, Final
from urllib.parse import unquote

from kafkalog.values.json_schema import MOST_DEPTH

_MOST_PAIRS: Final = 1 << 14
_PAIR_LENGTH: Final = 1 << 12
_MOST_TARGETS: Final = 200
"""Limit of references, inside keywords that must be equal, whose targets are compared."""
TYPES: Final = ("null", "boolean", "integer", "number", "string", "array", "object")
_ANY: Final = frozenset(TYPES) - {"integer"}
_NUMBER, _COUNT, _TEXT, _FLAG = "a number", "a whole number of 0 or more", "text", "true or false"
_SCHEMA, _SCHEMAS, _NAMED, _NAMES, _LIST = "a schema", "a list of schemas", "schemas by name", "names", "a list"
KEYWORDS: Final = {
    "maxLength": _COUNT, "minLength": _COUNT, "maxItems": _COUNT, "minItems": _COUNT, "maxProperties": _COUNT,
    "minProperties": _COUNT, "maximum": _NUMBER, "minimum": _NUMBER, "multipleOf": _NUMBER, "pattern": _TEXT,
    "format": _TEXT, "$ref": _TEXT, "uniqueItems": _FLAG, "not": _SCHEMA, "additionalProperties": _SCHEMA,
    "additionalItems": _SCHEMA, "propertyNames": _SCHEMA, "contains": _SCHEMA, "if": _SCHEMA, "then": _SCHEMA,
    "else": _SCHEMA, "allOf": _SCHEMAS, "anyOf": _SCHEMAS, "oneOf": _SCHEMAS, "prefixItems": _SCHEMAS,
    "properties": _NAMED, "patternProperties": _NAMED, "definitions": _NAMED, "$defs": _NAMED, "required": _NAMES,
    "enum": _LIST,
}  # fmt: skip
_UPPER: Final = ("maxLength", "maxItems", "maxProperties", "maximum", "exclusiveMaximum")
_LOWER: Final = ("minLength", "minItems", "minProperties", "minimum", "exclusiveMinimum")
_ALIKE: Final = (
    "pattern", "format", "patternProperties", "propertyNames", "contains", "minContains", "maxContains", "if", "then",
    "else", "not", "dependencies", "dependentRequired", "dependentSchemas", "unevaluatedProperties", "unevaluatedItems",
    "$dynamicRef", "$recursiveRef",
)  # fmt: skip
"""Keywords that are compatible where the reader has none, or the same as the writer."""
_TYPE_OF: Final = {
    "maxLength": "string", "minLength": "string", "pattern": "string", "format": "string", "maximum": "number",
    "minimum": "number", "exclusiveMaximum": "number", "exclusiveMinimum": "number", "multipleOf": "number",
    "maxItems": "array", "minItems": "array", "uniqueItems": "array", "contains": "array", "maxProperties": "object",
    "minProperties": "object", "patternProperties": "object", "propertyNames": "object", "dependencies": "object",
    "dependentRequired": "object", "dependentSchemas": "object", "minContains": "array", "maxContains": "array",
    "unevaluatedProperties": "object", "unevaluatedItems": "array",
}  # fmt: skip
"""Keywords that say nothing of values of other types."""
_UNEVALUATED: Final = {"unevaluatedProperties": "object", "unevaluatedItems": "array"}
"""Keywords for parts that no other keyword covers, and the types that have such parts."""
_IN_PLACE: Final = (
    "allOf", "anyOf", "oneOf", "if", "then", "else", "dependentSchemas", "contains", "$dynamicRef", "$recursiveRef",
)  # fmt: skip
"""Keywords whose schemas apply to the same value, and so cover its properties or items."""


def json_problems(schema: Any) -> list[str]:
    """Return what is wrong with a document that should be a JSON Schema.

    >>> json_problems({"properties": {"n": {"type": "int"}}})
    ["#/properties/n: 'int' is no type"]
    """
    return list(_problems(schema, "#"))


def _problems(schema: Any, path: str) -> Iterator[str]:
    if isinstance(schema, bool):
        return
    if not isinstance(schema, dict):
        yield f"{path}: {schema!r:.60} is no schema"
        return
    kinds = schema.get("type", [])
    for kind in kinds if isinstance(kinds, list) else [kinds]:
        if kind not in TYPES:
            yield f"{path}: {kind!r:.60} is no type"
    for word, wanted in KEYWORDS.items():
        if word in schema:
            value = schema[word]
            if not _IS[wanted](value):
                yield f"{path}: {word} is {value!r:.60}, not {wanted}"
            elif wanted == _SCHEMA:
                yield from _problems(value, f"{path}/{word}")
            elif wanted == _SCHEMAS:
                for number, one in enumerate(value):
                    yield from _problems(one, f"{path}/{word}/{number}")
            elif wanted == _NAMED:
                for name, one in value.items():
                    yield from _problems(one, f"{path}/{word}/{name}")
    items = schema.get("items", True)
    for number, one in enumerate(items if isinstance(items, list) else [items]):
        yield from _problems(one, f"{path}/items/{number}" if isinstance(items, list) else f"{path}/items")


def _is_number(value: object) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)


_IS: Final[Mapping[str, Callable[[Any], bool]]] = {
    _NUMBER: _is_number,
    _COUNT: lambda value: _is_number(value) and value >= 0 and value == int(value),
    _TEXT: lambda value: isinstance(value, str),
    _FLAG: lambda value: isinstance(value, bool),
    _SCHEMA: lambda value: isinstance(value, dict | bool),
    _SCHEMAS: lambda value: isinstance(value, list) and len(value) > 0,
    _NAMED: lambda value: isinstance(value, dict),
    _NAMES: lambda value: isinstance(value, list) and all(isinstance(name, str) for name in value),
    _LIST: lambda value: isinstance(value, list),
}


class Document:
    """A schema with those that it refers to, by the names it uses."""

    def __init__(self, schema: Any, others: Mapping[str, Any] | None = None) -> None:
        self.schema = schema
        self._others = others or {}
        self._schemas: dict[str, Any] = {}

    def problems(self) -> list[str]:
        """Return what is wrong with the document, and references that lead nowhere."""
        found = json_problems(self.schema)
        local = [ref for ref in _refs(self.schema) if ref == "#" or ref.startswith("#/")]
        return found or [f"$ref {ref!r:.100} leads nowhere" for ref in local if self.followed({"$ref": ref}) is None]

    def followed(self, schema: Any) -> Any:
        """Return what a schema's `$ref` leads to, None where it leads nowhere; other schemas as they are."""
        for _ in range(100):
            if not isinstance(schema, dict) or "$ref" not in schema:
                return schema
            schema = self.find(schema["$ref"])
        return None

    def beside_ref(self, schema: Any) -> list[str]:
        """Return the keywords beside a schema's `$ref`; there are none in drafts up to 7, which ignore them."""
        dialect = self.schema.get("$schema") if isinstance(self.schema, dict) else None
        if not isinstance(schema, dict) or "$ref" not in schema or not isinstance(dialect, str):
            return []
        found = schema.keys() & {*KEYWORDS, *_UPPER, *_LOWER, *_ALIKE, "type", "items", "const"}
        is_late = any(draft in dialect for draft in ("2019-09", "2020-12"))
        return sorted(found - {"$ref", "definitions", "$defs"}) if is_late else []

    def find(self, ref: str) -> Any:
        """Return the target of a reference, or None if there is none."""
        if ref not in self._schemas:  # the same object each time: pairs of schemas are known by it
            name, _, pointer = ref.partition("#")
            own = self.schema.get("$id") if isinstance(self.schema, dict) else None
            at = self.schema if name in ("", own) else self._others.get(name)
            if pointer and not pointer.startswith("/"):
                at, pointer = _anchored(at, unquote(pointer)), ""
            for part in pointer.strip("/").split("/") if pointer.strip("/") else ():
                key = unquote(part).replace("~1", "/").replace("~0", "~")
                if isinstance(at, list) and key.isdecimal() and int(key) < len(at):
                    at = at[int(key)]
                else:
                    at = at.get(key) if isinstance(at, dict) else None
            self._schemas[ref] = at
        return self._schemas[ref]


def _refs(schema: Any) -> Iterator[str]:
    return (one["$ref"] for one in _schemas(schema) if isinstance(one.get("$ref"), str))


def _anchored(schema: Any, name: str) -> Any:
    """Return the subschema with this anchor, or None."""
    for one in _schemas(schema):
        if name in (one.get("$anchor"), one.get("$dynamicAnchor")) or f"#{name}" in (one.get("$id"), one.get("id")):
            return one
    return None


def _schemas(schema: Any) -> Iterator[dict[str, Any]]:
    waiting = [schema]
    while waiting:
        one = waiting.pop()
        if isinstance(one, dict):
            yield one
            waiting += [value for key, value in one.items() if key not in ("enum", "const", "default", "examples")]
        elif isinstance(one, list):
            waiting += one


def json_incompatibilities(reader: Document, writer: Document) -> list[str]:
    """Return the reasons why a document of the writer's schema may be invalid in the reader's; none if all are valid.

    >>> json_incompatibilities(Document({"type": "number"}), Document({"type": "integer"}))
    []
    >>> json_incompatibilities(Document({"type": "integer"}), Document({"type": "number"}))
    ['TYPE_NARROWED at #: number is no longer allowed']
    """
    return _Comparison(reader, writer).problems(reader.schema, writer.schema, "#")


def _types(schema: dict[str, Any]) -> frozenset[str]:
    kinds = schema.get("type")
    if kinds is None:
        return _ANY
    found = frozenset([kinds] if isinstance(kinds, str) else kinds)
    return found - {"integer"} if "number" in found else found


def _value_types(schema: dict[str, Any]) -> frozenset[str]:
    """Return the types of the values that a schema allows: whole numbers are numbers too."""
    return _types(schema) | ({"integer"} if "number" in _types(schema) else frozenset())


def _same(first: object, second: object) -> bool:
    return _written(first) == _written(second)


def _written(value: object) -> str:
    return json.dumps(value, sort_keys=True)


class _Comparison:
    def __init__(self, reader: Document, writer: Document) -> None:
        self._reader = reader
        self._writer = writer
        self._begun: set[tuple[int, int]] = set()
        self._merged: dict[tuple[object, ...], Any] = {}
        self._targets: dict[str, bool] = {}
        self._left = _MOST_PAIRS

    def problems(self, given_reader: Any, given_writer: Any, path: str) -> list[str]:
        """Return why the reader's schema at a path does not allow all that the writer's does."""
        self._left -= 1
        if self._left < 0:
            return [f"the schemas have more than {_MOST_PAIRS} pairs"]
        if beside := self._reader.beside_ref(given_reader):
            others = given_writer if isinstance(given_writer, dict) and "$ref" in given_writer else {}
            changed = [word for word in beside if not self._is_alike(given_reader[word], others.get(word))]
            if changed or (_UNEVALUATED.keys() & {*beside} and not self._is_alike(given_reader, given_writer)):
                return [f"REFERENCE_EXTENDED at {path}: {', '.join(changed or beside)} beside $ref cannot be compared"]
        reader, writer = self._reader.followed(given_reader), self._writer.followed(given_writer)
        if reader is None or writer is None:
            if _same(given_reader, given_writer):
                return []
            return [f"REFERENCE_UNRESOLVED at {path}"]
        if reader is True or reader == {} or writer is False:
            return []
        if reader is False:
            return [f"TYPE_NARROWED at {path}: nothing is allowed"]
        if writer is True:
            writer = {}
        key = (id(reader), id(writer))
        if key in self._begun:  # inside itself: a document is finite, so each level is compared once
            return []
        if len(self._begun) >= MOST_DEPTH:
            return [f"the schemas are nested more than {MOST_DEPTH} deep, as each $ref is followed"]
        self._begun.add(key)
        try:
            return self._compared(reader, writer, path)
        finally:
            self._begun.discard(key)

    def _is_same(self, ours: object, theirs: object) -> bool:
        """Return True if both are written in the same way. Long texts count as many pairs."""
        texts = _written(ours), _written(theirs)
        self._left -= sum(map(len, texts)) // _PAIR_LENGTH
        return texts[0] == texts[1]

    def _is_alike(self, ours: object, theirs: object) -> bool:
        """Return True if both are the same, and so are the targets of their references, direct or not."""
        if not self._is_same(ours, theirs):
            return False
        waiting = [ours]
        while waiting:
            for ref in _refs(waiting.pop()):
                if ref not in self._targets:
                    target = self._reader.find(ref)
                    is_known = len(self._targets) < _MOST_TARGETS
                    self._targets[ref] = is_known and self._is_same(target, self._writer.find(ref))
                    waiting.append(target)
                if not self._targets[ref]:
                    return False
        return True

    def _compared(self, reader: dict[str, Any], writer: dict[str, Any], path: str) -> list[str]:
        if _UNEVALUATED.keys() & reader.keys() and self._is_alike(reader, writer):
            return []
        for word in ("oneOf", "anyOf"):
            if word in writer and not ({"oneOf", "anyOf"} - {word}) & writer.keys():
                rest = {key: value for key, value in writer.items() if key not in (word, "definitions", "$defs")}
                return self._branches(reader, writer[word], rest, path)
        found = self._combined(reader, writer, path)
        if "enum" in writer or "const" in writer:
            return found + self._values(reader, writer, path)
        if "enum" in reader or "const" in reader:
            return [*found, f"ENUM_ARRAY_CHANGED at {path}: the writer allows other values"]
        kinds = _types(writer)
        lost = kinds - _types(reader) - ({"integer"} if "number" in _types(reader) else set())
        if lost:
            return [*found, f"TYPE_NARROWED at {path}: {', '.join(sorted(lost))} is no longer allowed"]
        found += _limits(reader, writer, kinds, path, self._is_alike) + self._unevaluated(reader, writer, kinds, path)
        if "object" in kinds:
            found += self._object(reader, writer, path)
        if "array" in kinds:
            found += self._array(reader, writer, path)
        return found

    def _branches(self, reader: dict[str, Any], parts: list[Any], rest: dict[str, Any], path: str) -> list[str]:
        """Compare each branch of a writer's `oneOf` or `anyOf`, with what stands beside it."""
        found: list[str] = []
        for number, part in enumerate(parts):
            one = self._writer.followed(part)
            if one is True:
                one = {}
            if not isinstance(one, dict):
                continue
            if (rest.keys() & one.keys()) - {"title", "description", "$id", "$schema"}:
                found.append(f"COMBINED_TYPE_SUBSCHEMAS_CHANGED at {path}/{number}: it cannot be compared")
            else:
                beside = sorted((key, id(value)) for key, value in rest.items())
                key = (id(parts), number, *beside)
                merged = self._merged.setdefault(key, {**rest, **one})  # the same object each time
                found += self.problems(reader, merged, f"{path}/{number}")
        return found

    def _combined(self, reader: dict[str, Any], writer: dict[str, Any], path: str) -> list[str]:
        found: list[str] = []
        for part in reader.get("allOf", ()):
            candidates = [*writer.get("allOf", ()), writer]
            if all(self.problems(part, one, path) for one in candidates):
                found.append(f"PRODUCT_TYPE_EXTENDED at {path}: a schema of allOf is new or narrower")
        if "anyOf" in reader and all(self.problems(part, writer, path) for part in reader["anyOf"]):
            found.append(f"SUM_TYPE_NARROWED at {path}: no schema of anyOf allows all that was allowed")
        if "oneOf" in reader and not self._fits_one(reader["oneOf"], writer, path):
            found.append(f"SUM_TYPE_NARROWED at {path}: not exactly one schema of oneOf allows all that was allowed")
        return found

    def _fits_one(self, parts: list[Any], writer: dict[str, Any], path: str) -> bool:
        """Return True if one branch allows all that the writer's does and the others are of other types."""
        for number, part in enumerate(parts):
            if not self.problems(part, writer, path):
                others = [self._reader.followed(one) for at, one in enumerate(parts) if at != number]
                return all(one is False or _are_apart(one, writer) for one in others)
        return False

    def _values(self, reader: dict[str, Any], writer: dict[str, Any], path: str) -> list[str]:
        """Compare a writer's `enum` or `const`, value by value, where the reader is as simple as that."""
        given = [writer["const"]] if "const" in writer else writer["enum"]
        theirs, allowed = _value_types(writer), _value_types(reader)
        values = [value for value in given if theirs & {*_types_of(value)}]  # others have no valid document
        if any(not allowed & {*_types_of(value)} for value in values):
            return [f"TYPE_NARROWED at {path}: a value of enum is no longer allowed"]
        if "enum" in reader or "const" in reader:
            known = [reader["const"]] if "const" in reader else reader["enum"]
            if {_written(value) for value in values} <= {_written(one) for one in known}:
                plain = {key: value for key, value in reader.items() if key not in ("enum", "const")}
                return self._values(plain, writer, path) if plain.keys() - {"type"} else []
            return [f"ENUM_ARRAY_NARROWED at {path}: a value is no longer allowed"]
        words = reader.keys() & {*_UPPER, *_LOWER, *_ALIKE, *KEYWORDS, "items"} - {"definitions", "$defs", "enum"}
        lost = [word for word in words if word not in ("allOf", "anyOf", "oneOf") and word not in writer]
        kinds = {kind for value in values for kind in _types_of(value)}
        if any(_TYPE_OF.get(word, "") in ({""} | kinds) for word in lost):
            return [f"ENUM_ARRAY_CHANGED at {path}: values and {', '.join(sorted(lost))} cannot be compared"]
        shared = [word for word in words if word in writer and not self._is_alike(reader[word], writer[word])]
        return [f"ENUM_ARRAY_CHANGED at {path}: {', '.join(sorted(shared))} cannot be compared"] if shared else []

    def _unevaluated(
        self, reader: dict[str, Any], writer: dict[str, Any], kinds: frozenset[str], path: str
    ) -> list[str]:
        """Compare the parts that the reader's `unevaluatedProperties` and `unevaluatedItems` apply to."""
        found: list[str] = []
        for word, kind in _UNEVALUATED.items():
            ours, theirs = _named(reader, word), _named(writer, word)
            if kind not in kinds or reader.get(word, True) in (True, {}) or ours is None:
                continue
            is_alike = all(self._is_alike(reader.get(one), writer.get(one)) for one in _IN_PLACE)
            if theirs is None or theirs - ours or not is_alike:
                found.append(f"{reason_name(word)}_CHANGED at {path}")
        return found

    def _object(self, reader: dict[str, Any], writer: dict[str, Any], path: str) -> list[str]:
        found: list[str] = []
        ours, theirs = reader.get("properties", {}), writer.get("properties", {})
        more_ours, more_theirs = reader.get("additionalProperties", True), writer.get("additionalProperties", True)
        for name in reader.get("required", ()):
            if name not in writer.get("required", ()):
                found.append(f"REQUIRED_ATTRIBUTE_ADDED at {path}/required/{name}")
        patterns = bool(writer.get("patternProperties")) or bool(reader.get("patternProperties"))
        for name, schema in theirs.items():
            inner = f"{path}/properties/{name}"
            if name in ours:
                found += self.problems(ours[name], schema, inner)
            elif reader.get("patternProperties") or self.problems(more_ours, schema, inner):
                found.append(f"PROPERTY_REMOVED_FROM_CLOSED_CONTENT_MODEL at {inner}")
        for name, schema in ours.items():
            inner = f"{path}/properties/{name}"
            if name not in theirs and self.problems(schema, True if patterns else more_theirs, inner):
                found.append(f"PROPERTY_ADDED_TO_OPEN_CONTENT_MODEL at {inner}")
        if self.problems(more_ours, more_theirs, f"{path}/additionalProperties"):
            found.append(f"ADDITIONAL_PROPERTIES_NARROWED at {path}/additionalProperties")
        if writer.get("patternProperties") and not reader.get("patternProperties") and more_ours is not True:
            found.append(f"ADDITIONAL_PROPERTIES_NARROWED at {path}/patternProperties")
        return found

    def _array(self, reader: dict[str, Any], writer: dict[str, Any], path: str) -> list[str]:
        first_ours, rest_ours = _item_schemas(reader)
        first_theirs, rest_theirs = _item_schemas(writer)
        found = self.problems(rest_ours, rest_theirs, f"{path}/items")
        for number in range(max(len(first_ours), len(first_theirs))):
            ours = first_ours[number] if number < len(first_ours) else rest_ours
            theirs = first_theirs[number] if number < len(first_theirs) else rest_theirs
            found = found + self.problems(ours, theirs, f"{path}/items/{number}")
        if reader.get("uniqueItems") and not writer.get("uniqueItems"):
            found.append(f"UNIQUE_ITEMS_ADDED at {path}")
        return found


def _item_schemas(schema: dict[str, Any]) -> tuple[list[Any], Any]:
    """Return the schemas of the first items, and that of the others."""
    items = schema.get("items", True)
    if isinstance(items, list):
        return items, schema.get("additionalItems", True)
    return schema.get("prefixItems", []), items


def _named(schema: dict[str, Any], word: str) -> set[object] | None:
    """Return the properties with their patterns, or the items, that a schema's own keywords name; None for all."""
    if word == "unevaluatedItems":
        has_rest = "additionalItems" in schema if isinstance(schema.get("items"), list) else "items" in schema
        return None if has_rest else set(range(len(_item_schemas(schema)[0])))
    if "additionalProperties" in schema:
        return None
    return {*schema.get("properties", ()), *((pattern,) for pattern in schema.get("patternProperties", ()))}


def _types_of(value: object) -> tuple[str, ...]:
    if isinstance(value, bool):
        return ("boolean",)
    if isinstance(value, int | float):
        return ("integer", "number") if value == int(value) else ("number",)
    names = {type(None): "null", str: "string", list: "array", dict: "object"}
    return (names[type(value)],)


def _are_apart(reader: Any, writer: dict[str, Any]) -> bool:
    """Return True if no document is of both schemas, as far as their types say."""
    if not isinstance(reader, dict) or {"oneOf", "anyOf", "allOf", "$ref"} & (reader.keys() | writer.keys()):
        return False
    ours, theirs = _types(reader), _types(writer)
    if "enum" in writer or "const" in writer:
        values = [writer["const"]] if "const" in writer else writer["enum"]
        theirs = frozenset(kind for value in values for kind in _types_of(value))
    numbers = {"integer", "number"}
    return not ours & theirs and not (ours & numbers and theirs & numbers)


def _limits(
    reader: dict[str, Any], writer: dict[str, Any], kinds: frozenset[str], path: str,
    is_alike: Callable[[object, object], bool],
) -> list[str]:  # fmt: skip
    """Compare the keywords of numbers and texts."""
    found: list[str] = []
    numbers = kinds | ({"number"} if "integer" in kinds else set())

    def applies(word: str) -> bool:
        return word in reader and _TYPE_OF.get(word, "") in {"", *numbers}

    for word in (*_UPPER, *_LOWER):
        if not applies(word) or _same(reader[word], writer.get(word)):
            continue
        ours, theirs = reader[word], writer.get(word)
        name = reason_name(word)
        if theirs is None:
            found.append(f"{name}_ADDED at {path}")
        elif not _is_number(ours) or not _is_number(theirs) or (theirs > ours if word in _UPPER else theirs < ours):
            found.append(f"{name}_{'DECREASED' if word in _UPPER else 'INCREASED'} at {path}")
    if applies("multipleOf"):
        theirs = writer.get("multipleOf")
        if theirs is None or not reader["multipleOf"] or theirs % reader["multipleOf"]:
            found.append(f"MULTIPLE_OF_{'ADDED' if theirs is None else 'CHANGED'} at {path}")
    for word in _ALIKE:
        if applies(word) and not is_alike(reader[word], writer.get(word)):
            found.append(f"{reason_name(word)}_{'CHANGED' if word in writer else 'ADDED'} at {path}")
    if applies("contains") and "minContains" not in reader and writer.get("minContains", 1) != 1:
        found.append(f"MIN_CONTAINS_CHANGED at {path}")
    return found


def reason_name(word: str) -> str:
    """Return a keyword as it is written in reasons.

    >>> reason_name("maxLength")
    'MAX_LENGTH'
    """
    return "".join(f"_{letter}" if letter.isupper() else letter for letter in word).upper()
