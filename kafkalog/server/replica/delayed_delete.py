"""A deletion of records that waits for all replicas."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import NamedTuple

from kafkalog.errors import KafkalogError
from kafkalog.server.error_codes import ErrorCode
from kafkalog.server.replica.partition import Partition
from kafkalog.server.replica.purgatory import DelayedOperation
from kafkalog.types import TopicPartition


class Deletion(NamedTuple):
    """Outcome of a deletion: the lowest log start of all replicas, -1 with an error."""

    error_code: int
    low_watermark: int = -1


class DelayedDelete(DelayedOperation):
    """A request waiting until the low watermark of each partition is at least its offset in `offsets`."""

    __slots__ = ("_find", "_respond", "_results", "_waiting")

    def __init__(
        self,
        delay_ms: int,
        offsets: Mapping[TopicPartition, int],
        find: Callable[[TopicPartition], Partition],
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
