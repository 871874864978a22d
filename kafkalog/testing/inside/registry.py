"""The schema registry of a server process. In a cluster the leader's registry answers; others forward to it."""

from __future__ import annotations

import asyncio
import http.client
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager, closing
from http import HTTPStatus
from typing import TYPE_CHECKING, Final, Self

from kafkalog.server.registry.errors import RestError
from kafkalog.server.registry.listener import RegistryListener, headers_of
from kafkalog.server.status.http import Page

if TYPE_CHECKING:
    from kafkalog.server.serving import Server

LOOPBACK: Final = "127.0.0.1"
_FORWARDED: Final = "X-Kafkalog-Forwarded"
_FORWARD_S: Final = 30
_NO_LEADER: Final = 50004
_NOT_FORWARDED: Final = 50003
"""The original's codes for a secondary instance that does not know its primary, or cannot reach it."""


class NodeRegistry(RegistryListener):
    """The registry of one node; `ports` has those of all nodes by their numbers, and is empty for a single server."""

    def __init__(self, port: int, server: Server, ports: Mapping[int, int]) -> None:
        super().__init__(LOOPBACK, port, lambda: server.node)
        self._kafka = server
        self._ports = ports

    @classmethod
    @asynccontextmanager
    async def serving(cls, port: int, server: Server, ports: Mapping[int, int]) -> AsyncIterator[Self]:
        """Serve until the block ends, at any free port for 0."""
        listener = cls(port, server, ports)
        await listener.start()
        try:
            yield listener
        finally:
            await listener.stop()

    async def respond(self, method: str, target: str, head: bytes, body: bytes) -> Page:
        quorum = self._kafka.node.quorum
        if quorum.leads:
            return await super().respond(method, target, head, body)
        port = self._ports.get(quorum.leader)
        if port is None or _FORWARDED.lower().encode() in headers_of(head):
            raise RestError(_NO_LEADER, "Error while forwarding the request: no node leads")
        try:
            return await asyncio.to_thread(_forward, port, method, target, body)
        except (OSError, http.client.HTTPException) as error:
            raise RestError(_NOT_FORWARDED, f"Error while forwarding the request to the leader: {error}") from None


def _forward(port: int, method: str, target: str, body: bytes) -> Page:
    """Return the response of another node's registry. OSError, HTTPException."""
    with closing(http.client.HTTPConnection(LOOPBACK, port, timeout=_FORWARD_S)) as connection:
        connection.request(method, target, body, {_FORWARDED: "true"})
        answer = connection.getresponse()
        content_type = answer.headers.get("Content-Type", "application/json")
        return Page(answer.read().decode(), content_type, HTTPStatus(answer.status))
