"""Settings of a server: of the store and its own, of one listener, names that mean nothing here, changes."""

import asyncio
import logging
from pathlib import Path

import pytest

from kafkalog.errors import ConfigError, StorageError, UnknownConfig
from kafkalog.server.settings.config import KEYS, ServerConfig, read_server_properties
from tests.server.nodes import node_for


def test_settings_of_the_store_and_of_the_server_are_found_by_name() -> None:
    config = ServerConfig({"num.io.threads": "3", "log.retention.ms": "1000", "log.dirs": "/a, /b"})
    assert (config["num.io.threads"], config["log.retention.ms"], config["queued.max.requests"]) == (3, 1000, 500)
    assert config.directories == ("/a", "/b")
    assert config.store.log_retention_ms == 1000
    assert config.is_set("num.io.threads")
    assert not config.is_set("queued.max.requests")
    assert ServerConfig(config.given()).given() == config.given()
    with pytest.raises(UnknownConfig):
        config["no.such.name"]


def test_every_name_has_one_row() -> None:
    names = [key.name for key in KEYS]
    assert len(names) == len(set(names))
    assert all(name in ServerConfig() for name in names)


@pytest.mark.parametrize(
    "given",
    [
        {"num.io.threads": "0"},
        {"queued.max.requests": "x"},
        {"ssl.client.auth": "yes"},
        {"sasl.enabled.mechanisms": "GSSAPI"},
        {"log.segment.bytes": "1"},
        {"group.min.session.timeout.ms": "9", "group.max.session.timeout.ms": "8"},
    ],
)
def test_what_is_out_of_range_is_refused(given: dict[str, str]) -> None:
    with pytest.raises(ConfigError):
        ServerConfig(given)


def test_a_listener_may_have_settings_of_its_own() -> None:
    config = ServerConfig({"max.connections": 9, "listener.name.inside.max.connections": "2"})
    assert config.of_listener("INSIDE", "max.connections") == 2
    assert config.of_listener("OUTSIDE", "max.connections") == 9


def test_names_without_a_meaning_here_are_told_and_left_out(caplog: pytest.LogCaptureFixture) -> None:
    config = ServerConfig({"process.roles": "broker", "num.io.treads": "3"})
    with caplog.at_level(logging.INFO):
        config.log_ignored()
    assert config.ignored == ("num.io.treads", "process.roles")
    assert "did you mean num.io.threads?" in caplog.text
    assert "process.roles" in caplog.text


def test_changes_while_it_runs(tmp_path: Path) -> None:
    async def run() -> None:
        async with node_for(tmp_path) as node:
            seen: list[ServerConfig] = []
            node.on_config_change.append(seen.append)
            node.alter_config({"log.retention.ms": "5000", "max.connections": "3"})
            assert node.store.config.log_retention_ms == 5000
            assert [one["max.connections"] for one in seen] == [3]
            node.alter_config({"log.retention.ms": None})
            assert node.store.config.log_retention_ms is None
            with pytest.raises(ConfigError, match="cannot change while"):
                node.alter_config({"queued.max.requests": "3"})

    asyncio.run(run())


def test_files(tmp_path: Path) -> None:
    file = tmp_path / "server.properties"
    file.write_text("# one\nlisteners = PLAINTEXT://:1,\\\n  SSL://:2\n")
    assert read_server_properties(file) == {"listeners": "PLAINTEXT://:1,SSL://:2"}
    with pytest.raises(StorageError):
        read_server_properties(tmp_path / "none")
