"""Listeners by name: addresses, protocol, and the addresses reported to clients."""

import asyncio
from pathlib import Path

import pytest

from kafkalog.errors import ConfigError, StorageError
from kafkalog.server.net.endpoints import Endpoint, listeners_of, parse_endpoint
from kafkalog.server.serving import serving
from kafkalog.server.settings.config import ServerConfig
from tests.server.nodes import SMALL, call, connection_for


@pytest.mark.parametrize(
    ("text", "endpoint"),
    [
        ("localhost:9092", Endpoint("PLAINTEXT", "localhost", 9092)),
        (":9092", Endpoint("PLAINTEXT", "", 9092)),
        ("inside://10.0.0.1:0", Endpoint("INSIDE", "10.0.0.1", 0)),
        ("SSL://[::1]:65535", Endpoint("SSL", "::1", 65535)),
    ],
)
def test_addresses(text: str, endpoint: Endpoint) -> None:
    assert parse_endpoint(text) == endpoint


@pytest.mark.parametrize("text", ["", "localhost", "a:b", "A://b:99999", "A://b:1:2", "A://b:-1", "://a:1", "::1:9"])
def test_what_is_no_address(text: str) -> None:
    with pytest.raises(ConfigError):
        parse_endpoint(text)


@pytest.mark.parametrize(
    "settings",
    [
        {"listeners": "INSIDE://:1"},
        {"listeners": ""},
        {"listeners": "PLAINTEXT://a:1,PLAINTEXT://b:2"},
        {"listeners": "PLAINTEXT://a:1,SSL://a:1"},
        {"listeners": "A://a:1", "listener.security.protocol.map": "A:TLS"},
    ],
)
def test_listeners_that_contradict_themselves(settings: dict[str, str]) -> None:
    with pytest.raises(ConfigError):
        listeners_of(ServerConfig(settings))


def test_a_protocol_for_each_listener() -> None:
    given = {"listeners": "IN://a:1,OUT://:2,SSL://c:3", "listener.security.protocol.map": "in:SASL_PLAINTEXT,OUT:SSL"}
    found = listeners_of(ServerConfig(given))
    assert [(one.name, one.protocol) for one in found] == [("IN", "SASL_PLAINTEXT"), ("OUT", "SSL"), ("SSL", "SSL")]


def test_each_client_is_told_the_address_of_its_own_listener(tmp_path: Path) -> None:
    config = ServerConfig({
        **SMALL,
        "listeners": "INSIDE://127.0.0.1:0,OUTSIDE://127.0.0.1:0",
        "listener.security.protocol.map": "INSIDE:PLAINTEXT,OUTSIDE:PLAINTEXT",
        "advertised.listeners": "OUTSIDE://kafka.example.com:19092",
    })  # fmt: skip

    async def run() -> None:
        async with serving([str(tmp_path)], config) as server:
            reported = {}
            for name in ("INSIDE", "OUTSIDE"):
                connection = connection_for()
                connection.listener = name
                broker = (await call(server.node, "metadata", 1, {"topics": ()}, connection=connection)).brokers[0]
                reported[name] = (broker.host, broker.port)
            assert reported == {
                "INSIDE": ("127.0.0.1", server.ports["INSIDE"]), "OUTSIDE": ("kafka.example.com", 19092)
            }  # fmt: skip

    asyncio.run(run())


def test_an_address_for_all_cannot_be_told(tmp_path: Path) -> None:
    config = ServerConfig({**SMALL, "listeners": "PLAINTEXT://:0", "advertised.listeners": "PLAINTEXT://0.0.0.0:9"})

    async def run() -> None:
        async with serving([str(tmp_path)], config):
            raise AssertionError("it served")

    with pytest.raises(ConfigError, match=r"advertised\.listeners"):
        asyncio.run(run())


def test_what_fails_at_the_start_leaves_nothing_open(tmp_path: Path) -> None:
    """A port in use: the directory lock and the first listener's port are released."""

    async def run() -> None:
        good = ServerConfig({**SMALL, "listeners": "PLAINTEXT://127.0.0.1:0"})
        async with serving([str(tmp_path / "a")], good) as server:
            taken = server.ports["PLAINTEXT"]
            protocols = {"listener.security.protocol.map": "A:PLAINTEXT"}
            listeners = {"listeners": f"A://127.0.0.1:0,PLAINTEXT://127.0.0.1:{taken}"}
            bad = ServerConfig({**SMALL, **protocols, **listeners})
            with pytest.raises(StorageError):
                async with serving([str(tmp_path / "b")], bad):
                    raise AssertionError("it served")
            async with serving([str(tmp_path / "b")], good):
                pass

    asyncio.run(run())


@pytest.mark.parametrize(
    "name", ["listener.name.typo.ssl.client.auth", "listener.name.INSIDE.max.connections", "listener.name.inside.nope",
             "listener.name.inside.max.connections.per.ip"],
)  # fmt: skip
def test_a_setting_of_a_listener_that_counts_nowhere_is_told(name: str, caplog: pytest.LogCaptureFixture) -> None:
    given = {"listeners": "INSIDE://:1", "listener.security.protocol.map": "INSIDE:SASL_PLAINTEXT"}
    own = {"listener.name.inside.max.connections": "5", "listener.name.inside.plain.sasl.jaas.config": "secret"}
    listeners_of(ServerConfig({**given, **own}))
    assert not caplog.records
    listeners_of(ServerConfig({**given, **own, name: "1"}))
    assert f"{name} has no effect" in caplog.text and "secret" not in caplog.text


def test_a_setting_of_a_listener_with_a_wrong_value_ends_the_start() -> None:
    with pytest.raises(ConfigError):
        listeners_of(ServerConfig({"listener.name.plaintext.connections.max.reauth.ms": "x"}))
