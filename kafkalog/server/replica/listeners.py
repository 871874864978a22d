"""Listeners of a partition, notified of its high watermark, failure and deletion."""

from __future__ import annotations

from typing import Protocol

from kafkalog.types import TopicPartition


class Listener(Protocol):
    """Receiver of a partition's notifications, called on the loop. None follow after `on_deleted`."""

    def on_high_watermark(self, topic_partition: TopicPartition, offset: int) -> object: ...
    def on_failed(self, topic_partition: TopicPartition) -> object: ...
    def on_deleted(self, topic_partition: TopicPartition) -> object: ...
