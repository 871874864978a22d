"""Settings as DescribeConfigs returns them: value, source, type and documentation."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING, Final, NamedTuple

from kafkalog.config.broker import SYNONYMS
from kafkalog.config.keys import Key, at_least, value_text
from kafkalog.config.topic import CONFIGS, LogConfig
from kafkalog.server.settings.groups import GROUP_SETTINGS, default_of
from kafkalog.server.settings.loggers import logger_levels

if TYPE_CHECKING:
    from kafkalog.server.node.node import Node
    from kafkalog.server.wire.writer import Tree

TOPIC: Final = 1
DYNAMIC_BROKER: Final = 2
DYNAMIC_DEFAULT: Final = 3
STATIC: Final = 4
DEFAULT: Final = 5
LOGGER: Final = 6
GROUP: Final = 8

_TYPES: Final = {"bool": 1, "string": 2, "int": 3, "long": 5, "double": 6, "list": 7}
_PASSWORD: Final = 9
_SHORT: Final = 4
_SHORTS: Final = frozenset({
    "offsets.topic.replication.factor", "transaction.state.log.replication.factor",
    "share.coordinator.state.topic.min.isr", "share.coordinator.state.topic.replication.factor",
})  # fmt: skip
SENSITIVE: Final = frozenset(
    {
        "kafkalog.replicas.jaas.config",
        "ssl.key.password", "ssl.keystore.certificate.chain", "ssl.keystore.key", "ssl.keystore.password",
        "ssl.truststore.certificates", "ssl.truststore.password",
    }
)  # fmt: skip
_HIDDEN: Final = frozenset({"internal.segment.bytes"})


class Synonym(NamedTuple):
    """A value of a setting and its source, in a list by precedence: the first value is effective."""

    name: str
    value: str | None
    source: int

    def row(self) -> Tree:
        """Return the synonym in the form used in responses."""
        return self._asdict()


def topic_rows(
    node: Node,
    config: LogConfig,
    names: Iterable[str] | None = None,
    *,
    synonyms: bool = False,
    documented: bool = False,
) -> list[Tree]:
    """Return the settings of a topic, `names` of them or all."""
    selected = None if names is None else set(names)
    own = config.overrides()
    rows = []
    for key in CONFIGS:
        # as a 4.3 broker, which returns an unknown setting only if the topic has it
        is_absent = key.name in _HIDDEN or (key.since and key.name not in own)
        if is_absent or (selected is not None and key.name not in selected):
            continue
        found = [Synonym(key.name, own[key.name], TOPIC)] if key.name in own else []
        found += _broker_synonyms(node, SYNONYMS.get(key.name, ()))
        text = value_text(getattr(config, key.attribute))
        rows.append(_row(key, text, found, synonyms, documented))
    return rows


_LOG_DIRS: Final = Key("log.dirs", "string", None, None, "the data directories", dynamic=False)
"""The directories the server was started with, by an option or by a setting."""


def broker_rows(
    node: Node, resource: str, names: Iterable[str] | None = None, *, synonyms: bool = False, documented: bool = False
) -> list[Tree]:
    """Return the settings of the node, `names` of them or all; for every node (""), only the changed ones."""
    selected = None if names is None else set(names)
    rows = []
    for name in sorted(node.config):
        if selected is not None and name not in selected:
            continue
        if not resource and name not in node.dynamic.of(""):
            continue
        key: Key = node.config.key(name)
        value = node.config[name]
        text = None if value is None else value_text(value)
        if resource:
            found = _broker_synonyms(node, (name,))
        else:
            text = node.dynamic.of("")[name]
            found = [Synonym(name, _visible_value(name, text), DYNAMIC_DEFAULT)]
        rows.append(_row(key, text, found, synonyms, documented, is_read_only=not key.dynamic))
    if resource and (selected is None or _LOG_DIRS.name in selected):
        paths = ",".join(one.path for one in node.store.directories)
        found = [Synonym(_LOG_DIRS.name, paths, STATIC)]
        rows.append(_row(_LOG_DIRS, paths, found, synonyms, documented, is_read_only=True))
    return sorted(rows, key=lambda row: str(row["name"]))


def group_rows(
    node: Node, group_id: str, names: Iterable[str] | None = None, *, synonyms: bool = False, documented: bool = False
) -> list[Tree]:
    """Return the settings of a group, `names` of them or all, even if the group does not exist."""
    selected = None if names is None else set(names)
    own = node.dynamic.of_group(group_id)
    rows = []
    for name, one in GROUP_SETTINGS.items():
        if (selected is not None and name not in selected) or (one.is_internal and name not in own):
            continue
        value = value_text(default_of(node, name))
        found = [Synonym(name, own[name], GROUP)] if name in own else []
        if one.broker_name in node.config:
            found += _broker_synonyms(node, (one.broker_name,))
        else:
            found.append(Synonym(one.broker_name or name, value, DEFAULT))
        row = _row(one.key, own.get(name, value), found, synonyms, documented)
        rows.append(row)
    return rows


def logger_rows(names: Iterable[str] | None = None) -> list[Tree]:
    """Return the levels of the loggers, `names` of them or all."""
    selected = None if names is None else set(names)
    rows: list[Tree] = []
    for name, level in logger_levels().items():
        if selected is None or name in selected:
            key = Key(name, "string", None, None, "")
            found = [Synonym(name, level, LOGGER)]
            rows.append({**_row(key, level, found, False, False), "config_type": 0})
    return rows


_CLIENT_METRICS: Final = (
    Key("interval.ms", "int", 300_000, at_least(100), "how often clients would push"),
    Key("match", "list", (), None, "which clients would push"),
    Key("metrics", "list", (), None, "what clients would push"),
)


def client_metrics_rows(names: Iterable[str] | None = None, *, documented: bool = False) -> list[Tree]:
    """Return the defaults of a client metrics subscription, since there are no subscriptions."""
    selected = None if names is None else set(names)
    return [
        _row(key, value_text(key.default), [], False, documented)
        for key in _CLIENT_METRICS
        if selected is None or key.name in selected
    ]


def created_rows(node: Node, config: LogConfig) -> list[Tree]:
    """Return the settings of a new topic for CreateTopics, sorted by name."""
    return sorted(topic_rows(node, config), key=lambda row: str(row["name"]))


def _broker_synonyms(node: Node, names: Iterable[str]) -> list[Synonym]:
    """Return the node's values under these names, by precedence; a default only for the first name."""
    found = []
    listed = tuple(names)
    for source, values in (
        (DYNAMIC_BROKER, node.dynamic.of(str(node.node_id))),
        (DYNAMIC_DEFAULT, node.dynamic.of("")),
        (STATIC, node.dynamic.given),
    ):
        found += [Synonym(name, _visible_value(name, values[name]), source) for name in listed if name in values]
    for name in listed[:1]:
        default = node.config.key(name).default
        if default is not None:
            found.append(Synonym(name, _visible_value(name, default), DEFAULT))
    return found


def _visible_value(name: str, value: object) -> str | None:
    return None if name in SENSITIVE else value_text(value)


def _row(
    key: Key, text: str | None, found: list[Synonym], synonyms: bool, documented: bool, *, is_read_only: bool = False
) -> Tree:
    is_sensitive = key.name in SENSITIVE
    kind = _PASSWORD if is_sensitive else _SHORT if key.name in _SHORTS else _TYPES[key.kind]
    return {
        "name": key.name,
        "value": None if is_sensitive else text,
        "read_only": is_read_only,
        "config_source": found[0].source if found else DEFAULT,
        "is_default": not found or found[0].source == DEFAULT,
        "is_sensitive": is_sensitive,
        "synonyms": [one.row() for one in found] if synonyms else (),
        "config_type": kind,
        "documentation": key.doc if documented else None,
    }
