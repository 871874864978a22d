"""Schemas as a caller gives them: a path, text, or an id in one of the places with schemas."""

from __future__ import annotations

import os
from typing import Any

from kafkalog.errors import IllegalArgument
from kafkalog.util.fileio import OS
from kafkalog.util.os_errors import os_errors
from kafkalog.util.paths import real_path
from kafkalog.values.schemas.choose import schema_source
from kafkalog.values.schemas.source import MAX_SCHEMA_BYTES, Schema, SchemaSource


def source_given(
    schemas: str | os.PathLike[str] | SchemaSource | None, registry: str | SchemaSource | None, **options: Any
) -> SchemaSource | None:
    """Return the place with schemas that was given by either name; None for none, IllegalArgument for both."""
    if schemas is not None and registry is not None:
        raise IllegalArgument("schemas come from `schemas` or from `registry`", hint="give one of them")
    options = {name: value for name, value in options.items() if value is not None}
    where = schemas if schemas is not None else registry
    return None if where is None else schema_source(where, **options)


def stored_schema(source: SchemaSource | None, which: int | str, kind: str) -> Schema:
    """Return the schema with an id, or the latest of a subject; IllegalArgument if it is of another kind."""
    if source is None:
        raise IllegalArgument(f"schema {which} needs a place with schemas", hint="give schemas=, or registry=")
    found = source.by_id(which) if isinstance(which, int) else source.by_version(which)
    if found.kind != kind:
        raise IllegalArgument(
            f"schema {which} is of type {found.kind}, not {kind}", path=found.place, hint="name its decoder"
        )
    return found


def read_schema_file(path: str | os.PathLike[str]) -> bytes:
    """Return the bytes of a schema's file; StorageError if it cannot be read, IllegalArgument for an invalid path."""
    name = os.fspath(path)
    real_path(name)  # only for its error
    with os_errors("read the schema", name):
        return OS.read_file(name, MAX_SCHEMA_BYTES)
