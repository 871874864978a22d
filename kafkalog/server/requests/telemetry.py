"""Metrics that clients push (KIP-714): what each client is asked for, and the function that receives them.

A client instance is known until its connection ends or it is silent for too long. What it is asked for is found again
when a subscription changes.
"""

from __future__ import annotations

import logging
from collections import OrderedDict
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Final, NamedTuple
from uuid import UUID, uuid4

from kafkalog._core.bytes.crc import crc32c
from kafkalog.errors import InvalidRecord
from kafkalog.records.compression import decompress
from kafkalog.records.format import CompressionType
from kafkalog.server.error_codes import ErrorCode, Refused
from kafkalog.server.settings.client_metrics import Wanted, wanted_of
from kafkalog.server.settings.kinds import CLIENT_METRICS

if TYPE_CHECKING:
    from kio.schema.push_telemetry.v0.request import PushTelemetryRequest

    from kafkalog.server.node.node import Node
    from kafkalog.server.requests.context import RequestContext

_LOG: Final = logging.getLogger(__name__)
MAX_BYTES: Final = "telemetry.max.bytes"
ACCEPTED_CODECS: Final = (
    CompressionType.ZSTD, CompressionType.LZ4, CompressionType.GZIP, CompressionType.SNAPPY,
)  # fmt: skip
"""In the order that a broker prefers; a client may also push without compression."""
MOST_INSTANCES: Final = 16_384
_SILENT_MS: Final = 60_000
_SILENT_INTERVALS: Final = 3
_RESERVED: Final = frozenset({None, UUID(int=0), UUID(int=1)})
_NEVER: Final = -(1 << 62)
_HALF: Final = (1 << 32) - 1


class PushedMetrics(NamedTuple):
    """One push of a client. `metrics` is OpenTelemetry's MetricsData in Protobuf, decompressed."""

    node: int
    client_instance_id: UUID
    client_id: str
    software_name: str
    software_version: str
    push_interval_ms: int
    is_terminating: bool
    metrics: bytes


Receiver = Callable[[PushedMetrics], object]


class Instance:
    """A client instance: what it is asked for, and when it last asked and pushed."""

    __slots__ = (
        "asked_ms", "connection_id", "error_code", "id", "is_terminating", "pushed_ms", "seen_ms", "subscription_id",
        "subscriptions", "wanted",
    )  # fmt: skip

    def __init__(
        self, id: UUID, connection_id: int, wanted: Wanted, subscriptions: Mapping[str, Mapping[str, str]]
    ) -> None:
        self.id = id
        self.connection_id = connection_id
        self.wanted = wanted
        self.subscriptions = subscriptions
        self.subscription_id = _subscription_id(id, wanted)
        self.seen_ms = self.asked_ms = self.pushed_ms = _NEVER
        self.error_code = ErrorCode.NONE
        self.is_terminating = False

    def may_ask(self, now_ms: int) -> bool:
        """Return True, and note the time, if the interval has passed since the last request of either kind."""
        if now_ms - max(self.asked_ms, self.pushed_ms) < self.wanted.interval_ms:
            return False
        self.asked_ms = now_ms
        return True

    def may_push(self, now_ms: int) -> bool:
        """Return True, and note the time, after the interval, and for the first push that follows a question."""
        if self.asked_ms <= self.pushed_ms and now_ms - self.pushed_ms < self.wanted.interval_ms:
            return False
        self.pushed_ms = now_ms
        return True


class Telemetry:
    """The client instances of a node with a receiver. Used only in the loop's thread; `receiver` runs in the pool."""

    def __init__(self, node: Node, receiver: Receiver) -> None:
        self.receiver = receiver
        self._node = node
        self._instances: OrderedDict[UUID, Instance] = OrderedDict()
        self._by_connection: dict[int, UUID] = {}

    def ask(self, context: RequestContext, given: UUID | None) -> Instance:
        """Return the instance of a client that asks for its subscription. Refused if it asks too often."""
        instance = self._instance(context, uuid4() if given is None else given)
        if not instance.may_ask(self._node.monotonic_ms()) and instance.error_code not in (
            ErrorCode.UNKNOWN_SUBSCRIPTION_ID, ErrorCode.UNSUPPORTED_COMPRESSION_TYPE,
        ):  # fmt: skip
            raise Refused(ErrorCode.THROTTLING_QUOTA_EXCEEDED)
        instance.error_code = ErrorCode.NONE
        return instance

    async def push(self, context: RequestContext, request: PushTelemetryRequest) -> None:
        """Give pushed metrics to the receiver. Refused, with the error of a broker."""
        if request.client_instance_id is None or request.client_instance_id in _RESERVED:
            raise Refused(ErrorCode.INVALID_REQUEST)
        instance = self._instance(context, request.client_instance_id)
        instance.error_code = self._error(instance, request)
        instance.is_terminating = request.terminating
        if instance.error_code == ErrorCode.NONE and request.metrics:
            instance.error_code = await self._node.run(self._receive, context, request, instance.wanted.interval_ms)
        if instance.error_code != ErrorCode.NONE:
            raise Refused(instance.error_code)

    def _error(self, instance: Instance, request: PushTelemetryRequest) -> ErrorCode:
        if instance.is_terminating:
            return ErrorCode.INVALID_REQUEST
        if not instance.may_push(self._node.monotonic_ms()) and not request.terminating:
            return ErrorCode.THROTTLING_QUOTA_EXCEEDED
        if request.subscription_id != instance.subscription_id:
            return ErrorCode.UNKNOWN_SUBSCRIPTION_ID
        if not 0 <= request.compression_type < len(CompressionType):
            return ErrorCode.UNSUPPORTED_COMPRESSION_TYPE
        if len(request.metrics or b"") > self._node.config[MAX_BYTES]:
            return ErrorCode.TELEMETRY_TOO_LARGE
        return ErrorCode.NONE

    def _receive(self, context: RequestContext, request: PushTelemetryRequest, interval_ms: int) -> ErrorCode:
        """Decompress the metrics and call the receiver, in a thread of the pool; its errors are the client's."""
        client, metrics = context.connection, bytes(request.metrics)
        if request.compression_type:
            limit = self._node.config[MAX_BYTES]
            try:
                metrics = bytes(decompress(request.compression_type, metrics, limit_bytes=limit))
            except InvalidRecord as error:  # also where it would be larger: a broker of 4.4.0 does not say so
                _LOG.error("metrics of client %r do not decompress: %s", context.client_id, error)
                return ErrorCode.INVALID_RECORD
        assert request.client_instance_id is not None
        pushed = PushedMetrics(
            self._node.node_id, request.client_instance_id, context.client_id, client.software_name,
            client.software_version, interval_ms, request.terminating, metrics,
        )  # fmt: skip
        try:
            self.receiver(pushed)
        except Exception:
            _LOG.exception("the receiver of metrics failed for client %r", context.client_id)
            return ErrorCode.INVALID_RECORD
        return ErrorCode.NONE

    def _instance(self, context: RequestContext, id: UUID) -> Instance:
        """Return the instance with this id: a new one for a new client, and after a change of subscriptions."""
        now_ms = self._node.monotonic_ms()
        found = self._instances.get(id)
        if found is not None:
            silent_ms = max(_SILENT_MS, _SILENT_INTERVALS * found.wanted.interval_ms)
            if now_ms - found.seen_ms > silent_ms or found.subscriptions != self._subscriptions():
                found = None
        if found is None:
            found = self._add(context, id)
        found.seen_ms = now_ms
        self._instances.move_to_end(id)
        return found

    def _add(self, context: RequestContext, id: UUID) -> Instance:
        client, subscriptions = context.connection, self._subscriptions()
        attributes = {
            "client_instance_id": _text(id), "client_id": context.client_id,
            "client_software_name": client.software_name, "client_software_version": client.software_version,
            "client_source_address": client.peer_host, "client_source_port": str(client.peer_port),
        }  # fmt: skip
        wanted = wanted_of(attributes, subscriptions.values())
        made = self._instances[id] = Instance(id, client.id, wanted, subscriptions)
        self._by_connection[client.id] = id
        if len(self._instances) > MOST_INSTANCES:
            _, oldest = self._instances.popitem(last=False)
            self._by_connection.pop(oldest.connection_id, None)
        return made

    def _subscriptions(self) -> Mapping[str, Mapping[str, str]]:
        return self._node.dynamic.all_kept()[CLIENT_METRICS]

    def disconnected(self, connection_id: int) -> None:
        """Forget the client instance of a connection that has ended."""
        id = self._by_connection.pop(connection_id, None)
        if id is not None:
            self._instances.pop(id, None)


def _subscription_id(id: UUID, wanted: Wanted) -> int:
    """Return the number that every node computes for a client that is asked for the same."""
    folded = (id.int >> 64) ^ id.int
    number = crc32c(f"[{', '.join(wanted.metrics)}]{wanted.interval_ms}".encode()) ^ (folded >> 32 ^ folded) & _HALF
    return int.from_bytes(number.to_bytes(4, "big"), "big", signed=True)


def _text(id: UUID) -> str:
    """Return an id as Kafka shows it: in base64."""
    from base64 import urlsafe_b64encode

    return urlsafe_b64encode(id.bytes).rstrip(b"=").decode()
