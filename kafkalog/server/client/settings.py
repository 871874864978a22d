"""Settings for connections to a peer, with the names of Kafka's clients."""

from __future__ import annotations

import ssl
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import partial
from typing import Final

from kafkalog.errors import ConfigError, UnknownConfig
from kafkalog.server.net.tls import call_openssl
from kafkalog.server.security.jaas import own_login
from kafkalog.server.settings.table import MECHANISMS, PROTOCOLS

_TRUST: Final = "ssl.truststore.location"
_TRUST_TEXT: Final = "ssl.truststore.certificates"
_KEYS: Final = "ssl.keystore.location"
_NAMES: Final = (
    "security.protocol", "sasl.mechanism", "sasl.jaas.config", _TRUST, _TRUST_TEXT, _KEYS, "ssl.key.password",
    "ssl.endpoint.identification.algorithm", "client.id", "request.timeout.ms", "delivery.timeout.ms",
    "socket.connection.setup.timeout.ms",
)  # fmt: skip
_OTHER_NAMES: Final = frozenset({
    "sasl.mechanisms", "socket.connection.setup.timeout.max.ms", "ssl.key.location", "ssl.keystore.password",
})  # fmt: skip
"""Names of settings of Kafka's clients and librdkafka that could be taken for misspelled names in `_NAMES`."""
_TYPO: Final = 0.86
"""Similarity from which an unknown name counts as a misspelled one."""


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
    delivery_ms: int = 120_000
    max_answer_bytes: int = 128 << 20
    receive_buffer_bytes: int = -1
    """SO_RCVBUF in bytes; -1: the system's default, which grows."""


def peer_settings(given: Mapping[str, str]) -> PeerSettings:
    """Return the settings of a client's properties; other names are ignored, unless one is similar to these.

    `security.protocol`, `sasl.mechanism`, `sasl.jaas.config`, `ssl.truststore.location` or `.certificates`,
    `ssl.keystore.location` and `ssl.key.password` (PEM), `ssl.endpoint.identification.algorithm` (https, or empty),
    `client.id`, `request.timeout.ms`, `delivery.timeout.ms`, `socket.connection.setup.timeout.ms`. Raises ConfigError,
    UnknownConfig, StorageError.
    """
    for name in given:
        _refuse_typo(name)
    protocol = given.get("security.protocol", "PLAINTEXT").upper()
    if protocol not in PROTOCOLS:
        raise ConfigError(f"security.protocol={protocol}", hint=f"use one of {', '.join(PROTOCOLS)}")
    mechanism, user, password = None, "", ""
    if protocol.startswith("SASL"):
        mechanism = given.get("sasl.mechanism", "")
        if mechanism not in MECHANISMS:
            raise ConfigError(f"sasl.mechanism={mechanism}", hint=f"use one of {', '.join(MECHANISMS)}")
        user, password = own_login(given.get("sasl.jaas.config", ""))
    defaults = PeerSettings()
    return PeerSettings(
        client_id=given.get("client.id", defaults.client_id),
        tls=client_tls(given) if protocol.endswith("SSL") else None,
        mechanism=mechanism,
        user=user,
        password=password,
        connect_ms=_number(given, "socket.connection.setup.timeout.ms", defaults.connect_ms),
        request_ms=_number(given, "request.timeout.ms", defaults.request_ms),
        delivery_ms=_number(given, "delivery.timeout.ms", defaults.delivery_ms),
    )


def client_tls(given: Mapping[str, str]) -> ssl.SSLContext:
    """Return a TLS context that trusts the given authorities, else the system's, with our certificate if set."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname = given.get("ssl.endpoint.identification.algorithm", "https").lower() == "https"
    if given.get(_TRUST):
        call_openssl(_TRUST, context.load_verify_locations, given[_TRUST])
    elif given.get(_TRUST_TEXT):
        call_openssl(_TRUST_TEXT, partial(context.load_verify_locations, cadata=given[_TRUST_TEXT]))
    else:
        context.load_default_certs()
    if given.get(_KEYS):
        password = given.get("ssl.key.password", "")  # no prompt at a terminal
        call_openssl(_KEYS, partial(context.load_cert_chain, given[_KEYS], password=password))
    return context


def _refuse_typo(name: str) -> None:
    """Raise UnknownConfig for a misspelled name: ignored, it could turn TLS off."""
    if name in _NAMES or name in _OTHER_NAMES:
        return
    from difflib import get_close_matches

    for similar in get_close_matches(name.lower(), _NAMES, n=1, cutoff=_TYPO):
        raise UnknownConfig(f"unknown client setting {ascii(name)}", hint=f"did you mean {similar}?")


def _number(given: Mapping[str, str], name: str, defaults: int) -> int:
    text = given.get(name)
    if text is None:
        return defaults
    if not text.strip().isascii() or not text.strip().isdigit() or not int(text):
        raise ConfigError(f"{name}={text}", hint="use a number of ms above 0")
    return int(text)
