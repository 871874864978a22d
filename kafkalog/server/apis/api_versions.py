"""ApiVersions (KIP-35, KIP-511, KIP-1242): the calls that are served and their versions.

Responses are cached and need no kio.
"""

from __future__ import annotations

import re
from functools import lru_cache
from typing import TYPE_CHECKING, Final, NamedTuple

from kafkalog.server.apis.dispatch import offered
from kafkalog.server.error_codes import ErrorCode, Refused
from kafkalog.server.requests.context import RequestContext
from kafkalog.server.settings.features import SUPPORTED, Features
from kafkalog.server.wire.reader import Frame, strings_reader
from kafkalog.server.wire.versions import NO_FEATURES, OfferedFeatures, api_versions_body

if TYPE_CHECKING:
    from kafkalog.server.node.node import Node

_SOFTWARE: Final = re.compile(r"[a-zA-Z0-9](?:[a-zA-Z0-9\-.]*[a-zA-Z0-9])?")
_MAX_NAME_LENGTH: Final = 100
"""Maximum length of each, since an untrusted client chooses the text and the connection stores it."""


_NO_NODE: Final = -1


class Software(NamedTuple):
    """The request of versions 3 and 4; both names are empty in older versions."""

    client_software_name: str
    client_software_version: str


class Client(NamedTuple):
    """The request of version 5: the software, and the cluster and node the client means (None and -1: any)."""

    client_software_name: str
    client_software_version: str
    cluster_id: str | None
    node_id: int


_READER: Final = strings_reader(Software)
_READER_5: Final = strings_reader(Client, may_be_null=frozenset({"cluster_id"}), ids=frozenset({"node_id"}))


def read(version: int, frame: Frame, position: int) -> Client:
    """Parse a request body without importing kio, so that a server's first response is fast. Raise MalformedRequest."""
    if version >= 5:
        client: Client = _READER_5.read(frame, position)
        return client
    software: Software = _READER.read(frame, position) if version >= 3 else Software("", "")
    return Client(software.client_software_name, software.client_software_version, None, _NO_NODE)


async def handle(node: Node, context: RequestContext, request: Client | None) -> bytes:
    """Return the response body as bytes. `request` is None for a version that is not served."""
    if request is None:
        return _body(context.api_version, 0, *_kind(node), NO_FEATURES)
    if context.api_version >= 3:
        error = _refusal(node, request)
        if error != ErrorCode.NONE:
            return _body(context.api_version, int(error), *_kind(node), NO_FEATURES)
        connection = context.connection
        connection.software_name, connection.software_version = (one[:_MAX_NAME_LENGTH] for one in request[:2])
    features = offered_features(node.features.current)
    if context.throttle_ms:
        apis = dict(offered(*_kind(node)))
        return api_versions_body(context.api_version, apis, 0, context.throttle_ms, features)
    return _body(context.api_version, 0, *_kind(node), features)


def _refusal(node: Node, client: Client) -> ErrorCode:
    """Return the error for a bad name, or for a client that means another cluster or node: it must bootstrap again."""
    if not all(map(_SOFTWARE.fullmatch, client[:2])):
        return ErrorCode.INVALID_REQUEST
    if client.cluster_id is None and client.node_id == _NO_NODE:
        return ErrorCode.NONE
    if client.cluster_id is None or client.node_id == _NO_NODE:  # both are given or none
        return ErrorCode.INVALID_REQUEST
    is_other = (node.cluster_id and client.cluster_id != node.cluster_id) or client.node_id != node.node_id
    return ErrorCode.REBOOTSTRAP_REQUIRED if is_other else ErrorCode.NONE


def refused(node: Node, context: RequestContext, request: object, error: Refused) -> bytes:
    """Return a body with the error code."""
    return _body(context.api_version, error.code, *_kind(node), NO_FEATURES)


def _kind(node: Node) -> tuple[bool, bool]:
    """Return True for a node of a replica set, and for one with a receiver of clients' metrics."""
    return node.quorum.replica_set is not None, node.telemetry is not None


def offered_features(features: Features) -> OfferedFeatures:
    """Return the features in the form in which they are offered."""
    supported = tuple((name, *levels) for name, levels in SUPPORTED.items())
    return OfferedFeatures(supported, tuple(features.levels.items()), features.epoch)


@lru_cache(maxsize=64)
def _body(
    version: int, error_code: int, in_set: bool, with_telemetry: bool, features: OfferedFeatures
) -> bytes:
    return api_versions_body(version, dict(offered(in_set, with_telemetry)), error_code, features=features)
