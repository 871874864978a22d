"""Opening of a server's data directories: the log manager with its jobs and cleaner, and the node's identity."""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from typing import Final, NamedTuple

from kafkalog.errors import CorruptCheckpoint
from kafkalog.manager.known_topics import KnownTopics, read_known_topics
from kafkalog.manager.log_manager import LoadProgress, LogManager
from kafkalog.manager.meta_properties import read_meta_properties
from kafkalog.manager.opening import OpenedLogs, open_logs, restore_high_watermarks
from kafkalog.server.settings.config import ServerConfig
from kafkalog.storage.partition_metadata import new_topic_id
from kafkalog.util.clock import SYSTEM_CLOCK, Clock
from kafkalog.util.fileio import OS, FileSystem, atomic_write
from kafkalog.util.os_errors import os_errors, read_if_present
from kafkalog.util.scheduler import Schedules

NODE_FILE: Final = "kafkalog.node.json"
"""File with the node's identity, in a directory that no broker has formatted."""
DEFAULT_NODE_ID: Final = 1
_MAX_FILE_BYTES: Final = 1 << 16


class Identity(NamedTuple):
    """The node's number, and its cluster's id (22 characters).

    The cluster's id is "" for a node of a replica set that has not joined a cluster.
    """

    node_id: int
    cluster_id: str


class Store(NamedTuple):
    """The log manager, the threads of its jobs, the topics known from the directories, and the node's identity."""

    manager: LogManager
    scheduler: Schedules
    known: KnownTopics
    identity: Identity

    def alter_config(self, changes: Mapping[str, object]) -> None:
        """Change settings of the logs. ConfigError."""
        self.manager.alter_config(changes)

    def close(self, *, discards: bool = False) -> None:
        """Close all logs, then end the threads of the jobs. As `LogManager.close`."""
        OpenedLogs(self.manager, self.scheduler, self.known).close(discards=discards)


class BorrowedStore(Store):
    """A store whose logs another part of the process opened: it closes them, and their settings are its own."""

    __slots__ = ()

    def alter_config(self, changes: Mapping[str, object]) -> None:
        """Change nothing."""

    def close(self, *, discards: bool = False) -> None:
        """Leave the logs open."""


def borrowed_store(manager: LogManager) -> BorrowedStore:
    """Return a store of logs that are open already. StorageError, CorruptCheckpoint."""
    online = [one.path for one in manager.directories if one.is_online]
    identity = _identity(online, manager.config.node_id, manager.fs, creates_id=True)
    assert manager.scheduler is not None
    return BorrowedStore(manager, manager.scheduler, read_known_topics(online, fs=manager.fs), identity)


def open_store(
    directories: Sequence[str],
    config: ServerConfig,
    *,
    fs: FileSystem = OS,
    clock: Clock = SYSTEM_CLOCK,
    progress: Callable[[LoadProgress], object] | None = None,
    is_read_only: bool = False,
    identity: Identity | None = None,
) -> Store:
    """Open the store of these data directories and start its jobs. A read-only store, on stand-ins, runs no jobs.

    A worker is given the `identity` of its node, which the directories of the main process have.

    Raises as `open_logs`, and StorageError if the node's identity cannot be written.
    """
    opened = open_logs(
        directories, config.store, fs=fs, clock=clock, progress=progress, recovers_damage=is_read_only,
        has_replicas=bool(config["kafkalog.replicas"]), refuses_loss=config["kafkalog.on.damage"] == "refuse",
    )  # fmt: skip
    manager = opened.manager
    try:
        online = [one.path for one in manager.directories if one.is_online]
        if config["kafkalog.replicas"]:
            restore_high_watermarks(manager)  # first: a close after an error writes them
        if identity is None:
            identity = _identity(online, config["node.id"], fs, creates_id=not config["kafkalog.replicas"])
        if not is_read_only:
            manager.schedule_jobs()
    except BaseException:
        with suppress(Exception):
            opened.close()
        raise
    return Store(manager, opened.scheduler, opened.known, identity)


def _identity(directories: Sequence[str], node_id: int | None, fs: FileSystem, *, creates_id: bool) -> Identity:
    """Read the identity from the first meta.properties, else from the first NODE_FILE; else create and write a new one.

    Without `creates_id` nothing is written: the nodes of a replica set share one cluster id.
    """
    for directory in directories:
        meta = read_meta_properties(directory, fs)
        if meta is not None and meta.cluster_id is not None:
            return Identity(meta.node_id, meta.cluster_id)
    for directory in directories:
        stored = _read(os.path.join(directory, NODE_FILE), fs)
        if stored is not None:
            return stored if node_id is None else Identity(node_id, stored.cluster_id)
    identity = Identity(DEFAULT_NODE_ID if node_id is None else node_id, new_topic_id() if creates_id else "")
    if creates_id:
        keep_identity(directories[0], identity, fs)
    return identity


def keep_identity(directory: str, identity: Identity, fs: FileSystem = OS) -> None:
    """Write the node's identity into a data directory. Raise StorageError."""
    path = os.path.join(directory, NODE_FILE)
    content = json.dumps({"version": 1, "node_id": identity.node_id, "cluster_id": identity.cluster_id})
    with os_errors("write the node's identity", path):
        atomic_write(fs, path, content.encode() + b"\n")


def _read(path: str, fs: FileSystem) -> Identity | None:
    content = read_if_present(path, _MAX_FILE_BYTES, "read the node's identity", fs)
    if content is None:
        return None
    try:
        found = json.loads(content)
        node_id, cluster_id = found["node_id"], found["cluster_id"]
        if found["version"] != 1 or type(node_id) is not int or node_id < 0 or type(cluster_id) is not str:
            raise ValueError("its values are not valid in version 1")
    except (ValueError, KeyError, TypeError, RecursionError) as error:
        raise CorruptCheckpoint(
            f"the file has no valid identity of the node: {error}",
            path=path,
            hint="delete it; the node then gets a new cluster id",
        ) from None
    return Identity(node_id, cluster_id)
