"""Named listeners from `listeners`, `advertised.listeners` and `listener.security.protocol.map`."""

from __future__ import annotations

import logging
import re
from typing import Final, NamedTuple

from kafkalog.errors import ConfigError
from kafkalog.server.settings.config import ServerConfig

PROTOCOLS: Final = ("PLAINTEXT", "SSL", "SASL_PLAINTEXT", "SASL_SSL")
_LOG: Final = logging.getLogger(__name__)
_OWN: Final = frozenset({"connections.max.reauth.ms", "max.connections", "sasl.enabled.mechanisms",
                         "sasl.server.max.receive.size"})  # fmt: skip
_PLAIN_USERS: Final = "plain.sasl.jaas.config"
_FORM: Final = re.compile(r"(?:([A-Za-z0-9_.-]+)://)?(\[[0-9a-fA-F:.%]+\]|[^\[\]:/]*):([0-9]{1,5})")
_ALL: Final = ("", "0.0.0.0", "::")


class Endpoint(NamedTuple):
    """A listener: its name (upper case), host ("" for all addresses), port (0 for any free port) and protocol."""

    name: str
    host: str
    port: int
    protocol: str = "PLAINTEXT"

    @property
    def is_everywhere(self) -> bool:
        """True if it listens on all addresses, which clients cannot connect to."""
        return self.host in _ALL


def parse_endpoint(text: str) -> Endpoint:
    """Parse `NAME://HOST:PORT`; without a name it is PLAINTEXT. Raise ConfigError."""
    found = _FORM.fullmatch(text.strip())
    if found is None or int(found[3]) > 0xFFFF:
        raise ConfigError(f"{text!r} is no listener", hint="it takes NAME://HOST:PORT or HOST:PORT")
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
            _LOG.info("listener %s is not opened: it is for a quorum of controllers", one.name)
            continue
        protocol = protocols.get(one.name)
        if protocol is None:
            raise ConfigError(
                f"nobody says which protocol listener {one.name} speaks",
                hint=f"set listener.security.protocol.map={one.name}:SASL_SSL, or another of {', '.join(PROTOCOLS)}",
            )
        found.append(one._replace(protocol=protocol))
    if not found:
        raise ConfigError("there is no listener", hint="set listeners=PLAINTEXT://localhost:9092")
    hint = "name each, as A://0.0.0.0:9092,B://[::]:9092, with listener.security.protocol.map=A:PLAINTEXT,B:PLAINTEXT"
    _check_once("listeners", [one.name for one in found], "name", hint)
    _check_once("listeners", [f"{one.host}:{one.port}" for one in found if one.port], "address")
    _check_own_settings(config, [one.name.lower() for one in found])
    return tuple(found)


def _check_own_settings(config: ServerConfig, names: list[str]) -> None:
    """Raise ConfigError for an invalid per-listener setting; log a warning for one without effect."""
    for setting in config.listener_settings:
        name = next((one for one in names if setting.startswith(f"listener.name.{one}.")), None)
        own = "" if name is None else setting.removeprefix(f"listener.name.{name}.")
        if name is None:
            _LOG.warning("%s has no effect: there is no listener of that name, in small letters", setting)
        elif own in _OWN or (own.startswith("ssl.") and own in config):
            config.of_listener(name, own)
        elif own != _PLAIN_USERS:
            _LOG.warning("%s has no effect: a listener has no such setting of its own", setting)


def advertised_of(config: ServerConfig, name: str) -> Endpoint | None:
    """Return the endpoint of `advertised.listeners` for a listener, or None. Raise ConfigError for an unusable one."""
    for text in config["advertised.listeners"]:
        one = parse_endpoint(text)
        if one.name == name:
            if one.is_everywhere:
                raise ConfigError(f"advertised.listeners: {text} is no address that a client can connect to")
            return one
    return None


def _protocols(config: ServerConfig) -> dict[str, str]:
    protocols = {name: name for name in PROTOCOLS}
    for item in config["listener.security.protocol.map"]:
        name, _, protocol = item.partition(":")
        if protocol.strip().upper() not in PROTOCOLS:
            raise ConfigError(
                f"listener.security.protocol.map: {item!r} names no protocol",
                hint=f"it takes NAME:PROTOCOL, the protocol one of {', '.join(PROTOCOLS)}",
            )
        protocols[name.strip().upper()] = protocol.strip().upper()
    return protocols


def _check_once(setting: str, values: list[str], noun: str, hint: str | None = None) -> None:
    for value in values:
        if values.count(value) > 1:
            raise ConfigError(f"{setting} has the {noun} {value} twice", hint=hint)
