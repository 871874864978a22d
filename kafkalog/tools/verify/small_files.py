"""Check of the small files: producer snapshots, leader epochs, topic id, and the data directory's checkpoints."""

from __future__ import annotations

import json
import os
import re
from collections import Counter
from collections.abc import Iterable
from contextlib import suppress
from typing import Final

from kafkalog.errors import CorruptCheckpoint, CorruptSnapshot, StorageError
from kafkalog.storage.leader_epoch import EpochEntry, read_epochs
from kafkalog.storage.names import LEADER_EPOCH_CHECKPOINT, META_PROPERTIES, PARTITION_METADATA, parse_base_offset
from kafkalog.storage.partition_metadata import read_partition_metadata
from kafkalog.storage.producer_snapshot import read_snapshot
from kafkalog.tools.directories import PartitionPath
from kafkalog.tools.verify.report import Findings, Severity
from kafkalog.types import TopicPartition
from kafkalog.util.checkpoint import OffsetCheckpoint
from kafkalog.util.fileio import FileSystem
from kafkalog.util.properties import parse_properties

MAX_PROPERTIES_BYTES: Final = 1 << 20
_NODE_ID: Final = re.compile(r"[+-]?[0-9]{1,10}\Z")
_UUID: Final = re.compile(r"[A-Za-z0-9_-]{22}\Z")
_SNAPSHOT_HINT: Final = (
    "`kafkalog repair --checkpoints --apply` removes it, as recovery does: an older one and the log have the same state"
)


def unreadable(findings: Findings, error: StorageError, path: str) -> None:
    """Report that the system refused to read `path`."""
    findings.add(Severity.UNREADABLE, "unreadable", error.message, path=error.path or path, hint=error.hint)


def check_snapshot(
    path: str, end_offset: int | None, findings: Findings, fs: FileSystem, *, is_clean: bool = False
) -> None:
    """Report faults in a producer snapshot; `end_offset` is the log's end, None if that is not certain.

    In a directory that was closed cleanly (`is_clean`) a snapshot above the end is only a note: a truncation inside a
    batch removes the whole batch and leaves a snapshot of the requested offset, in the reference too. Checkpoints show
    a lost end.
    """
    offset = parse_base_offset(path)

    def add(kind: str, what: str) -> None:
        findings.add(Severity.REPAIRABLE, kind, what, path=path, offset=offset, hint=_SNAPSHOT_HINT)

    try:
        producers = read_snapshot(path, fs=fs)
    except CorruptSnapshot as error:
        add("snapshot", error.message)
        return
    except StorageError as error:
        if not isinstance(error.__cause__, FileNotFoundError):
            unreadable(findings, error, path)
        return
    if offset is None:
        return
    if end_offset is not None and offset > end_offset:
        what = f"it is for offset {offset}, but the log ends at {end_offset}"
        severity = Severity.NOTE if is_clean else Severity.REPAIRABLE
        findings.add(severity, "snapshot-ahead", what, path=path, offset=offset, hint=_SNAPSHOT_HINT)
    for producer in producers:
        if producer.last_offset >= offset or producer.current_txn_first_offset >= offset:
            add("snapshot-entry", f"producer {producer.producer_id} has offsets above the snapshot's own")
            return


def check_epochs(directory: str, findings: Findings, fs: FileSystem) -> tuple[EpochEntry, ...] | None:
    """Return the leader epochs of the checkpoint; None if it is missing, or malformed, which is reported."""
    try:
        found = read_epochs(directory, fs=fs)
        return found if found or fs.exists(os.path.join(directory, LEADER_EPOCH_CHECKPOINT)) else None
    except CorruptCheckpoint as error:
        _malformed(findings, error)
    except StorageError as error:
        unreadable(findings, error, directory)
    return None


def check_topic_id(directory: str, findings: Findings, fs: FileSystem) -> None:
    """Report a malformed `partition.metadata`."""
    try:
        read_partition_metadata(fs, directory)
    except CorruptCheckpoint as error:
        _malformed(findings, error)
    except StorageError as error:
        unreadable(findings, error, directory)


def compare_topic_ids(partitions: Iterable[PartitionPath], findings: Findings, fs: FileSystem) -> None:
    """Report partitions whose topic id differs from that of most of the topic, or of its first partition."""
    ids: dict[str, dict[str, str]] = {}
    for key, path in partitions:
        with suppress(CorruptCheckpoint, StorageError):  # reported with the partition's files
            found = read_partition_metadata(fs, path)
            if found is not None:
                ids.setdefault(key.topic, {})[path] = found
    for topic, id_of in ids.items():
        ours = Counter(id_of.values()).most_common(1)[0][0]  # the first one of as many
        for path, found in id_of.items():
            if found != ours:
                findings.add(
                    Severity.DAMAGE, "topic-id", f"the topic id is {found}, but most partitions of {topic} have {ours}",
                    path=os.path.join(path, PARTITION_METADATA),
                    hint="if it belongs to another topic of that name, move it away: a broker sets it aside",
                )  # fmt: skip


def check_offsets(path: str, findings: Findings | None, fs: FileSystem) -> dict[TopicPartition, int]:
    """Return the offsets of a data directory's checkpoint; none for a malformed one, which is reported."""
    try:
        return OffsetCheckpoint(path, fs=fs).read()
    except CorruptCheckpoint as error:
        if findings is not None:
            _malformed(findings, error)
    except StorageError as error:
        if findings is not None:
            unreadable(findings, error, path)
    return {}


def _malformed(findings: Findings, error: CorruptCheckpoint) -> None:
    findings.add(Severity.DAMAGE, "checkpoint", error.message, path=error.path, hint=error.hint)


def check_meta_properties(directory: str, findings: Findings, fs: FileSystem) -> None:
    """Report faults in a `meta.properties` (format.md section 8); a missing one is no fault."""
    path = os.path.join(directory, META_PROPERTIES)
    try:
        content = fs.read_file(path, MAX_PROPERTIES_BYTES)
    except FileNotFoundError:
        return
    except OSError as error:
        unreadable(findings, StorageError.from_os(error, "read", path=path), path)
        return
    for what in _properties_faults(content):
        findings.add(
            Severity.DAMAGE, "meta-properties", what, path=path,
            hint="a broker refuses the directory: take the ids from another directory of the same broker",
        )  # fmt: skip


def check_quorum_state(directory: str, findings: Findings, fs: FileSystem) -> None:
    """Report a malformed `quorum-state` of the metadata log; a missing one is no fault."""
    path = os.path.join(directory, "quorum-state")
    try:
        state = json.loads(fs.read_file(path, MAX_PROPERTIES_BYTES).partition(b"\n")[0])
        is_sound = isinstance(state, dict) and "data_version" in state
    except FileNotFoundError:
        return
    except OSError as error:
        unreadable(findings, StorageError.from_os(error, "read", path=path), path)
        return
    except (ValueError, RecursionError):
        is_sound = False
    if not is_sound:
        findings.add(
            Severity.DAMAGE, "checkpoint", "malformed quorum-state: a JSON object with data_version is expected",
            path=path, hint="a broker does not start on it; move it away, the broker writes it again",
        )  # fmt: skip


def _properties_faults(content: bytes) -> Iterable[str]:
    pairs = parse_properties(content)
    version = pairs.get("version")
    if version not in ("0", "1"):
        yield f"version {ascii(version[:40])} is unknown, 0 and 1 are known" if version else "the version is missing"
        return
    id_name = "broker.id" if version == "0" else "node.id"
    if not _NODE_ID.match(pairs.get(id_name, "")):
        yield f"{id_name} is missing or not a number"
    if version == "1" and not pairs.get("cluster.id"):
        yield "cluster.id is missing"
    if "directory.id" in pairs and not _UUID.match(pairs["directory.id"]):
        yield f"directory.id {ascii(pairs['directory.id'][:40])} is not an id of 22 characters"
