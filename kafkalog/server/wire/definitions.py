"""What a message looks like on the wire, taken from kio's definitions, one version of one message at a time.

kio's classes say the fields, their order, types and tags. Importing all of them takes half a second and 50 MiB, so a
plan is made when a message of that version first comes.
"""

from __future__ import annotations

import importlib
import sys
from collections import namedtuple
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import fields, is_dataclass
from functools import cache
from types import NoneType, UnionType
from typing import Any, NamedTuple, get_args, get_origin

from kafkalog.errors import MissingRequirement
from kafkalog.server.wire.versions import APIS


class FieldPlan(NamedTuple):
    """One field: what its values are, whether it is an array or may be null, and its tag, where it has one."""

    name: str
    kind: str  # a type of Kafka's schemas, or "struct"
    struct: StructPlan | None
    is_array: bool
    is_nullable: bool
    tag: int | None
    default: Any


class StructPlan(NamedTuple):
    """A message, or a part of one: its fields in order, and the class its values come in."""

    type: Any  # a named tuple with kio's names of the fields
    source: Any  # kio's class
    is_flexible: bool
    plain: tuple[FieldPlan, ...]
    tagged: tuple[FieldPlan, ...]


@cache
def request_plan(api_key: int, version: int) -> StructPlan:
    """The plan of a request's body. The version has to be one that is served."""
    return _struct_plan(message_class(api_key, version, "request"))


@cache
def response_plan(api_key: int, version: int) -> StructPlan:
    """The plan of a response's body."""
    return _struct_plan(message_class(api_key, version, "response"))


@cache
def message_class(api_key: int, version: int, direction: str) -> Any:
    """Kio's class of a message's body; `direction` is "request" or "response"."""
    name = APIS[api_key].name
    with _without_hypothesis():
        try:
            module = importlib.import_module(f"kio.schema.{name}.v{version}.{direction}")
        except ModuleNotFoundError as error:
            if error.name is not None and error.name.split(".")[0] == "kio" and "." not in error.name:
                raise MissingRequirement(
                    "kio, which knows the messages of Kafka's protocol, is not installed",
                    hint="pip install 'kafkalog[server]'",
                ) from None
            raise
    return getattr(module, "".join(part.capitalize() for part in name.split("_")) + direction.capitalize())


@contextmanager
def _without_hypothesis() -> Iterator[None]:
    """Kio asks for hypothesis as it is imported, which takes longer than the start of a server may."""
    hidden = "hypothesis" not in sys.modules and "kio.static._phantom" not in sys.modules
    if hidden:
        sys.modules["hypothesis"] = None  # type: ignore[assignment]
    try:
        yield
    finally:
        if hidden:
            del sys.modules["hypothesis"]


def _struct_plan(kind: Any) -> StructPlan:
    plans = [_field_plan(field) for field in fields(kind)]
    named = namedtuple(kind.__name__, [plan.name for plan in plans])  # type: ignore[misc]  # names come from kio
    plain = tuple(plan for plan in plans if plan.tag is None)
    return StructPlan(named, kind, kind.__flexible__, plain, tuple(plan for plan in plans if plan.tag is not None))


def _field_plan(field: Any) -> FieldPlan:
    inner, is_array, is_nullable = field.type, False, False
    if get_origin(inner) is UnionType:
        inner = next(one for one in get_args(inner) if one is not NoneType)
        is_nullable = True
    if get_origin(inner) is tuple:
        inner, is_array = get_args(inner)[0], True
        if get_origin(inner) is UnionType:  # the zero id among others is None
            inner = next(one for one in get_args(inner) if one is not NoneType)
    struct = _struct_plan(inner) if is_dataclass(inner) else None
    kind = "struct" if struct is not None else str(field.metadata["kafka_type"])
    tag = field.metadata.get("tag")
    default = None if tag is None else _plain_value(field.default, struct)
    return FieldPlan(field.name, kind, struct, is_array, is_nullable, tag, default)


def _plain_value(value: Any, struct: StructPlan | None) -> Any:
    """A tagged field's default as our values are: every tagged field that is served has one."""
    if struct is None or not is_dataclass(value):
        return value
    by_name = {plan.name: plan for plan in (*struct.plain, *struct.tagged)}
    return struct.type(*(_plain_value(getattr(value, name), by_name[name].struct) for name in struct.type._fields))
