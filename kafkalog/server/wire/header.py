"""The headers before requests and responses."""

from __future__ import annotations

import struct
from typing import NamedTuple

from kafkalog.errors import MalformedRequest
from kafkalog.server.wire.reader import Frame, skip_tags
from kafkalog.server.wire.versions import API_VERSIONS, APIS

_FIXED = struct.Struct(">hhih")


class RequestHeader(NamedTuple):
    """Which call, in which version, who sent it, and where its body begins."""

    api_key: int
    api_version: int
    correlation_id: int
    client_id: str | None
    body: int


def read_header(frame: Frame) -> RequestHeader:
    """The header of a request (v1, or v2 with tags where the version is flexible; v0 has no client id: unused by now).

    The client id has its 16-bit length in both. An unknown call has a header too, of the old form, so that it can be
    named; an ApiVersions of an unknown version is read as far as the client id, since its tags may be of a later form.
    """
    view = memoryview(frame)
    try:
        api_key, version, correlation_id, size = _FIXED.unpack_from(view)
    except struct.error:
        raise MalformedRequest(f"a request of {len(view)} bytes, too short for its header", position=0) from None
    position, client_id = _FIXED.size, None
    if size >= 0:
        end = position + size
        if end > len(view):
            raise MalformedRequest(f"a client id of {size} bytes goes beyond the message", position=position)
        client_id, position = str(view[position:end], "utf-8", "replace"), end
    elif size != -1:
        raise MalformedRequest(f"a client id of {size} bytes", position=position)
    api = APIS.get(api_key)
    if api is not None and api.is_flexible(version) and version <= api.newest:
        position = skip_tags(view, position)
    return RequestHeader(api_key, version, correlation_id, client_id, position)


def response_header(api_key: int, version: int, correlation_id: int) -> bytes:
    """The header of a response: v1 has an empty set of tags, which ApiVersions never has (KIP-511)."""
    if APIS[api_key].is_flexible(version) and api_key != API_VERSIONS:
        return struct.pack(">iB", correlation_id, 0)
    return struct.pack(">i", correlation_id)
