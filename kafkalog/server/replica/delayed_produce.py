"""A produce with acks=all that waits for the replicas of its partitions."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from kafkalog.errors import KafkalogError
from kafkalog.server.error_codes import ErrorCode
from kafkalog.server.replica.partition import Partition
from kafkalog.server.replica.purgatory import DelayedOperation
from kafkalog.server.replica.results import AppendResult
from kafkalog.types import TopicPartition


class DelayedProduce(DelayedOperation):
    """A produce request waiting for its successful appends; failed ones already have a result (FLOW-3, FLOW-4).

    It keeps offsets and codes but no record bytes: the request releases those before it waits.
    """

    __slots__ = ("_find", "_respond", "_results", "_waiting")

    def __init__(
        self,
        delay_ms: int,
        results: Mapping[TopicPartition, AppendResult],
        find: Callable[[TopicPartition], Partition],
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
