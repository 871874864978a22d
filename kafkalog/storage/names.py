"""File and directory names of a partition directory (format.md §7, §9).

A segment's files carry its base offset in 20 digits; a partition's directory is `<topic>-<partition>`. Every
external name passes `validate_topic` or a parser here before it becomes a path.
"""

from __future__ import annotations

import os
import re
from typing import Final, NamedTuple

from kafkalog.errors import IllegalArgument, InvalidTopic, NotAPartition
from kafkalog.types import TopicPartition

INTERNAL_TOPICS: Final = frozenset({"__consumer_offsets", "__transaction_state", "__share_group_state"})
"""Topics in which brokers keep the state of groups and transactions."""
LOG_SUFFIX: Final = ".log"
INDEX_SUFFIX: Final = ".index"
TIME_INDEX_SUFFIX: Final = ".timeindex"
TXN_INDEX_SUFFIX: Final = ".txnindex"
INDEX_SUFFIXES: Final = (INDEX_SUFFIX, TIME_INDEX_SUFFIX, TXN_INDEX_SUFFIX)
SNAPSHOT_SUFFIX: Final = ".snapshot"
DELETED_SUFFIX: Final = ".deleted"
CLEANED_SUFFIX: Final = ".cleaned"
SWAP_SUFFIX: Final = ".swap"
CHECKPOINT_DELETED_SUFFIX: Final = ".checkpoint.deleted"
"""A KRaft snapshot pending deletion; the loader ignores it."""

LEADER_EPOCH_CHECKPOINT: Final = "leader-epoch-checkpoint"
PARTITION_METADATA: Final = "partition.metadata"
CLEAN_SHUTDOWN_FILE: Final = ".kafka_cleanshutdown"
RESTORE_STAGING: Final = "kafkalog-restore.partial"
"""Directory in a data directory with restored partitions that are not complete."""
LOCK_FILE: Final = ".lock"
META_PROPERTIES: Final = "meta.properties"

DELETE_DIR_SUFFIX: Final = "-delete"
FUTURE_DIR_SUFFIX: Final = "-future"
STRAY_DIR_SUFFIX: Final = "-stray"
METADATA_DIRECTORY: Final = "__cluster_metadata-0"
BOOTSTRAP_FILE: Final = "bootstrap.checkpoint"
BOOTSTRAP_SNAPSHOT: Final = f"{0:020d}-{0:010d}.checkpoint"
"""Snapshot written by formatting to the metadata directory: voters, from Kafka 4.4 on also `BOOTSTRAP_FILE` data."""
NOT_PARTITIONS: Final = frozenset({"remote-log-index-cache", METADATA_DIRECTORY})
"""Directories in a data directory that are not partitions."""

MAX_TOPIC_LENGTH: Final = 249
MAX_NAME_LENGTH: Final = 255
MAX_OFFSET: Final = 2**63 - 1
MAX_PARTITION: Final = 2**31 - 1
OFFSET_DIGITS: Final = 20

_TOPIC: Final = re.compile(r"[a-zA-Z0-9._-]+\Z")
_SUFFIXED: Final = re.compile(r"(?P<live>.+)\.(?P<id>[^.]*)(?P<suffix>-delete|-future|-stray)\Z", re.DOTALL)
_PARTITION: Final = re.compile(r"\+?[0-9]{1,255}\Z")
_BASE_OFFSET: Final = re.compile(r"[0-9]{1,20}\Z")


class PartitionDir(NamedTuple):
    """A parsed name of a partition directory; `kind` is "", "-delete", "-future" or "-stray"."""

    topic_partition: TopicPartition
    kind: str


def base_name(base_offset: int) -> str:
    """Return the offset in 20 digits, so that names sort in offset order."""
    if not 0 <= base_offset <= MAX_OFFSET:
        raise IllegalArgument(f"a base offset must be in 0 ... 2^63-1, got {base_offset}", offset=base_offset)
    return f"{base_offset:020d}"


def log_file_name(base_offset: int, suffix: str = "") -> str:
    """Return `<20 digits>.log` and the suffix of a file in transit (".deleted", ".cleaned", ".swap")."""
    return base_name(base_offset) + LOG_SUFFIX + suffix


def index_file_name(base_offset: int, suffix: str = "") -> str:
    """Return `<20 digits>.index` and the suffix."""
    return base_name(base_offset) + INDEX_SUFFIX + suffix


def time_index_file_name(base_offset: int, suffix: str = "") -> str:
    """Return `<20 digits>.timeindex` and the suffix."""
    return base_name(base_offset) + TIME_INDEX_SUFFIX + suffix


def txn_index_file_name(base_offset: int, suffix: str = "") -> str:
    """Return `<20 digits>.txnindex` and the suffix."""
    return base_name(base_offset) + TXN_INDEX_SUFFIX + suffix


def snapshot_file_name(offset: int) -> str:
    """Return `<20 digits>.snapshot`, the name of the producers' state before that offset."""
    return base_name(offset) + SNAPSHOT_SUFFIX


def parse_base_offset(name: str | os.PathLike[str]) -> int | None:
    """Return the offset before the first dot of a file's name (1 to 20 digits); None if there is none."""
    if type(name) is str and name[OFFSET_DIGITS : OFFSET_DIGITS + 1] == "." and name.isascii():
        digits = name[:OFFSET_DIGITS]  # the common case: a segment's file without a directory
        if digits.isdigit():
            offset = int(digits)
            return offset if offset <= MAX_OFFSET else None
    digits = os.path.basename(os.fspath(name)).partition(".")[0]
    if not _BASE_OFFSET.match(digits):
        return None
    offset = int(digits)
    return offset if offset <= MAX_OFFSET else None


def is_log_file(name: str) -> bool:
    """Return True for a segment's live data file: `<digits>.log` without further suffix."""
    return name.endswith(LOG_SUFFIX) and parse_base_offset(name) is not None


def is_index_file(name: str) -> bool:
    """Return True for a segment's live `.index`, `.timeindex` or `.txnindex`."""
    return name.endswith(INDEX_SUFFIXES) and parse_base_offset(name) is not None


def lacks_base_offset(name: str) -> bool:
    """Return True for the suffix of a segment's file without a base offset; a broker does not start with it."""
    return name.endswith((LOG_SUFFIX, *INDEX_SUFFIXES, SNAPSHOT_SUFFIX)) and parse_base_offset(name) is None


def validate_topic(name: str) -> str:
    """Return the name if it is a legal topic name.

    InvalidTopic unless it is 1 to 249 characters of a-z A-Z 0-9 . _ -, and for "." and ".." (format.md §9). A topic
    name therefore never holds a separator and never leaves its directory. TypeError for anything but str.
    """
    if not isinstance(name, str):
        raise TypeError(f"a topic name must be a str, got {type(name).__name__}")
    shown = ascii(name if len(name) <= 60 else name[:57] + "...")
    rule = "use 1 to 249 of the characters a-z A-Z 0-9 . _ -"
    if not name:
        raise InvalidTopic("the topic name is empty", hint=rule)
    if name in (".", ".."):
        raise InvalidTopic(f"the topic name must not be {shown}: it would name another directory", hint=rule)
    if len(name) > MAX_TOPIC_LENGTH:
        raise InvalidTopic(f"the topic name {shown} is {len(name)} characters long, at most 249", hint=rule)
    if not _TOPIC.match(name):
        bad = sorted({char for char in name if not _TOPIC.match(char)})
        shown_bad = " ".join(ascii(char) for char in bad[:5])
        raise InvalidTopic(f"the topic name {shown} has characters that are not allowed: {shown_bad}", hint=rule)
    return name


def validate_partition(number: int) -> int:
    """Return the number if it is in 0 ... 2^31-1; IllegalArgument otherwise."""
    if isinstance(number, bool) or not isinstance(number, int):
        raise TypeError(f"a partition must be an int, got {type(number).__name__}")
    if not 0 <= number <= MAX_PARTITION:
        raise IllegalArgument(f"a partition must be in 0 ... 2^31-1, got {number}")
    return number


def collides_with(name: str, other: str) -> bool:
    """Return True for different topics whose names are equal after replacing each "." by "_" (metric names)."""
    return name != other and metric_name(name) == metric_name(other)


def metric_name(topic: str) -> str:
    """Return a topic's name as used in metric names, in which no two topics may collide."""
    return topic.replace(".", "_")


def partition_dir_name(topic_partition: TopicPartition) -> str:
    """Return `<topic>-<partition>` after validating both parts."""
    return f"{validate_topic(topic_partition.topic)}-{validate_partition(topic_partition.partition)}"


def delete_dir_name(topic_partition: TopicPartition) -> str:
    """Return a unique name for a directory pending deletion, at most 255 characters (the topic is shortened)."""
    return _cut_name(topic_partition, DELETE_DIR_SUFFIX)


def stray_dir_name(topic_partition: TopicPartition) -> str:
    """Return a unique name for a directory without an owner, at most 255 characters (the topic is shortened)."""
    return _cut_name(topic_partition, STRAY_DIR_SUFFIX)


def future_dir_name(topic_partition: TopicPartition) -> str:
    """Return a unique name for a replica moving in from another data directory (never shortened)."""
    return f"{partition_dir_name(topic_partition)}.{_fresh_id()}{FUTURE_DIR_SUFFIX}"


def _fresh_id() -> str:
    from uuid import uuid4

    return uuid4().hex


def _cut_name(topic_partition: TopicPartition, suffix: str) -> str:
    tail = f"-{validate_partition(topic_partition.partition)}.{_fresh_id()}{suffix}"
    return validate_topic(topic_partition.topic)[: MAX_NAME_LENGTH - len(tail)] + tail


def parse_dir(name: str) -> PartitionDir:
    """Parse the name of a partition directory, including its kind.

    For the suffixed kinds the part after the last dot is removed first; then the name is split at the last dash
    (format.md §9). NotAPartition: a suffix without `.<id>`, no dash, an empty topic, no number, or an illegal topic
    (a parsed name is always safe to join to a path).
    """
    live, kind = name, ""
    suffixed = _SUFFIXED.match(name)
    if suffixed:
        live, kind = suffixed["live"], suffixed["suffix"]
    elif name.endswith((DELETE_DIR_SUFFIX, FUTURE_DIR_SUFFIX, STRAY_DIR_SUFFIX)):
        raise _not_a_partition(name, "it ends in -delete, -future or -stray without '.<id>' before that")
    topic, dash, number = live.rpartition("-")
    if not dash or not topic:
        raise _not_a_partition(name, "it does not begin with '<topic>-'")
    if not _PARTITION.match(number) or int(number) > MAX_PARTITION:
        raise _not_a_partition(name, f"{ascii(number)} is not a partition number")
    try:
        return PartitionDir(TopicPartition(validate_topic(topic), int(number)), kind)
    except InvalidTopic as error:
        raise _not_a_partition(name, error.message) from None


def parse_topic_partition_dir(name: str) -> TopicPartition:
    """Return the partition whose directory (live, deleted, stray or future) has this name.

    NotAPartition as for `parse_dir`.
    """
    return parse_dir(name).topic_partition


def _not_a_partition(name: str, reason: str) -> NotAPartition:
    return NotAPartition(
        f"{ascii(name)} is not a partition directory: {reason}",
        hint="a partition directory is named <topic>-<number>",
    )
