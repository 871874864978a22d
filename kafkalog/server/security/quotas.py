"""Client quotas (KIP-13, KIP-55, KIP-124, KIP-599): bytes produced and fetched, time, partitions created and deleted.

The most specific limit applies: user and client id, user and any client, user, any user and client id, any user and any
client, any user, client id, any client. Clients to which a limit applies by the same entity share it.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Final, NamedTuple

from kafkalog.errors import ThrottlingQuotaExceeded
from kafkalog.server.node.parts import Part
from kafkalog.server.requests.context import RequestContext
from kafkalog.server.security.file import SecurityFile
from kafkalog.server.security.rates import Rate, TokenBucket, Windows
from kafkalog.server.security.state import Entity

if TYPE_CHECKING:
    from kafkalog.server.node.node import Node

PRODUCE: Final = "producer_byte_rate"
FETCH: Final = "consumer_byte_rate"
REQUEST: Final = "request_percentage"
MUTATION: Final = "controller_mutation_rate"
CONNECTION: Final = "connection_creation_rate"
KEYS: Final[dict[str, str]] = {PRODUCE: "long", FETCH: "long", REQUEST: "double", MUTATION: "double"}
"""Quota keys of users and clients, with the type of the limit."""
IP_KEYS: Final = {CONNECTION: "int"}
_MAX_RATES: Final = 10_000
_MAX_KEY_LENGTH: Final = 255


class Limit(NamedTuple):
    """A limit and its scope: user and client id, "" where it applies to all of them together."""

    value: float
    user: str
    client_id: str


class Quotas(Part):
    """Usage of clients and their limits. Only for the event loop's thread; `clock` returns ms of a monotonic clock.

    If `file.state.quotas` is empty, no client is limited, nothing is recorded, and callers need not ask.
    """

    def __init__(self, file: SecurityFile, clock: Callable[[], int], windows: Windows) -> None:
        self.file = file
        self._clock = clock
        self._windows = windows
        self._rates: OrderedDict[tuple[str, str, str], Rate] = OrderedDict()  # in order of last use
        self._buckets: dict[tuple[str, str], TokenBucket] = {}
        self._limits: dict[tuple[str, str, str], Limit | None] = {}
        self._seen: Mapping[Entity, Mapping[str, float]] | None = None

    def record_produce(self, context: RequestContext, size_bytes: int) -> int:
        """Record bytes that the client sent; return its throttle time in ms."""
        return self._record(PRODUCE, context, size_bytes)

    def record_fetch(self, context: RequestContext, size_bytes: int) -> int:
        """Record bytes for the client; return its throttle time in ms. Call `unrecord_fetch` if they are not sent."""
        return self._record(FETCH, context, size_bytes)

    def unrecord_fetch(self, context: RequestContext, size_bytes: int) -> None:
        """Undo the last `record_fetch`, whose bytes were not sent."""
        self._record(FETCH, context, -size_bytes)

    def record_request(self, context: RequestContext, used_ms: float) -> int:
        """Record server time that the client used; return its throttle time in ms, at most the length of a window.

        The limit is a percentage of one thread's time.
        """
        throttle_ms = self._record(REQUEST, context, used_ms / 10)  # ms per second to percent
        return min(throttle_ms, self._windows.length_ms)

    def record_mutations(self, context: RequestContext, partitions: int, *, is_strict: bool) -> None:
        """Record created or deleted partitions (KIP-599); set `context.throttle_ms` to at least the throttle time.

        With `is_strict`, ThrottlingQuotaExceeded if the client is already above its limit; nothing is recorded then.
        """
        limit = self.limit_of(MUTATION, context)
        if limit is None:
            return
        now_ms, owner = self._clock(), (limit.user, limit.client_id)
        bucket = self._buckets.get(owner)
        if bucket is None or bucket.limit != limit.value:
            if len(self._buckets) >= _MAX_RATES:
                self._buckets.clear()
            bucket = self._buckets[owner] = TokenBucket(limit.value, self._windows, now_ms)
        is_above = bucket.wait_ms(now_ms) > 0
        if not (is_strict and is_above):
            bucket.take(partitions)
        context.throttle_ms = max(context.throttle_ms, bucket.wait_ms(now_ms))
        if is_strict and is_above:
            raise ThrottlingQuotaExceeded("The throttling quota has been exceeded.")

    def takes_connection(self, host: str) -> bool:
        """Return True if an address may open another connection now (KIP-612), and record it only then."""
        quotas = self.file.state.quotas
        value = quotas.get((("ip", host),), quotas.get((("ip", None),), {})).get(CONNECTION)
        if value is None:
            return True
        now_ms = self._clock()
        rate = self._rate((CONNECTION, host, ""))
        rate.record(1, now_ms)
        if rate.throttle_ms(value, now_ms) == 0:
            return True
        rate.subtract(1)
        return False

    def max_fetch_bytes(self, context: RequestContext) -> int | None:
        """Return the maximum bytes of one fetch: what the limit allows in all samples but one; None if unlimited."""
        limit = self.limit_of(FETCH, context)
        if limit is None:
            return None
        return int(limit.value * (self._windows.samples - 1) * self._windows.length_ms / 1000)

    def limit_of(self, key: str, context: RequestContext) -> Limit | None:
        """Return the limit that applies to the client, or None."""
        quotas = self.file.state.quotas
        if quotas is not self._seen:
            self._seen = quotas
            self._limits.clear()
        if not quotas:
            return None
        user, client_id = context.principal.partition(":")[2], _client_key(context.client_id)
        key_and_client = (key, user, client_id)
        if key_and_client not in self._limits:
            if len(self._limits) >= _MAX_RATES:
                self._limits.clear()
            self._limits[key_and_client] = _limit(quotas, key, user, client_id)
        return self._limits[key_and_client]

    def _record(self, key: str, context: RequestContext, value: float) -> int:
        limit = self.limit_of(key, context)
        if limit is None:
            return 0
        now_ms = self._clock()
        rate = self._rate((key, limit.user, limit.client_id))
        rate.record(value, now_ms)
        return rate.throttle_ms(limit.value, now_ms)

    def _rate(self, owner: tuple[str, str, str]) -> Rate:
        rate = self._rates.get(owner)
        if rate is None:
            if len(self._rates) >= _MAX_RATES:
                self._rates.popitem(last=False)
            rate = self._rates[owner] = Rate(self._windows)
        else:
            self._rates.move_to_end(owner)
        return rate


def _client_key(client_id: str) -> str:
    """Return a client id for use as a key; a long one (up to 32,767 characters) is cut and gets a hash."""
    if len(client_id) <= _MAX_KEY_LENGTH:
        return client_id
    return f"{client_id[:_MAX_KEY_LENGTH]}#{hash(client_id)}"


def _limit(quotas: Mapping[Entity, Mapping[str, float]], key: str, user: str, client_id: str) -> Limit | None:
    """Return the limit of the first of eight entities that has one, in the reference's order; None if none has.

    An empty client id is not limited as a client: only the limits of its user apply.
    """
    for entity, names in (
        ((("client-id", client_id), ("user", user)), (user, client_id)),
        ((("client-id", None), ("user", user)), (user, client_id)),
        ((("user", user),), (user, "")),
        ((("client-id", client_id), ("user", None)), (user, client_id)),
        ((("client-id", None), ("user", None)), (user, client_id)),
        ((("user", None),), (user, "")),
        ((("client-id", client_id),), ("", client_id)),
        ((("client-id", None),), ("", client_id)),
    ):
        value = quotas.get(entity, {}).get(key)
        if value is not None and (client_id or len(entity) == 1 and entity[0][0] == "user"):
            return Limit(value, *names)
    return None


def make(node: Node) -> Quotas:
    """Create the quotas of a node from the security file of its credentials."""
    windows = Windows(node.config["quota.window.num"], node.config["quota.window.size.seconds"] * 1000)
    return Quotas(node.credentials.file, node.monotonic_ms, windows)
