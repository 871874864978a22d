"""The broker that data directories belong to, and the place of its metadata: `meta.properties` (format.md section 8).
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from typing import Final, NamedTuple

from kafkalog.errors import CorruptCheckpoint, IllegalArgument
from kafkalog.manager.cluster_metadata import ClusterMetadata, choose_metadata, read_cluster_metadata
from kafkalog.manager.meta_properties import MAX_FILE_BYTES, MetaProperties, check_one_node
from kafkalog.storage.names import BOOTSTRAP_FILE, META_PROPERTIES, METADATA_DIRECTORY
from kafkalog.storage.partition_metadata import check_topic_id
from kafkalog.util.fileio import FileSystem
from kafkalog.util.os_errors import read_if_present
from kafkalog.util.properties import parse_properties

FORMAT_HINT: Final = (
    "set log.dirs to it in the broker's server.properties and run "
    "kafka-storage.sh format --config server.properties --cluster-id ID (a new ID: kafka-storage.sh random-uuid); "
    "this leaves its partitions unchanged"
)


class Node(NamedTuple):
    """A broker: its cluster, its number, and the id of each of its data directories by path."""

    cluster_id: str
    node_id: int
    directory_ids: dict[str, str]


class Metadata(NamedTuple):
    """A broker's metadata, and its twins: bootstrap files in other data directories that it could begin with as well.

    Before 4.4 every data directory is formatted with one, and the broker begins with that of its metadata.log.dir.
    """

    main: ClusterMetadata
    twins: tuple[ClusterMetadata, ...]


def read_node(dirs: Sequence[str], fs: FileSystem) -> Node:
    """Return the broker that the data directories were formatted for.

    IllegalArgument if one is not formatted, or for another broker than the rest; CorruptCheckpoint, StorageError.
    """
    found = {directory: _read(directory, fs) for directory in dirs}
    if not found:
        raise IllegalArgument("no data directory was given")
    check_one_node(found)
    cluster_id, node_id = next((str(meta.cluster_id), meta.node_id) for meta in found.values())
    return Node(cluster_id, node_id, {path: str(meta.directory_id) for path, meta in found.items()})


def _read(directory: str, fs: FileSystem) -> MetaProperties:
    """Read a KRaft broker's file, which has its cluster id and the directory id."""
    path = os.path.join(directory, META_PROPERTIES)
    content = read_if_present(path, MAX_FILE_BYTES, "read the broker's ids", fs)
    if content is None:
        raise IllegalArgument("the directory is not formatted for a broker", path=directory, hint=FORMAT_HINT)
    pairs = parse_properties(content)
    try:
        if pairs["version"] != "1":
            raise ValueError(f"version {ascii(pairs['version'][:40])} is not 1, that of a KRaft broker")
        directory_id = check_topic_id(pairs["directory.id"])
        return MetaProperties(1, pairs["cluster.id"], _node_id(pairs["node.id"]), directory_id)
    except KeyError as error:
        reason = f"{error.args[0]} is missing"
    except (ValueError, IllegalArgument) as error:
        reason = str(error)
    hint = f"copy the ids from another directory of the same broker; without one, move the file away, {FORMAT_HINT}"
    raise CorruptCheckpoint(f"malformed meta.properties: {reason}", path=path, hint=hint)


def _node_id(text: str) -> int:
    if not (text.isascii() and text.isdigit() and int(text) < 2**31):
        raise ValueError(f"node.id {ascii(text[:40])} is not the number of a node")
    return int(text)


def find_metadata(dirs: Sequence[str], metadata_dir: str | None, fs: FileSystem) -> Metadata:
    """Return the broker's metadata: that of `metadata_dir`, else that of the data directory that is certain to have it.

    IllegalArgument if there is none, if `metadata_dir` is not the directory that the broker has used, or if it is not
    clear which of two it uses; errors as for `read_cluster_metadata`.
    """
    candidates = dict.fromkeys([*dirs, *([metadata_dir] if metadata_dir is not None else [])])
    found = {path: one for path in candidates if (one := read_cluster_metadata(path, fs=fs)) is not None}
    chosen = choose_metadata(list(found.values()))
    if metadata_dir is not None and chosen is not None and chosen.path != metadata_dir:
        given = found.get(metadata_dir)
        if given is None or given.rank < chosen.rank:
            raise IllegalArgument(
                f"the broker's metadata is in {chosen.path}, not here", path=metadata_dir,
                hint=f"give --metadata-dir {chosen.path}; if the broker's metadata.log.dir is really {metadata_dir}, "
                f"move {METADATA_DIRECTORY if chosen.rank else BOOTSTRAP_FILE} out of the other",
            )  # fmt: skip
        chosen = given
    if chosen is None:
        raise IllegalArgument(
            "there is no broker's metadata here: neither a metadata log nor a bootstrap file",
            path=os.pathsep.join(candidates),
            hint="give the broker's metadata.log.dir with --metadata-dir; for a new directory: " + FORMAT_HINT,
        )
    twins = (one for one in found.values() if one is not chosen and one.rank == chosen.rank == 0)
    return Metadata(chosen, tuple(twins))
