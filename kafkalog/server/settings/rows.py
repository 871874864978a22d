"""Settings as DescribeConfigs returns them: value, source, type and documentation."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from itertools import dropwhile
from typing import TYPE_CHECKING, Final, NamedTuple

from kafkalog.config.broker import SYNONYMS
from kafkalog.config.keys import Key, parse_value, trimmed, value_text
from kafkalog.config.topic import CONFIGS, LogConfig
from kafkalog.errors import ConfigError
from kafkalog.server.settings import client_metrics, kinds
from kafkalog.server.settings.groups import GROUP_SETTINGS, default_of
from kafkalog.server.settings.loggers import logger_levels
from kafkalog.server.settings.no_effect import CLASSES

if TYPE_CHECKING:
    from kafkalog.server.node.node import Node
    from kafkalog.server.wire.writer import Tree

TOPIC: Final = 1
DYNAMIC_BROKER: Final = 2
DYNAMIC_DEFAULT: Final = 3
STATIC: Final = 4
DEFAULT: Final = 5
LOGGER: Final = 6
CLIENT_METRICS: Final = 7
GROUP: Final = 8

_TYPES: Final = {"bool": 1, "string": 2, "int": 3, "long": 5, "double": 6, "list": 7}
_PASSWORD: Final = 9
_SHORT: Final = 4
_CLASS: Final = 8
_SHORTS: Final = frozenset({
    "offsets.topic.replication.factor", "sasl.login.refresh.buffer.seconds", "sasl.login.refresh.min.period.seconds",
    "share.coordinator.state.topic.min.isr", "share.coordinator.state.topic.replication.factor",
    "transaction.state.log.replication.factor",
})  # fmt: skip
STRINGS: Final = frozenset({"listener.security.protocol.map", "max.connections.per.ip.overrides"})
"""Lists that are one text to a broker."""
SENSITIVE: Final = frozenset(
    {
        "delegation.token.secret.key", "kafkalog.replicas.jaas.config", "sasl.jaas.config",
        "sasl.oauthbearer.assertion.private.key.passphrase", "sasl.oauthbearer.client.credentials.client.secret",
        "ssl.key.password", "ssl.keystore.certificate.chain", "ssl.keystore.key", "ssl.keystore.password",
        "ssl.truststore.certificates", "ssl.truststore.password",
    }
)  # fmt: skip
_SPECIAL_TYPES: Final = {
    **dict.fromkeys(_SHORTS, _SHORT), **dict.fromkeys(CLASSES, _CLASS), **dict.fromkeys(STRINGS, _TYPES["string"]),
}  # fmt: skip
_HIDDEN: Final = frozenset({"internal.segment.bytes"})
"""Settings that a broker returns only if the topic has its own."""


class Synonym(NamedTuple):
    """A value of a setting and its source, in a list by precedence: the first value is effective."""

    name: str
    value: str | None
    source: int


class Asked(NamedTuple):
    """A request for settings: their names (None: all), and whether it wants synonyms and documentation."""

    names: frozenset[str] | None = None
    synonyms: bool = False
    documented: bool = False

    def wants(self, name: str) -> bool:
        """Return True if the setting of this name is asked for."""
        return self.names is None or name in self.names


def topic_rows(node: Node, config: LogConfig, asked: Asked) -> list[Tree]:
    """Return the settings of a topic."""
    own = config.overrides()
    rows = []
    for key in CONFIGS:
        if (key.name in _HIDDEN and key.name not in own) or not asked.wants(key.name):
            continue
        found = [Synonym(key.name, own[key.name], TOPIC)] if key.name in own else []
        found += _broker_synonyms(node, SYNONYMS.get(key.name, ()))
        text = value_text(getattr(config, key.attribute))
        rows.append(setting_row(key, text, found, asked))
    return rows


def group_rows(node: Node, group_id: str, asked: Asked) -> list[Tree]:
    """Return the settings of a group, even if the group does not exist."""
    own = node.dynamic.of_group(group_id)
    rows = []
    for name, one in GROUP_SETTINGS.items():
        if not asked.wants(name) or (one.is_internal and name not in own):
            continue
        value = value_text(default_of(node, name))
        text = effective_text(one.key, own[name]) if name in own else value
        found = [Synonym(name, text, GROUP)] if name in own else []
        if one.broker_name in node.config:
            found += _broker_synonyms(node, (one.broker_name,))
        else:
            found.append(Synonym(one.broker_name or name, value, DEFAULT))
        rows.append(setting_row(one.key, text, found, asked))
    return rows


def logger_rows(asked: Asked) -> list[Tree]:
    """Return the levels of the loggers, without synonyms and documentation."""
    rows: list[Tree] = []
    for name, level in logger_levels().items():
        if asked.wants(name):
            key = Key(name, "string", None, None, "")
            rows.append({**setting_row(key, level, [Synonym(name, level, LOGGER)], Asked()), "config_type": 0})
    return rows


def client_metrics_rows(node: Node, subscription: str, asked: Asked) -> list[Tree]:
    """Return the settings of a subscription to metrics of clients."""
    own = node.dynamic.kept(kinds.CLIENT_METRICS, subscription)
    rows = []
    for key in client_metrics.KEYS.values():
        if asked.wants(key.name):
            text = client_metrics.shown_value(key.name, own[key.name]) if key.name in own else value_text(key.default)
            found = [Synonym(key.name, text, CLIENT_METRICS)] if key.name in own else []
            rows.append(setting_row(key, text, found, asked))
    return rows


def created_rows(node: Node, config: LogConfig, given: Mapping[str, str | None]) -> list[Tree]:
    """Return the settings of a new topic for CreateTopics, sorted by name; those that were given are in their words."""
    rows = [{**row, "value": given.get(str(row["name"]), row["value"])} for row in topic_rows(node, config, Asked())]
    return sorted(rows, key=lambda row: str(row["name"]))


def _broker_synonyms(node: Node, names: Iterable[str]) -> list[Synonym]:
    """Return the node's values under these names, by precedence."""
    listed = tuple(names)
    defaults = {name: node.config.key(name).default for name in listed}
    sources: tuple[tuple[int, Mapping[str, object]], ...] = (
        (DYNAMIC_BROKER, node.dynamic.of(str(node.node_id))),
        (DYNAMIC_DEFAULT, node.dynamic.of("")),
        (STATIC, node.dynamic.given),
        (DEFAULT, {name: value for name, value in defaults.items() if value is not None}),
    )
    return synonyms_of(listed[0], listed, sources) if listed else []


def synonyms_of(name: str, names: Sequence[str], sources: Iterable[tuple[int, Mapping[str, object]]]) -> list[Synonym]:
    """Return the values of a setting under its names, by precedence, from the first one under its own name on."""
    found = [
        Synonym(one, visible_value(one, values[one]), source)
        for source, values in sources
        for one in names
        if one in values
    ]
    return list(dropwhile(lambda one: one.name != name, found))


def visible_value(name: str, value: object) -> str | None:
    """Return a setting's value as text; None for one that is secret."""
    return None if name in SENSITIVE else value_text(value)


def effective_text(key: Key, text: str) -> str:
    """Return the value that a text stands for, as text; the text itself if another version stored what is none."""
    if key.name in STRINGS:
        return trimmed(text)
    with suppress(ConfigError):
        return value_text(parse_value(key, text))
    return text


def setting_row(
    key: Key, text: str | None, found: list[Synonym], asked: Asked, *, is_read_only: bool = False
) -> Tree:
    """Return the row of a setting with its value and where it is from."""
    is_sensitive = key.name in SENSITIVE
    kind = _PASSWORD if is_sensitive else _SPECIAL_TYPES.get(key.name) or _TYPES[key.kind]
    return {
        "name": key.name,
        "value": None if is_sensitive else text,
        "read_only": is_read_only,
        "config_source": found[0].source if found else DEFAULT,
        "is_default": not found or found[0].source == DEFAULT,
        "is_sensitive": is_sensitive,
        "synonyms": [one._asdict() for one in found] if asked.synonyms else (),
        "config_type": kind,
        "documentation": key.doc if asked.documented else None,
    }
