"""Reads messages that a stranger sent, by a plan, and never takes memory that the bytes at hand do not justify.

Every length is checked against the bytes left, every count against them and against `MAX_ELEMENTS`, fields with unknown
tags are passed over, and bytes behind the end are refused. Times stay in ms, an id of zeros is None, bytes and records
are views of the frame.
"""

from __future__ import annotations

import struct
from collections.abc import Callable
from functools import cache, lru_cache
from typing import Any
from uuid import UUID

from kafkalog.errors import MalformedRequest
from kafkalog.server.wire.definitions import FieldPlan, StructPlan, request_plan, response_plan
from kafkalog.server.wire.versions import ALTER_USER_SCRAM_CREDENTIALS, METADATA

# array items and tagged fields of one message: more than any client of one node sends, and less memory than 16 MiB
MAX_ELEMENTS = 1 << 16
MAX_STRING_BYTES = 0x7FFF
LEAVE_BYTES = frozenset({METADATA, ALTER_USER_SCRAM_CREDENTIALS})

Frame = bytes | bytearray | memoryview
# a frame, where to read, and [how many elements more it may have] -> the value, and where it ends
Reader = Callable[[memoryview, int, list[int]], tuple[Any, int]]


def read_request(api_key: int, version: int, frame: Frame, position: int) -> Any:
    """The body of a request, which begins at `position` of the frame, as a named tuple with kio's names.

    Raises MalformedRequest for anything that is no whole message of that version. What lies behind Metadata is not
    looked at: librdkafka writes its null, for all topics, as four bytes where one is meant, and leaves three over.
    Likewise it ends AlterUserScramCredentials with one set of tagged fields too many.
    """
    return _read_whole(_struct_reader(request_plan(api_key, version)), frame, position, api_key in LEAVE_BYTES)


def read_response(
    api_key: int, version: int, frame: Frame, position: int, max_elements: int = MAX_ELEMENTS
) -> Any:
    """The body of a response, read as a request is: of use to a follower, and to tests."""
    return _read_whole(_struct_reader(response_plan(api_key, version)), frame, position, False, max_elements)


def skip_tags(view: memoryview, position: int) -> int:
    """Where a set of tagged fields ends of which none is known."""
    try:
        if not view[position]:
            return position + 1
        return _read_tags(view, position, [MAX_ELEMENTS], {}, [])[1]
    except IndexError:
        raise MalformedRequest("the message ends inside its tagged fields", position=len(view)) from None


def read_strings(count: int, frame: Frame, position: int) -> list[str]:
    """A body of so many strings of a flexible version, and tags: for what is read without kio. MalformedRequest."""
    read = _primitive("string", True, False, "a string")
    view, found = memoryview(frame), []
    try:
        for _ in range(count):
            text, position = read(view, position, [MAX_ELEMENTS])
            found.append(text)
    except IndexError:
        raise MalformedRequest("the message ends inside a field", position=len(view)) from None
    if skip_tags(view, position) != len(view):
        raise MalformedRequest("bytes after the end of the message", position=position)
    return found


def _read_whole(
    read: Reader, frame: Frame, position: int, may_go_on: bool = False, max_elements: int = MAX_ELEMENTS
) -> Any:
    view = memoryview(frame)
    try:
        value, end = read(view, position, [max_elements])
    except (struct.error, IndexError):
        raise MalformedRequest("the message ends inside a field", position=len(view)) from None
    if end != len(view) and not may_go_on:
        raise MalformedRequest(f"{len(view) - end} bytes after the end of the message", position=end)
    return value


@cache
def _struct_reader(plan: StructPlan) -> Reader:
    plain = [_field_reader(field, plan.is_flexible) for field in plan.plain]
    make = plan.type._make
    if not plan.is_flexible:

        def read_old(view: memoryview, position: int, budget: list[int]) -> tuple[Any, int]:
            values = []
            for read in plain:
                value, position = read(view, position, budget)
                values.append(value)
            return make(values), position

        return read_old

    tagged = {field.tag: (index, _field_reader(field, True)) for index, field in enumerate(plan.tagged)}
    defaults = [field.default for field in plan.tagged]
    order = plan.type._fields
    sources = [(*plan.plain, *plan.tagged).index(_named(plan, name)) for name in order]
    is_in_order = sources == list(range(len(sources)))

    def read_new(view: memoryview, position: int, budget: list[int]) -> tuple[Any, int]:
        values: list[Any] = []
        for read in plain:
            value, position = read(view, position, budget)
            values.append(value)
        if view[position] == 0:
            position += 1
            values += defaults
        else:
            extra, position = _read_tags(view, position, budget, tagged, defaults)
            values += extra
        return make(values if is_in_order else [values[source] for source in sources]), position

    return read_new


def _named(plan: StructPlan, name: str) -> FieldPlan:
    return next(field for field in (*plan.plain, *plan.tagged) if field.name == name)


def _read_tags(
    view: memoryview,
    position: int,
    budget: list[int],
    tagged: dict[int | None, tuple[int, Reader]],
    defaults: list[Any],
) -> tuple[list[Any], int]:
    """The tagged fields at the end of a structure; those that nobody here knows are passed over."""
    values = list(defaults)
    count, position = _unsigned_varint(view, position)
    _take(budget, count, len(view) - position, 2, position)
    for _ in range(count):
        tag, position = _unsigned_varint(view, position)
        size, position = _unsigned_varint(view, position)
        end = position + size
        if end > len(view):
            raise MalformedRequest(f"tagged field {tag} of {size} bytes goes beyond the message", position=position)
        if tag in tagged:
            index, read = tagged[tag]
            values[index], at = read(view, position, budget)
            if at != end:
                words = f"tagged field {tag} has {size} bytes and ends after {at - position}"
                raise MalformedRequest(words, position=at)
        position = end
    return values, position


def _take(budget: list[int], count: int, left: int, least: int, position: int) -> None:
    if count * least > left:
        raise MalformedRequest(f"{count} elements in {left} bytes", position=position)
    budget[0] -= count
    if budget[0] < 0:
        raise MalformedRequest("more elements than a message may have", position=position)


def _unsigned_varint(view: memoryview, position: int) -> tuple[int, int]:
    byte = view[position]
    position += 1
    if byte < 0x80:
        return byte, position
    value = byte & 0x7F
    for shift in (7, 14, 21, 28):
        byte = view[position]
        position += 1
        value |= (byte & 0x7F) << shift
        if byte < 0x80:
            return value & 0xFFFFFFFF, position
    raise MalformedRequest("a variable-length number of more than 5 bytes", position=position)


def _field_reader(field: FieldPlan, is_flexible: bool) -> Reader:
    # a tag says by its absence what null says elsewhere, but strings and arrays in it may be null all the same
    if field.kind == "struct":
        assert field.struct is not None
        item = _struct_reader(field.struct)
        if not field.is_array:
            return _nullable_struct(item) if field.is_nullable and field.tag is None else item
        return _array(item, _least_size(field.struct), is_flexible, field.is_nullable, field.name)
    if field.is_array:
        item = _primitive(field.kind, is_flexible, False, field.name)
        return _array(item, _least(field.kind, is_flexible), is_flexible, field.is_nullable, field.name)
    return _primitive(field.kind, is_flexible, field.is_nullable, field.name)


def _least_size(plan: StructPlan) -> int:
    """How many bytes a structure takes at the least; never 0, or a count could not be checked by it."""
    size = 1 if plan.is_flexible else 0
    for field in plan.plain:
        if field.is_array:
            size += 1 if plan.is_flexible else 4
        elif field.kind == "struct":
            assert field.struct is not None
            size += 1 if field.is_nullable else _least_size(field.struct)
        else:
            size += _least(field.kind, plan.is_flexible)
    return max(size, 1)


def _least(kind: str, is_flexible: bool) -> int:
    if kind in _SIZES:
        return _SIZES[kind]
    return 1 if is_flexible else 2 if kind == "string" else 4


def _nullable_struct(item: Reader) -> Reader:
    def read(view: memoryview, position: int, budget: list[int]) -> tuple[Any, int]:
        if view[position] >= 0x80:
            return None, position + 1
        return item(view, position + 1, budget)

    return read


def _array(item: Reader, least: int, is_flexible: bool, is_nullable: bool, name: str) -> Reader:
    length = _compact_length if is_flexible else _int32

    def read(view: memoryview, position: int, budget: list[int]) -> tuple[Any, int]:
        count, position = length(view, position, budget)
        if count < 0:
            if is_nullable:
                return None, position
            raise MalformedRequest(f"{name} is null", position=position)
        _take(budget, count, len(view) - position, least, position)
        values = []
        for _ in range(count):
            value, position = item(view, position, budget)
            values.append(value)
        return tuple(values), position

    return read


def _compact_length(view: memoryview, position: int, budget: list[int]) -> tuple[int, int]:
    value, position = _unsigned_varint(view, position)
    return value - 1, position


def _fixed(form: str) -> Reader:
    unpacker = struct.Struct(form)
    unpack, size = unpacker.unpack_from, unpacker.size

    def read(view: memoryview, position: int, budget: list[int]) -> tuple[Any, int]:
        return unpack(view, position)[0], position + size

    return read


_int32 = _fixed(">i")
_int16 = _fixed(">h")
_FIXED: dict[str, Reader] = {
    "int8": _fixed(">b"), "int16": _int16, "int32": _int32, "int64": _fixed(">q"), "uint16": _fixed(">H"),
    "bool": _fixed(">?"), "float64": _fixed(">d"), "error_code": _int16,
    "timedelta_i32": _int32, "timedelta_i64": _fixed(">q"), "datetime_i64": _fixed(">q"),
}  # fmt: skip
_SIZES = {
    "int8": 1, "int16": 2, "int32": 4, "int64": 8, "uint16": 2, "bool": 1, "float64": 8, "error_code": 2, "uuid": 16,
    "timedelta_i32": 4, "timedelta_i64": 8, "datetime_i64": 8,
}  # fmt: skip


def _uuid(view: memoryview, position: int, budget: list[int]) -> tuple[Any, int]:
    end = position + 16
    if end > len(view):
        raise MalformedRequest("the message ends inside an id", position=position)
    return read_id(bytes(view[position:end])), end


@lru_cache(maxsize=4096)
def read_id(raw: bytes) -> UUID | None:
    """The id of 16 bytes; None for zeros."""
    return UUID(bytes=raw) if any(raw) else None


def _primitive(kind: str, is_flexible: bool, is_nullable: bool, name: str) -> Reader:
    if kind in _FIXED:
        return _FIXED[kind]
    if kind == "uuid":
        return _uuid
    if kind == "string":
        return _bytes(_compact_length if is_flexible else _int16, is_nullable, name, MAX_STRING_BYTES, _text)
    return _bytes(_compact_length if is_flexible else _int32, is_nullable, name, None, None)


def _text(piece: memoryview) -> str:
    return str(piece, "utf-8", "replace")


def _bytes(
    length: Reader, is_nullable: bool, name: str, limit: int | None, convert: Callable[[memoryview], Any] | None
) -> Reader:
    def read(view: memoryview, position: int, budget: list[int]) -> tuple[Any, int]:
        size, position = length(view, position, budget)
        if size < 0:
            if is_nullable:
                return None, position
            raise MalformedRequest(f"{name} is null", position=position)
        end = position + size
        if end > len(view):
            raise MalformedRequest(f"{name} of {size} bytes goes beyond the message", position=position)
        if limit is not None and size > limit:
            raise MalformedRequest(f"{name} has {size} bytes, {limit} at most", position=position)
        piece = view[position:end]
        return (piece if convert is None else convert(piece)), end

    return read
