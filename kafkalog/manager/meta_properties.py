"""Node and cluster of a data directory: `meta.properties` (format.md section 8, CKPT-9).

kafkalog needs no such file and writes none. It reads a broker's file: directories of two nodes are not opened together,
and a directory can be named by its id.
"""

from __future__ import annotations

import os
import re
from collections.abc import Mapping
from typing import Final, NamedTuple

from kafkalog.errors import CorruptCheckpoint, IllegalArgument
from kafkalog.storage.names import META_PROPERTIES
from kafkalog.storage.partition_metadata import ID_LENGTH
from kafkalog.util.fileio import OS, FileSystem
from kafkalog.util.os_errors import read_if_present
from kafkalog.util.properties import parse_properties

MAX_FILE_BYTES: Final = 1 << 20
_NUMBER: Final = re.compile(r"[0-9]{1,10}")
_ID: Final = re.compile(rf"[A-Za-z0-9_-]{{{ID_LENGTH}}}")
_HINT: Final = "a broker rejects the directory too: copy the ids from another directory of the same broker"


class MetaProperties(NamedTuple):
    """Contents of the file. Version 0 (before KRaft) has no directory id, and need not name its cluster."""

    version: int
    cluster_id: str | None
    node_id: int
    directory_id: str | None


def read_meta_properties(directory: str, fs: FileSystem = OS) -> MetaProperties | None:
    """Read a data directory's file; None if there is none. CorruptCheckpoint, StorageError."""
    path = os.path.join(directory, META_PROPERTIES)
    content = read_if_present(path, MAX_FILE_BYTES, "read the directory's ids", fs)
    if content is None:
        return None
    try:
        return parse_meta_properties(content)
    except ValueError as error:
        raise CorruptCheckpoint(f"malformed meta.properties: {error}", path=path, hint=_HINT) from None


def parse_meta_properties(content: bytes) -> MetaProperties:
    """Parse the file's content; ValueError names a missing or wrong value."""
    pairs = parse_properties(content)
    version = _required(pairs, "version")
    if version not in ("0", "1"):
        raise ValueError(f"version {ascii(version[:40])} is unknown, 0 and 1 are supported")
    name = "node.id" if version == "1" else "broker.id"
    number = _required(pairs, name)
    if not _NUMBER.fullmatch(number) or int(number) > 2**31 - 1:
        raise ValueError(f"{name} {ascii(number[:40])} is not a node id")
    cluster_id = _required(pairs, "cluster.id") if version == "1" else pairs.get("cluster.id")
    directory_id = pairs.get("directory.id")
    if directory_id is not None and not _ID.fullmatch(directory_id):
        raise ValueError(f"directory.id {ascii(directory_id[:40])} is not an id of {ID_LENGTH} characters")
    return MetaProperties(int(version), cluster_id, int(number), directory_id)


def _required(pairs: Mapping[str, str], name: str) -> str:
    value = pairs.get(name, "")
    if not value:
        raise ValueError(f"{name} is missing")
    return value


def check_one_node(found: Mapping[str, MetaProperties]) -> None:
    """Raise IllegalArgument unless the directories (by path) belong to one node and none is a copy of another."""
    items = list(found.items())
    for index, (path, meta) in enumerate(items):
        for other, its in items[:index]:
            identity = meta.cluster_id, meta.node_id
            if identity != (its.cluster_id, its.node_id) and None not in (meta.cluster_id, its.cluster_id):
                raise IllegalArgument(
                    f"it belongs to node {meta.node_id} of cluster {meta.cluster_id}, {other} to node {its.node_id} "
                    f"of cluster {its.cluster_id}",
                    path=path,
                    hint="open the directories of one node together",
                )
            if meta.directory_id is not None and meta.directory_id == its.directory_id:
                raise IllegalArgument(
                    f"{other} has the same directory.id", path=path, hint="one is a copy of the other: use only one"
                )
