"""Features of a cluster (KIP-584): the levels that this version supports, those in effect, and changes of them.

`kafkalog.features.json` in the first data directory has the levels that a client changed (UpdateFeatures). A new
directory has the levels of a new cluster of Kafka 4.4; the directory of a broker has those of its metadata.
"""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Iterable, Mapping
from typing import TYPE_CHECKING, Final, NamedTuple

from kafkalog.errors import CorruptCheckpoint
from kafkalog.server.error_codes import ErrorCode, Refused
from kafkalog.server.node.changing import Changing
from kafkalog.server.node.parts import Part
from kafkalog.util.fileio import OS, FileSystem, atomic_write
from kafkalog.util.os_errors import os_errors, read_if_present

if TYPE_CHECKING:
    from kafkalog.manager.cluster_metadata import ClusterMetadata
    from kafkalog.server.node.node import Node

FEATURES_FILE: Final = "kafkalog.features.json"
VERSION: Final = 1
MAX_FILE_BYTES: Final = 1 << 16
UPGRADE, SAFE_DOWNGRADE, UNSAFE_DOWNGRADE = 1, 2, 3
GROUP, KRAFT, METADATA, SHARE = "group.version", "kraft.version", "metadata.version", "share.version"
TRANSACTION: Final = "transaction.version"


class Range(NamedTuple):
    """Lowest and highest level of a feature; the level 0 means that it is off."""

    lowest: int
    highest: int


SUPPORTED: Final[Mapping[str, Range]] = {
    GROUP: Range(0, 1),
    KRAFT: Range(0, 1),
    METADATA: Range(7, 33),
    SHARE: Range(0, 2),
    TRANSACTION: Range(0, 2),
    "eligible.leader.replicas.version": Range(0, 1),
}
"""Levels as in a broker of 4.4.0."""


class Update(NamedTuple):
    """A change of one feature, as a request has it."""

    feature: str
    level: int
    kind: int


class Features(NamedTuple):
    """The levels in effect, without those that are 0, and a number that grows with every change."""

    levels: Mapping[str, int]
    epoch: int


def decide(levels: Mapping[str, int], update: Update, node_id: int) -> str | None:
    """Return the reason why a controller refuses an update, in the reference's words; None if it takes it."""
    name, level, kind = update
    current, supported = levels.get(name, 0), SUPPORTED.get(name)
    reason = ""
    if kind not in (UPGRADE, SAFE_DOWNGRADE, UNSAFE_DOWNGRADE):
        reason = "The controller does not support the given upgrade type."
    elif level < 0:
        reason = "A feature version cannot be less than 0."
    elif supported is None:
        reason = f"Local controller {node_id} does not support this feature."
    elif not supported.lowest <= level <= supported.highest:
        reason = f"Local controller {node_id} only supports versions {supported.lowest}-{supported.highest}"
    elif level < current and name == KRAFT:
        reason = "Can't downgrade the version of this feature."
    elif level < current and kind == UPGRADE:
        reason = (
            "Can't downgrade the version of this feature without setting the upgrade type to either safe or unsafe "
            "downgrade."
        )
    elif level > current and kind != UPGRADE:
        reason = "Can't downgrade to a newer version."
    if reason:
        return f"Invalid update version {level} for feature {name}. {reason}"
    if name != METADATA or level >= current:
        return None
    why = (
        "Refusing to perform the requested downgrade because it might delete metadata information."
        if kind == SAFE_DOWNGRADE
        else "Unsafe metadata downgrade is not supported in this version."
    )
    return f"Unsupported {METADATA} downgrade from {current} to {level}. {why}"


def initial_features(cluster: ClusterMetadata | None) -> Features:
    """Return the highest levels, or those of the broker whose directories these are, as far as they are supported."""
    if cluster is None:
        return Features({name: one.highest for name, one in SUPPORTED.items()}, 1)
    found = cluster.image.features
    levels = {name: min(level, SUPPORTED[name].highest) for name, level in found.items() if name in SUPPORTED}
    levels.setdefault(KRAFT, SUPPORTED[KRAFT].highest)
    return Features({name: level for name, level in levels.items() if level}, max(1, cluster.end_offset))


class NodeFeatures(Changing, Part):
    """The features of a node, or of its replica set. Only for the event loop's thread."""

    def __init__(self, node: Node, directory: str | os.PathLike[str], *, fs: FileSystem = OS) -> None:
        super().__init__()
        self.path = os.path.join(os.fspath(directory), FEATURES_FILE)
        self._node = node
        self._fs = fs
        self.current = initial_features(node.known.cluster)
        self.on_change: Callable[[], object] = lambda: None
        """Called after a change is on disk."""

    def level(self, name: str) -> int:
        """Return the level of a feature in effect, 0 if it is off."""
        return self.current.levels.get(name, 0)

    def require(self, name: str) -> None:
        """Raise Refused if a feature is off."""
        if not self.level(name):
            raise Refused(ErrorCode.UNSUPPORTED_VERSION)

    async def start(self) -> None:
        """Read the levels that were changed. Raise CorruptCheckpoint, StorageError."""
        found = await self._node.run(self._read)
        if found is not None:
            self.current = found

    async def update(self, updates: Iterable[Update], validate_only: bool) -> str | None:
        """Change features, all or none. Return the reason of a refusal, or None. Raise StorageError."""
        async with self._changing:
            self.check_change()
            levels, count = dict(self.current.levels), 0
            for one in updates:
                refusal = decide(self.current.levels, one, self._node.node_id)
                if refusal is not None:
                    return refusal
                levels[one.feature] = one.level
                count += 1
            if count and not validate_only:
                kept = {name: level for name, level in levels.items() if level}
                await self._set(Features(kept, self.current.epoch + count))
        return None

    async def take(self, features: Features) -> None:
        """Take over the leader's features. Raise StorageError."""
        async with self._changing:
            if features != self.current:
                await self._set(features)

    async def _set(self, features: Features) -> None:
        await self._node.run(self._write, features)
        self.current = features
        self.on_change()

    def _read(self) -> Features | None:
        content = read_if_present(self.path, MAX_FILE_BYTES, "read the features", self._fs)
        if content is None:
            return None
        try:
            return parse_features(json.loads(content.decode()))
        except (ValueError, RecursionError) as error:
            hint = "move it away to use the levels of a new cluster"
            raise CorruptCheckpoint(f"the features are damaged: {error}", path=self.path, hint=hint) from None

    def _write(self, features: Features) -> None:
        content = json.dumps(features_tree(features), indent=1, sort_keys=True) + "\n"
        with os_errors("write the features", self.path):
            atomic_write(self._fs, self.path, content.encode())


def features_tree(features: Features) -> dict[str, object]:
    """Return the features in the form in which they are kept and sent."""
    return {"version": VERSION, "epoch": features.epoch, "levels": dict(features.levels)}


def parse_features(data: object) -> Features:
    """Return the features of such a form. ValueError if it is invalid."""
    if not isinstance(data, dict) or data.get("version") != VERSION:
        raise ValueError(f"it is not an object with version {VERSION}")
    epoch, levels = data.get("epoch"), data.get("levels")
    if type(epoch) is not int or not 0 <= epoch < 1 << 62:
        raise ValueError("the epoch is not a number")
    if not isinstance(levels, dict) or not all(type(one) is int and 0 < one < 1 << 15 for one in levels.values()):
        raise ValueError("the levels are not numbers")
    known = {name: min(level, SUPPORTED[name].highest) for name, level in levels.items() if name in SUPPORTED}
    return Features(known, epoch)


def make(node: Node) -> NodeFeatures:
    """Create the features of a node, kept in its first data directory."""
    return NodeFeatures(node, node.store.directories[0].path)
