"""The server's metrics in Prometheus form. Times are in seconds, by its conventions."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import accumulate
from typing import TYPE_CHECKING

from kafkalog.server.status.metrics import BOUNDS_MS
from kafkalog.util.prometheus import Family, Histogram, Kind

if TYPE_CHECKING:
    from kafkalog.server.status.metrics import Histogram as Times
    from kafkalog.server.status.metrics import NetworkCounts, RequestCounts, ServerMetrics

_BOUNDS_S = (*(bound / 1000 for bound in BOUNDS_MS), float("inf"))


def families(metrics: ServerMetrics) -> Iterator[Family]:
    """Yield every metric of a `ServerMetrics`. Call it in the loop's thread."""
    yield from _requests(metrics.requests)
    yield from _network(metrics.network)
    waits = _histogram(metrics.queue.waits_ms)
    calls = "Log calls waiting for a thread."
    yield Family("kafkalog_server_queue_size", "gauge", calls, {(): metrics.queue.waiting})
    yield Family("kafkalog_server_queue_seconds", "histogram", "Time that log calls waited for a thread.", {(): waits})


def _requests(requests: RequestCounts) -> Iterator[Family]:
    calls = list(requests.calls.values())
    yield Family(
        "kafkalog_server_request_seconds", "histogram", "Time from a request's arrival to its response, by call.",
        {(("api", call.name),): _histogram(call.times_ms) for call in calls},
    )  # fmt: skip
    yield Family(
        "kafkalog_server_request_work_seconds_total", "counter", "Time spent on requests without waiting, by call.",
        {(("api", call.name),): call.worked_ms / 1000 for call in calls},
    )  # fmt: skip
    yield Family(
        "kafkalog_server_request_errors_total", "counter", "Requests that failed as a whole, by call and error code.",
        {
            (("api", call.name), ("error_code", str(code))): count
            for call in calls
            for code, count in sorted(call.errors.items())
        },
    )  # fmt: skip


def _network(network: NetworkCounts) -> Iterator[Family]:
    def one(name: str, kind: Kind, help_: str, value: int) -> Family:
        return Family(f"kafkalog_server_{name}", kind, help_, {(): value})

    yield one("connections", "gauge", "Open connections.", network.open)
    yield one("connections_accepted_total", "counter", "Accepted connections.", network.accepted)
    yield Family(
        "kafkalog_server_connections_closed_total", "counter", "Connections that the server closed, by reason.",
        {(("reason", reason),): count for reason, count in sorted(network.refused.items())},
    )  # fmt: skip
    yield one("received_bytes_total", "counter", "Bytes from clients.", network.bytes_in)
    yield one("sent_bytes_total", "counter", "Bytes to clients.", network.bytes_out)
    yield one("requests_in_work", "gauge", "Requests in progress.", network.working)
    yield one("request_memory_bytes", "gauge", "Bytes of requests in memory.", network.request_bytes)
    yield one("response_memory_bytes", "gauge", "Bytes of unread responses in memory.", network.response_bytes)


def _histogram(times_ms: Times) -> Histogram:
    upto = tuple(accumulate(times_ms.counts))
    return Histogram(upto[-1], times_ms.total / 1000, tuple(zip(_BOUNDS_S, upto, strict=True)))
