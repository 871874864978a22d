"""The shared metadata of a set besides topics, as one snapshot: ACLs, quotas, users, settings, features.

Nodes fetch it with FetchSnapshot, in parts. It contains password verifiers and goes only to nodes of the set: if there
are users, over TLS or within one machine. It includes the version that the node has on disk. Its id is the number of
changes, with those on disk counted again, and the leader's term. If it changes meanwhile, the fetch restarts.
"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any, Final, NamedTuple, TypeGuard

from kafkalog.errors import from_code
from kafkalog.server.client.errors import PeerRefused
from kafkalog.server.quorum.messages import WHOLE
from kafkalog.server.quorum.version_file import VersionFile, Versions
from kafkalog.server.security.state import SecurityState, format_state, parse_state
from kafkalog.server.settings.features import Features, features_tree, parse_features
from kafkalog.server.settings.kinds import GROUP, KEPT

if TYPE_CHECKING:
    from kafkalog.server.client.connection import PeerConnection
    from kafkalog.server.node.node import Node
    from kafkalog.server.wire.writer import Tree

FETCH_SNAPSHOT: Final = 59
VERSION: Final = 1
PART_BYTES: Final = 1 << 20
MAX_BYTES: Final = 128 << 20
_TRIES: Final = 5


class NeedsTls(PeerRefused):
    """The leader has users, and sends no password verifiers over an unencrypted connection."""

    code = 54


class SharedMetadata(NamedTuple):
    """Metadata that all nodes of a set share, and the versions that it lies between."""

    security: SecurityState
    settings: dict[str, str]
    kept: dict[int, dict[str, dict[str, str]]]
    """Settings by type, without types that a node of an earlier version does not send."""
    versions: Versions
    features: Features | None  # None from a node of an earlier version


def content_of(node: Node) -> bytes:
    """Return the node's snapshot, as sent to the others."""
    dynamic, version = node.dynamic, node.quorum.metadata
    tree = {
        "version": VERSION,
        "metadata": json.loads(VersionFile.format(Versions(version.versions.begun, version.stored))),
        "security": json.loads(format_state(node.credentials.file.state)),
        "settings": dict(dynamic.everywhere),
        **{KEPT[kind]: values for kind, values in dynamic.all_kept().items()},
        "features": features_tree(node.features.current),
    }
    return json.dumps(tree).encode()


def read_content(content: bytes) -> SharedMetadata:
    """Parse a leader's snapshot. ValueError if it is invalid."""
    data = json.loads(content)
    if not isinstance(data, dict) or data.get("version") != VERSION:
        raise ValueError(f"the leader's settings are not an object of version {VERSION}")
    settings = data.get("settings")
    kept: dict[int, Any] = {
        kind: data.get(section) for kind, section in KEPT.items() if section in data or kind == GROUP
    }
    if not _is_text(settings) or not all(_are_texts(one) for one in kept.values()):
        raise ValueError("the leader's settings are not pairs of strings")
    versions = VersionFile.parse(json.dumps(data.get("metadata")).encode())
    features = parse_features(data["features"]) if "features" in data else None
    return SharedMetadata(parse_state(json.dumps(data.get("security")).encode()), settings, kept, versions, features)


def _are_texts(values: object) -> bool:
    return isinstance(values, dict) and all(_is_text(one) for one in values.values())


def _is_text(values: object) -> TypeGuard[dict[str, str]]:
    return isinstance(values, dict) and all(isinstance(value, str) for value in values.values())


async def ask(connection: PeerConnection, node_id: int, term: int) -> SharedMetadata:
    """Fetch the leader's snapshot in as many parts as needed.

    PeerError, NeedsTls, the error that the leader reports; ValueError for invalid answers.
    """
    for _ in range(_TRIES):
        found, snapshot, size = b"", (-1, -1), -1
        while size < 0 or len(found) < size:
            request = snapshot_request(node_id, term, snapshot, len(found))
            part = (await connection.request(FETCH_SNAPSHOT, request)).topics[0].partitions[0]
            if part.error_code == NeedsTls.code:
                text = (
                    "the leader has users with passwords, so it sends no users, ACLs, quotas or settings over an "
                    "unencrypted connection"
                )
                raise NeedsTls(text, peer=connection.peer, hint="set security.inter.broker.protocol=SASL_SSL")
            if part.error_code:
                raise from_code(int(part.error_code), "the leader did not send its settings")  # it may lead no longer
            current = (part.snapshot_id.end_offset, part.snapshot_id.epoch)
            if (found and current != snapshot) or part.position != len(found):
                break  # the snapshot changed meanwhile
            records = bytes(part.unaligned_records or b"")
            snapshot, size, found = current, part.size, found + records
            if not len(found) <= size <= MAX_BYTES or (not records and len(found) < size):
                raise ValueError("the leader's settings are too large or incomplete")
        else:
            return read_content(found)
    raise ValueError("the leader's settings kept changing")


def snapshot_request(node_id: int, term: int, snapshot: tuple[int, int], position: int) -> Tree:
    """Return the request for the part that begins at `position`; (-1, -1) asks for the current snapshot."""
    row = {
        "partition": WHOLE.partition, "current_leader_epoch": term, "position": position,
        "snapshot_id": {"end_offset": snapshot[0], "epoch": snapshot[1]}, "replica_directory_id": None,
    }  # fmt: skip
    topics = [{"name": WHOLE.topic, "partitions": [row]}]
    return {"cluster_id": None, "replica_id": node_id, "max_bytes": PART_BYTES, "topics": topics}


def part_of(content: bytes, snapshot: tuple[int, int], position: int, max_bytes: int, leader: tuple[int, int]) -> Tree:
    """Return a part of the snapshot, as a row of the answer."""
    begin = position if 0 <= position <= len(content) else 0
    return {
        "index": WHOLE.partition, "error_code": 0,
        "snapshot_id": {"end_offset": snapshot[0], "epoch": snapshot[1]},
        "current_leader": {"leader_id": leader[0], "leader_epoch": leader[1]},
        "size": len(content), "position": begin,
        "unaligned_records": content[begin : begin + max(1, min(max_bytes, PART_BYTES))],
    }  # fmt: skip


async def take(node: Node, shared: SharedMetadata) -> None:
    """Apply the leader's metadata to this node; unchanged data is not written. StorageError, ConfigError."""
    file = node.credentials.file
    if format_state(shared.security) != format_state(file.state):
        await file.change(node.run, lambda _: shared.security)
    await node.dynamic.take(shared.settings, shared.kept)
    if shared.features is not None:
        await node.features.take(shared.features)
