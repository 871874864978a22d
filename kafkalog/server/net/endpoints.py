"""Named listeners from `listeners`, `advertised.listeners` and `listener.security.protocol.map`."""

from __future__ import annotations

import logging
import re
from typing import Final, NamedTuple

from kafkalog.errors import ConfigError
from kafkalog.server.settings.config import ServerConfig
from kafkalog.server.settings.table import PROTOCOLS

_LOG: Final = logging.getLogger(__name__)
_PER_LISTENER: Final = frozenset({"connections.max.reauth.ms", "max.connections", "sasl.enabled.mechanisms",
                         "sasl.server.max.receive.size"})  # fmt: skip
_PLAIN_USERS: Final = "plain.sasl.jaas.config"
_ENDPOINT: Final = re.compile(r"(?:([A-Za-z0-9_.-]+)://)?(\[[0-9a-fA-F:.%]+\]|[^\[\]:/]*):([0-9]{1,5})")
_WILDCARD_HOSTS: Final = ("", "0.0.0.0", "::")


class Endpoint(NamedTuple):
    """A listener: its name (upper case), host ("" for all addresses), port (0 for any free port) and protocol."""

    name: str
    host: str
    port: int
    protocol: str = "PLAINTEXT"

    @property
    def is_everywhere(self) -> bool:
        """True if it listens on all addresses, which clients cannot connect to."""
        return self.host in _WILDCARD_HOSTS


def parse_endpoint(text: str) -> Endpoint:
    """Parse `NAME://HOST:PORT`; without a name it is PLAINTEXT. Raise ConfigError."""
    found = _ENDPOINT.fullmatch(text.strip())
    if found is None or int(found[3]) > 0xFFFF:
        raise ConfigError(f"{text!r} is not a listener", hint="use NAME://HOST:PORT or HOST:PORT")
    name = (found[1] or "PLAINTEXT").upper()
    return Endpoint(name, found[2].strip("[]"), int(found[3]))


def listeners_of(config: ServerConfig) -> tuple[Endpoint, ...]:
    """Return the listeners with their protocols. Raise ConfigError for invalid or contradictory settings."""
    protocols = _protocols(config)
    found = []
    controllers = {name.upper() for name in config["controller.listener.names"]}
    for text in config["listeners"]:
        one = parse_endpoint(text)
        if one.name in controllers:  # not for clients, and often less protected than theirs
            _LOG.info("listener %s is not opened: it is for controllers", one.name)
            continue
        protocol = protocols.get(one.name)
        if protocol is None:
            raise ConfigError(
                f"listener {one.name} has no security protocol",
                hint=f"set listener.security.protocol.map={one.name}:SASL_SSL, or another of {', '.join(PROTOCOLS)}",
            )
        found.append(one._replace(protocol=protocol))
    if not found:
        raise ConfigError("no listener is configured", hint="set listeners=PLAINTEXT://localhost:9092")
    hint = "name each: A://0.0.0.0:9092,B://[::]:9092, with listener.security.protocol.map=A:PLAINTEXT,B:PLAINTEXT"
    _check_unique([one.name for one in found], "name", hint)
    _check_unique([f"{one.host}:{one.port}" for one in found if one.port], "address")
    _check_own_settings(config, [one.name.lower() for one in found])
    return tuple(found)


def _check_own_settings(config: ServerConfig, names: list[str]) -> None:
    """Raise ConfigError for an invalid per-listener setting; log a warning for one without effect."""
    for setting in config.listener_settings:
        name = next((one for one in names if setting.startswith(f"listener.name.{one}.")), None)
        own = "" if name is None else setting.removeprefix(f"listener.name.{name}.")
        if name is None:
            _LOG.warning("%s has no effect: no listener has that name in lower case", setting)
        elif own in _PER_LISTENER or (own.startswith("ssl.") and own in config):
            config.of_listener(name, own)
        elif own != _PLAIN_USERS:
            _LOG.warning("%s has no effect: it cannot be set for a single listener", setting)


def advertised_of(config: ServerConfig, name: str) -> Endpoint | None:
    """Return the endpoint of `advertised.listeners` for a listener, or None. Raise ConfigError for an unusable one."""
    for text in config["advertised.listeners"]:
        one = parse_endpoint(text)
        if one.name == name:
            if one.is_everywhere:
                raise ConfigError(f"advertised.listeners: {text} is not an address that clients can connect to")
            return one
    return None


def _protocols(config: ServerConfig) -> dict[str, str]:
    protocols = {name: name for name in PROTOCOLS}
    for item in config["listener.security.protocol.map"]:
        name, _, protocol = item.partition(":")
        if protocol.strip().upper() not in PROTOCOLS:
            raise ConfigError(
                f"listener.security.protocol.map: {item!r} does not name a security protocol",
                hint=f"use NAME:PROTOCOL, where the protocol is one of {', '.join(PROTOCOLS)}",
            )
        protocols[name.strip().upper()] = protocol.strip().upper()
    return protocols


def _check_unique(values: list[str], noun: str, hint: str | None = None) -> None:
    for value in values:
        if values.count(value) > 1:
            raise ConfigError(f"listeners contains the {noun} {value} twice", hint=hint)
