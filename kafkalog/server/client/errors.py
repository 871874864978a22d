"""What goes wrong between here and another server: each error names the peer, and is a builtin ConnectionError too."""

from __future__ import annotations

from typing import Any

from kafkalog.errors import KafkalogError


class PeerError(KafkalogError, ConnectionError):
    """Something failed between here and another server; `peer` is its "HOST:PORT". The connection is given up."""

    retriable = True

    def __init__(self, message: str = "", *, peer: str | None = None, **where: Any) -> None:
        super().__init__(message if peer is None else f"{peer}: {message}", **where)
        self.peer = peer


class PeerUnreachable(PeerError):
    """The peer takes no connection, or has closed the one there was."""


class PeerTimedOut(PeerError, TimeoutError):
    """The peer did not answer in time."""

    code = 7


class PeerRefused(PeerError):
    """The peer does not let us in, is not who it should be, or serves nothing that is asked of it."""

    retriable = False


class PeerMisbehaved(PeerError):
    """What the peer sent is no answer of Kafka's protocol to what it was asked."""
