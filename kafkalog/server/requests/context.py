"""A client's connection and one of its requests, as handlers see them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, final

from kafkalog.util.hosts import is_loopback

if TYPE_CHECKING:
    from kafkalog.server.security.sasl import Session

ANONYMOUS: Final = "User:ANONYMOUS"


@final
class Close:
    """Close the connection without a response."""

    __slots__ = ()

    def __repr__(self) -> str:
        return "CLOSE"


CLOSE: Final = Close()

Answer = Mapping[str, object] | bytes | Close | None
"""Result of a handler: a response as a tree by kio's names, a serialized response (the bytes after the correlation id),
CLOSE, or None if nothing is sent."""


class Connection:
    """A client's connection as handlers see it. `principal` is `User:ANONYMOUS` until it is authenticated."""

    __slots__ = (
        "closes_after_answer", "id", "is_authenticated", "is_open", "listener", "may_cancel", "mute_until_ms",
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
        self.sasl: Session | None = None  # state of an authentication that has begun
        self.is_authenticated = not security_protocol.startswith("SASL_")
        self.is_open = True
        self.may_cancel = False  # a waiting request is cancelled if the client disconnects
        self.closes_after_answer = False  # closes after the response, which reports an error
        self.mute_until_ms = 0  # monotonic time until which nothing is read from it

    @property
    def is_private(self) -> bool:
        """True if the connection uses TLS or the loopback interface; password keys are sent over no other."""
        return self.security_protocol.endswith("SSL") or is_loopback(self.peer_host)

    def __repr__(self) -> str:
        return f"<Connection {self.id} of {self.peer_host}:{self.peer_port}, {self.principal}>"


@dataclass(slots=True, eq=False)
class RequestContext:
    """One request. `client_id` is "" if the client sent none."""

    api_key: int
    api_version: int
    correlation_id: int
    client_id: str
    connection: Connection
    size_bytes: int
    throttle_ms: int = 0  # set by quotas: sent to the client, and the connection is muted for that long
    is_between_nodes: bool = False  # no quota counts it

    @property
    def principal(self) -> str:
        """The client's principal, in the form used in ACLs."""
        return self.connection.principal
