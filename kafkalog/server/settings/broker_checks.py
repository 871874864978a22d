"""Checks of changed settings of nodes from clients, with the codes and messages of a broker."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from typing import Any, Final

from kafkalog.config.keys import Key
from kafkalog.errors import ConfigError, InvalidRequest
from kafkalog.server.settings.checks import check_value
from kafkalog.server.settings.config import STORE_NAMES, ServerConfig
from kafkalog.server.settings.no_effect import NO_EFFECT

LIVE: Final = frozenset({
    "connections.max.idle.ms", "errors.deadletterqueue.auto.create.topics.enable",
    "errors.deadletterqueue.topic.name.prefix", "follower.replication.throttled.rate",
    "leader.replication.throttled.rate", "max.connections", "max.connections.per.ip",
    "max.connections.per.ip.overrides", "num.io.threads", "num.network.threads", "num.replica.fetchers",
    "transaction.partition.verification.enable",
})  # fmt: skip
"""Settings of the server that can change at run time, besides those of the store."""
_OF_LISTENERS: Final = ("ssl.key.", "ssl.keystore.", "ssl.truststore.")
_OF_ONE_BROKER: Final = ("cordoned.log.dirs", "listener.name.", "sasl.", "ssl.")
_OF_ONE_NODE: Final = frozenset({"listeners", "listener.security.protocol.map"})
_LISTENER: Final = "listener.name."
_NOT_HERE: Final = frozenset({
    "config.providers", "max.connection.creation.rate", "metric.reporters", "principal.builder.class",
}) | _OF_ONE_NODE  # fmt: skip
"""Settings that a running broker can change and this server cannot."""
_PER_ADDRESS: Final = "max.connections.per.ip"
_THREADS: Final = frozenset({
    "background.threads", "num.io.threads", "num.network.threads", "num.recovery.threads.per.data.dir",
    "num.replica.fetchers",
})  # fmt: skip
_CONNECTIONS: Final = frozenset({"max.connections", _PER_ADDRESS})
UNDEFINED: Final = frozenset({"allow.everyone.if.no.acl.found", "super.users"})
"""Settings that a broker does not define, because its authorizer reads them: a broker hides their values."""
DERIVED: Final = frozenset({"broker.id", "log.dirs", "process.roles"})
"""Settings whose values follow from how the node was started."""


def defined_key(config: ServerConfig, name: str) -> Key | None:
    """Return the definition of a setting of the server or of a broker; None for a name that a broker does not know."""
    if name in UNDEFINED:
        return None
    return config.key(name) if name in config else NO_EFFECT.get(name)


def check_broker_changes(
    config: ServerConfig, changes: Mapping[str, str | None], resource: str, overridden: Collection[str] = ()
) -> None:
    """Raise InvalidRequest unless the node whose settings are `config` can set all values at run time.

    A setting can always be removed, and unknown names are kept. `resource` is "" for the settings of all nodes;
    `overridden` are those that do not reach this node, because it has its own.
    """
    given = {name: value for name, value in changes.items() if value is not None}
    _refuse("Cannot update these configs dynamically", [name for name in given if _is_fixed(config, name)])
    of_listeners = [name for name in given if name.startswith(_OF_LISTENERS)]
    words = "These security configs can be dynamically updated only per-listener using the listener prefix"
    _refuse(words, of_listeners)
    for name, value in given.items():
        key = defined_key(config, name)
        if key is not None:
            parsed = _checked_value(key, value)
            if name in _THREADS and name not in overridden:
                _check_step(name, parsed, config[name])
            elif name in _CONNECTIONS and not parsed:
                _check_closed(config, name, given)
    if not resource:
        words = "Cannot update these configs at default cluster level, broker id must be specified"
        _refuse(words, [name for name in given if name.startswith(_OF_ONE_BROKER)])


def _refuse(words: str, names: Iterable[str]) -> None:
    listed = ", ".join(names)
    if listed:
        raise InvalidRequest(f"{words}: [{listed}]")


def _is_fixed(config: ServerConfig, name: str) -> bool:
    if name in DERIVED or name in _NOT_HERE:
        return True
    if name.startswith(_LISTENER):  # unknown ones are kept; known ones are read only at the start
        return defined_key(config, name.removeprefix(_LISTENER).partition(".")[2]) is not None
    if name in UNDEFINED or name.startswith(_OF_LISTENERS):  # refused in other words
        return False
    if name in config:
        return not config.key(name).dynamic or (name not in STORE_NAMES and name not in LIVE)
    return name in NO_EFFECT and not NO_EFFECT[name].dynamic


def _checked_value(key: Key, value: str) -> Any:
    try:
        return check_value(key, value)
    except ConfigError as error:
        raise InvalidRequest(error.message) from None


def _check_closed(config: ServerConfig, name: str, given: Mapping[str, str]) -> None:
    """Raise InvalidRequest for a limit of 0 with which no client could connect, and set another one."""
    if name != _PER_ADDRESS:
        raise InvalidRequest(
            f"Invalid value org.apache.kafka.common.config.ConfigException: Invalid {name} 0 for configuration Invalid "
            "dynamic configuration"
        )
    overrides = f"{name}.overrides"
    if not given.get(overrides, config[overrides]):
        raise InvalidRequest(f"requirement failed: {name} can be set to zero only if {overrides} property is set.")


def _check_step(name: str, new: int, now: int) -> None:
    """Raise InvalidRequest for more than double or less than half of the threads."""
    if now // 2 <= new <= now * 2:
        return
    limit = f"should be at least half the current value {now}" if new < now else (
        f"should not be greater than double the current value {now}"
    )
    raise InvalidRequest(
        "Invalid value org.apache.kafka.common.config.ConfigException: Dynamic thread count update validation failed "
        f"for {name}={new}, value {limit} for configuration Invalid dynamic configuration"
    )
