"""Settings of the connections to a peer, by the names of Kafka's clients."""

from __future__ import annotations

import pytest

from kafkalog.errors import UnknownConfig
from kafkalog.server.client.settings import PeerSettings, peer_settings


@pytest.mark.parametrize(
    ("name", "meant"),
    [
        ("security.protocl", "security.protocol"),
        ("security_protocol", "security.protocol"),
        ("SECURITY.PROTOCOL", "security.protocol"),
        ("security.proto", "security.protocol"),
        ("sasl.mecanism", "sasl.mechanism"),
        ("ssl.trustore.location", "ssl.truststore.location"),
        ("request.timeout", "request.timeout.ms"),
    ],
)
def test_a_typing_error_is_refused(name: str, meant: str) -> None:
    """Ignored, it connected without TLS."""
    with pytest.raises(UnknownConfig, match=name) as caught:
        peer_settings({name: "SSL"})
    assert caught.value.hint == f"did you mean {meant}?"


@pytest.mark.parametrize(
    "name",
    [
        "bootstrap.servers", "acks", "sasl.mechanisms", "sasl.password", "ssl.key.location", "ssl.keystore.password",
        "ssl.keystore.type", "ssl.ca.location", "socket.connection.setup.timeout.max.ms", "message.timeout.ms",
        "admin.security.protocol", "security.providers", "session.timeout.ms",
    ],
)  # fmt: skip
def test_names_of_kafkas_clients_without_a_meaning_here_are_ignored(name: str) -> None:
    assert peer_settings({name: "1"}) == PeerSettings()
