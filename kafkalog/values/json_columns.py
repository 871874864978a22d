"""JSON values as columns: the types come from a JSON Schema, from words for the wanted fields, or from a sample."""

from __future__ import annotations

import json
import os
import threading
from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Any

from kafkalog._core.values.builder import Builder
from kafkalog._core.values.json_rows import FRAMINGS, JsonRows
from kafkalog.errors import IllegalArgument
from kafkalog.values.decoding import (
    MOST_BYTES,
    Decoded,
    NoJsonValue,
    ValueDecoder,
    arrow_type,
    decoded,
    import_pyarrow,
    value_column,
)
from kafkalog.values.json_sample import SAMPLE_ROWS, sample_type
from kafkalog.values.json_schema import parse_schema, schema_type
from kafkalog.values.json_types import JSON, JsonType, check_levels, given_types, json_columns, schema_of, select
from kafkalog.values.schemas.given import read_schema_file, source_given, stored_schema
from kafkalog.values.schemas.source import JSON as JSON_SCHEMA
from kafkalog.values.schemas.source import SchemaSource, referenced
from kafkalog.values.wanted import Fields, wanted_fields

if TYPE_CHECKING:
    import pyarrow


class JsonDecoder(ValueDecoder):
    """JSON values as columns.

    `schema` is a JSON Schema: a path, JSON text, a parsed document, or an id in `schemas`; `subject` takes the latest
    of a subject there. `fields` lists the wanted paths, or gives the type of each: "bool", "int64", "double", "string",
    "json", "timestamp", "date", or None for the one it has; other fields are only checked. Types that neither gives
    are found in `sample`, an iterable of values, or else in the first 1000 values that are decoded. `schemas` and
    `registry` with `login`, `token`, `timeout_s` and `cache` are those of AvroDecoder. `framing` is "auto" (a
    registry's header may stand before the JSON), "raw" or "registry". `most_bytes` limits the memory of one call's
    columns.

    Null and a missing field are null in every column. Fields that the columns do not have are left out. If a name
    occurs twice in an object, the last value counts. A value of another kind than its column, or beyond its type, is an
    error of its row, or null in the column alone with `strict=False`.

    >>> import pyarrow
    >>> values = pyarrow.array([b'{"order": {"total": 9.5, "id": 1}}', b'{"order": {"total": "9"}}'])
    >>> found = JsonDecoder(fields={"order.total": "double"}).decode(values)
    >>> found.values.to_pylist(), found.errors[1].as_py()
    ([{'order': {'total': 9.5}}, None], 'order.total: a string where a double is expected, at byte 20')
    >>> JsonDecoder(sample=['{"a": 1, "b": [2.5]}']).arrow_type
    StructType(struct<a: int64, b: list<item: double>>)
    >>> decoder = JsonDecoder({"type": "integer"})
    >>> decoder.name, str(decoder.arrow_type), decoder.needs_keys
    ('json', 'int64', False)
    """

    name = "json"

    def __init__(
        self, schema: str | os.PathLike[str] | int | bool | Mapping[str, Any] | None = None, *,
        schemas: str | os.PathLike[str] | SchemaSource | None = None, registry: str | SchemaSource | None = None,
        subject: str | None = None, fields: Fields | None = None, sample: Iterable[bytes | str | None] | None = None,
        framing: str = "auto", strict: bool = True, most_bytes: int = MOST_BYTES, login: tuple[str, str] | None = None,
        token: str | None = None, timeout_s: float | None = None, cache: str | os.PathLike[str] | None = None,
    ) -> None:  # fmt: skip
        if framing not in FRAMINGS:
            raise IllegalArgument(f"unknown framing {framing!r}", hint=f"the framings are {', '.join(FRAMINGS)}")
        self._framing = framing
        self._strict = strict
        self._most_bytes = most_bytes
        self._wanted = None if fields is None else wanted_fields(fields, typed=True)
        self._lock = threading.Lock()
        self._type: JsonType | None = None
        self._rows: JsonRows | None = None
        self._arrow_type: pyarrow.DataType | None = None
        source = source_given(schemas, registry, login=login, token=token, timeout_s=timeout_s, cache=cache)
        given = subject if schema is None else schema
        if given is not None:
            self._settle(_schema_type(given, source, stored=schema is None), strict=True)
        elif self._wanted is not None and (typed := given_types(self._wanted)) is not None:
            check_levels(typed)
            self._settle_as(typed)
        elif sample is not None:
            found = sample_type(sample, only_null=JSON)
            if found is None:
                raise NoJsonValue("the sample has no JSON value", hint="give other values, or a schema")
            self._settle(found, strict=False)

    def _settle(self, type: JsonType, *, strict: bool) -> None:
        if self._wanted is not None:
            type = select(type, self._wanted, strict=strict)
        self._settle_as(type)

    def _settle_as(self, type: JsonType) -> None:
        try:
            tree, steps = json_columns(type)
            Builder(tree)
            rows = JsonRows(tree, steps, self._framing, self._strict)
        except ValueError as error:
            raise IllegalArgument(f"the columns of these values cannot be made: {error}") from None
        self._type = type
        self._rows = rows  # last: a thread that sees it decodes without the lock, and may ask for the type then

    @property
    def arrow_type(self) -> pyarrow.DataType:
        """Type of the decoded column; IllegalArgument while it depends on values that are yet to be seen."""
        if self._arrow_type is None:
            self._arrow_type = arrow_type(json_columns(self._known())[0])
        return self._arrow_type

    @property
    def settled(self) -> dict[str, Any]:
        """The types as a JSON Schema, and `strict`; IllegalArgument as for `arrow_type`.

        >>> JsonDecoder(sample=['{"a": 1}']).settled
        {'schema': '{"type": "object", "properties": {"a": {"type": "integer"}}}', 'strict': True}
        """
        return {"schema": json.dumps(schema_of(self._known())), "strict": self._strict}

    def _known(self) -> JsonType:
        """Return the type of the values; IllegalArgument as for `arrow_type`."""
        if self._type is None:
            raise _unsettled()
        return self._type

    def _of_type(self, type: JsonType, *, strict: bool = False) -> JsonDecoder:
        """Return a decoder of values with another type; unless it is strict, a part of another kind is null."""
        made = JsonDecoder(framing=self._framing, strict=strict, most_bytes=self._most_bytes)
        made._settle_as(type)
        return made

    def _of_whole(self, whole: JsonDecoder, values: pyarrow.Array) -> pyarrow.Array | None:
        """Return the column of these fields, from values that `whole` made without an error; None if it may differ."""
        if self._type is None or whole._type is None or not is_part(self._type, whole._type, strict=whole._strict):
            return None
        return taken(values, self.arrow_type)

    def decode(self, column: pyarrow.Array) -> Decoded:
        """Decode a binary or string column. A value that is not JSON, or does not fit, is an error of its row."""
        given = value_column(column)
        if self._rows is None:
            with self._lock:
                if self._rows is None and (found := sample_type(_first_values(column))) is not None:
                    self._settle(found, strict=False)
        if self._rows is not None:
            return decoded(self._rows.decode(given, self._most_bytes), len(given), self._most_bytes)
        # nothing but nulls and errors: no columns follow from them
        texts = JsonRows(*json_columns(JSON), self._framing).decode(given, self._most_bytes)
        found_texts = decoded(texts, len(given), self._most_bytes)
        return found_texts._replace(values=import_pyarrow().nulls(len(given)))


def _unsettled() -> IllegalArgument:
    return IllegalArgument(
        "the columns are those found in the first values, and none was decoded",
        hint="give schema=, sample= or types in fields=, or decode a column first",
    )


def _first_values(column: Any) -> Iterable[bytes | str | None]:
    """Yield the values of a column, some at a time, until the sample is full."""
    pyarrow = import_pyarrow()
    array = column if isinstance(column, pyarrow.Array | pyarrow.ChunkedArray) else pyarrow.array(column)
    for start in range(0, len(array), SAMPLE_ROWS):
        yield from array[start : start + SAMPLE_ROWS].to_pylist()


def _schema_type(given: Any, source: SchemaSource | None, *, stored: bool) -> JsonType:
    """Return the type of a schema that the user gave, or of one in a place with schemas."""
    if isinstance(given, Mapping | bool):
        return schema_type(given)
    if stored or isinstance(given, int):
        schema = stored_schema(source, given, JSON_SCHEMA)
        others = referenced(source, schema) if source is not None and schema.references else []
        documents = {name: parse_schema(other.content, other.place) for name, other in others}
        return schema_type(parse_schema(schema.content, schema.place), documents)
    if isinstance(given, str) and given.lstrip()[:1] == "{":
        return schema_type(parse_schema(given))
    return schema_type(parse_schema(read_schema_file(given), os.fspath(given)))


def is_part(part: JsonType, whole: JsonType, *, strict: bool) -> bool:
    """Return True if a column of one type has all that a column of some of its fields would have.

    Where it takes no other kind, `strict`, a column of integers shows what is wanted as a double, and one of any type
    where the text of JSON, of which it is only asked if it is null, would be null.
    """
    if part.kind == "struct" and whole.kind == "struct":
        known = dict(whole.children)
        return all(name in known and is_part(one, known[name], strict=strict) for name, one in part.children)
    return part == whole or (strict and (part.kind == "json" or (part.kind == "double" and whole.kind == "int64")))


def taken(values: pyarrow.Array, type: pyarrow.DataType) -> pyarrow.Array:
    """Return a column with the fields of `type`, which is part of its own type."""
    import pyarrow
    import pyarrow.compute as pc

    if values.type == type:
        return values
    if pyarrow.types.is_string(type):
        return pc.if_else(values.is_valid(), "", pyarrow.scalar(None, type))
    if not pyarrow.types.is_struct(type):
        return values.cast(type, safe=False)
    fields = [taken(values.field(one.name), one.type) for one in type]
    mask = values.is_null() if values.null_count else None
    return pyarrow.StructArray.from_arrays(fields, fields=[*type], mask=mask)
