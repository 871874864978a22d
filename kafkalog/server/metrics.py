"""What a server counts about itself: requests by call, connections, bytes. Plain numbers of the loop's thread."""

from __future__ import annotations

from bisect import bisect_left
from typing import Final

from kafkalog.server.wire.versions import Api

BOUNDS_MS: Final = (0.1, 0.25, 0.5, 1, 2.5, 5, 10, 25, 50, 100, 250, 500, 1000, 2500, 5000, 10_000, 30_000)


class Histogram:
    """How many values there were up to each of `BOUNDS_MS`, and their sum."""

    __slots__ = ("counts", "total")

    def __init__(self) -> None:
        self.counts = [0] * (len(BOUNDS_MS) + 1)
        self.total = 0.0

    def add(self, value: float) -> None:
        """Count one value."""
        self.counts[bisect_left(BOUNDS_MS, value)] += 1
        self.total += value

    @property
    def count(self) -> int:
        """How many values there were."""
        return sum(self.counts)


class CallCounts:
    """What is counted of one call: its times, and its answers by error code where the whole request failed."""

    __slots__ = ("errors", "name", "times_ms", "worked_ms")

    def __init__(self, name: str) -> None:
        self.name = name
        self.times_ms = Histogram()
        self.worked_ms = 0.0  # without what they waited
        self.errors: dict[int, int] = {}


class RequestCounts:
    """Requests by call."""

    __slots__ = ("calls",)

    def __init__(self) -> None:
        self.calls: dict[int, CallCounts] = {}

    def done(self, api: Api, took_ms: float, worked_ms: float, error_code: int) -> None:
        """One request was answered."""
        call = self.calls.get(api.key)
        if call is None:
            call = self.calls[api.key] = CallCounts(api.name)
        call.times_ms.add(took_ms)
        call.worked_ms += worked_ms
        if error_code:
            call.errors[error_code] = call.errors.get(error_code, 0) + 1


class NetworkCounts:
    """Connections and bytes. `refused` counts connections by why they were closed by the server."""

    __slots__ = ("accepted", "bytes_in", "bytes_out", "open", "refused", "request_bytes", "response_bytes", "working")

    def __init__(self) -> None:
        self.accepted = 0
        self.open = 0
        self.bytes_in = 0
        self.bytes_out = 0
        self.working = 0  # requests that are being worked on, those included that wait for something
        self.request_bytes = 0  # bytes of requests in memory, whole ones and those that still come
        self.response_bytes = 0  # bytes of answers in memory that their clients have not taken
        self.refused: dict[str, int] = {}

    def refuse(self, reason: str) -> None:
        """A connection was closed, or not taken."""
        self.refused[reason] = self.refused.get(reason, 0) + 1


class QueueCounts:
    """Calls of the log that were handed to threads: how many no thread has taken yet, and how long they waited."""

    __slots__ = ("waiting", "waits_ms")

    def __init__(self) -> None:
        self.waiting = 0
        self.waits_ms = Histogram()


class ServerMetrics:
    """All of it."""

    __slots__ = ("network", "queue", "requests")

    def __init__(self) -> None:
        self.queue = QueueCounts()
        self.requests = RequestCounts()
        self.network = NetworkCounts()
