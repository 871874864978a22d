"""The server's metrics: requests by call, connections, bytes. Plain numbers, used only in the loop's thread."""

from __future__ import annotations

from bisect import bisect_left
from typing import Final

from kafkalog.server.wire.versions import Api

BOUNDS_MS: Final = (0.1, 0.25, 0.5, 1, 2.5, 5, 10, 25, 50, 100, 250, 500, 1000, 2500, 5000, 10_000, 30_000)


class Histogram:
    """Number of values in each interval of `BOUNDS_MS`, and the sum of all values."""

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
        """Number of values."""
        return sum(self.counts)


class CallCounts:
    """Metrics of one call: its times, and the number of failed requests by error code."""

    __slots__ = ("errors", "name", "times_ms", "worked_ms")

    def __init__(self, name: str) -> None:
        self.name = name
        self.times_ms = Histogram()
        self.worked_ms = 0.0  # without waiting time
        self.errors: dict[int, int] = {}


class RequestCounts:
    """Metrics of requests, by API key."""

    __slots__ = ("calls",)

    def __init__(self) -> None:
        self.calls: dict[int, CallCounts] = {}

    def done(self, api: Api, took_ms: float, worked_ms: float, error_code: int) -> None:
        """Count one answered request."""
        call = self.calls.get(api.key)
        if call is None:
            call = self.calls[api.key] = CallCounts(api.name)
        times = call.times_ms
        times.counts[bisect_left(BOUNDS_MS, took_ms)] += 1
        times.total += took_ms
        call.worked_ms += worked_ms
        if error_code:
            call.errors[error_code] = call.errors.get(error_code, 0) + 1


class NetworkCounts:
    """Connections and bytes. `refused` counts the connections that the server closed, by reason."""

    __slots__ = ("accepted", "bytes_in", "bytes_out", "open", "refused", "request_bytes", "response_bytes", "working")

    def __init__(self) -> None:
        self.accepted = 0
        self.open = 0
        self.bytes_in = 0
        self.bytes_out = 0
        self.working = 0  # requests in progress, including waiting ones
        self.request_bytes = 0  # bytes of requests in memory, complete or not
        self.response_bytes = 0  # bytes of responses in memory that clients have not read
        self.refused: dict[str, int] = {}

    def refuse(self, reason: str) -> None:
        """Count a connection that the server closed or rejected."""
        self.refused[reason] = self.refused.get(reason, 0) + 1


class QueueCounts:
    """Log calls handed to threads: the number still waiting for a thread, and the waiting times."""

    __slots__ = ("waiting", "waits_ms")

    def __init__(self) -> None:
        self.waiting = 0
        self.waits_ms = Histogram()


class ServerMetrics:
    """All metrics of a server."""

    __slots__ = ("network", "queue", "requests")

    def __init__(self) -> None:
        self.queue = QueueCounts()
        self.requests = RequestCounts()
        self.network = NetworkCounts()
