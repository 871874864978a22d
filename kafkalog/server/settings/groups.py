"""Settings of single groups (KIP-848): their definitions, checks and effective values.

Settings of streams groups are only kept for a broker that may use the directory later; such groups are not served.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from kafkalog.config.keys import Check, Key, Kind, at_least, one_of, parse_value
from kafkalog.errors import ConfigError
from kafkalog.server.settings.checks import check_value

if TYPE_CHECKING:
    from kafkalog.server.node.node import Node

_DURATION: Final = re.compile(
    r"by_duration:(?i:P(?=.)([0-9]+D)?(T(?=.)([0-9]+H)?([0-9]+M)?([0-9]+(\.[0-9]{0,9})?S)?)?)"
)
_RESETS: Final = Check(
    "either 'earliest', 'latest' or of the format 'by_duration:<PnDTnHnMn.nS>'",
    lambda value: value.lower() in ("earliest", "latest") or _DURATION.fullmatch(value) is not None,
)
_DEAD_LETTERS: Final = Check("a name that does not start with '__'", lambda value: not value.startswith("__"))
_NAME: Final = Check("the name of an assignor", lambda value: value != "")


class GroupSetting(NamedTuple):
    """A setting of a group: its definition, and its lowest and highest value where the server has no setting for it.

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


_STORED: Final = "stored for a broker"
_STORED_44: Final = "stored for a broker of 4.4"


def _row(
    name: str, kind: Kind, default: object, check: Check | None, lowest: int | None = None, highest: int | None = None,
    doc: str = _STORED, *, other_name: str | None = None, is_internal: bool = False,
) -> GroupSetting:  # fmt: skip
    return GroupSetting(Key(name, kind, default, check, doc), lowest, highest, other_name, is_internal)


_READ: Final = one_of("read_committed", "read_uncommitted")
_ROWS: Final[tuple[GroupSetting, ...]] = (
    _row("consumer.assignment.interval.ms", "int", 1000, at_least(0), 0, 15_000, f"{_STORED}: here there is no wait"),
    _row("consumer.assignor.offload.enable", "bool", True, None, doc=_STORED_44, is_internal=True),
    _row("consumer.heartbeat.interval.ms", "int", 5000, at_least(1), doc="interval of the members' heartbeats"),
    _row("consumer.session.timeout.ms", "int", 45_000, at_least(1),
         doc="a member without heartbeats is removed after this time"),
    _row("errors.deadletterqueue.copy.record.enable", "bool", False, None,
         doc="a share group's dead letters have the record's key and value", other_name=""),
    _row("errors.deadletterqueue.topic.name", "string", "", _DEAD_LETTERS,
         doc="topic of a share group's dead letters", other_name=""),
    _row("share.assignment.interval.ms", "int", 1000, at_least(0), 0, 15_000, f"{_STORED}: here there is no wait"),
    _row("share.assignor.offload.enable", "bool", True, None, doc=_STORED_44, is_internal=True),
    _row("share.auto.offset.reset", "string", "latest", _RESETS, doc="where a new share group begins", other_name=""),
    _row("share.delivery.count.limit", "int", 5, at_least(2), doc="deliveries of a record"),
    _row("share.heartbeat.interval.ms", "int", 5000, at_least(1), doc="interval of the members' heartbeats"),
    _row("share.isolation.level", "string", "read_uncommitted", _READ, doc="records that members see", other_name=""),
    _row("share.partition.max.record.locks", "int", 2000, at_least(100), doc="records of a partition in flight"),
    _row("share.record.lock.duration.ms", "int", 30_000, at_least(1000), doc="time for which a member has a record"),
    _row("share.renew.acknowledge.enable", "bool", True, None, doc="members may renew locks", other_name=""),
    _row("share.session.timeout.ms", "int", 45_000, at_least(1),
         doc="a member without heartbeats is removed after this time"),
    _row("streams.acceptable.recovery.lag", "long", 10_000, at_least(0), doc=_STORED_44, is_internal=True),
    _row("streams.assignment.interval.ms", "int", 1000, at_least(0), 0, 15_000),
    _row("streams.assignor.name", "string", "sticky", _NAME, doc=_STORED_44, other_name="group.streams.assignors"),
    _row("streams.assignor.offload.enable", "bool", True, None, doc=_STORED_44, is_internal=True),
    _row("streams.heartbeat.interval.ms", "int", 5000, at_least(1), 5000, 15_000),
    _row("streams.initial.rebalance.delay.ms", "int", 3000, at_least(0)),
    _row("streams.num.standby.replicas", "int", 0, at_least(0), None, 2),
    _row("streams.num.warmup.replicas", "int", 2, at_least(0), None, 20, _STORED_44, is_internal=True),
    _row("streams.rack.aware.assignment.tags", "list", (), None, doc=_STORED_44),
    _row("streams.session.timeout.ms", "int", 45_000, at_least(1), 45_000, 60_000),
    _row("streams.task.offset.interval.ms", "int", 60_000, at_least(1), 15_000, None, _STORED_44, is_internal=True),
)  # fmt: skip
GROUP_SETTINGS: Final[Mapping[str, GroupSetting]] = {one.key.name: one for one in _ROWS}


def group_key(name: str) -> Key:
    """Return the definition of a group's setting. Raise ConfigError if it is unknown."""
    if name not in GROUP_SETTINGS:
        raise ConfigError(f"Unknown group config name: {name}")
    return GROUP_SETTINGS[name].key


def check_group_settings(node: Node, settings: Mapping[str, str]) -> None:
    """Raise ConfigError, with the reference's message, unless a group may have these settings."""
    parsed = {name: check_value(group_key(name), value) for name, value in settings.items()}
    for name, value in parsed.items():
        one = GROUP_SETTINGS[name]
        lowest, highest = _limit(node, one, "min", one.lowest), _limit(node, one, "max", one.highest)
        if lowest is not None and value < lowest:
            raise ConfigError(f"{name} must be greater than or equal to {one.limit_name('min')}")
        if highest is not None and value > highest:
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
