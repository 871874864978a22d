"""The settings of a node as DescribeConfigs returns them: its own, and those of a broker that have no effect here."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Final

from kafkalog.config.broker import SYNONYMS
from kafkalog.config.keys import Key, value_text
from kafkalog.server.settings.broker_checks import UNDEFINED, defined_key
from kafkalog.server.settings.no_effect import NO_EFFECT
from kafkalog.server.settings.rows import (
    DEFAULT,
    DYNAMIC_BROKER,
    DYNAMIC_DEFAULT,
    STATIC,
    Asked,
    Synonym,
    effective_text,
    setting_row,
    synonyms_of,
)

if TYPE_CHECKING:
    from kafkalog.server.node.node import Node
    from kafkalog.server.wire.writer import Tree

_DERIVED: Final = {
    key.name: key
    for key in (
        Key("advertised.listeners", "list", None, None, "addresses that clients connect to, by listener", False),
        Key("broker.id", "int", -1, None, "number of this node", False),
        Key("log.dirs", "list", None, None, "the data directories", False),
        Key("node.id", "int", None, None, "number of this node", False),
        Key("process.roles", "list", None, None, "what this node is", False),
    )
}
"""Settings whose values follow from how the node was started."""
_INTERNAL: Final = UNDEFINED | {
    "follower.replication.throttled.rate", "group.consumer.regex.refresh.interval.ms",
    "leader.replication.throttled.rate", "log.initial.task.delay.ms", "producer.id.expiration.check.interval.ms",
    "share.coordinator.cold.partition.snapshot.interval.ms", "share.coordinator.state.topic.prune.interval.ms",
    "unstable.api.versions.enable",
}  # fmt: skip
"""Settings that a broker returns only if they are set."""
_WITHOUT_DEFAULT: Final = frozenset({"follower.replication.throttled.rate", "leader.replication.throttled.rate"})
_FAMILIES: Final = {
    **{name: names for names in SYNONYMS.values() for name in names},
    "log.flush.scheduler.interval.ms": ("log.flush.scheduler.interval.ms",),
}
"""Settings that stand for one another, in units of their own; the first one that is set wins."""
_UNKNOWN_TYPE: Final = 0


def broker_rows(node: Node, resource: str, asked: Asked) -> list[Tree]:
    """Return the settings of the node; for every node (""), only the changed ones."""
    changed = node.dynamic.of("")
    sources: tuple[tuple[int, Mapping[str, object]], ...] = ((DYNAMIC_DEFAULT, changed),)
    if resource:
        started = {**node.config.ignored_values, **node.dynamic.given, **_derived(node)}
        sources = ((DYNAMIC_BROKER, node.dynamic.of(str(node.node_id))), *sources, (STATIC, started))
    known = {*node.config, *NO_EFFECT, *_DERIVED} - _INTERNAL if resource else set()
    listed = known.union(*(values for _, values in sources))
    return [_row(node, name, sources, bool(resource), asked) for name in sorted(filter(asked.wants, listed))]


def _row(
    node: Node, name: str, sources: tuple[tuple[int, Mapping[str, object]], ...], has_default: bool, asked: Asked
) -> Tree:
    key = _DERIVED.get(name) or defined_key(node.config, name)
    if key is None:  # a broker does not know what an unknown setting contains, and hides it
        found = [Synonym(name, None, source) for source, values in sources if name in values]
        key = Key(name, "string", None, None, "", False)
        row = setting_row(key, None, found, asked._replace(documented=False), is_read_only=True)
        return {**row, "is_sensitive": True, "config_type": _UNKNOWN_TYPE}
    names = _FAMILIES.get(name, (name,))
    if has_default:
        keys = (key if one == name else node.config.key(one) for one in names if one not in _WITHOUT_DEFAULT)
        sources = (*sources, (DEFAULT, {one.name: one.default for one in keys if one.default is not None}))
    found = synonyms_of(name, names, sources)
    text = found[0].value if found else None
    text = None if text is None else effective_text(key, text)
    return setting_row(key, text, found, asked, is_read_only=not key.dynamic)


def _derived(node: Node) -> dict[str, str]:
    listeners = (f"{name}://{_host_text(host)}:{port}" for name, (host, port) in node.endpoints.items())
    return {
        "advertised.listeners": ",".join(listeners),
        "broker.id": str(node.node_id),
        "log.dirs": ",".join(one.path for one in node.store.directories),
        "node.id": str(node.node_id),
        "process.roles": value_text(node.config.ignored_values.get("process.roles", "broker,controller")),
    }


def _host_text(host: str) -> str:
    return f"[{host}]" if ":" in host else host
