"""One connection from a node to each other node of its replica set, opened on first use."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from dataclasses import replace
from typing import Any, Final

from kafkalog.config.keys import MAX_INT
from kafkalog.errors import ConfigError
from kafkalog.server.client.connection import PeerConnection
from kafkalog.server.client.login import connect
from kafkalog.server.client.settings import PeerSettings, peer_settings
from kafkalog.server.net.endpoints import listeners_of
from kafkalog.server.quorum.replica_set import ReplicaSet
from kafkalog.server.settings.config import ServerConfig
from kafkalog.util.hosts import is_loopback
from kafkalog.util.shielded import shielded

_TLS_NAMES: Final = (
    "ssl.truststore.location", "ssl.truststore.certificates", "ssl.keystore.location", "ssl.key.password",
)  # fmt: skip
_PROTOCOL: Final = "security.inter.broker.protocol"
_LISTENER: Final = "inter.broker.listener.name"


class PeerLinks:
    """Connections to the other nodes. The event loop owns it; the next request reopens a failed connection."""

    def __init__(self, replicas: ReplicaSet, settings: PeerSettings) -> None:
        self._replicas = replicas
        self._settings = settings
        self._links: dict[int, asyncio.Task[PeerConnection]] = {}

    async def ask(self, node_id: int, api_key: int, request: Mapping[str, object]) -> Any:
        """Send a request and return the response, with kio's names. PeerError."""
        return await (await self._link(node_id)).request(api_key, request)

    def is_private(self, node_id: int) -> bool:
        """Return True if requests to the node use TLS or the loopback interface."""
        return self._settings.tls is not None or is_loopback(self._replicas[node_id].host)

    async def close(self) -> None:
        """Close all connections."""
        links, self._links = list(self._links.values()), {}
        for link in links:
            if not link.done():
                link.cancel()
        for found in await asyncio.gather(*links, return_exceptions=True):
            if isinstance(found, PeerConnection):
                await found.close()

    async def _link(self, node_id: int) -> PeerConnection:
        link = self._links.get(node_id)
        if link is None or _is_over(link):
            member = self._replicas[node_id]
            link = asyncio.get_running_loop().create_task(connect(member.host, member.port, self._settings))
            self._links[node_id] = link
        return await shielded(link)  # others may wait for it as well


def _is_over(link: asyncio.Task[PeerConnection]) -> bool:
    return link.done() and (link.cancelled() or link.exception() is not None or not link.result().is_open)


def settings_of(config: ServerConfig) -> PeerSettings:
    """Return the settings for connections to the other nodes, from the server's settings. ConfigError, StorageError."""
    listener = config[_LISTENER]
    tls = {name: config[name] if listener is None else config.of_listener(listener, name) for name in _TLS_NAMES}
    given = {
        "client.id": f"kafkalog-replica-{config['node.id']}",
        "security.protocol": _protocol_of(config),
        "sasl.mechanism": config["sasl.mechanism.inter.broker.protocol"],
        "sasl.jaas.config": config["kafkalog.replicas.jaas.config"],
        **tls,
    }
    found = peer_settings({name: value for name, value in given.items() if value is not None})
    most = max(found.max_answer_bytes, min(MAX_INT, 2 * config["replica.fetch.response.max.bytes"]))
    return replace(
        found, max_answer_bytes=most, receive_buffer_bytes=config["replica.socket.receive.buffer.bytes"]
    )


def _protocol_of(config: ServerConfig) -> str:
    name = config[_LISTENER]
    if name is None:
        return str(config[_PROTOCOL])
    if config.is_set(_PROTOCOL):
        raise ConfigError(f"{_LISTENER} and {_PROTOCOL} are both set", hint="set one of them")
    for one in listeners_of(config):
        if one.name == name.upper():
            return one.protocol
    raise ConfigError(f"{_LISTENER}={name}, but no listener has this name", hint="use a name from listeners")
