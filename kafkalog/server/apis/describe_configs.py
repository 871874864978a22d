"""DescribeConfigs: the settings of topics and of the node."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from kafkalog.errors import InvalidRequest, KafkalogError, UnknownTopicOrPartition
from kafkalog.server.error_codes import ErrorCode, Refused, code_of
from kafkalog.server.node.topics import check_name
from kafkalog.server.requests.context import Answer, RequestContext
from kafkalog.server.requests.cooperative_yield import in_turns
from kafkalog.server.security.acls import Operation
from kafkalog.server.settings.broker_rows import broker_rows
from kafkalog.server.settings.changes import check_broker, denied
from kafkalog.server.settings.kinds import BROKER, BROKER_LOGGER, CLIENT_METRICS, GROUP, KINDS, TOPIC
from kafkalog.server.settings.rows import Asked, client_metrics_rows, group_rows, logger_rows, topic_rows

if TYPE_CHECKING:
    from kio.schema.describe_configs.v4.request import DescribeConfigsRequest, DescribeConfigsResource

    from kafkalog.server.node.node import Node
    from kafkalog.server.wire.writer import Tree

_TURN_ROWS: Final = 4  # each has about a hundred settings


_NAMES: Final = {GROUP: "Group name", CLIENT_METRICS: "Client metrics subscription name", BROKER_LOGGER: "Broker id"}


async def handle(node: Node, context: RequestContext, request: DescribeConfigsRequest) -> Answer:
    """Return the settings, or an error, for each resource independently. Raise InvalidRequest for an unknown type."""
    if any(one.resource_type not in KINDS for one in request.resources):
        raise InvalidRequest(ErrorCode.INVALID_REQUEST.message or "")
    resources = {(one.resource_type, one.resource_name): one for one in request.resources}  # once each
    rows = [_row(node, context, request, one) async for one in in_turns(resources.values(), _TURN_ROWS)]
    return {"results": rows}


def refused(node: Node, context: RequestContext, request: DescribeConfigsRequest, error: Refused) -> Answer:
    """Return the error for each resource."""
    rows = [_error(resource, error.code, error.message) for resource in request.resources]
    return {"results": rows}


def _row(
    node: Node, context: RequestContext, request: DescribeConfigsRequest, resource: DescribeConfigsResource
) -> Tree:
    kind, name = resource.resource_type, resource.resource_name
    code = denied(node, context, Operation.DESCRIBE_CONFIGS, kind, name)
    if code is not None:
        return _error(resource, code, code.message)
    try:
        configs = _configs(node, request, resource)
    except UnknownTopicOrPartition:
        return _error(resource, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, "")
    except KafkalogError as error:
        return _error(resource, code_of(error), error.message)
    return {**_error(resource, ErrorCode.NONE, ""), "configs": configs}


def _configs(node: Node, request: DescribeConfigsRequest, resource: DescribeConfigsResource) -> list[Tree]:
    kind, name = resource.resource_type, resource.resource_name
    names = frozenset(resource.configuration_keys or ()) or None
    asked = Asked(names, request.include_synonyms, getattr(request, "include_documentation", False))
    if kind == TOPIC:
        check_name(name)
        if node.topics.get(name) is None:
            raise UnknownTopicOrPartition()
        return topic_rows(node, node.topics.settings(name), asked)
    if kind == BROKER:
        check_broker(node, name)
        return broker_rows(node, name, asked)
    if not name:
        raise InvalidRequest(f"{_NAMES[kind]} must not be empty")
    if kind == GROUP:
        return group_rows(node, name, asked)
    if kind == CLIENT_METRICS:
        return client_metrics_rows(node, name, asked)
    if name != str(node.node_id):
        if name.isdecimal():
            raise InvalidRequest(f"Unexpected broker id, expected {node.node_id} but received {name}")
        raise InvalidRequest(f"Broker id must be an integer, but it is: {name}")
    return logger_rows(asked)


def _error(resource: DescribeConfigsResource, error_code: int, message: str | None) -> dict[str, object]:
    return {
        "error_code": error_code,
        "error_message": message,
        "resource_type": resource.resource_type,
        "resource_name": resource.resource_name,
        "configs": (),
    }
