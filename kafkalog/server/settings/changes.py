"""Changes of settings by AlterConfigs and IncrementalAlterConfigs: the resulting settings are checked, then set."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from kafkalog.config.keys import Key, value_text
from kafkalog.errors import ConfigError, InvalidRequest, UnknownTopicOrPartition
from kafkalog.server.error_codes import ErrorCode
from kafkalog.server.node.topics import check_name
from kafkalog.server.requests.context import RequestContext
from kafkalog.server.security.acls import Operation, ResourceType
from kafkalog.server.settings.broker_checks import defined_key
from kafkalog.server.settings.checks import check_together, check_value, topic_key
from kafkalog.server.settings.client_metrics import check_subscription
from kafkalog.server.settings.groups import check_group_settings, group_key
from kafkalog.server.settings.kinds import (
    BROKER,
    BROKER_LOGGER,
    CLIENT_METRICS,
    GROUP,
    KEPT,
    TOPIC,
    Change,
    RequestedChange,
)
from kafkalog.server.settings.loggers import set_levels
from kafkalog.server.settings.rows import STRINGS

if TYPE_CHECKING:
    from kafkalog.server.node.node import Node


def denied(node: Node, context: RequestContext, operation: Operation, kind: int, name: str) -> ErrorCode | None:
    """Return the error code if the client may not perform the operation on a resource's settings, else None."""
    if kind == TOPIC:
        if not node.authorizer.allows(context, operation, ResourceType.TOPIC, name):
            return ErrorCode.TOPIC_AUTHORIZATION_FAILED
    elif kind == GROUP:
        if not node.authorizer.allows(context, operation, ResourceType.GROUP, name):
            return ErrorCode.GROUP_AUTHORIZATION_FAILED
    elif not node.authorizer.allows_cluster(context, operation):
        return ErrorCode.CLUSTER_AUTHORIZATION_FAILED
    return None


def check_resource(node: Node, kind: int, name: str) -> None:
    """Raise InvalidRequest or InvalidTopic unless the settings of a resource of this name can change."""
    if kind == TOPIC:
        if not name:
            raise InvalidRequest("Default topic resources are not allowed.")
        check_name(name)
    elif kind == BROKER:
        check_broker(node, name)
    elif kind == GROUP:
        if not name:
            raise InvalidRequest("Default group resources are not allowed.")
    elif kind != CLIENT_METRICS:
        raise InvalidRequest(f"Unknown resource type {kind}")


def check_broker(node: Node, name: str) -> None:
    """Raise InvalidRequest unless `name` is this node's number, or "" for all nodes."""
    if not name:
        return
    try:
        number = int(name)
    except ValueError:
        raise InvalidRequest(f"Broker id must be an integer, but it is: {name}") from None
    if str(number) != name:  # "01" would be stored as another node
        raise InvalidRequest(f"Broker id must be an integer, but it is: {name}")
    if number != node.node_id:
        raise InvalidRequest(f"Unexpected broker id, expected {node.node_id} or empty string, but received {name}")


def _check_node(node: Node, name: str) -> None:
    """Raise InvalidRequest, with the reference's message for loggers, unless `name` is this node's number."""
    if not name.isdecimal():
        raise InvalidRequest(f"Node id must be an integer, but it is: {name}")
    if name != str(node.node_id):
        raise InvalidRequest(f"Unexpected node id. Expected {node.node_id}, but received {name}")


def own_settings(node: Node, kind: int, name: str) -> Mapping[str, str]:
    """Return the settings of a resource itself, name to text; none of a topic that does not exist."""
    if kind == TOPIC:
        if node.topics.get(name) is None:
            return {}
        own: Mapping[str, str] = node.topics.own_settings(name)
        return own
    found: Mapping[str, str] = node.dynamic.kept(kind, name) if kind in KEPT else node.dynamic.of(name)
    return found


async def set_all(
    node: Node, kind: int, name: str, settings: Sequence[tuple[str, str | None]], validate_only: bool
) -> None:
    """Replace all settings of a resource.

    Raises ConfigError, UnknownTopicOrPartition, StorageError, and as `check_resource`.
    """
    check_resource(node, kind, name)
    own = own_settings(node, kind, name)
    changes = {**dict.fromkeys(own), **dict(settings)}
    await _set(node, kind, name, own, changes, validate_only)


async def change(node: Node, kind: int, name: str, changes: Sequence[RequestedChange], validate_only: bool) -> None:
    """Change some settings of a resource: `changes` have name, config_operation, value. Raises as `set_all`."""
    if kind == BROKER_LOGGER:
        _check_node(node, name)
        set_levels(changes, validate_only)
        return
    if kind == BROKER:
        check_resource(node, kind, name)
    own = own_settings(node, kind, name)
    new_values = {one.name: _changed(node, kind, own.get(one.name), one) for one in changes}
    check_resource(node, kind, name)  # after the operations: a broker leaves the names of topics to its controller
    if kind != BROKER:  # to remove a setting that is not set, or not known, changes nothing
        new_values = {setting: value for setting, value in new_values.items() if value is not None or setting in own}
    await _set(node, kind, name, own, new_values, validate_only)


async def _set(
    node: Node,
    kind: int,
    name: str,
    own: Mapping[str, str],
    changes: Mapping[str, str | None],
    validate_only: bool,
) -> None:
    if kind == BROKER:
        node.dynamic.check(changes, name)
        if not validate_only:
            await node.dynamic.change(name, changes)
        return
    remaining = {setting: value for setting, value in {**own, **changes}.items() if value is not None}
    if kind in KEPT:
        if kind == GROUP:
            check_group_settings(node, remaining)
        else:
            check_subscription(name, remaining)
        if not validate_only:
            await node.dynamic.change_kept(kind, name, changes)
        return
    keys = {setting: topic_key(setting) for setting, value in changes.items() if value is not None}
    for setting, key in keys.items():
        check_value(key, str(changes[setting]))
    check_together(remaining, node.store.config.topic_defaults)
    if node.topics.get(name) is None:
        raise UnknownTopicOrPartition(f"The topic '{name}' does not exist.")
    if not validate_only and changes:
        await node.topics.alter(name, changes)


def _changed(node: Node, kind: int, current: str | None, one: RequestedChange) -> str | None:
    """Return a setting's value after a change; None if the resource no longer has its own."""
    if one.config_operation == Change.SET:
        return str(one.value)
    if one.config_operation == Change.DELETE:
        return None
    if one.config_operation not in (Change.APPEND, Change.SUBTRACT):
        raise InvalidRequest(f"Unknown operation type {one.config_operation}")
    operation_name = Change(one.config_operation).name
    key = _key(node, kind, one.name, operation_name)
    if key.kind != "list" or one.name in STRINGS:
        raise _no_list(kind, one.name, operation_name)
    text = value_text(key.default) if current is None else current
    items = [item for item in text.split(",") if item]
    given = [item for item in (one.value or "").split(",") if item]
    if one.config_operation == Change.APPEND:
        known = set(items)
        items += [item for item in dict.fromkeys(given) if item not in known]
    else:
        removed = set(given)
        items = [item for item in items if item not in removed]
    return ",".join(items)


def _no_list(kind: int, name: str, operation_name: str) -> ConfigError:
    if kind == BROKER:
        return ConfigError(f"Config value {operation_name.lower()} is not allowed for config key: {name}")
    return ConfigError(f"Can't {operation_name} to key {name} because its type is not LIST.")


def _key(node: Node, kind: int, name: str, operation_name: str) -> Key:
    if kind == TOPIC:
        try:
            return topic_key(name)
        except ConfigError:
            raise _no_list(kind, name, operation_name) from None
    if kind == GROUP:
        return group_key(name)
    if kind == CLIENT_METRICS:  # a broker takes none of them for a list here
        raise _no_list(kind, name, operation_name)
    key = defined_key(node.config, name)
    if key is None:
        raise ConfigError(f"Unknown config name: {name}")
    return key
