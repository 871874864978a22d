"""One server without its sockets: settings, store, and the parts that answer requests.

`net/` delivers the requests; tests call `apis/dispatch.py` directly.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Container, Mapping, Sequence
from typing import TYPE_CHECKING, Final, Protocol, TypedDict, TypeVarTuple

from kafkalog.errors import ConfigError, IllegalArgument, KafkalogError
from kafkalog.manager.log_manager import LogManager
from kafkalog.server.node.parts import OF_THE_LEADER, OF_THE_MAIN_PROCESS, make_parts
from kafkalog.server.node.pool import CallPool, Run
from kafkalog.server.node.store import Store
from kafkalog.server.requests.creations import TopicCreations
from kafkalog.server.requests.patterns import TopicPatterns
from kafkalog.server.requests.refusal_log import RefusalLog
from kafkalog.server.settings.config import STORE_NAMES, ServerConfig
from kafkalog.server.status.metrics import ServerMetrics
from kafkalog.util.clock import SYSTEM_CLOCK, Clock

if TYPE_CHECKING:
    from kafkalog.server.groups.coordinator import GroupCoordinator
    from kafkalog.server.groups.values import KeptPosition
    from kafkalog.server.node.following import Following
    from kafkalog.server.node.leading import Leading
    from kafkalog.server.node.parts import Part
    from kafkalog.server.node.topics import Topics
    from kafkalog.server.quorum.quorum import Quorum
    from kafkalog.server.replica.dir_moves import DirMoves
    from kafkalog.server.replica.replica_manager import ReplicaManager
    from kafkalog.server.requests.context import Close, RequestContext
    from kafkalog.server.requests.telemetry import Receiver, Telemetry
    from kafkalog.server.security.authorizer import Authorizer
    from kafkalog.server.security.credentials import Credentials
    from kafkalog.server.security.quotas import Quotas
    from kafkalog.server.settings.dynamic import DynamicSettings
    from kafkalog.server.settings.features import NodeFeatures
    from kafkalog.server.share.shares import Shares
    from kafkalog.server.txns.coordinator import TransactionCoordinator
    from kafkalog.server.txns.producer_ids import ProducerIds
    from kafkalog.server.wire.pieces import Pieces
    from kafkalog.server.workers.owner import Owner
    from kafkalog.server.workers.workers import Workers

_LOG: Final = logging.getLogger(__name__)
Ts = TypeVarTuple("Ts")


class Later(Protocol):
    """Function that calls `callback` after `delay_ms`, as `call_later` does; the returned handle has `cancel()`."""

    def __call__(
        self, delay_ms: float, callback: Callable[[*Ts], object], /, *args: *Ts
    ) -> asyncio.TimerHandle: ...


class NodeOptions(TypedDict, total=False):
    """Options of a `Node` that the layers above it pass on."""

    clock: Clock
    later: Later
    log_metrics: Callable[[], str] | None
    kept_positions: Sequence[KeptPosition]
    workers: Workers | None
    owner: Owner | None
    telemetry: Receiver | None


class Node:
    """One server, between `start` and `stop`; used only in the loop's thread.

    Parts (`parts.PARTS`) are attributes: `topics`, `quorum`, `replicas`, `moves`, `shares`, `groups`, `transactions`,
    `leading`, `following`, `authorizer`, `credentials`, `quotas`, `dynamic`, `features`.
    """

    authorizer: Authorizer
    credentials: Credentials
    quotas: Quotas
    dynamic: DynamicSettings
    features: NodeFeatures
    quorum: Quorum
    topics: Topics
    replicas: ReplicaManager
    moves: DirMoves
    shares: Shares
    groups: GroupCoordinator
    transactions: TransactionCoordinator
    leading: Leading
    following: Following

    def __init__(
        self,
        config: ServerConfig,
        opened: Store,
        *,
        clock: Clock = SYSTEM_CLOCK,
        later: Later | None = None,
        log_metrics: Callable[[], str] | None = None,
        is_read_only: bool = False,
        kept_positions: Sequence[KeptPosition] = (),
        workers: Workers | None = None,
        owner: Owner | None = None,
        telemetry: Receiver | None = None,
    ) -> None:
        self.config = config
        self.opened = opened
        self.known = opened.known
        self.log_metrics = log_metrics
        """Returns the text of the logs' own metrics; set by the layer above."""
        self.kept_positions = kept_positions
        """Positions (offsets of groups) that readers of the directories keep by name; set by the layer above."""
        self.workers = workers
        """The other processes that serve this node; None without any, and in those."""
        self.owner = owner
        """The link to the main process; None except in a worker."""
        self.telemetry = None if telemetry is None else _telemetry_of(self, telemetry)
        """Where clients push their metrics; None without a receiver, and then they are not asked for any."""
        self.is_ready = False
        self.is_read_only = is_read_only
        self.on_config_change: list[Callable[[ServerConfig], object]] = [self._resize_pool]
        self.logged_refusals: set[str | None] = set()
        """Mechanisms whose first rejected client has been logged; None for a rejection outside of an exchange."""
        self.refusals = RefusalLog()
        self.creations = TopicCreations(self)
        self.leaders_calls: Mapping[str, type[KafkalogError]] = {}
        """Calls that only a replica set's leader answers, with the error to return; empty while this node leads."""
        self.before_answers: Mapping[str, Callable[[object], Awaitable[None]]] = {}
        """Callbacks by call, awaited with the request before the response, until the change is replicated. An error
        becomes the response. Empty if no other node has to agree."""
        self.forwards: Mapping[str, Callable[[RequestContext, bytearray], Awaitable[Pieces | Close | None]]] = {}
        """Callbacks by call, awaited with the request while another node leads. They return the leader's response, or
        None if it has not answered."""
        self.is_own: Mapping[str, Callable[[object], bool]] = {}
        """Functions by call that return True if the request is this node's own, though another one leads."""
        self.producer_ids: asyncio.Future[ProducerIds] | None = None
        """Source of producer ids on a node of a replica set; set on first use."""
        self._started: list[str] = []
        self.store: LogManager = opened.manager
        self.node_id = opened.identity.node_id
        self.cluster_id = opened.identity.cluster_id
        self.metrics = ServerMetrics()
        self.requests = self.metrics.requests
        self.started_ms = clock.milliseconds()
        self.clock: Callable[[], int] = clock.milliseconds
        self.monotonic_ms: Callable[[], int] = clock.monotonic_ms
        self.later: Later = call_later if later is None else later
        self.pool = CallPool(config["num.io.threads"], self.metrics.queue)
        self.run: Run = self.pool.run
        self.large = asyncio.Semaphore(1)
        """Serializes work on large messages, so that their memory does not add up."""
        self.topic_patterns = TopicPatterns(self)
        self.endpoints: dict[str, tuple[str, int]] = {}
        """Listener -> (host, port) advertised to clients."""
        self.parts: dict[str, Part] = make_parts(self)

    def endpoint(self, listener: str) -> tuple[str, int]:
        """Return the host and port advertised to a listener's clients. Raise IllegalArgument for an unknown name."""
        found = self.endpoints.get(listener)
        if found is None:
            raise IllegalArgument(f"there is no listener {listener!r}", hint=f"listeners: {', '.join(self.endpoints)}")
        return found

    def alter_config(self, changes: Mapping[str, str | None]) -> None:
        """Change settings at run time; None resets one to its default. Raise ConfigError if one cannot change."""
        fixed = sorted(name for name in changes if not self.config.key(name).dynamic)
        if fixed:
            hint = "restart the server with the new value"
            raise ConfigError(f"{fixed[0]} cannot change while the server runs", hint=hint)
        changed = self.config.with_(changes)
        of_store = {name: value for name, value in changes.items() if name in STORE_NAMES}
        if of_store:
            self.opened.alter_config(of_store)
        self.config = changed
        for callback in self.on_config_change:
            callback(changed)

    def disconnected(self, connection_id: int) -> None:
        """Forget what is kept for a client's connection, which has ended."""
        self.shares.disconnected(connection_id)
        if self.telemetry is not None:
            self.telemetry.disconnected(connection_id)

    def _resize_pool(self, config: ServerConfig) -> None:
        self.pool.resize(config["num.io.threads"])

    async def start(self, names: Container[str] | None = None) -> None:
        """Start the parts in order: all of them, or those with these names."""
        for name, part in tuple(self.parts.items()):
            if names is not None and name not in names:
                continue
            if name in OF_THE_LEADER and self.quorum.replica_set is not None:
                continue  # `leading` starts them while this node leads
            if name in OF_THE_MAIN_PROCESS and self.owner is not None:
                continue
            await part.start()
            self._started.append(name)

    async def stop_parts(self) -> None:
        """Stop all parts, the last one first, even if some fail; then raise the first error."""
        await self.creations.stop()
        failures: list[Exception] = []
        while self._started:
            name = self._started.pop()
            try:
                await self.parts[name].stop()
            except Exception as error:
                _LOG.error("cannot stop the %s", name, exc_info=error)
                failures.append(error)
        if failures:
            raise failures[0]

    async def close(self, *, discards: bool = False) -> None:
        """End the threads and close the store. As `LogManager.close`."""
        await asyncio.to_thread(self._close, discards)

    def _close(self, discards: bool) -> None:
        self.pool.close()
        self.opened.close(discards=discards)

    async def stop(self) -> None:
        """Stop the parts, and close the store in any case."""
        try:
            await self.stop_parts()
        finally:
            await self.close()


def _telemetry_of(node: Node, receiver: Receiver) -> Telemetry:
    """Return what a node with a receiver of clients' metrics has; few have one."""
    from kafkalog.server.requests.telemetry import Telemetry

    return Telemetry(node, receiver)


def call_later(delay_ms: float, callback: Callable[[*Ts], object], /, *args: *Ts) -> asyncio.TimerHandle:
    """Call `callback` after `delay_ms` on the running loop; the returned handle has `cancel()`."""
    return asyncio.get_running_loop().call_later(delay_ms / 1000, callback, *args)
