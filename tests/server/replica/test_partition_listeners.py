"""Listeners of a partition: its high watermark, its failure and its deletion."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from kafkalog.server.error_codes import ErrorCode
from kafkalog.types import TopicPartition
from tests.server.replica.partitions import T0, Replicas, consumer_params, make_batch, request_at, run


class Listener:
    """Keeps what a partition notifies it of; at offset 2 it fails."""

    def __init__(self) -> None:
        self.notifications: list[Any] = []

    def on_high_watermark(self, topic_partition: TopicPartition, offset: int) -> None:
        self.notifications.append(offset)
        if offset == 2:
            raise ValueError("a listener's own trouble")

    def on_failed(self, topic_partition: TopicPartition) -> None:
        self.notifications.append("failed")

    def on_deleted(self, topic_partition: TopicPartition) -> None:
        self.notifications.append("deleted")


def test_listeners_are_notified(tmp_path: Path) -> None:
    """PART-16."""
    async def body(replicas: Replicas) -> None:
        partition, listener = replicas.find(T0), Listener()
        assert partition.add_listener(listener)
        for _ in range(3):
            await replicas.produce(T0)
        later = Listener()
        assert partition.add_listener(later)
        replicas.append_now(T0, make_batch(2), "client")
        await replicas.delete_topic("t")
        assert listener.notifications == [1, 2, 3, 5, "deleted"] and later.notifications == [5, "deleted"]
        assert not partition.add_listener(listener)

    run(tmp_path, body)


def test_listeners_are_notified_of_a_disk_that_failed(tmp_path: Path) -> None:
    """PART-16."""
    async def body(replicas: Replicas) -> None:
        partition, listener = replicas.find(T0), Listener()
        partition.add_listener(listener)
        replicas.store.fail_directory(tmp_path, OSError(5, "the disk"))
        result = (await replicas.produce(T0))[T0]
        assert result.error_code == ErrorCode.KAFKA_STORAGE_ERROR and listener.notifications == ["failed"]
        [read] = await replicas.read(consumer_params(), [request_at(T0, 0)])
        assert read.error_code == ErrorCode.KAFKA_STORAGE_ERROR

    run(tmp_path, body)
