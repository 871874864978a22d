"""Headers of requests and responses."""

from __future__ import annotations

import struct
from typing import NamedTuple

from kafkalog.errors import MalformedRequest
from kafkalog.server.wire.reader import Frame, skip_tags
from kafkalog.server.wire.versions import API_VERSIONS, APIS

_FIXED = struct.Struct(">hhih")


class RequestHeader(NamedTuple):
    """A request's API key, version, correlation id, client id, and the position of its body."""

    api_key: int
    api_version: int
    correlation_id: int
    client_id: str | None
    body: int


def read_header(frame: Frame) -> RequestHeader:
    """Parse a request's header: v1, or v2 with tags for flexible versions. v0, without client id, is no longer used.

    The client id has a 16-bit length in both. The header of an unknown call is read in the old form, to name the call.
    An ApiVersions request of an unknown version is read up to the client id, since its tags may have a later form.

    Raises MalformedRequest.
    """
    try:
        api_key, version, correlation_id, size = _FIXED.unpack_from(frame)
    except struct.error:
        raise MalformedRequest(f"a request of {len(frame)} bytes, too short for its header", position=0) from None
    position, client_id = _FIXED.size, None
    if size >= 0:
        end = position + size
        if end > len(frame):
            raise MalformedRequest(f"a client id of {size} bytes goes beyond the message", position=position)
        client_id, position = str(frame[position:end], "utf-8", "replace"), end
    elif size != -1:
        raise MalformedRequest(f"a client id of {size} bytes", position=position)
    api = APIS.get(api_key)
    if api is not None and api.first_flexible <= version <= api.newest:
        if position < len(frame) and frame[position] == 0:  # no tags, the usual case
            position += 1
        else:
            position = skip_tags(frame, position)
    return tuple.__new__(RequestHeader, (api_key, version, correlation_id, client_id, position))


def response_header(api_key: int, version: int, correlation_id: int) -> bytes:
    """Return a response's header: v1 has an empty set of tags, which ApiVersions never has (KIP-511)."""
    if APIS[api_key].is_flexible(version) and api_key != API_VERSIONS:
        return struct.pack(">iB", correlation_id, 0)
    return struct.pack(">i", correlation_id)
