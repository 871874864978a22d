"""Layouts of messages on the wire, from kio's definitions, for one version of one message at a time.

Versions that kio lacks are changes to the version before (`_SINCE_KIO`). kio's classes define the fields, their order,
types and tags. Importing all of them takes half a second and 50 MiB, so a plan is created when a message of that
version is first needed.
"""

from __future__ import annotations

import importlib
import sys
from collections import namedtuple
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import MISSING, Field, fields, is_dataclass
from datetime import UTC, datetime, timedelta
from enum import Enum
from functools import cache
from types import NoneType, UnionType
from typing import Any, Final, NamedTuple, get_args, get_origin
from uuid import UUID

from kafkalog._core.messages.writer import REQUIRED
from kafkalog.server.packages import check_packages
from kafkalog.server.wire.versions import APIS

_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)
_MS: Final = timedelta(milliseconds=1)


class FieldPlan(NamedTuple):
    """A field: the type of its values, whether it is an array or nullable, and its tag, if any.

    `default` is written for a value that is not given and read for an absent tag; REQUIRED means no default.
    """

    name: str
    kind: str  # a type of Kafka's schemas, or "struct"
    struct: StructPlan | None
    is_array: bool
    is_nullable: bool
    tag: int | None
    default: object


class StructPlan(NamedTuple):
    """A message or nested structure: its fields in order, and the class of its values."""

    type: Any  # a named tuple with kio's names of the fields
    is_flexible: bool
    plain: tuple[FieldPlan, ...]
    tagged: tuple[FieldPlan, ...]


_ZEROS: Final = {"string": "", "bytes": b"", "uuid": None, "bool": False}
_FORMS: Final = {
    "bool": "bool", "int8": "i8", "int16": "i16", "uint16": "u16", "int32": "i32", "int64": "i64", "float64": "f64",
    "error_code": "i16", "timedelta_i32": "i32", "timedelta_i64": "i64", "datetime_i64": "i64", "uuid": "uuid",
    "string": "string", "bytes": "bytes", "records": "bytes", "struct": "struct",
}  # fmt: skip


def form_of(field: FieldPlan) -> str:
    """Return the encoding of a field's values. If a time is not nullable, -1 ms is an ordinary time."""
    return "time" if field.kind == "datetime_i64" and field.is_nullable else _FORMS[field.kind]


def rows_of(
    plan: StructPlan,
    compile_struct: Callable[[StructPlan], object],
    default: Callable[[object], object] = lambda value: value,
) -> list[tuple[Any, ...]]:
    """Return the fields of a plan in the form that compiled plans take, tagged fields last.

    `compile_struct` returns the compiled plan of a nested structure, `default` the compiled form of a default.
    """
    return [
        (
            field.name, form_of(field), field.is_array, field.is_nullable, field.tag,
            None if field.struct is None else compile_struct(field.struct), default(field.default),
        )
        for field in (*plan.plain, *plan.tagged)
    ]  # fmt: skip


@cache
def request_plan(api_key: int, version: int) -> StructPlan:
    """Return the plan of a request's body. The version must be served."""
    return _plan(api_key, version, "request")


@cache
def response_plan(api_key: int, version: int) -> StructPlan:
    """Return the plan of a response's body."""
    return _plan(api_key, version, "response")


@cache
def empty_response(api_key: int, version: int) -> dict[str, object]:
    """Return the fields of a response that have no default, each null if it may be, else empty or zero."""
    return {
        field.name: None if field.is_nullable else () if field.is_array else _zero(field.kind, field.struct)
        for field in response_plan(api_key, version).plain
        if field.default is REQUIRED
    }


def is_known_to_kio(api_key: int, version: int) -> bool:
    """Return True if kio defines this version of a call, False if `_SINCE_KIO` does."""
    return (api_key, version) not in _SINCE_KIO


def _plan(api_key: int, version: int, direction: str) -> StructPlan:
    if is_known_to_kio(api_key, version):
        return _struct_plan(message_class(api_key, version, direction))
    return _SINCE_KIO[api_key, version](_plan(api_key, version - 1, direction), direction)


@cache
def message_class(api_key: int, version: int, direction: str) -> Any:
    """Return kio's class for a message's body; `direction` is "request" or "response".

    Raises MissingPackage if kio is not installed.
    """
    name = APIS[api_key].name
    with _without_hypothesis():
        try:
            module = importlib.import_module(f"kio.schema.{name}.v{version}.{direction}")
        except ModuleNotFoundError:
            check_packages()
            raise
    return getattr(module, "".join(part.capitalize() for part in name.split("_")) + direction.capitalize())


def _with_fields(plan: StructPlan, plain: tuple[FieldPlan, ...]) -> StructPlan:
    """Return the plan with other fields in place of those without a tag."""
    names = [field.name for field in (*plain, *plan.tagged)]
    value_type = namedtuple(plan.type.__name__, names)  # type: ignore[misc]  # names of `plain`
    return plan._replace(type=value_type, plain=plain)


def _in_array(plan: StructPlan, name: str, change: Callable[[StructPlan], StructPlan]) -> StructPlan:
    """Return the plan with the structures of the array `name` changed."""
    plain = [
        field._replace(struct=change(field.struct)) if field.name == name and field.struct is not None else field
        for field in plan.plain
    ]
    return _with_fields(plan, tuple(plain))


def _with_topic_ids(plan: StructPlan, direction: str) -> StructPlan:
    """TxnOffsetCommit 6 (KIP-1319): topics by id instead of by name."""
    topic_id = FieldPlan("topic_id", "uuid", None, False, False, None, REQUIRED)

    def by_id(topic: StructPlan) -> StructPlan:
        return _with_fields(topic, tuple(topic_id if one.name == "name" else one for one in topic.plain))

    return _in_array(plan, "topics", by_id)


def _with_error_message(plan: StructPlan, direction: str) -> StructPlan:
    """DeleteGroups 3: a message for each group; the request is that of version 2."""
    message = FieldPlan("error_message", "string", None, False, True, None, None)
    if direction == "request":
        return plan
    return _in_array(plan, "results", lambda result: _with_fields(result, (*result.plain, message)))


def _with_cluster(plan: StructPlan, direction: str) -> StructPlan:
    """ApiVersions 5 (KIP-1242): the cluster and the node that the client means; the response is that of version 4."""
    if direction == "response":
        return plan
    cluster_id = FieldPlan("cluster_id", "string", None, False, True, None, None)
    return _with_fields(plan, (*plan.plain, cluster_id, FieldPlan("node_id", "int32", None, False, False, None, -1)))


_SINCE_KIO: Final[dict[tuple[int, int], Callable[[StructPlan, str], StructPlan]]] = {
    (18, 5): _with_cluster,
    (28, 6): _with_topic_ids,
    (42, 3): _with_error_message,
}
"""Versions newer than kio's, by call: how a message differs from that of the version before."""


@contextmanager
def _without_hypothesis() -> Iterator[None]:
    """Hide hypothesis from the import of kio, since loading it would delay the start of a server."""
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
    value_type = namedtuple(kind.__name__, [plan.name for plan in plans])  # type: ignore[misc]  # names come from kio
    plain = tuple(plan for plan in plans if plan.tag is None)
    return StructPlan(value_type, kind.__flexible__, plain, tuple(plan for plan in plans if plan.tag is not None))


def _field_plan(field: Field[object]) -> FieldPlan:
    inner, is_array, is_nullable = field.type, False, False
    if get_origin(inner) is UnionType:
        inner = next(one for one in get_args(inner) if one is not NoneType)
        is_nullable = True
    if get_origin(inner) is tuple:
        inner, is_array = get_args(inner)[0], True
        if get_origin(inner) is UnionType:  # in an array of ids, the zero id is None
            inner = next(one for one in get_args(inner) if one is not NoneType)
    struct = _struct_plan(inner) if is_dataclass(inner) else None
    kind = "struct" if struct is not None else str(field.metadata["kafka_type"])
    tag = field.metadata.get("tag")
    if field.default is not MISSING:
        default = _plain_value(field.default, struct)
    else:
        is_required = tag is None and field.name != "throttle_time"  # most responses have none: dispatch adds it
        default = REQUIRED if is_required else _zero(kind, struct)
    return FieldPlan(field.name, kind, struct, is_array, is_nullable, tag, default)


def _zero(kind: str, struct: StructPlan | None) -> object:
    """Return the value of an absent tagged field whose schema has no default."""
    if struct is None:
        return _ZEROS.get(kind, 0)
    by_name = {plan.name: plan for plan in (*struct.plain, *struct.tagged)}
    return struct.type(*(_zero(by_name[name].kind, by_name[name].struct) for name in struct.type._fields))


def _plain_value(value: object, struct: StructPlan | None) -> object:
    """Convert a default of kio's to our values: times in ms, codes as numbers, None for an id of zeros."""
    if struct is not None and is_dataclass(value):
        by_name = {plan.name: plan for plan in (*struct.plain, *struct.tagged)}
        return struct.type(*(_plain_value(getattr(value, name), by_name[name].struct) for name in struct.type._fields))
    if isinstance(value, timedelta):
        return value // _MS
    if isinstance(value, datetime):
        return (value - _EPOCH) // _MS
    if isinstance(value, UUID):
        return value if value.int else None
    return value.value if isinstance(value, Enum) else value
