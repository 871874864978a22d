"""Connection setup with a peer: TLS, versions and login."""

from __future__ import annotations

import asyncio
import socket
import ssl
from typing import Final

from kafkalog._version import __version__
from kafkalog.errors import MalformedRequest
from kafkalog.server.client.connection import PeerConnection
from kafkalog.server.client.errors import PeerError, PeerMisbehaved, PeerRefused, PeerTimedOut, PeerUnreachable
from kafkalog.server.client.scram import ScramClient
from kafkalog.server.client.settings import PeerSettings
from kafkalog.server.error_codes import ErrorCode
from kafkalog.server.wire.versions import API_VERSIONS

_SASL_HANDSHAKE: Final = 17
_SASL_AUTHENTICATE: Final = 36
_API_VERSIONS_VERSION: Final = 3
PLAIN: Final = "PLAIN"


async def connect(host: str, port: int, settings: PeerSettings | None = None) -> PeerConnection:
    """Open a connection that is ready for requests: TLS is established, versions are known, the login is done.

    Raises PeerUnreachable, PeerTimedOut, PeerRefused (for its certificate or our password), PeerMisbehaved.
    """
    effective = PeerSettings() if settings is None else settings
    peer = f"[{host}]:{port}" if ":" in host else f"{host}:{port}"
    loop = asyncio.get_running_loop()
    connection: PeerConnection | None = None
    is_ready = False
    try:
        async with asyncio.timeout(effective.connect_ms / 1000):
            transport, connection = await loop.create_connection(
                lambda: PeerConnection(peer, effective), host, port, ssl=effective.tls,
                server_hostname=host if effective.tls is not None else None,
            )  # fmt: skip
            if effective.receive_buffer_bytes >= 0:
                receiving = transport.get_extra_info("socket")
                receiving.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, effective.receive_buffer_bytes)
            await _learn_versions(connection)
            if effective.mechanism is not None:
                await _log_in(connection, effective, effective.mechanism)
            is_ready = True
            return connection
    except OSError as error:
        raise _as_peer_error(error, peer, effective.connect_ms) from error
    finally:
        if connection is not None and not is_ready:
            await connection.close()


def _as_peer_error(error: OSError, peer: str, connect_ms: int) -> PeerError:
    if isinstance(error, PeerError):
        return error
    if isinstance(error, TimeoutError):
        return PeerTimedOut(f"no connection within {connect_ms} ms", peer=peer)
    if isinstance(error, ssl.SSLError):
        hint = "set ssl.truststore.location to the certificates of the authorities that sign those of servers"
        return PeerRefused(f"TLS failed: {error.reason or error}", peer=peer, hint=hint)
    return PeerUnreachable(f"no connection: {error.strerror or error}", peer=peer)


async def _learn_versions(connection: PeerConnection) -> None:
    tree = {"client_software_name": "kafkalog", "client_software_version": __version__.replace("+", "-")}
    answer = await connection.request(API_VERSIONS, tree, version=_API_VERSIONS_VERSION)
    if answer.error_code == ErrorCode.UNSUPPORTED_VERSION:
        answer = await connection.request(API_VERSIONS, {}, version=0)
    if answer.error_code:
        raise PeerRefused(f"it did not list its APIs: error {answer.error_code}", peer=connection.peer)
    connection.versions = {row.api_key: (row.min_version, row.max_version) for row in answer.api_keys}


async def _log_in(connection: PeerConnection, effective: PeerSettings, mechanism: str) -> None:
    handshake = await connection.request(_SASL_HANDSHAKE, {"mechanism": mechanism}, version=1)
    if handshake.error_code:
        offered = ", ".join(handshake.mechanisms)[:200]
        raise PeerRefused(f"it does not support {mechanism}", peer=connection.peer, hint=f"it offers {offered}")
    if mechanism == PLAIN:
        await _send_token(connection, f"\0{effective.user}\0{effective.password}".encode())
        return
    scram = ScramClient(mechanism, effective.user, effective.password)
    try:
        proof = scram.second(await _send_token(connection, scram.first()))
        is_verified = scram.verify(await _send_token(connection, proof))
    except MalformedRequest as error:
        raise PeerMisbehaved(f"invalid {mechanism} exchange: {error.message}", peer=connection.peer) from None
    if not is_verified:
        raise PeerRefused("it cannot prove that it knows the password: it may be an impostor", peer=connection.peer)


async def _send_token(connection: PeerConnection, token: bytes) -> bytes:
    answer = await connection.request(_SASL_AUTHENTICATE, {"auth_bytes": token})
    if answer.error_code:
        message = (answer.error_message or "authentication failed")[:200]
        raise PeerRefused(message, peer=connection.peer, hint="check the user and password in sasl.jaas.config")
    return bytes(answer.auth_bytes)
