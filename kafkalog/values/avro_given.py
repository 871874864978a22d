"""Avro schemas as a caller gives them, or a registry stores them, as checked trees."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from typing import Any

from kafkalog.values.avro_schema import PRIMITIVES, AvroType, parse_avro
from kafkalog.values.schemas.given import read_schema_file, stored_schema
from kafkalog.values.schemas.source import AVRO, Schema, SchemaSource, referenced

AnySchema = str | os.PathLike[str] | int | Mapping[str, Any] | Sequence[Any]
"""A path, JSON text, parsed JSON, or an id in a place with schemas."""


def given_avro(schema: AnySchema, source: SchemaSource | None) -> AvroType:
    """Return the tree of a schema that the user gave."""
    if isinstance(schema, int):
        return stored_avro(stored_schema(source, schema, AVRO), source)
    if isinstance(schema, os.PathLike) or (isinstance(schema, str) and not _is_json(schema)):
        return parse_avro(read_schema_file(schema))
    return parse_avro(schema)


def stored_avro(schema: Schema, source: SchemaSource | None) -> AvroType:
    """Return the tree of a schema of a registry, with those that it refers to."""
    others = referenced(source, schema) if source is not None and schema.references else []
    contents = dict.fromkeys(other.content for _, other in others)  # one may be used by several names
    return parse_avro(schema.content, [content.decode("utf-8", "replace") for content in contents])


def _is_json(text: str) -> bool:
    return text.lstrip()[:1] in ("{", "[", '"') or text.strip() in PRIMITIVES
