"""Quotas of clients (KIP-13, KIP-55, KIP-124, KIP-599): bytes produced and fetched, time, partitions made and deleted.

The most specific limit counts: user and client id, user and any client, user, any user and client id, any user and any
client, any user, client id, any client. Whoever has the same limit by the same entity shares it.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Mapping
from typing import Any, Final, NamedTuple

from kafkalog.errors import ThrottlingQuotaExceeded
from kafkalog.server.context import RequestContext
from kafkalog.server.security.file import SecurityFile
from kafkalog.server.security.rates import Rate, TokenBucket, Windows
from kafkalog.server.security.state import Entity

PRODUCE: Final = "producer_byte_rate"
FETCH: Final = "consumer_byte_rate"
REQUEST: Final = "request_percentage"
MUTATION: Final = "controller_mutation_rate"
CONNECTION: Final = "connection_creation_rate"
KEYS: Final[dict[str, str]] = {PRODUCE: "long", FETCH: "long", REQUEST: "double", MUTATION: "double"}
"""What a user or client may be limited in, and of which type the limit is."""
IP_KEYS: Final = {CONNECTION: "int"}
_MAX_RATES: Final = 10_000
_MAX_KEPT_LETTERS: Final = 255


class Limit(NamedTuple):
    """A limit, and whose it is: user and client id, "" where it is for all of them together."""

    value: float
    user: str
    client_id: str


class Quotas:
    """What clients have used. All is called on the loop, `clock` gives ms of a clock that never goes back."""

    def __init__(self, file: SecurityFile, clock: Any, windows: Windows) -> None:
        self._file = file
        self._clock = clock
        self._windows = windows
        self._rates: OrderedDict[tuple[str, str, str], Rate] = OrderedDict()  # the one used last is the last
        self._buckets: dict[tuple[str, str], TokenBucket] = {}
        self._limits: dict[tuple[str, str, str], Limit | None] = {}
        self._seen: Mapping[Entity, Mapping[str, float]] | None = None

    async def start(self) -> None:
        """Nothing to do: the limits are read by whoever keeps them."""

    async def stop(self) -> None:
        """Nothing to do."""

    def record_produce(self, context: RequestContext, size_bytes: int) -> int:
        """How many ms the client is to wait after it has sent so much."""
        return self._record(PRODUCE, context, size_bytes)

    def record_fetch(self, context: RequestContext, size_bytes: int) -> int:
        """How many ms the client is to wait if it is sent so much; `unrecord_fetch` where it is not sent."""
        return self._record(FETCH, context, size_bytes)

    def unrecord_fetch(self, context: RequestContext, size_bytes: int) -> None:
        """What was recorded last was not sent."""
        self._record(FETCH, context, -size_bytes)

    def record_request(self, context: RequestContext, used_ms: float) -> int:
        """How many ms the client is to wait after it has used so much of the server's time: a window at the most.

        A limit is a part of one thread's time, in percent.
        """
        throttle_ms = self._record(REQUEST, context, used_ms / 10)  # ms a second to percent
        return min(throttle_ms, self._windows.length_ms)

    def record_mutations(self, context: RequestContext, partitions: int, *, is_strict: bool) -> None:
        """Partitions are made or deleted (KIP-599): the client waits by `context.throttle_ms`.

        `is_strict`: ThrottlingQuotaExceeded, and nothing counts, where it is to wait already.
        """
        limit = self.limit_of(MUTATION, context)
        if limit is None:
            return
        now_ms, whose = self._clock(), (limit.user, limit.client_id)
        bucket = self._buckets.get(whose)
        if bucket is None or bucket.limit != limit.value:
            if len(self._buckets) >= _MAX_RATES:
                self._buckets.clear()
            bucket = self._buckets[whose] = TokenBucket(limit.value, self._windows, now_ms)
        is_above = bucket.wait_ms(now_ms) > 0
        if not (is_strict and is_above):
            bucket.take(partitions)
        context.throttle_ms = max(context.throttle_ms, bucket.wait_ms(now_ms))
        if is_strict and is_above:
            raise ThrottlingQuotaExceeded("The throttling quota has been exceeded.")

    def takes_connection(self, host: str) -> bool:
        """Whether an address may have another connection now (KIP-612); one that may not does not count."""
        quotas = self._file.state.quotas
        value = quotas.get((("ip", host),), quotas.get((("ip", None),), {})).get(CONNECTION)
        if value is None:
            return True
        now_ms = self._clock()
        rate = self._rate((CONNECTION, host, ""))
        rate.record(1, now_ms)
        if rate.throttle_ms(value, now_ms) == 0:
            return True
        rate.take_back(1)
        return False

    def max_fetch_bytes(self, context: RequestContext) -> int | None:
        """The most that one fetch may get: what the limit lets through in all samples but one; None for no limit."""
        limit = self.limit_of(FETCH, context)
        if limit is None:
            return None
        return int(limit.value * (self._windows.samples - 1) * self._windows.length_ms / 1000)

    def limit_of(self, key: str, context: RequestContext) -> Limit | None:
        """The limit that counts for whoever asks; None where there is none."""
        quotas = self._file.state.quotas
        if quotas is not self._seen:
            self._seen = quotas
            self._limits.clear()
        if not quotas:
            return None
        user, client_id = context.principal.partition(":")[2], _kept(context.client_id)
        asked = (key, user, client_id)
        if asked not in self._limits:
            if len(self._limits) >= _MAX_RATES:
                self._limits.clear()
            self._limits[asked] = _limit(quotas, key, user, client_id)
        return self._limits[asked]

    def _record(self, key: str, context: RequestContext, value: float) -> int:
        limit = self.limit_of(key, context)
        if limit is None:
            return 0
        now_ms = self._clock()
        rate = self._rate((key, limit.user, limit.client_id))
        rate.record(value, now_ms)
        return rate.throttle_ms(limit.value, now_ms)

    def _rate(self, whose: tuple[str, str, str]) -> Rate:
        rate = self._rates.get(whose)
        if rate is None:
            if len(self._rates) >= _MAX_RATES:
                self._rates.popitem(last=False)
            rate = self._rates[whose] = Rate(self._windows)
        else:
            self._rates.move_to_end(whose)
        return rate


def _kept(client_id: str) -> str:
    """A client's id, as it is remembered: one of 32,767 letters is not kept whole."""
    if len(client_id) <= _MAX_KEPT_LETTERS:
        return client_id
    return f"{client_id[:_MAX_KEPT_LETTERS]}#{hash(client_id)}"


def _limit(quotas: Mapping[Entity, Mapping[str, float]], key: str, user: str, client_id: str) -> Limit | None:
    """The first of the eight places that has a limit, as the reference looks for it."""
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
        if value is not None:
            return Limit(value, *names)
    return None


def make(node: Any) -> Quotas:
    """The quotas of a node, whose users have read the file."""
    windows = Windows(node.config["quota.window.num"], node.config["quota.window.size.seconds"] * 1000)
    return Quotas(node.credentials.file, node.monotonic_ms, windows)
