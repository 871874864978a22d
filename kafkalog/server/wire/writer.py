"""Responses as bytes: a tree of values by kio's names, written by kio in the version that was asked for.

A handler gives what the newest version has, and a version takes of it what it knows. What is not given has the default
of the schema, where it has one.
"""

from __future__ import annotations

import io
from collections.abc import Callable, Mapping
from dataclasses import MISSING, fields
from datetime import UTC, datetime, timedelta
from functools import cache
from typing import Any

from kafkalog.server.wire.definitions import FieldPlan, StructPlan, request_plan, response_plan
from kafkalog.server.wire.header import response_header

Tree = Mapping[str, Any]
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


def write_response(api_key: int, version: int, correlation_id: int, tree: Tree) -> bytes:
    """A response, header and all, without the 4 bytes of its length. Times are ms, error codes numbers."""
    return response_header(api_key, version, correlation_id) + write_body(response_plan(api_key, version), tree)


def write_request(api_key: int, version: int, tree: Tree) -> bytes:
    """The body of a request: of use to a follower, and to tests."""
    return write_body(request_plan(api_key, version), tree)


def write_body(plan: StructPlan, tree: Tree) -> bytes:
    """A message's body. Raises KeyError for a field that has no default and is not in `tree`."""
    out = io.BytesIO()
    _kio_writer(plan.source)(out, _builder(plan)(tree))
    return out.getvalue()


@cache
def _kio_writer(kind: Any) -> Callable[[io.BytesIO, Any], None]:
    from kio.serial import entity_writer

    writer: Callable[[io.BytesIO, Any], None] = entity_writer(kind)
    return writer


@cache
def _builder(plan: StructPlan) -> Callable[[Tree], Any]:
    """What makes kio's object of a tree."""
    source = plan.source
    defaults = {field.name: field.default for field in fields(source)}
    parts = [(field.name, _converter(field), defaults[field.name]) for field in (*plan.plain, *plan.tagged)]

    def build(tree: Tree) -> Any:
        values = {}
        for name, convert, default in parts:
            value = tree.get(name, MISSING)
            if value is MISSING:
                if default is MISSING:
                    raise KeyError(f"{source.__name__} has no {name}")
                continue
            values[name] = value if value is None or convert is None else convert(value)
        return source(**values)

    return build


def _converter(field: FieldPlan) -> Callable[[Any], Any] | None:
    one = _builder(field.struct) if field.struct is not None else _CONVERTERS.get(field.kind)
    if field.kind == "datetime_i64" and not field.is_nullable:
        one = _any_datetime  # here no time is told as -1 ms, not as null
    if not field.is_array:
        return one
    if one is None:
        return tuple
    item = one
    return lambda values: tuple([item(value) for value in values])


def _timedelta(ms: int) -> timedelta:
    return timedelta(milliseconds=ms)


def _datetime(ms: int) -> datetime | None:
    return None if ms < 0 else _EPOCH + timedelta(milliseconds=ms)


def _any_datetime(ms: int) -> datetime:
    return _EPOCH + timedelta(milliseconds=ms)


def _error_code(code: int) -> Any:
    from kio.schema.errors import ErrorCode

    return ErrorCode(code)


_CONVERTERS: dict[str, Callable[[Any], Any]] = {
    "timedelta_i32": _timedelta, "timedelta_i64": _timedelta, "datetime_i64": _datetime, "error_code": _error_code,
    "bytes": bytes, "records": bytes,
}  # fmt: skip
