"""Share fetches that wait for records: new ones in the log, or released ones."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from kafkalog.errors import KafkalogError
from kafkalog.server.replica.purgatory import DelayedOperation
from kafkalog.server.share.partition import SharePartition


class DelayedShareFetch(DelayedOperation):
    """A share fetch waiting until one of its partitions may have records, or an error to report."""

    __slots__ = ("_partitions", "_respond")

    def __init__(self, delay_ms: int, partitions: Sequence[SharePartition], respond: Callable[[None], object]) -> None:
        super().__init__(delay_ms)
        self._partitions: Sequence[SharePartition] = partitions
        self._respond = respond

    def try_complete(self) -> bool:
        for one in self._partitions:
            try:
                if one.has_records:
                    return self.force_complete()
            except KafkalogError:  # its error is found by the next read
                return self.force_complete()
        return False

    def on_complete(self) -> None:
        self._respond(None)

    def release(self) -> None:
        self._partitions = ()
