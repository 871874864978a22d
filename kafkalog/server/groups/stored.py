"""Offsets of groups in a directory's own `__consumer_offsets`, without a running server."""

from __future__ import annotations

import time
from collections.abc import Sequence
from typing import TYPE_CHECKING, Final, NamedTuple

if TYPE_CHECKING:
    from kafkalog.backup.manifest import Offsets
    from kafkalog.errors import KafkalogError
    from kafkalog.server.groups.replay import Replay
    from kafkalog.server.groups.values import CommittedOffset
    from kafkalog.types import TopicPartition

_TOPIC: Final = "__consumer_offsets"
_PARTITIONS: Final = 50
_SETTINGS: Final = {"cleanup.policy": "compact", "compression.type": "producer", "segment.bytes": "104857600"}
"""A broker's default settings of the topic."""
_RECORDS_PER_APPEND: Final = 500
_SETTLE_S: Final = 0.05
"""Wait in seconds before an incomplete batch counts as damage: a writer may be about to finish it."""

Committed = dict[tuple[str, str, int], "CommittedOffset"]


class StoredGroups(NamedTuple):
    """Groups of data directories: committed offsets by group, topic and partition, and the damage found.

    `kinds` has "share" or "streams" for each group that only a broker serves. Of a damaged partition only records
    before the damage count.
    """

    committed: Committed
    kinds: dict[str, str]
    damage: list[KafkalogError]


def read_groups(dirs: list[str]) -> StoredGroups:
    """Return the groups stored in these directories; change nothing.

    Offsets of open transactions are left out.
    """
    from kafkalog.tools.directories import partitions

    found = StoredGroups({}, {}, [])
    for _, path in partitions(dirs, topic=_TOPIC):
        replay, error = _replay_of(path)
        for group_id in replay.offsets.groups():
            for (topic, partition), one in replay.offsets.all_of(group_id).items():
                found.committed[group_id, topic, partition] = one
        found.kinds.update({group_id: str(one.kind) for group_id, one in replay.kept_for_broker().items()})
        if error is not None:
            found.damage.append(error)
    return found


def _replay_of(path: str) -> tuple[Replay, KafkalogError | None]:
    """Return the groups of one partition, and the error that ended reading early, or None."""
    from kafkalog.errors import CorruptRecord, InvalidRecord
    from kafkalog.server.groups.replay import Replay, replay_log
    from kafkalog.storage.readonly.view import LogView

    replay = Replay()
    with LogView(path) as view:
        if view.damage is not None:  # a batch that a server is about to finish is no damage
            time.sleep(_SETTLE_S)
            view.refresh()
        try:
            replay_log(view, replay)
        except (CorruptRecord, InvalidRecord) as error:
            return replay, error
        return replay, view.damage


def committed_offsets(dirs: Sequence[str]) -> Offsets:
    """Return the committed offsets of groups, for the manifest; empty without `__consumer_offsets`."""
    return _by_group(read_groups(list(dirs)).committed)


def whole_offsets(dirs: Sequence[str]) -> Offsets:
    """Return what `committed_offsets` does; CorruptRecord for damage, behind which newer offsets may lie."""
    found = read_groups(list(dirs))
    for error in found.damage:
        error.hint = "newer offsets may lie behind it: repair the log of the groups, or continue without their offsets"
        raise error
    return _by_group(found.committed)


def _by_group(committed: Committed) -> Offsets:
    found: Offsets = {}
    for (group, topic, partition), one in committed.items():
        found.setdefault(group, {}).setdefault(topic, {})[partition] = one.offset
    return found


def commit_in(dirs: list[str], group_id: str, offsets: dict[TopicPartition, int], now_ms: int) -> None:
    """Commit offsets of a group, as a server would; no server may run on the directory.

    DirectoryLocked, StorageError.
    """
    import kafkalog

    records = [_record(group_id, topic, partition, offset, now_ms) for (topic, partition), offset in offsets.items()]
    with kafkalog.open(_partition_of_group(dirs, group_id), "a") as log:
        log.append(records)
        log.flush()


def _record(group_id: str, topic: str, partition: int, offset: int, now_ms: int) -> tuple[bytes, bytes | None, int]:
    """Return the record of a committed offset, as a server writes it, with its timestamp."""
    from kafkalog.server.groups.records import offset_record
    from kafkalog.server.groups.values import CommittedOffset

    key, value = offset_record(group_id, topic, partition, CommittedOffset(offset, -1, "", now_ms))
    return key, value, now_ms


def commit_all(directory: str, groups: Offsets) -> None:
    """Commit offsets of groups, as a server would, in a data directory that no process has open.

    The topic is created if missing, as a broker creates it. Raises UnknownTopicOrPartition if some of its partitions
    are elsewhere; IllegalState, after committing the other groups, if a broker has share or streams groups of some
    names; DirectoryLocked, StorageError.
    """
    import kafkalog
    from kafkalog.errors import IllegalState, UnknownTopicOrPartition
    from kafkalog.util.java_hash import partition_of

    now_ms = time.time_ns() // 1_000_000
    broker_groups = sorted(groups.keys() & read_groups([directory]).kinds.keys())
    with kafkalog.open_dirs(directory, "a") as dirs:
        if _TOPIC not in dirs.topics:
            dirs.create_topic(_TOPIC, _PARTITIONS, _SETTINGS)
        numbers = dirs.topics[_TOPIC].partitions
        if numbers != tuple(range(len(numbers))):
            raise UnknownTopicOrPartition(
                f"some partitions of {_TOPIC} are missing here, and groups are spread over all of them", path=directory,
                hint="commit the offsets with a client: `kafka-consumer-groups --reset-offsets`",
            )  # fmt: skip
        for group_id, found in groups.items():
            if group_id in broker_groups:
                continue
            log = dirs[_TOPIC, partition_of(group_id, len(numbers))]
            records = [
                _record(group_id, topic, partition, offset, now_ms)
                for topic, offsets in found.items()
                for partition, offset in offsets.items()
            ]
            for first in range(0, len(records), _RECORDS_PER_APPEND):
                log.append(records[first : first + _RECORDS_PER_APPEND])
            log.flush()
    if broker_groups:
        names = ", ".join(map(ascii, broker_groups))
        raise IllegalState(
            f"no offsets were committed for {names}: a broker has share or streams groups with these names",
            path=directory, hint="the partitions and the offsets of all other groups were written",
        )  # fmt: skip


def _partition_of_group(dirs: list[str], group_id: str) -> str:
    """Return the partition with a group's offsets; other partitions may be on other brokers."""
    from kafkalog.errors import UnknownTopicOrPartition
    from kafkalog.server.groups.replay import replay_log
    from kafkalog.storage.readonly.view import LogView
    from kafkalog.tools.directories import partitions

    for _, path in partitions(dirs, topic=_TOPIC):
        with LogView(path) as view:
            if replay_log(view).offsets.all_of(group_id):
                return path
    raise UnknownTopicOrPartition(f"no partition of {_TOPIC} here has group {ascii(group_id)}")
