"""The offsets of groups that a directory keeps itself, in `__consumer_offsets`, for `kafkalog offsets`."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from kafkalog.server.groups.values import CommittedOffset
    from kafkalog.types import TopicPartition

_TOPIC: Final = "__consumer_offsets"
_CHUNK_BYTES: Final = 1 << 20

Committed = dict[tuple[str, str, int], "CommittedOffset"]


def committed_in(dirs: list[str]) -> Committed:
    """What groups have committed in these directories, by group, topic and partition. Nothing is changed.

    Offsets of transactions that are not over are left out.
    """
    from kafkalog.server.groups.replay import replay_log
    from kafkalog.storage.view import LogView
    from kafkalog.tools.directories import partitions

    found: Committed = {}
    for _, path in partitions(dirs, topic=_TOPIC):
        with LogView(path) as view:
            offsets = replay_log(view, _CHUNK_BYTES).offsets
        for group_id in offsets.groups():
            for (topic, partition), one in offsets.all_of(group_id).items():
                found[group_id, topic, partition] = one
    return found


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


def _home_of(dirs: list[str], group_id: str) -> str:
    """The partition that has a group's offsets. Directories need not have all: others may lie on other brokers."""
    from kafkalog.errors import UnknownTopicOrPartition
    from kafkalog.server.groups.replay import replay_log
    from kafkalog.storage.view import LogView
    from kafkalog.tools.directories import partitions

    for _, path in partitions(dirs, topic=_TOPIC):
        with LogView(path) as view:
            if replay_log(view, _CHUNK_BYTES).offsets.all_of(group_id):
                return path
    raise UnknownTopicOrPartition(f"no partition of {_TOPIC} here has group {ascii(group_id)}")
