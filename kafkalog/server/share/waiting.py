"""Share fetches that wait for records: new ones in the log, or released ones."""

from __future__ import annotations

from collections.abc import Callable

from kafkalog.server.replica.purgatory import DelayedOperation


class DelayedShareFetch(DelayedOperation):
    """A share fetch that waits for a change of any of its partitions, from the time when it is put under their keys.

    The fetch itself finds out if there are records, in turns with other work: its partitions may be very many.
    """

    __slots__ = ("_is_watched", "_respond")

    def __init__(self, delay_ms: int, respond: Callable[[], object]) -> None:
        super().__init__(delay_ms)
        self._is_watched = False
        self._respond = respond

    def try_complete(self) -> bool:
        if self._is_watched:
            return self.force_complete()
        self._is_watched = True
        return False

    def on_complete(self) -> None:
        self._respond()
