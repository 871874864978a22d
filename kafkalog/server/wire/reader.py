"""Parsing of untrusted messages by a plan, with memory limited by the bytes received.

Every length is checked against the bytes left, every count against them and against `MAX_ELEMENTS`, and fields with
unknown tags are skipped. Times stay in ms, an id of zeros is None, bytes and records are views of the frame.
"""

from __future__ import annotations

from collections import namedtuple
from functools import cache, lru_cache
from typing import Any, Final
from uuid import UUID

from kafkalog._core.messages.reader import MAX_ELEMENTS, Dialect, MessageReader
from kafkalog.errors import MalformedRequest
from kafkalog.server.wire.definitions import StructPlan, request_plan, response_plan, rows_of

Frame = bytes | bytearray | memoryview
_MESSAGES: Final = {
    "ends": "the message ends inside a field",
    "ends in id": "the message ends inside an id",
    "null": "{name} is null",
    "beyond": "{name} of {0} bytes goes beyond the message",
    "text too long": "{name} has {0} bytes, {1} at most",
    "too few bytes": "{0} elements in {1} bytes",
    "too many elements": "more elements than a message may have",
    "long varint": "a variable-length number of more than 5 bytes",
    "tag beyond": "tagged field {0} of {1} bytes goes beyond the message",
    "tag size": "tagged field {0} has {1} bytes and ends after {2}",
    "behind": "{0} bytes after the end of the message",
}


def read_response(
    api_key: int, version: int, frame: Frame, position: int, max_elements: int = MAX_ELEMENTS
) -> Any:
    """Parse a response's body, for a follower. Raise MalformedRequest, also for bytes after it."""
    return response_reader(api_key, version).read(frame, position, max_elements, True)


@lru_cache(maxsize=4096)
def read_id(raw: bytes) -> UUID | None:
    """Return the id of 16 bytes, or None for zeros."""
    return UUID(bytes=raw) if any(raw) else None


_DIALECT: Final = Dialect(
    _MESSAGES, lambda message, position: MalformedRequest(message, position=position), read_id
)


@cache
def request_reader(api_key: int, version: int) -> MessageReader:
    """Return the parser of a request's body into a named tuple with kio's names. The version must be served.

    It raises MalformedRequest for anything but a complete message of that version. Bytes after it are ignored, as in a
    broker: librdkafka writes some (Metadata's null as four bytes instead of one, and an extra set of tagged fields
    after AlterUserScramCredentials).
    """
    return _reader(request_plan(api_key, version))


@cache
def response_reader(api_key: int, version: int) -> MessageReader:
    """Return the parser of a response's body."""
    return _reader(response_plan(api_key, version))


def strings_reader(
    type: Any, *, may_be_null: frozenset[str] = frozenset(), ids: frozenset[str] = frozenset()
) -> MessageReader:
    """Return a parser, built without kio, for a flexible body of strings and the numbers `ids`, into `type`."""
    rows = [
        (name, "i32" if name in ids else "string", False, name in may_be_null, None, None, None)
        for name in type._fields
    ]
    return MessageReader(type, True, rows, _DIALECT)


def skip_tags(view: Frame, position: int) -> int:
    """Return the end position of a set of unknown tagged fields."""
    return _TAGS.read_from(view, position)[1]


def _reader(plan: StructPlan) -> MessageReader:
    return MessageReader(plan.type, plan.is_flexible, rows_of(plan, _reader), _DIALECT)


_TAGS: Final = strings_reader(namedtuple("_TAGS", ()))
