"""The offsets of groups that a directory keeps itself, in `__consumer_offsets`, for `kafkalog offsets`."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Any, Final

from kafkalog.cli.common import SETTLE_S

if TYPE_CHECKING:
    from kafkalog.backup.manifest import Offsets
    from kafkalog.errors import KafkalogError
    from kafkalog.server.groups.offsets import GroupOffsets
    from kafkalog.server.groups.values import CommittedOffset
    from kafkalog.types import TopicPartition

_TOPIC: Final = "__consumer_offsets"
_PARTITIONS: Final = 50
_SETTINGS: Final = {"cleanup.policy": "compact", "compression.type": "producer", "segment.bytes": "104857600"}
"""What a broker makes the topic with, unless it is told otherwise."""
_AT_ONCE: Final = 500

Committed = dict[tuple[str, str, int], "CommittedOffset"]


def committed_in(dirs: list[str]) -> tuple[Committed, list[KafkalogError]]:
    """What groups have committed in these directories, by group, topic and partition, and the damage that was met.

    Of a partition with damage it is what lies before that. Offsets of transactions that are not over are left out.
    Nothing is changed.
    """
    from kafkalog.tools.directories import partitions

    found: Committed = {}
    damage: list[KafkalogError] = []
    for _, path in partitions(dirs, topic=_TOPIC):
        offsets, error = _offsets_in(path)
        for group_id in offsets.groups():
            for (topic, partition), one in offsets.all_of(group_id).items():
                found[group_id, topic, partition] = one
        if error is not None:
            damage.append(error)
    return found, damage


def _offsets_in(path: str) -> tuple[GroupOffsets, KafkalogError | None]:
    """The offsets of one partition, and what ended them before its end."""
    from kafkalog.errors import CorruptRecord, InvalidRecord
    from kafkalog.server.groups.replay import Replay, replay_log
    from kafkalog.storage.view import LogView

    replay = Replay()
    with LogView(path) as view:
        if view.damage is not None:  # what a server is about to finish is none
            time.sleep(SETTLE_S)
            view.refresh()
        try:
            replay_log(view, replay)
        except (CorruptRecord, InvalidRecord) as error:
            return replay.offsets, error
        return replay.offsets, view.damage


def commit_in(dirs: list[str], group_id: str, offsets: dict[TopicPartition, int], now_ms: int) -> None:
    """Commits offsets of a group, as a server would; none may run on the directory.

    DirectoryLocked, StorageError.
    """
    import kafkalog
    from kafkalog.server.groups.records import offset_record
    from kafkalog.server.groups.values import CommittedOffset

    path = _home_of(dirs, group_id)
    records: list[Any] = []
    for (topic, partition), offset in offsets.items():
        key, value = offset_record(group_id, topic, partition, CommittedOffset(offset, -1, "", now_ms))
        records.append((key, value, now_ms))
    with kafkalog.open(path, "a") as log:
        log.append(records)
        log.flush()


def commit_all(directory: str, groups: Offsets) -> None:
    """Commits offsets of groups, as a server would, in a data directory that nobody has open.

    The topic is made where it is missing, as a broker makes it. UnknownTopicOrPartition where others have partitions of
    it; DirectoryLocked, StorageError.
    """
    import kafkalog
    from kafkalog.errors import UnknownTopicOrPartition
    from kafkalog.server.groups.records import offset_record
    from kafkalog.server.groups.values import CommittedOffset
    from kafkalog.util.java_hash import partition_of

    now_ms = time.time_ns() // 1_000_000
    with kafkalog.open_dirs(directory, "a") as dirs:
        if _TOPIC not in dirs.topics:
            dirs.create_topic(_TOPIC, _PARTITIONS, _SETTINGS)
        numbers = dirs.topics[_TOPIC].partitions
        if numbers != tuple(range(len(numbers))):
            raise UnknownTopicOrPartition(
                f"not all partitions of {_TOPIC} are here, which groups are spread over", path=directory,
                hint="commit the offsets by a client: `kafka-consumer-groups --reset-offsets`",
            )  # fmt: skip
        for group_id, found in groups.items():
            log = dirs[_TOPIC, partition_of(group_id, len(numbers))]
            records: list[Any] = []
            for topic, offsets in found.items():
                for partition, offset in offsets.items():
                    one = CommittedOffset(offset, -1, "", now_ms)
                    records.append((*offset_record(group_id, topic, partition, one), now_ms))
            for first in range(0, len(records), _AT_ONCE):
                log.append(records[first : first + _AT_ONCE])
            log.flush()


def _home_of(dirs: list[str], group_id: str) -> str:
    """The partition that has a group's offsets. Directories need not have all: others may lie on other brokers."""
    from kafkalog.errors import UnknownTopicOrPartition
    from kafkalog.server.groups.replay import replay_log
    from kafkalog.storage.view import LogView
    from kafkalog.tools.directories import partitions

    for _, path in partitions(dirs, topic=_TOPIC):
        with LogView(path) as view:
            if replay_log(view).offsets.all_of(group_id):
                return path
    raise UnknownTopicOrPartition(f"no partition of {_TOPIC} here has group {ascii(group_id)}")
