"""A fetch that waits until enough data is available."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from kafkalog.errors import KafkalogError
from kafkalog.server.replica.partition import Partition
from kafkalog.server.replica.purgatory import DelayedOperation
from kafkalog.server.replica.results import FetchParams, FetchPartition
from kafkalog.types import LogOffsetMetadata, TopicPartition

FindPartition = Callable[[TopicPartition], Partition]
Waiting = tuple[FetchPartition, LogOffsetMetadata]
"""Request for a partition, and the place where its read began; offset -1 means that the place is unknown."""


class DelayedFetch(DelayedOperation):
    """A fetch waiting until `min_bytes` have arrived since its request (FLOW-13); `respond` then reads again."""

    __slots__ = ("_find", "_params", "_respond", "_waiting")

    def __init__(
        self,
        params: FetchParams,
        waiting: Sequence[Waiting],
        find: FindPartition,
        respond: Callable[[], object],
    ) -> None:
        super().__init__(params.max_wait_ms)
        self._params = params
        self._waiting = waiting
        self._find = find
        self._respond = respond

    def try_complete(self) -> bool:
        gathered = 0
        for asked, place in self._waiting:
            if place.message_offset < 0:
                continue
            try:
                available = self._available(asked, place)
            except KafkalogError:  # deleted, offline, led by another node, or of another epoch
                available = None
            if available is None:
                return self.force_complete()
            gathered += available
            if gathered >= self._params.min_bytes:
                return self.force_complete()
        return False

    def on_complete(self) -> None:
        self._respond()

    def let_go(self) -> None:
        self._waiting = ()

    def _available(self, asked: FetchPartition, place: LogOffsetMetadata) -> int | None:
        """Return the bytes that can be read from `place` on, or None if the fetch must be answered now."""
        partition = self._find(asked.topic_partition)
        partition.check_topic_id(asked.topic_id)
        partition.check_epoch(asked.current_leader_epoch, self._params.only_leader)
        end = partition.log.readable_end(self._params.isolation)
        available = 0
        if place.message_offset > end.message_offset:  # the log was truncated
            return None
        if place.message_offset < end.message_offset and not (place.message_offset_only or end.message_offset_only):
            if place.on_older_segment(end):
                return None
            if place.on_same_segment(end):
                available = min(end.position_diff(place), asked.max_bytes)
        return None if partition.diverges(asked) else available
