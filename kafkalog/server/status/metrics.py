"""The server's metrics: requests by call, connections, bytes. Plain numbers, used only in the loop's thread."""

from __future__ import annotations

from bisect import bisect_left
from dataclasses import dataclass, field
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


@dataclass(slots=True, eq=False)
class CallCounts:
    """Metrics of one call: its times, and the number of failed requests by error code."""

    name: str
    times_ms: Histogram = field(default_factory=Histogram)
    worked_ms: float = 0.0  # without waiting time
    errors: dict[int, int] = field(default_factory=dict)


@dataclass(slots=True, eq=False)
class RequestCounts:
    """Metrics of requests, by API key."""

    calls: dict[int, CallCounts] = field(default_factory=dict)

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


@dataclass(slots=True, eq=False)
class NetworkCounts:
    """Connections and bytes. `refused` counts the connections that the server closed, by reason."""

    accepted: int = 0
    open: int = 0
    bytes_in: int = 0
    bytes_out: int = 0
    working: int = 0  # requests in progress, including waiting ones
    request_bytes: int = 0  # bytes of requests in memory, complete or not
    response_bytes: int = 0  # bytes of responses in memory that clients have not read
    refused: dict[str, int] = field(default_factory=dict)

    def refuse(self, reason: str) -> None:
        """Count a connection that the server closed or rejected."""
        self.refused[reason] = self.refused.get(reason, 0) + 1


@dataclass(slots=True, eq=False)
class QueueCounts:
    """Log calls handed to threads: the number still waiting for a thread, and the waiting times."""

    waiting: int = 0
    waits_ms: Histogram = field(default_factory=Histogram)


@dataclass(slots=True, eq=False)
class ServerMetrics:
    """All metrics of a server."""

    queue: QueueCounts = field(default_factory=QueueCounts)
    requests: RequestCounts = field(default_factory=RequestCounts)
    network: NetworkCounts = field(default_factory=NetworkCounts)
