"""The state of a node's processes: what a worker says of itself, and what all of them say together."""

from __future__ import annotations

import os
from collections.abc import Iterable
from typing import TYPE_CHECKING, Any

from kafkalog.errors import KafkalogError
from kafkalog.server.status.exposition import families
from kafkalog.types import TopicPartition
from kafkalog.util.prometheus import added, lines, sums_of

if TYPE_CHECKING:
    from kafkalog.manager.data_directory import DataDirectory
    from kafkalog.server.node.node import Node
    from kafkalog.server.workers.link import Message


def partitions_of(node: Node) -> list[tuple[Any, ...]]:
    """Return topic, number and the fields of a `PartitionStatus` of each partition in this process."""
    store = node.store
    return [(*key, *partition_row(node, key)) for key in (*store.logs, *store.problems)]


def partition_row(node: Node, key: TopicPartition) -> tuple[Any, ...]:
    """Return the fields of a `PartitionStatus` after the partition's number."""
    try:
        one = node.replicas.find(key)
        log = one.log
        return (
            log.log_start_offset, one.high_watermark, log.log_end_offset, one.leader_epoch, len(log.segments),
            log.size, "",
        )  # fmt: skip
    except KafkalogError as problem:
        return -1, -1, -1, -1, 0, 0, str(problem)


def disks_of(directories: Iterable[DataDirectory]) -> list[tuple[str, bool, int, int]]:
    """Return path, state, size and free bytes of each data directory."""
    return [_disk(one.path, one.is_online) for one in directories]


def _disk(path: str, is_online: bool) -> tuple[str, bool, int, int]:
    try:
        found = os.statvfs(path)
    except OSError:
        return path, False, 0, 0
    return path, is_online, found.f_frsize * found.f_blocks, found.f_frsize * found.f_bavail


async def metrics_of(node: Node) -> str:
    """Return the metrics of this process in Prometheus' text."""
    logs = "" if node.log_metrics is None else await node.run(node.log_metrics)
    return "".join(line for family in families(node.metrics) for line in lines(family)) + logs


class ProcessTotals:
    """The metrics of a node's processes as those of one. What a worker had counted stays when it ends.

    Counters of logs and stores are those of the process that has them, and begin again with it.
    """

    def __init__(self) -> None:
        self._last: dict[int, tuple[int, str]] = {}  # by worker: its process, and its counters at the last time
        self._ended = ""

    def text(self, own: str, workers: Iterable[Message]) -> str:
        """Return the sums of the main process and the workers that answered, and of what others had counted before."""
        texts, missing = [own], dict(self._last)
        for message in workers:
            number, process = message.values["number"], message.values["process"]
            text = message.body.decode()
            before = missing.pop(number, None)
            if before is not None and before[0] != process:
                self._ended = added([self._ended, before[1]])
            self._last[number] = process, sums_of(text)
            texts.append(text)
        return added([*texts, *(counters for _, counters in missing.values()), self._ended])
