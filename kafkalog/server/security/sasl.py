"""Authentication of a connection by PLAIN or SCRAM, and reauthentication (RFC 4616, KIP-43, KIP-152, KIP-368).

A failed client gets its answer after `connection.failed.authentication.delay.ms`; then its connection is closed.
"""

from __future__ import annotations

import asyncio
import hmac
import logging
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, NamedTuple

from kafkalog.server.error_codes import ErrorCode
from kafkalog.server.requests.context import Connection
from kafkalog.server.security.jaas import plain_users
from kafkalog.server.security.scram import LoginFailed, ScramServer

if TYPE_CHECKING:
    from kafkalog.server.node.node import Node

_LOG: Final = logging.getLogger(__name__)
PLAIN: Final = "PLAIN"
MIN_INTERVAL_MS: Final = 1000
"""Minimum time before a client may reauthenticate."""


class Outcome(NamedTuple):
    """Answer of SaslAuthenticate; a lifetime of 0 is unlimited."""

    error_code: int
    message: str | None = None
    token: bytes = b""
    lifetime_ms: int = 0


@dataclass(slots=True, eq=False)
class Session:
    """Authentication state of a connection."""

    pending: str | None = None  # mechanism of the exchange in progress
    scram: ScramServer | None = None
    is_bare: bool = False  # after SaslHandshake 0: frames are messages of the mechanism, without a header
    mechanism: str | None = None  # of the last successful authentication
    authenticated_ms: int = 0
    expiry: asyncio.TimerHandle | None = None

    def end(self) -> None:
        """Cancel the expiry timer, so that it does not keep a closed connection alive."""
        if self.expiry is not None:
            self.expiry.cancel()
            self.expiry = None


def has_sasl(connection: Connection) -> bool:
    """Return True if the listener requires authentication."""
    return connection.security_protocol.startswith("SASL_")


def mechanisms_of(node: Node, connection: Connection) -> tuple[str, ...]:
    """Return the mechanisms of a connection's listener."""
    return tuple(node.config.of_listener(connection.listener, "sasl.enabled.mechanisms"))


def _may_reauthenticate(node: Node, connection: Connection) -> bool:
    """Return True if the client has authenticated and may reauthenticate."""
    lifetime_ms = node.config.of_listener(connection.listener, "connections.max.reauth.ms")
    return connection.sasl is not None and connection.sasl.mechanism is not None and lifetime_ms > 0


def begin(node: Node, connection: Connection, mechanism: str, *, is_bare: bool = False) -> ErrorCode:
    """Begin an exchange and return the code for SaslHandshake. LoginFailed if the connection must be closed."""
    if not has_sasl(connection) or (connection.is_authenticated and not _may_reauthenticate(node, connection)):
        return ErrorCode.ILLEGAL_SASL_STATE
    session = connection.sasl or Session()
    connection.sasl = session
    if session.pending is not None:
        raise LoginFailed("a handshake during another one")
    if session.mechanism is not None:
        if mechanism != session.mechanism:
            raise LoginFailed(f"the mechanism changes from {session.mechanism} to {ascii(mechanism[:40])}")
        if node.monotonic_ms() - session.authenticated_ms < MIN_INTERVAL_MS:
            raise LoginFailed("it reauthenticates within a second")
    if mechanism not in mechanisms_of(node, connection):
        return ErrorCode.UNSUPPORTED_SASL_MECHANISM
    session.pending, session.is_bare = mechanism, is_bare
    session.scram = None if mechanism == PLAIN else node.credentials.scram(mechanism)
    return ErrorCode.NONE


async def authenticate(node: Node, connection: Connection, token: bytes) -> Outcome:
    """Answer one message of the exchange; the last one authenticates the client.

    LoginFailed if no exchange has begun: the connection must be closed.
    """
    session, began_ms = connection.sasl, node.monotonic_ms()
    if not has_sasl(connection) or session is None or session.pending is None:
        if connection.is_authenticated:
            message = "SaslAuthenticate request received after successful authentication"
            return Outcome(ErrorCode.ILLEGAL_SASL_STATE, message)
        raise LoginFailed("a message before the handshake")
    try:
        if len(token) > node.config.of_listener(connection.listener, "sasl.server.max.receive.size"):
            raise LoginFailed("the message is too long")
        if session.scram is None:
            user: str | None = await _authenticate_plain(node, connection, token)
            answer = b""
        else:
            answer = session.scram.answer(token)
            user = session.scram.user
        if user is not None and session.mechanism is not None and connection.principal != f"User:{user}":
            raise LoginFailed(f"the user changes from {connection.principal} to {ascii(user[:80])}")
    except LoginFailed as error:
        return await _fail(node, connection, session, error, began_ms)
    if user is None:
        return Outcome(ErrorCode.NONE, None, answer)
    return Outcome(ErrorCode.NONE, None, answer, _succeed(node, connection, session, user))


async def authenticate_bare(node: Node, connection: Connection, token: bytes) -> bytes | None:
    """Authenticate a client that sends no headers. Return the answer's token, or None to close the connection."""
    try:
        outcome = await authenticate(node, connection, token)
    except LoginFailed as error:
        log_failure(node, connection, error)
        return None
    return None if outcome.error_code else outcome.token


def log_failure(node: Node, connection: Connection, error: LoginFailed, mechanism: str | None = None) -> None:
    """Log the first refusal by a mechanism (None: outside of an exchange) as a warning, further ones at DEBUG.

    This prevents clients from flooding the log. `mechanism` must be one of the listener's: with names from clients,
    each new name would log a warning.
    """
    is_first = mechanism not in node.logged_refusals
    node.logged_refusals.add(mechanism)
    by = "" if mechanism is None else f" by {mechanism}"
    more = "; further failures are counted, and logged at DEBUG" if is_first else ""
    level = logging.WARNING if is_first else logging.DEBUG
    _LOG.log(level, "%s failed to authenticate%s: %s%s", connection.peer_host, by, error, more)


async def _authenticate_plain(node: Node, connection: Connection, token: bytes) -> str:
    try:
        parts = token.decode().split("\0")
    except UnicodeDecodeError:
        raise LoginFailed("the message is not UTF-8") from None
    if len(parts) != 3 or not parts[1] or not parts[2]:
        raise LoginFailed("the message is not valid PLAIN")
    authorization_id, user, password = parts
    given = node.config.listener_setting(connection.listener, "plain.sasl.jaas.config")
    users = plain_users(given) if given else {}
    if user in users:
        is_valid = hmac.compare_digest(users[user].encode(), password.encode())
    else:
        is_valid = await node.credentials.is_password(user, password)
    if not is_valid:
        raise LoginFailed(f"wrong password for {ascii(user[:80])}, or unknown user")
    if authorization_id not in ("", user):
        raise LoginFailed("the user asks to act as another user")
    return user


async def _fail(node: Node, connection: Connection, session: Session, error: LoginFailed, began_ms: int) -> Outcome:
    mechanism = session.pending
    node.metrics.network.refuse("authentication")
    log_failure(node, connection, error, mechanism)
    session.pending, session.scram, session.is_bare = None, None, False
    connection.is_authenticated = False
    # counted from the message, since the duration of the check would reveal whether the user exists
    until_ms = began_ms + node.config["connection.failed.authentication.delay.ms"]
    await asyncio.sleep(max(0, until_ms - node.monotonic_ms()) / 1000)
    connection.closes_after_answer = True
    if mechanism == PLAIN:
        message = "Authentication failed: Invalid username or password"
    else:
        message = "Authentication failed during authentication due to invalid credentials with SASL mechanism "
        message += str(mechanism)
    return Outcome(ErrorCode.SASL_AUTHENTICATION_FAILED, message)


def _succeed(node: Node, connection: Connection, session: Session, user: str) -> int:
    """Mark the connection as authenticated; return the lifetime in ms, 0 for that of the connection."""
    session.mechanism, session.pending, session.scram, session.is_bare = session.pending, None, None, False
    session.authenticated_ms = node.monotonic_ms()
    connection.principal = f"User:{user}"
    connection.is_authenticated = True
    session.end()
    lifetime_ms = int(node.config.of_listener(connection.listener, "connections.max.reauth.ms"))
    if lifetime_ms > 0:
        session.expiry = node.later(lifetime_ms, _expire, connection)
    return max(lifetime_ms, 0)


def _expire(connection: Connection) -> None:
    """Require the client to reauthenticate before any other request."""
    connection.is_authenticated = False
