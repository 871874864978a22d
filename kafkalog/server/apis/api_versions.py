"""ApiVersions (KIP-35, KIP-511): what may be called, in which versions. The answers are made once, and without kio."""

from __future__ import annotations

import re
from functools import cache
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from kafkalog.errors import MalformedRequest
from kafkalog.server.apis.dispatch import offered
from kafkalog.server.context import RequestContext
from kafkalog.server.error_codes import ErrorCode
from kafkalog.server.wire.reader import Frame, read_strings
from kafkalog.server.wire.versions import api_versions_body

if TYPE_CHECKING:
    from kafkalog.server.node import Node

_SOFTWARE: Final = re.compile(r"[a-zA-Z0-9](?:[a-zA-Z0-9\-.]*[a-zA-Z0-9])?")
_KEPT_LETTERS: Final = 100
"""Of each of them: strangers say what they like, and a connection keeps it."""


class Software(NamedTuple):
    """What a client says it is; empty in versions that do not ask."""

    client_software_name: str
    client_software_version: str


def read(version: int, frame: Frame, position: int) -> Software:
    """The body of a request, read here: the first answer of a server does not wait for kio. MalformedRequest."""
    if version >= 3:
        return Software(*read_strings(2, frame, position))
    if position != len(frame):
        raise MalformedRequest(f"{len(frame) - position} bytes after the end of the message", position=position)
    return Software("", "")


async def handle(node: Node, context: RequestContext, request: Any) -> Any:
    """The body as bytes. `request` is None for a version that is not served."""
    if request is None:
        return _body(context.api_version, 0, _in_set(node))
    if context.api_version >= 3:
        names = (request.client_software_name, request.client_software_version)
        if not all(map(_SOFTWARE.fullmatch, names)):
            return _body(context.api_version, int(ErrorCode.INVALID_REQUEST), _in_set(node))
        context.connection.software_name, context.connection.software_version = (one[:_KEPT_LETTERS] for one in names)
    if context.throttle_ms:
        return api_versions_body(context.api_version, dict(offered(_in_set(node))), 0, context.throttle_ms)
    return _body(context.api_version, 0, _in_set(node))


def refused(node: Node, context: RequestContext, request: Any, error_code: int, message: str | None) -> Any:
    """The body with an error alone."""
    return _body(context.api_version, error_code, _in_set(node))


def _in_set(node: Node) -> bool:
    return node.quorum.replica_set is not None


@cache
def _body(version: int, error_code: int, in_set: bool) -> bytes:
    return api_versions_body(version, dict(offered(in_set)), error_code)
