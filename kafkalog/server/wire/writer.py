"""Serialization of responses: a tree of values by kio's names, written by the plan of the request's version.

Handlers return the fields of the newest version; older versions use the fields they have. A missing field has the
schema's default, if any.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import cache

from kafkalog._core.messages.writer import MessageWriter
from kafkalog.server.wire.definitions import StructPlan, request_plan, response_plan, rows_of

Tree = Mapping[str, object]


def write_request(api_key: int, version: int, tree: Tree) -> bytes:
    """Serialize a request's body, for a follower and for tests.

    Raises KeyError for a field without default that `tree` lacks, ValueError for a value that a field cannot hold.
    """
    return request_writer(api_key, version).write(tree)


@cache
def request_writer(api_key: int, version: int) -> MessageWriter:
    """Return the writer of a request's body."""
    return _writer(request_plan(api_key, version))


@cache
def response_writer(api_key: int, version: int) -> MessageWriter:
    """Return the writer of a response's body."""
    return _writer(response_plan(api_key, version))


def _writer(plan: StructPlan) -> MessageWriter:
    rows = rows_of(plan, _writer, _tree)
    return MessageWriter(plan.type.__name__, plan.is_flexible, rows, lambda message, hint: ValueError(message))


def _tree(value: object) -> object:
    """Convert a default to the form that is written."""
    return {name: _tree(getattr(value, name)) for name in value._fields} if hasattr(value, "_fields") else value
