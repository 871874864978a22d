"""Check of a data directory: its checkpoints against the starts and ends of the logs."""

from __future__ import annotations

import os
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final

from kafkalog.errors import NotAPartition
from kafkalog.manager.log_dir import is_locked
from kafkalog.storage.names import (
    CLEAN_SHUTDOWN_FILE,
    DELETE_DIR_SUFFIX,
    FUTURE_DIR_SUFFIX,
    LOCK_FILE,
    NOT_PARTITIONS,
    parse_dir,
)
from kafkalog.tools.directories import partitions
from kafkalog.tools.verify.job import State
from kafkalog.tools.verify.partition import PartitionOutcome
from kafkalog.tools.verify.report import Findings, Severity
from kafkalog.tools.verify.small_files import (
    check_meta_properties,
    check_offsets,
    check_quorum_state,
    compare_topic_ids,
)
from kafkalog.types import TopicPartition
from kafkalog.util.checkpoint import CLEANER_OFFSET_FILE, HIGH_WATERMARK_FILE, LOG_START_FILE, RECOVERY_POINT_FILE
from kafkalog.util.fileio import FileSystem
from kafkalog.util.os_errors import list_names

METADATA_LOG: Final = "__cluster_metadata-0"
BOOTSTRAP_FILE: Final = "bootstrap.checkpoint"
LOST_END_HINT: Final = (
    "restore the end of the log from a replica or a backup; `kafkalog repair --checkpoints --apply` of the data "
    "directory adjusts the file to the log"
)
_PARTITION_NAME: Final = re.compile(r".+-[0-9]+\Z")


@dataclass
class Checkpoints:
    """The offset checkpoints of a data directory, as they were before its logs were read."""

    recovery_point: Mapping[TopicPartition, int] = field(default_factory=dict)
    log_start: Mapping[TopicPartition, int] = field(default_factory=dict)
    high_watermark: Mapping[TopicPartition, int] = field(default_factory=dict)
    cleaner: Mapping[TopicPartition, int] = field(default_factory=dict)


def state_of(directory: str, fs: FileSystem) -> State:
    """Return the state of a data directory: in use now or not, and closed cleanly or not."""
    return State(is_locked(directory, fs=fs), was_closed_cleanly(directory, fs))


def was_closed_cleanly(directory: str, fs: FileSystem) -> bool:
    """Return True if the data directory has the clean-shutdown marker."""
    try:
        return fs.exists(os.path.join(directory, CLEAN_SHUTDOWN_FILE))
    except OSError:
        return False


def read_checkpoints(directory: str, findings: Findings | None, fs: FileSystem) -> Checkpoints:
    """Read the four offset checkpoints; malformed ones count as empty and are reported to `findings`, if given."""
    files = (RECOVERY_POINT_FILE, LOG_START_FILE, HIGH_WATERMARK_FILE, CLEANER_OFFSET_FILE)
    return Checkpoints(*(check_offsets(os.path.join(directory, name), findings, fs) for name in files))


def list_partitions(directory: str, findings: Findings, fs: FileSystem) -> list[str]:
    """Return the names of the partition directories to check, sorted; StorageError.

    Directories pending deletion, stray ones and those that are no partition's are a note.
    """
    found = []
    for name in list_names(directory, fs):
        if name == LOCK_FILE or name in NOT_PARTITIONS and name != METADATA_LOG:
            continue  # a backup has a directory in place of the lock file
        path = os.path.join(directory, name)
        if not fs.is_directory(path):
            continue
        try:
            kind = parse_dir(name).kind
        except NotAPartition:
            what = "this directory is no partition's, so it is not checked"
            if stops_a_broker(name):
                what += "; a broker does not start until it is moved away"
            findings.add(Severity.NOTE, "foreign", what, path=path)
            continue
        if kind in ("", FUTURE_DIR_SUFFIX):
            found.append(name)
        else:
            what = "it is pending deletion" if kind == DELETE_DIR_SUFFIX else "no broker owns it"
            findings.add(Severity.NOTE, "in-transit", f"{what}, so it is not checked", path=path)
    return found


def stops_a_broker(name: str) -> bool:
    """Return True if a broker does not start with a directory of this name in its data directory.

    The broker only asks for a name of the form <topic>-<number>, and does not check the topic's characters.
    """
    if name in NOT_PARTITIONS:
        return False
    try:
        parse_dir(name)
    except NotAPartition:
        return _PARTITION_NAME.match(name) is None
    return False


def check_directory_files(directory: str, state: State, findings: Findings, fs: FileSystem) -> None:
    """Report faults in the directory's own files, except its offset checkpoints."""
    check_meta_properties(directory, findings, fs)
    check_quorum_state(os.path.join(directory, METADATA_LOG), findings, fs)
    compare_topic_ids(partitions([directory], fs=fs), findings, fs)
    if not state.is_clean and not state.is_live:
        findings.add(
            Severity.NOTE, "unclean",
            f"it was not closed cleanly (no {CLEAN_SHUTDOWN_FILE}): the next open recovers it",
        )  # fmt: skip


def check_missing_partitions(
    directory: str, checkpoints: Checkpoints, findings: Findings, fs: FileSystem
) -> None:
    """Report partitions that had records on disk, and whose directories are missing, as a note: they may be elsewhere.
    """
    present = set()
    for name in list_names(directory, fs):
        try:
            present.add(parse_dir(name).topic_partition)
        except NotAPartition:
            continue
    for topic_partition, offset in sorted(checkpoints.recovery_point.items()):
        if offset > 0 and topic_partition not in present:
            findings.add(
                Severity.NOTE, "partition-missing",
                f"{topic_partition} was on disk up to offset {offset}, but its directory is missing",
                path=os.path.join(directory, RECOVERY_POINT_FILE),
            )  # fmt: skip


def compare_with_log(
    directory: str, name: str, outcome: PartitionOutcome, checkpoints: Checkpoints, findings: Findings
) -> None:
    """Report checkpoints with offsets that a partition's log no longer has."""
    end = outcome.end_offset
    if end is None or name == METADATA_LOG:
        return
    try:
        topic_partition, kind = parse_dir(name)
    except NotAPartition:
        return
    if kind:
        return
    for file, offsets, severity, what in (
        (RECOVERY_POINT_FILE, checkpoints.recovery_point, Severity.DAMAGE, "was on disk up to offset {}"),
        (HIGH_WATERMARK_FILE, checkpoints.high_watermark, Severity.DAMAGE, "was replicated up to offset {}"),
        (LOG_START_FILE, checkpoints.log_start, Severity.DAMAGE, "starts at offset {}"),
        (CLEANER_OFFSET_FILE, checkpoints.cleaner, Severity.NOTE, "was cleaned up to offset {}"),
    ):
        offset = offsets.get(topic_partition, -1)
        if offset > end:
            findings.add(
                severity, "log-end", f"{name} {what.format(offset)}, but its log ends at {end}: batches are missing",
                path=os.path.join(directory, file), offset=end, hint=LOST_END_HINT,
            )  # fmt: skip
