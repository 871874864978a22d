"""Which broker the data directories belong to, and where its metadata lies: `meta.properties` (format.md section 8)."""

from __future__ import annotations

import os
from collections.abc import Sequence
from typing import Final, NamedTuple

from kafkalog.errors import CorruptCheckpoint, IllegalArgument
from kafkalog.manager.cluster_metadata import ClusterMetadata, read_cluster_metadata
from kafkalog.manager.meta_properties import MetaProperties, check_one_node, read_meta_properties
from kafkalog.storage.names import META_PROPERTIES
from kafkalog.util.fileio import FileSystem

FORMAT_HINT: Final = (
    "set log.dirs to it in the broker's server.properties and run "
    "kafka-storage.sh format --config server.properties --cluster-id ID (a new ID: kafka-storage.sh random-uuid); "
    "that leaves the partitions in it as they are"
)


class Node(NamedTuple):
    """A broker: its cluster, its number, and the id of each of its data directories by path."""

    cluster_id: str
    node_id: int
    directory_ids: dict[str, str]


def read_node(dirs: Sequence[str], fs: FileSystem) -> Node:
    """The broker that the data directories were formatted for.

    IllegalArgument where one is not formatted, or for another broker than the rest; CorruptCheckpoint, StorageError.
    """
    found = {directory: _formatted(directory, fs) for directory in dirs}
    if not found:
        raise IllegalArgument("no data directory was given")
    check_one_node(found)
    cluster_id, node_id = next((str(meta.cluster_id), meta.node_id) for meta in found.values())
    return Node(cluster_id, node_id, {path: str(meta.directory_id) for path, meta in found.items()})


def _formatted(directory: str, fs: FileSystem) -> MetaProperties:
    """What a directory's meta.properties says, if a KRaft broker has it: it names its cluster, and the directory."""
    meta = read_meta_properties(directory, fs)
    if meta is None:
        raise IllegalArgument("the directory is not formatted for a broker", path=directory, hint=FORMAT_HINT)
    if meta.version != 1 or meta.directory_id is None:
        why = "directory.id is missing" if meta.version == 1 else "version 0 is that of a broker before KRaft"
        path = os.path.join(directory, META_PROPERTIES)
        raise CorruptCheckpoint(f"meta.properties is no KRaft broker's: {why}", path=path, hint=FORMAT_HINT)
    return meta


def find_metadata(dirs: Sequence[str], metadata_dir: str | None, fs: FileSystem) -> ClusterMetadata:
    """The broker's metadata: in `metadata_dir`, else in the one data directory that has it.

    IllegalArgument where there is none; errors as for `read_cluster_metadata`.
    """
    asked = [metadata_dir] if metadata_dir is not None else list(dict.fromkeys(dirs))
    found = [one for one in (read_cluster_metadata(path, fs=fs) for path in asked) if one is not None]
    if len(found) == 1:
        return found[0]
    if found:
        raise IllegalArgument(
            f"{found[1].path} has a broker's metadata too", path=found[0].path,
            hint="say with --metadata-dir which is in use: metadata.log.dir, else the first of log.dirs",
        )  # fmt: skip
    raise IllegalArgument(
        "there is no broker's metadata here: neither a metadata log nor a bootstrap.checkpoint",
        path=os.pathsep.join(asked),
        hint="give the broker's metadata.log.dir with --metadata-dir; a directory that is new: " + FORMAT_HINT,
    )
