"""Settings for connections to a peer, with the names of Kafka's clients."""

from __future__ import annotations

import ssl
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import partial
from typing import Final

from kafkalog.errors import ConfigError, StorageError
from kafkalog.server.security.jaas import own_login
from kafkalog.server.settings.table import MECHANISMS

_PROTOCOLS: Final = ("PLAINTEXT", "SSL", "SASL_PLAINTEXT", "SASL_SSL")
_TRUST: Final = "ssl.truststore.location"
_TRUST_TEXT: Final = "ssl.truststore.certificates"
_KEYS: Final = "ssl.keystore.location"


@dataclass(frozen=True, slots=True)
class PeerSettings:
    """Settings shared by all connections to a peer; times are in ms. Without `mechanism` there is no login."""

    client_id: str = "kafkalog"
    tls: ssl.SSLContext | None = None
    mechanism: str | None = None
    user: str = ""
    password: str = field(default="", repr=False)
    connect_ms: int = 10_000
    request_ms: int = 30_000
    max_answer_bytes: int = 128 << 20
    receive_buffer_bytes: int = -1
    """SO_RCVBUF in bytes; -1: the system's default, which grows."""


def peer_settings(given: Mapping[str, str]) -> PeerSettings:
    """Return the settings of a client's properties; other names are ignored.

    `security.protocol`, `sasl.mechanism`, `sasl.jaas.config`, `ssl.truststore.location` or `.certificates`,
    `ssl.keystore.location` and `ssl.key.password` (PEM), `ssl.endpoint.identification.algorithm` (https, or empty),
    `client.id`, `request.timeout.ms`, `socket.connection.setup.timeout.ms`. Raises ConfigError, StorageError.
    """
    protocol = given.get("security.protocol", "PLAINTEXT").upper()
    if protocol not in _PROTOCOLS:
        raise ConfigError(f"security.protocol={protocol}", hint=f"it takes {', '.join(_PROTOCOLS)}")
    mechanism, user, password = None, "", ""
    if protocol.startswith("SASL"):
        mechanism = given.get("sasl.mechanism", "")
        if mechanism not in MECHANISMS:
            raise ConfigError(f"sasl.mechanism={mechanism}", hint=f"it takes {', '.join(MECHANISMS)}")
        user, password = own_login(given.get("sasl.jaas.config", ""))
    usual = PeerSettings()
    return PeerSettings(
        client_id=given.get("client.id", usual.client_id),
        tls=client_tls(given) if protocol.endswith("SSL") else None,
        mechanism=mechanism,
        user=user,
        password=password,
        connect_ms=_number(given, "socket.connection.setup.timeout.ms", usual.connect_ms),
        request_ms=_number(given, "request.timeout.ms", usual.request_ms),
    )


def client_tls(given: Mapping[str, str]) -> ssl.SSLContext:
    """Return a TLS context that trusts the given authorities, else the system's, with our certificate if set."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname = given.get("ssl.endpoint.identification.algorithm", "https").lower() == "https"
    if given.get(_TRUST):
        _told(_TRUST, context.load_verify_locations, given[_TRUST])
    elif given.get(_TRUST_TEXT):
        _told(_TRUST_TEXT, partial(context.load_verify_locations, cadata=given[_TRUST_TEXT]))
    else:
        context.load_default_certs()
    if given.get(_KEYS):
        password = given.get("ssl.key.password", "")  # no prompt at a terminal
        _told(_KEYS, partial(context.load_cert_chain, given[_KEYS], password=password))
    return context


def _told(name: str, call: Callable[..., object], *args: object) -> None:
    try:
        call(*args)
    except ssl.SSLError as error:
        raise ConfigError(f"{name}: OpenSSL does not take it: {error.reason or error}", hint="it takes PEM") from None
    except OSError as error:
        raise StorageError.from_os(error, f"read {name}") from error


def _number(given: Mapping[str, str], name: str, usual: int) -> int:
    text = given.get(name)
    if text is None:
        return usual
    if not text.strip().isascii() or not text.strip().isdigit() or not int(text):
        raise ConfigError(f"{name}={text}", hint="it takes a number of ms above 0")
    return int(text)
