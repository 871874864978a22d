"""Listeners, and the state shared by all connections: limits, the read buffer, memory counts."""

from __future__ import annotations

import asyncio
import errno
import logging
import resource
import select
import socket
import ssl
from collections import Counter
from collections.abc import Callable, Coroutine, Iterable
from functools import partial
from typing import TYPE_CHECKING, Final

from kafkalog.errors import ConfigError, StorageError
from kafkalog.server.net.connection import Channel
from kafkalog.server.net.endpoints import Endpoint
from kafkalog.server.net.request_memory import SMALL, UNAUTHENTICATED, RequestMemory
from kafkalog.server.net.tls import PrincipalRules, principal_of, tls_context
from kafkalog.server.net.unfinished import UnfinishedRequests
from kafkalog.server.net.unread import UnreadAnswers
from kafkalog.server.node.pool import CallPool
from kafkalog.server.requests.context import Connection
from kafkalog.server.requests.refusal_log import RefusalLog
from kafkalog.server.settings.config import ServerConfig
from kafkalog.server.settings.table import parse_overrides
from kafkalog.server.status.metrics import NetworkCounts
from kafkalog.util.descriptors import DESCRIPTORS

if TYPE_CHECKING:
    from kafkalog.server.net.connection import Result

_LOG: Final = logging.getLogger(__name__)
BUFFER_BYTES: Final = 1 << 16
_ACCEPTS: Final = 64
_FULL: Final = (errno.EMFILE, errno.ENFILE, errno.ENOBUFS, errno.ENOMEM)
_RETRY_SECONDS: Final = 1.0
_SPARE_DESCRIPTORS: Final = 64
_SWEEP_SECONDS: Final = 10

Dispatch = Callable[[Connection, bytearray], "Coroutine[object, None, Result]"]


class Network:
    """All listeners and connections of a server; used only in the loop's thread.

    `dispatch` turns a frame into a response. No socket is read while `queued.max.requests` calls wait for a thread, and
    no request is begun without room in `memory`.
    """

    def __init__(
        self,
        config: ServerConfig,
        dispatch: Dispatch,
        counts: NetworkCounts,
        pool: CallPool,
        monotonic_ms: Callable[[], int],
    ) -> None:
        self.loop = asyncio.get_running_loop()
        self.dispatch = dispatch
        self.counts = counts
        self.refusals = RefusalLog()
        self.use_pool(pool)
        self.monotonic_ms = monotonic_ms
        self.buffer = memoryview(bytearray(BUFFER_BYTES))
        self.unread = UnreadAnswers(config["kafkalog.queued.max.response.bytes"], counts, self.loop, monotonic_ms)
        self.max_frame_bytes: int = config["socket.request.max.bytes"]
        self.channels: dict[int, Channel] = {}
        self.listeners: dict[str, Listener] = {}
        self.by_address: Counter[str] = Counter()
        self._config = config
        self.backlog: int = config["socket.listen.backlog.size"]
        self._ids = 0
        self._waiting: set[Channel] = set()  # reading is paused: too much is in progress
        self._max_waiting: int = config["queued.max.requests"]
        self._is_resume_scheduled = False  # `_resume_waiting` is scheduled
        self.memory = RequestMemory(config["queued.max.request.bytes"])
        self.unfinished = UnfinishedRequests(self.memory, counts, self.channels, self.loop)
        self._idle_ms: int = config["connections.max.idle.ms"]
        self._accepts = False
        soft = resource.getrlimit(resource.RLIMIT_NOFILE)[0]
        self._most_descriptors = soft if soft != resource.RLIM_INFINITY else 1 << 30
        self._spare = min(_SPARE_DESCRIPTORS, self._most_descriptors // 2)
        self._sweep: asyncio.TimerHandle | None = None
        self.takes_connection: Callable[[str], bool] = lambda _: True
        """Return True if the address's quota allows another connection."""
        self.on_close: Callable[[int], object] = lambda _: None
        """Called with the id of each connection that was closed."""

    def use_pool(self, pool: CallPool) -> None:
        """Run long work in the threads of this pool, and follow its load."""
        self.pool = pool
        self.run = pool.run
        pool.on_change = self._resume_waiting

    def listen(self, endpoint: Endpoint) -> Listener:
        """Bind a listener, which accepts after `accept`. Raise StorageError if the address is not available."""
        listener = self.listeners[endpoint.name] = Listener(self, endpoint, self._config)
        return listener

    def accept(self) -> None:
        """Start accepting connections."""
        self._accepts = True
        for listener in self.listeners.values():
            listener.resume()
        self._sweep_later()

    def apply_config(self, config: ServerConfig) -> None:
        """Apply changed settings: those of `broker_checks.LIVE` take effect at once. Open connections stay open."""
        self._config = config
        self._idle_ms = config["connections.max.idle.ms"]
        for listener in self.listeners.values():
            listener.apply_limits(config)
            if self._accepts:
                listener.resume()
        if self._accepts:
            self._sweep_later()

    # Limits

    def may_read(self, channel: Channel) -> bool:
        """Return True if a connection may be read; otherwise its `resume_reading` is called later."""
        if channel.is_unfinished and channel in self.unfinished.waiting:
            return False
        if self.pool.pending < self.pool.threads + self._max_waiting:
            if self.memory.has_plenty or channel.is_inside_frame:
                return True
            if self.memory.may_begin(SMALL if channel.connection.is_authenticated else UNAUTHENTICATED):
                return True
        self._waiting.add(channel)
        return False

    def _resume_waiting(self) -> None:
        self._is_resume_scheduled = False
        self.unfinished.resume_waiting()
        waiting, self._waiting = self._waiting, set()
        for channel in waiting:
            channel.resume_reading()

    def max_frame_bytes_of(self, connection: Connection) -> int:
        """Return the maximum frame size, which is smaller before authentication."""
        if connection.is_authenticated:
            return self.max_frame_bytes
        max_bytes: int = self._config.of_listener(connection.listener, "sasl.server.max.receive.size")
        return min(max_bytes, self.max_frame_bytes)

    def update_memory(self, before: int, before_bytes: int, after: int, after_bytes: int) -> None:
        """Update the memory count after a connection's kind or size changed."""
        self.memory.move(before, before_bytes, after, after_bytes)
        if before_bytes > after_bytes and not self._is_resume_scheduled and (self._waiting or self.unfinished.is_tight):
            self._is_resume_scheduled = True
            self.loop.call_soon(self._resume_waiting)

    def has_descriptors(self, used: int) -> bool:
        """Return True if a descriptor is free for another connection, beyond the spare ones for logs and modules."""
        return used + len(DESCRIPTORS) + self._spare < self._most_descriptors

    # Connections

    def add_connection(self, sock: socket.socket, listener: Listener, peer: tuple[str, int]) -> None:
        """Set up an accepted connection."""
        self._ids += 1
        if listener.tls is not None:
            sock = listener.tls.wrap_socket(sock, server_side=True, do_handshake_on_connect=False)
        connection = Connection(self._ids, listener.endpoint.name, listener.endpoint.protocol, peer)
        channel = Channel(self, sock, connection, partial(listener.secured, connection))
        self.channels[self._ids] = channel
        self.by_address[peer[0]] += 1
        listener.count += 1
        self.counts.accepted += 1
        self.counts.open += 1
        channel.resume_reading()

    def remove_connection(self, channel: Channel) -> None:
        """Forget a closed connection and let listeners accept again."""
        connection = channel.connection
        if self.channels.pop(connection.id, None) is None:
            return
        self._waiting.discard(channel)
        if channel.is_unfinished:
            self.unfinished.remove(channel)
        if connection.sasl is not None:
            connection.sasl.end()
        connection.is_open = False
        self.on_close(connection.id)
        self.by_address[connection.peer_host] -= 1
        if not self.by_address[connection.peer_host]:
            del self.by_address[connection.peer_host]
        self.counts.open -= 1
        self.listeners[connection.listener].count -= 1
        for listener in self.listeners.values():
            listener.resume()

    def _sweep_later(self) -> None:
        if self._sweep is not None:
            self._sweep.cancel()
        seconds = max(0.05, min(self._idle_ms / 10_000, _SWEEP_SECONDS)) if self._idle_ms > 0 else _SWEEP_SECONDS
        self._sweep = self.loop.call_later(seconds, self._close_unused)

    def _close_unused(self) -> None:
        self._sweep_later()
        if self._idle_ms > 0:
            self._close_idle()
        self._close_disconnected()

    def _close_idle(self) -> None:
        now_ms = self.monotonic_ms()
        for channel in list(self.channels.values()):
            if channel.is_active:
                channel.is_active, channel.active_ms = False, now_ms
            elif channel.active_ms < now_ms - self._idle_ms and not channel.is_waiting:
                self.counts.refuse("idle")
                channel.close()

    def _close_disconnected(self) -> None:
        """Cancel waiting requests of clients that have disconnected, and end unfinished ones that were reset.

        Unread bytes hide the end of stream of the former; the loop may not have reported a reset.
        """
        by_descriptor = {
            one.fileno(): one for one in self.channels.values() if one.may_miss_disconnect or one.is_unfinished
        }
        poll = select.poll()
        for descriptor, one in by_descriptor.items():
            poll.register(descriptor, 0 if one.is_unfinished else getattr(select, "POLLRDHUP", select.POLLHUP))
        for descriptor, _ in poll.poll(0):
            one = by_descriptor[descriptor]
            if one.is_unfinished:
                one.read_on()
            else:
                one.cancel()

    # The end

    def stop_accepting(self) -> None:
        """Close the listeners; connections stay open."""
        for listener in self.listeners.values():
            listener.close()

    async def drain(self, seconds: float) -> None:
        """Close connections without a request now, the others once answered; wait up to `seconds` for that."""
        for channel in list(self.channels.values()):
            channel.end()
        until = self.loop.time() + seconds
        while self.channels and self.loop.time() < until:
            await asyncio.sleep(0.005)

    async def finish(self, seconds: float) -> None:
        """Run `drain`, then cancel the remaining connections."""
        await self.drain(seconds)
        for channel in list(self.channels.values()):
            channel.cancel()
        if self._sweep is not None:
            self._sweep.cancel()


class Listener:
    """One listening socket (or two: an empty host is IPv6 and IPv4 together)."""

    def __init__(self, network: Network, endpoint: Endpoint, config: ServerConfig) -> None:
        self._network = network
        self.endpoint = endpoint
        self.count = 0
        self.apply_limits(config)
        self._buffers = (config["socket.receive.buffer.bytes"], config["socket.send.buffer.bytes"])
        self.tls = tls_context(config, endpoint.name) if endpoint.protocol in ("SSL", "SASL_SSL") else None
        self._rules = PrincipalRules(config.of_listener(endpoint.name, "ssl.principal.mapping.rules"))
        self._sock = _bind(endpoint, config["socket.listen.backlog.size"])
        self._is_accepting = False
        self._is_refusing = False
        self._is_closed = False

    def apply_limits(self, config: ServerConfig) -> None:
        """Apply the connection limits."""
        self._max_of_server: int = config["max.connections"]
        self._max_of_listener: int = config.of_listener(self.endpoint.name, "max.connections")
        self._max_of_address: int = config["max.connections.per.ip"]
        self._overrides = parse_overrides(config["max.connections.per.ip.overrides"])

    @property
    def port(self) -> int:
        """The port it is bound to."""
        return int(self._sock.getsockname()[1])

    def secured(self, connection: Connection, sock: ssl.SSLSocket) -> None:
        """Set the principal from the certificate after the handshake, unless SASL will do so."""
        if connection.security_protocol == "SSL":
            connection.principal = principal_of(sock.getpeercert(), self._rules)

    def resume(self) -> None:
        """Accept connections again, if there is room for one more."""
        if not (self._is_accepting or self._is_refusing or self._is_closed) and self._has_room():
            self._is_accepting = True
            self._network.loop.add_reader(self._sock.fileno(), self._on_acceptable)

    def _pause(self) -> None:
        if self._is_accepting:
            self._is_accepting = False
            self._network.loop.remove_reader(self._sock.fileno())

    def refuse(self) -> None:
        """Refuse new connections until `end_refusal`; the port stays bound, and open connections stay open."""
        if not (self._is_refusing or self._is_closed):
            self._is_refusing = True
            self._pause()
            family, address = self._sock.family, self._sock.getsockname()
            self._sock.close()
            self._sock = socket.socket(family)
            self._sock.setblocking(False)
            self._sock.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            if family == socket.AF_INET6 and self.endpoint.is_everywhere:
                self._sock.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 0)
            self._sock.bind(address)  # without listen(), the system refuses connections to it

    def end_refusal(self) -> None:
        """Accept connections again after `refuse`."""
        if self._is_refusing and not self._is_closed:
            self._sock.listen(self._network.backlog)
            self._is_refusing = False
            self.resume()

    def _has_room(self) -> bool:
        network = self._network
        used = len(network.channels)
        return used < self._max_of_server and self.count < self._max_of_listener and network.has_descriptors(used)

    def _on_acceptable(self) -> None:
        for _ in range(_ACCEPTS):
            if not self._has_room():
                _LOG.warning(
                    "listener %s has %d connections and accepts no more for now: see max.connections and ulimit -n",
                    self.endpoint.name,
                    self.count,
                )
                self._network.counts.refuse("wait_for_room")
                self._pause()
                return
            try:
                sock, address = self._sock.accept()
            except (BlockingIOError, InterruptedError, ConnectionAbortedError):
                return
            except OSError as error:
                if error.errno not in _FULL:
                    raise
                _LOG.error("cannot accept a connection: %s; see ulimit -n", error.strerror)
                self._network.counts.refuse("no_descriptors")
                self._pause()
                self._network.loop.call_later(_RETRY_SECONDS, self.resume)
                return
            try:
                self._set_up(sock, address)
            except OSError:  # already disconnected
                sock.close()

    def _set_up(self, sock: socket.socket, address: tuple[str, int] | tuple[str, int, int, int]) -> None:
        host = address[0].removeprefix("::ffff:")
        if self._network.by_address[host] >= self._overrides.get(host, self._max_of_address):
            self._network.counts.refuse("address_limit")
            sock.close()
            return
        if not self._network.takes_connection(host):
            self._network.counts.refuse("address_rate")
            sock.close()
            return
        sock.setblocking(False)
        sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
        for option, size in zip((socket.SO_RCVBUF, socket.SO_SNDBUF), self._buffers, strict=True):
            if size > 0:
                sock.setsockopt(socket.SOL_SOCKET, option, size)
        self._network.add_connection(sock, self, (host, address[1]))

    def close(self) -> None:
        """Stop accepting."""
        if not self._is_closed:
            self._pause()
            self._is_closed = True
            self._sock.close()


def check_ports(endpoints: Iterable[Endpoint]) -> None:
    """Raise ConfigError or StorageError, as `Network.listen`, unless all these addresses are available.

    Nothing is created, and no data directory is opened.
    """
    sockets = []
    try:
        for endpoint in endpoints:
            sockets.append(_bind(endpoint, 1))
    finally:
        for sock in sockets:
            sock.close()


def _bind(endpoint: Endpoint, backlog: int) -> socket.socket:
    host, port = endpoint.host, endpoint.port
    try:
        if endpoint.is_everywhere and socket.has_dualstack_ipv6() and host != "0.0.0.0":
            sock = socket.create_server(("", port), family=socket.AF_INET6, backlog=backlog, dualstack_ipv6=True)
        else:
            family, *_, address = socket.getaddrinfo(host or "0.0.0.0", port, type=socket.SOCK_STREAM)[0]
            sock = socket.create_server(address[:2], family=family, backlog=backlog)
    except socket.gaierror as error:
        raise ConfigError(f"listener {endpoint.name}: unknown host {host!r}: {error.strerror}") from None
    except OSError as error:
        where = f"{host}:{port}"
        in_use = "another process uses the port: stop it, or choose another port"
        raise StorageError(
            f"cannot listen at {where}: {error.strerror or error}",
            errno=error.errno,
            hint=in_use if error.errno == errno.EADDRINUSE else None,
        ) from None
    sock.setblocking(False)
    return sock
