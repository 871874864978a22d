"""A fetch that waits for data."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from kafkalog.errors import KafkalogError
from kafkalog.server.replica.partition import Partition
from kafkalog.server.replica.purgatory import DelayedOperation
from kafkalog.server.replica.reading import HeldBack
from kafkalog.server.replica.results import FetchParams, FetchPartition
from kafkalog.types import LogOffsetMetadata, TopicPartition
from kafkalog.util.waiting import MustWait, at_once

Waiting = tuple[FetchPartition, LogOffsetMetadata]
"""Request for a partition, and the place where its read began; offset -1 means that the place is unknown."""


class DelayedFetch(DelayedOperation):
    """A fetch waiting until `min_bytes` have arrived since its request (FLOW-13); `respond` then reads again.

    Bytes of a partition that is held back do not count: the answer would not have them, and the follower would ask
    again without a pause.
    """

    __slots__ = ("_find", "_held_back", "_params", "_respond", "_waiting")

    def __init__(
        self,
        params: FetchParams,
        waiting: Sequence[Waiting],
        find: Callable[[TopicPartition], Partition],
        respond: Callable[[None], object],
        *,
        held_back: HeldBack | None = None,
    ) -> None:
        super().__init__(params.max_wait_ms)
        self._held_back = held_back
        self._params = params
        self._waiting = waiting
        self._find = find
        self._respond = respond

    def try_complete(self) -> bool:
        available_bytes = 0
        for request, place in self._waiting:
            if place.message_offset < 0:
                continue
            try:
                available = self._available(request, place)
            except KafkalogError:  # deleted, offline, led by another node, or of another epoch
                available = None
            if available is None:
                return self.force_complete()
            available_bytes += available
            if available_bytes >= self._params.min_bytes:
                return self.force_complete()
        return False

    def on_complete(self) -> None:
        self._respond(None)

    def release(self) -> None:
        self._waiting = ()

    def _available(self, request: FetchPartition, place: LogOffsetMetadata) -> int | None:
        """Return the bytes that can be read from `place` on, or None if the fetch must be answered now."""
        partition = self._find(request.topic_partition)
        partition.check_topic_id(request.topic_id)
        partition.check_epoch(request.current_leader_epoch, self._params.only_leader)
        if self._held_back is not None and self._held_back(partition, None):
            return None if partition.diverges(request) else 0
        log, isolation = partition.log, self._params.isolation
        try:
            end = at_once(log.readable_end, isolation)
        except MustWait:  # only a thread can find out how many bytes have come
            end_offset = log.last_stable_offset if isolation == "committed" else log.high_watermark
            return None if place.message_offset != end_offset or partition.diverges(request) else 0
        available = 0
        if place.message_offset > end.message_offset:  # the log was truncated
            return None
        if place.message_offset < end.message_offset and not (place.message_offset_only or end.message_offset_only):
            # in another segment, or behind the end: the log was rolled, or a copy in another directory replaced it
            if not place.on_same_segment(end) or (size := end.position_diff(place)) < 0:
                return None
            available = min(size, request.max_bytes)
        return None if partition.diverges(request) else available
