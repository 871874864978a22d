"""Settings of single groups (KIP-848): their definitions, checks and effective values.

Settings of share and streams groups are only kept for a broker that may use the directory later; such groups are not
served.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from kafkalog.config.keys import Check, Key, at_least, one_of, parse_value
from kafkalog.errors import ConfigError
from kafkalog.server.settings.checks import check_value

if TYPE_CHECKING:
    from kafkalog.server.node.node import Node

_DURATION: Final = re.compile(r"by_duration:P(?=.)(\d+D)?(T(?=.)(\d+H)?(\d+M)?(\d+(\.\d+)?S)?)?")
_RESETS: Final = Check(
    "either 'earliest', 'latest' or of the format 'by_duration:<PnDTnHnMn.nS>'",
    lambda value: value.lower() in ("earliest", "latest") or _DURATION.fullmatch(value) is not None,
)
_DEAD_LETTERS: Final = Check("a name that does not start with '__'", lambda value: not value.startswith("__"))
_NAME: Final = Check("the name of an assignor", lambda value: value != "")


class GroupSetting(NamedTuple):
    """A setting of a group: its definition, and its lowest and highest value.

    `broker_name`: the server's setting that applies to a group without its own, "" if there is none.
    `is_internal`: shown only for a group that has its own.
    """

    key: Key
    lowest: int | None = None
    highest: int | None = None
    other_name: str | None = None
    is_internal: bool = False

    @property
    def broker_name(self) -> str:
        return f"group.{self.key.name}" if self.other_name is None else self.other_name

    def limit_name(self, which: str) -> str:
        """Return the reference's setting for the lowest ("min") or highest ("max") value."""
        kind, _, rest = self.key.name.partition(".")
        return f"group.{kind}.{which}.{rest.removeprefix('num.')}"


def _int(
    name: str, default: int, least: int, doc: str, lowest: int | None = None, highest: int | None = None,
    *, is_internal: bool = False,
) -> GroupSetting:  # fmt: skip
    return GroupSetting(Key(name, "int", default, at_least(least), doc), lowest, highest, is_internal=is_internal)


_ROWS: Final[tuple[GroupSetting, ...]] = (
    _int("consumer.assignment.interval.ms", 1000, 0, "kept for a broker: here there is no wait", 0, 15_000),
    _int("consumer.heartbeat.interval.ms", 5000, 1, "how often members of the group are to tell of themselves"),
    _int("consumer.session.timeout.ms", 45_000, 1, "a silent member of the group is out after so long"),
    GroupSetting(
        Key("errors.deadletterqueue.copy.record.enable", "bool", False, None, "kept for a broker of 4.4"),
        other_name="",
    ),
    GroupSetting(
        Key("errors.deadletterqueue.topic.name", "string", "", _DEAD_LETTERS, "kept for a broker of 4.4"),
        other_name="",
    ),
    _int("share.assignment.interval.ms", 1000, 0, "kept for a broker", 0, 15_000),
    GroupSetting(Key("share.auto.offset.reset", "string", "latest", _RESETS, "kept for a broker"), None, None, ""),
    _int("share.delivery.count.limit", 5, 2, "kept for a broker", 2, 10),
    _int("share.heartbeat.interval.ms", 5000, 1, "kept for a broker", 5000, 15_000),
    GroupSetting(
        Key("share.isolation.level", "string", "read_uncommitted", one_of("read_committed", "read_uncommitted"),
            "kept for a broker"), None, None, "",
    ),
    _int("share.partition.max.record.locks", 2000, 100, "kept for a broker", 100, 4000),
    _int("share.record.lock.duration.ms", 30_000, 1000, "kept for a broker", 15_000, 60_000),
    GroupSetting(Key("share.renew.acknowledge.enable", "bool", True, None, "kept for a broker"), None, None, ""),
    _int("share.session.timeout.ms", 45_000, 1, "kept for a broker", 45_000, 60_000),
    GroupSetting(
        Key("streams.acceptable.recovery.lag", "long", 10_000, at_least(0), "kept for a broker of 4.4"),
        is_internal=True,
    ),
    _int("streams.assignment.interval.ms", 1000, 0, "kept for a broker", 0, 15_000),
    GroupSetting(
        Key("streams.assignor.name", "string", "sticky", _NAME, "kept for a broker of 4.4"),
        other_name="group.streams.assignors",
    ),
    _int("streams.heartbeat.interval.ms", 5000, 1, "kept for a broker", 5000, 15_000),
    _int("streams.initial.rebalance.delay.ms", 3000, 0, "kept for a broker"),
    _int("streams.num.standby.replicas", 0, 0, "kept for a broker", None, 2),
    _int("streams.num.warmup.replicas", 2, 0, "kept for a broker of 4.4", None, 20, is_internal=True),
    GroupSetting(Key("streams.rack.aware.assignment.tags", "list", (), None, "kept for a broker of 4.4")),
    _int("streams.session.timeout.ms", 45_000, 1, "kept for a broker", 45_000, 60_000),
    _int("streams.task.offset.interval.ms", 60_000, 1, "kept for a broker of 4.4", 15_000, is_internal=True),
)  # fmt: skip
GROUP_SETTINGS: Final[Mapping[str, GroupSetting]] = {one.key.name: one for one in _ROWS}


def group_key(name: str) -> Key:
    """Return the definition of a group's setting. Raise ConfigError if it is unknown."""
    if name not in GROUP_SETTINGS:
        raise ConfigError(f"Unknown group config name: {name}")
    return GROUP_SETTINGS[name].key


def check_group_settings(node: Node, settings: Mapping[str, str]) -> None:
    """Raise ConfigError, with the reference's message, unless a group may have these settings."""
    for name, value in settings.items():
        check_value(group_key(name), value)
    for name, value in settings.items():
        one = GROUP_SETTINGS[name]
        lowest, highest = _limit(node, one, "min", one.lowest), _limit(node, one, "max", one.highest)
        if lowest is not None and int(value) < lowest:
            raise ConfigError(f"{name} must be greater than or equal to {one.limit_name('min')}")
        if highest is not None and int(value) > highest:
            raise ConfigError(f"{name} must be less than or equal to {one.limit_name('max')}")


def _limit(node: Node, one: GroupSetting, which: str, otherwise: int | None) -> int | None:
    name = one.limit_name(which)
    return int(node.config[name]) if name in node.config else otherwise


def default_of(node: Node, name: str) -> Any:
    """Return the effective value for a group without its own settings."""
    one = GROUP_SETTINGS[name]
    return node.config[one.broker_name] if one.broker_name in node.config else one.key.default


def group_setting(node: Node, group_id: str, name: str) -> Any:
    """Return the effective value for a group: its own setting, or the server's."""
    own = node.dynamic.of_group(group_id).get(name)
    return default_of(node, name) if own is None else parse_value(GROUP_SETTINGS[name].key, own)
