"""Frames of requests and parsing of responses, with the same limits as for requests of untrusted clients."""

from __future__ import annotations

import struct
from typing import Any, Final

from kafkalog.errors import MalformedRequest
from kafkalog.server.wire.reader import Frame, read_response, skip_tags
from kafkalog.server.wire.versions import API_VERSIONS, APIS, UNSUPPORTED_VERSION
from kafkalog.server.wire.writer import Tree, write_request

_HEAD: Final = struct.Struct(">ihhi")
_ERROR: Final = struct.Struct(">h")
MAX_ELEMENTS: Final = 1 << 20
"""Maximum elements of one response: enough for a leader of a hundred thousand partitions."""


def request_frame(api_key: int, version: int, correlation_id: int, client_id: str, tree: Tree) -> bytes:
    """Serialize a request with length and header. Raise KeyError for a field without default that `tree` lacks."""
    body = write_request(api_key, version, tree)
    name = client_id.encode()
    tags = b"\0" if APIS[api_key].is_flexible(version) else b""
    size = _HEAD.size - 4 + 2 + len(name) + len(tags) + len(body)
    head = _HEAD.pack(size, api_key, version, correlation_id)
    return b"".join((head, len(name).to_bytes(2, "big"), name, tags, body))


def correlation_of(frame: Frame) -> int:
    """Return the correlation id of a response."""
    return int.from_bytes(memoryview(frame)[:4], "big", signed=True)


def read_answer(api_key: int, version: int, frame: Frame) -> Any:
    """Parse the body of a response, with kio's names; records are views of the frame. Raise MalformedRequest.

    A peer that does not know the version of an ApiVersions request responds in version 0 (KIP-511).
    """
    position = 4
    if api_key == API_VERSIONS:
        if len(frame) >= 6 and _ERROR.unpack_from(frame, 4)[0] == UNSUPPORTED_VERSION:
            version = 0
    elif APIS[api_key].is_flexible(version):
        if len(frame) < 5:
            raise MalformedRequest("a response that ends with its header", position=4)
        position = skip_tags(memoryview(frame), position)
    return read_response(api_key, version, frame, position, MAX_ELEMENTS)
