"""ApiVersions (KIP-35, KIP-511): the calls that are served and their versions. Responses are cached and need no kio."""

from __future__ import annotations

import re
from functools import cache
from typing import TYPE_CHECKING, Final, NamedTuple

from kafkalog.server.apis.dispatch import offered
from kafkalog.server.error_codes import ErrorCode
from kafkalog.server.requests.context import RequestContext
from kafkalog.server.wire.reader import Frame, strings_reader
from kafkalog.server.wire.versions import api_versions_body

if TYPE_CHECKING:
    from kafkalog.server.node.node import Node

_SOFTWARE: Final = re.compile(r"[a-zA-Z0-9](?:[a-zA-Z0-9\-.]*[a-zA-Z0-9])?")
_MAX_NAME_LENGTH: Final = 100
"""Maximum length of each, since an untrusted client chooses the text and the connection stores it."""


class Software(NamedTuple):
    """The client's software name and version; empty in versions without these fields."""

    client_software_name: str
    client_software_version: str


_READER: Final = strings_reader(Software)


def read(version: int, frame: Frame, position: int) -> Software:
    """Parse a request body without importing kio, so that a server's first response is fast. Raise MalformedRequest."""
    found: Software = _READER.read(frame, position) if version >= 3 else Software("", "")
    return found


async def handle(node: Node, context: RequestContext, request: Software | None) -> bytes:
    """Return the response body as bytes. `request` is None for a version that is not served."""
    if request is None:
        return _body(context.api_version, 0, _is_in_replica_set(node))
    if context.api_version >= 3:
        names = (request.client_software_name, request.client_software_version)
        if not all(map(_SOFTWARE.fullmatch, names)):
            return _body(context.api_version, int(ErrorCode.INVALID_REQUEST), _is_in_replica_set(node))
        connection = context.connection
        connection.software_name, connection.software_version = (one[:_MAX_NAME_LENGTH] for one in names)
    if context.throttle_ms:
        return api_versions_body(context.api_version, dict(offered(_is_in_replica_set(node))), 0, context.throttle_ms)
    return _body(context.api_version, 0, _is_in_replica_set(node))


def refused(node: Node, context: RequestContext, request: object, error_code: int, message: str | None) -> bytes:
    """Return a body with the error code."""
    return _body(context.api_version, error_code, _is_in_replica_set(node))


def _is_in_replica_set(node: Node) -> bool:
    return node.quorum.replica_set is not None


@cache
def _body(version: int, error_code: int, in_set: bool) -> bytes:
    return api_versions_body(version, dict(offered(in_set)), error_code)
