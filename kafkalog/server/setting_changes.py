"""What AlterConfigs and IncrementalAlterConfigs do: a resource's settings as they would be, checked, then set."""

from __future__ import annotations

from collections.abc import Mapping
from enum import IntEnum
from typing import TYPE_CHECKING, Any, Final

from kafkalog.config_keys import value_text
from kafkalog.errors import ConfigError, InvalidRequest, UnknownTopicOrPartition
from kafkalog.server.context import RequestContext
from kafkalog.server.error_codes import ErrorCode
from kafkalog.server.security.acls import Operation, ResourceType
from kafkalog.server.setting_checks import check_together, check_value, topic_key

if TYPE_CHECKING:
    from kafkalog.server.node import Node

TOPIC: Final = 2
BROKER: Final = 4


class Change(IntEnum):
    """What is done with one setting (KIP-339); the last two are for lists."""

    SET = 0
    DELETE = 1
    APPEND = 2
    SUBTRACT = 3


def denied(node: Node, context: RequestContext, operation: Operation, kind: int, name: str) -> ErrorCode | None:
    """The code of a client that may not do this with the settings of a resource."""
    if kind == TOPIC:
        if not node.authorizer.allows(context, operation, ResourceType.TOPIC, name):
            return ErrorCode.TOPIC_AUTHORIZATION_FAILED
    elif not node.authorizer.allows_cluster(context, operation):
        return ErrorCode.CLUSTER_AUTHORIZATION_FAILED
    return None


def check_resource(node: Node, kind: int, name: str) -> None:
    """Return where there is such a resource. InvalidRequest, UnknownTopicOrPartition."""
    if kind == TOPIC:
        if not name:
            raise InvalidRequest("Default topic resources are not allowed.")
        if node.topics.get(name) is None:
            raise UnknownTopicOrPartition(f"The topic '{name}' does not exist.")
    elif kind == BROKER:
        check_broker(node, name)
    else:
        raise InvalidRequest(f"Unexpected resource type {kind}")


def check_broker(node: Node, name: str) -> None:
    """Return for the node's number, and for "", which stands for all nodes; InvalidRequest otherwise."""
    if not name:
        return
    try:
        number = int(name)
    except ValueError:
        raise InvalidRequest(f"Broker id must be an integer, but it is: {name}") from None
    if str(number) != name:  # "01" would be kept as another node's
        raise InvalidRequest(f"Broker id must be an integer, but it is: {name}")
    if number != node.node_id:
        raise InvalidRequest(f"Unexpected broker id, expected {node.node_id} or empty string, but received {name}")


async def set_all(node: Node, kind: int, name: str, settings: Mapping[str, str | None], validate_only: bool) -> None:
    """Let a resource have these settings and no others. ConfigError, StorageError, and as `check_resource`."""
    check_resource(node, kind, name)
    own = node.topics.own_settings(name) if kind == TOPIC else node.dynamic.of(name)
    changes = {**dict.fromkeys(own), **settings}
    nulls = [setting for setting, value in settings.items() if value is None]
    if nulls:
        raise InvalidRequest(f"Null value not supported for : {','.join(nulls)}")
    await _set(node, kind, name, own, changes, validate_only)


async def change(node: Node, kind: int, name: str, changes: list[Any], validate_only: bool) -> None:
    """Change some settings of a resource: `changes` have name, config_operation, value. Errors as `set_all`."""
    names = [one.name for one in changes]
    if len(set(names)) < len(names):
        raise InvalidRequest("Error due to duplicate config keys")
    nulls = [one.name for one in changes if one.value is None and one.config_operation != Change.DELETE]
    if nulls:
        raise InvalidRequest(f"Null value not supported for : {','.join(nulls)}")
    check_resource(node, kind, name)
    own = node.topics.own_settings(name) if kind == TOPIC else node.dynamic.of(name)
    made = {one.name: _changed(node, kind, own.get(one.name), one) for one in changes}
    await _set(node, kind, name, own, made, validate_only)


async def _set(
    node: Node,
    kind: int,
    name: str,
    own: Mapping[str, str],
    changes: Mapping[str, str | None],
    validate_only: bool,
) -> None:
    if kind == BROKER:
        node.dynamic.check(changes)
        if not validate_only:
            await node.dynamic.change(name, changes)
        return
    for setting, value in changes.items():
        key = topic_key(setting)
        if value is not None:
            check_value(key, value)
    kept = {setting: value for setting, value in {**own, **changes}.items() if value is not None}
    check_together(kept, node.store.config.topic_defaults)
    if not validate_only and changes:
        await node.topics.alter(name, changes)


def _changed(node: Node, kind: int, current: str | None, one: Any) -> str | None:
    """The value that a setting has after a change; None where it has none of its own any more."""
    if one.config_operation == Change.SET:
        return str(one.value)
    if one.config_operation == Change.DELETE:
        return None
    if one.config_operation not in (Change.APPEND, Change.SUBTRACT):
        raise InvalidRequest(f"Unknown operation type {one.config_operation}")
    named = Change(one.config_operation).name
    if kind == TOPIC:
        key = topic_key(one.name)
    elif one.name in node.config:
        key = node.config.key(one.name)
    else:
        raise ConfigError(f"Unknown config name: {one.name}")
    if key.kind != "list":
        raise ConfigError(f"Can't {named} to key {one.name} because its type is not LIST.")
    text = value_text(key.default) if current is None else current
    items = [item for item in text.split(",") if item]
    given = [item for item in one.value.split(",") if item]
    if one.config_operation == Change.APPEND:
        items += [item for item in given if item not in items]
    else:
        items = [item for item in items if item not in given]
    return ",".join(items)
