"""Errors of requests to another server. Each names the peer and is also a builtin ConnectionError."""

from __future__ import annotations

from typing import Any

from kafkalog.errors import KafkalogError


class PeerError(KafkalogError, ConnectionError):
    """A request or connection to another server failed; `peer` is its "HOST:PORT". The connection is closed."""

    retriable = True

    def __init__(self, message: str = "", *, peer: str | None = None, **where: Any) -> None:
        super().__init__(message if peer is None else f"{peer}: {message}", **where)
        self.peer = peer


class PeerUnreachable(PeerError):
    """The peer accepts no connection, or the connection was closed."""


class PeerTimedOut(PeerError, TimeoutError):
    """The peer did not answer in time."""

    code = 7


class PeerRefused(PeerError):
    """The peer rejected the login, failed its own authentication, or does not serve the call."""

    retriable = False


class PeerMisbehaved(PeerError):
    """The peer's data is not a valid response to the request."""
