"""Requests that wait for their partitions: a produce with acks=all, a fetch, and a deletion of records."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Final, NamedTuple

from kafkalog.errors import KafkalogError
from kafkalog.server.error_codes import ErrorCode
from kafkalog.server.replica.partition import Partition
from kafkalog.server.replica.purgatory import DelayedOperation
from kafkalog.server.replica.results import AppendResult, FetchParams, FetchPartition
from kafkalog.types import LogOffsetMetadata, TopicPartition

FindPartition = Callable[[TopicPartition], Partition]
Waiting = tuple[FetchPartition, LogOffsetMetadata]
"""Request for a partition, and the place where its read began; offset -1 means that the place is unknown."""
UNKNOWN: Final = -1


class DelayedProduce(DelayedOperation):
    """A produce request waiting for its successful appends; failed ones already have a result (FLOW-3, FLOW-4).

    It keeps offsets and codes but no record bytes: the request releases those before it waits.
    """

    __slots__ = ("_find", "_respond", "_results", "_waiting")

    def __init__(
        self,
        delay_ms: int,
        results: Mapping[TopicPartition, AppendResult],
        find: FindPartition,
        respond: Callable[[dict[TopicPartition, AppendResult]], object],
    ) -> None:
        super().__init__(delay_ms)
        self._results = dict(results)
        self._waiting = {key for key, result in results.items() if not result.error_code}
        self._find = find
        self._respond = respond

    def try_complete(self) -> bool:
        for key in tuple(self._waiting):
            try:
                is_done, code = self._find(key).reached(self._results[key].last_offset + 1)
            except KafkalogError as error:
                is_done, code = False, error.code
            if is_done or code:
                self._waiting.discard(key)
                if code:
                    self._results[key] = self._results[key]._replace(error_code=code)
        return not self._waiting and self.force_complete()

    def on_complete(self) -> None:
        for key in self._waiting:
            self._results[key] = self._results[key]._replace(error_code=ErrorCode.REQUEST_TIMED_OUT)
        self._respond(self._results)


class DelayedFetch(DelayedOperation):
    """A fetch waiting until `min_bytes` have arrived since its request (FLOW-13); `respond` then reads again."""

    __slots__ = ("_find", "_params", "_respond", "_waiting")

    def __init__(
        self,
        params: FetchParams,
        waiting: Sequence[Waiting],
        find: FindPartition,
        respond: Callable[[None], object],
    ) -> None:
        super().__init__(params.max_wait_ms)
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
        end = partition.log.readable_end(self._params.isolation)
        available = 0
        if place.message_offset > end.message_offset:  # the log was truncated
            return None
        if place.message_offset < end.message_offset and not (place.message_offset_only or end.message_offset_only):
            if place.on_older_segment(end):
                return None
            if place.on_same_segment(end):
                available = min(end.position_diff(place), request.max_bytes)
        return None if partition.diverges(request) else available


class Deletion(NamedTuple):
    """Outcome of a deletion: the lowest log start of all replicas, -1 with an error."""

    error_code: int
    low_watermark: int = UNKNOWN


class DelayedDelete(DelayedOperation):
    """A request waiting until the low watermark of each partition is at least its offset in `offsets`."""

    __slots__ = ("_find", "_respond", "_results", "_waiting")

    def __init__(
        self,
        delay_ms: int,
        offsets: Mapping[TopicPartition, int],
        find: FindPartition,
        respond: Callable[[dict[TopicPartition, Deletion]], object],
    ) -> None:
        super().__init__(delay_ms)
        self._waiting = dict(offsets)
        self._results: dict[TopicPartition, Deletion] = {}
        self._find = find
        self._respond = respond

    def try_complete(self) -> bool:
        for key, offset in tuple(self._waiting.items()):
            try:
                partition = self._find(key)
                partition.check_epoch(-1)
            except KafkalogError as error:
                self._results[key] = Deletion(error.code)
            else:
                low = partition.low_watermark
                if low < offset:
                    continue
                self._results[key] = Deletion(0, low)
            del self._waiting[key]
        return not self._waiting and self.force_complete()

    def on_complete(self) -> None:
        timed_out = Deletion(ErrorCode.REQUEST_TIMED_OUT)
        self._respond({**self._results, **dict.fromkeys(self._waiting, timed_out)})
