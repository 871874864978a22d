"""Who asks: a client's connection, and one request of it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final, final

from kafkalog.server.wire.fetch_response import FetchAnswer
from kafkalog.server.wire.produce_response import ProduceAnswer

ANONYMOUS: Final = "User:ANONYMOUS"


@final
class Close:
    """The answer that is none: the connection is closed."""

    __slots__ = ()

    def __repr__(self) -> str:
        return "CLOSE"


CLOSE: Final = Close()

Answer = Mapping[str, Any] | FetchAnswer | ProduceAnswer | bytes | Close | None
"""What a handler gives: a response as a tree by kio's names, a fetch's or a produce's, one that is written already (all
that follows the correlation id), CLOSE, or None where nothing is sent."""


class Connection:
    """A client's connection as handlers see it. `principal` is `User:ANONYMOUS` until it is authenticated."""

    __slots__ = (
        "closes_after_answer", "id", "is_authenticated", "listener", "may_cancel", "mute_until_ms",
        "peer_host", "peer_port", "principal", "sasl", "security_protocol", "software_name",
        "software_version",
    )  # fmt: skip

    def __init__(
        self,
        id: int,
        listener: str,
        security_protocol: str = "PLAINTEXT",
        peer: tuple[str, int] = ("127.0.0.1", 0),
    ) -> None:
        self.id = id
        self.listener = listener
        self.security_protocol = security_protocol  # PLAINTEXT, SSL, SASL_PLAINTEXT, SASL_SSL
        self.peer_host, self.peer_port = peer
        self.principal = ANONYMOUS
        self.software_name = ""
        self.software_version = ""
        self.sasl: Any = None  # what an authentication that has begun must remember
        self.is_authenticated = not security_protocol.startswith("SASL_")
        self.may_cancel = False  # whether its request ends when the client goes away while it waits
        self.closes_after_answer = False  # it is told what was wrong, and no more is taken from it
        self.mute_until_ms = 0  # monotonic: nothing is read from it before

    def __repr__(self) -> str:
        return f"<Connection {self.id} of {self.peer_host}:{self.peer_port}, {self.principal}>"


class RequestContext:
    """One request. `client_id` is "" where the client gave none, `received_ms` is wall time."""

    __slots__ = (
        "api_key", "api_version", "client_id", "connection", "correlation_id", "received_ms", "size_bytes",
        "throttle_ms",
    )  # fmt: skip

    def __init__(
        self,
        api_key: int,
        api_version: int,
        correlation_id: int,
        client_id: str,
        connection: Connection,
        received_ms: int,
        size_bytes: int,
    ) -> None:
        self.api_key = api_key
        self.api_version = api_version
        self.correlation_id = correlation_id
        self.client_id = client_id
        self.connection = connection
        self.received_ms = received_ms
        self.size_bytes = size_bytes
        self.throttle_ms = 0  # what quotas ask for: told to the client, and the connection is muted for so long

    @property
    def principal(self) -> str:
        """Who asks, as ACLs name it."""
        return self.connection.principal
