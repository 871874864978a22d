"""Metadata: the brokers and topics. A request for a missing topic may create it.

As in the reference, a topic is reported as unknown until it is created, and the client asks again.
"""

from __future__ import annotations

import logging
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, Final
from uuid import UUID

from kafkalog.errors import InvalidRequest, InvalidTopic, KafkalogError
from kafkalog.server.error_codes import ErrorCode, Refused
from kafkalog.server.node.addresses import addresses, rack_of
from kafkalog.server.node.topics import INTERNAL, check_name
from kafkalog.server.requests.context import Answer, RequestContext
from kafkalog.server.requests.cooperative_yield import CooperativeYield
from kafkalog.server.requests.forwarding import create_on_leader
from kafkalog.server.requests.topic_rows import error_row, topic_row
from kafkalog.server.security.acls import CLUSTER_NAME, NOT_ASKED, Operation, ResourceType

if TYPE_CHECKING:
    from kio.schema.metadata.v13.request import MetadataRequest, MetadataRequestTopic

    from kafkalog.server.node.node import Node
    from kafkalog.server.wire.writer import Tree

_LOG: Final = logging.getLogger(__name__)
MAX_CREATED: Final = 100
"""Maximum number of missing topics that one request creates; the client asks again for the others."""
_IDS_FROM: Final = 12
_CLUSTER_OPERATIONS_UNTIL: Final = 10


async def handle(node: Node, context: RequestContext, request: MetadataRequest) -> Answer:
    """Return the nodes and the requested topics. Null, or an empty list in version 0, requests all topics."""
    requested = request.topics
    if requested is None or (context.api_version == 0 and not requested):
        rows = await _all_topics(node, context)
    else:
        rows = await _requested_topics(node, context, request, requested)
    if getattr(request, "include_topic_authorized_operations", False):
        for row in rows:
            if row["name"] is not None and row["error_code"] != ErrorCode.TOPIC_AUTHORIZATION_FAILED:
                row["topic_authorized_operations"] = node.authorizer.allowed_operations(
                    context, ResourceType.TOPIC, row["name"]
                )
    brokers = tuple(
        {**one._asdict(), "rack": rack_of(node, one.node_id)} for one in addresses(node, context.connection.listener)
    )
    return {
        "brokers": brokers,
        "cluster_id": node.cluster_id or None,
        "controller_id": node.quorum.leader,
        "topics": rows,
        "cluster_authorized_operations": _cluster_operations(node, context, request),
        "error_code": ErrorCode.NONE,
    }


def refused(node: Node, context: RequestContext, request: MetadataRequest, error: Refused) -> Answer:
    """Return the error for each requested topic, without the cluster and its nodes."""
    topics = () if request is None else request.topics or ()
    rows = [error_row(error.code, topic.name or "", getattr(topic, "topic_id", None)) for topic in topics]
    return {
        "brokers": (),
        "cluster_id": None,
        "controller_id": -1,
        "topics": rows,
        "cluster_authorized_operations": NOT_ASKED,
        "error_code": error.code,
    }


def _cluster_operations(node: Node, context: RequestContext, request: MetadataRequest) -> int:
    if context.api_version > _CLUSTER_OPERATIONS_UNTIL or not getattr(
        request, "include_cluster_authorized_operations", False
    ):
        return NOT_ASKED
    if not node.authorizer.allows_cluster(context, Operation.DESCRIBE):
        return 0
    return node.authorizer.allowed_operations(context, ResourceType.CLUSTER, CLUSTER_NAME)


def _is_allowed(node: Node, context: RequestContext, operation: Operation, name: str) -> bool:
    return node.authorizer.allows(context, operation, ResourceType.TOPIC, name)


async def _all_topics(node: Node, context: RequestContext) -> list[Any]:
    turns = CooperativeYield()
    rows = []
    for name in node.topics.names():
        await turns.row()
        topic = node.topics.get(name)
        if topic is not None and _is_allowed(node, context, Operation.DESCRIBE, name):
            rows.append(await topic_row(node, topic, turns))
    return rows


async def _requested_topics(
    node: Node, context: RequestContext, request: MetadataRequest, requested: Sequence[MetadataRequestTopic]
) -> list[Any]:
    names, ids = _names_and_ids(context.api_version, requested)
    turns = CooperativeYield()
    if ids:
        return [await _row_by_id(node, context, topic_id, turns) for topic_id in ids]
    rows: list[Tree] = []
    missing = []
    for name in names:
        await turns.row()
        topic = node.topics.get(name)
        if not _is_allowed(node, context, Operation.DESCRIBE, name):
            rows.append(error_row(ErrorCode.TOPIC_AUTHORIZATION_FAILED, name))
        elif topic is not None:
            rows.append(await topic_row(node, topic, turns))
        else:
            missing.append(name)
    may_create = getattr(request, "allow_auto_topic_creation", True) and node.config["auto.create.topics.enable"]
    may_create = may_create and not node.is_read_only
    to_create: list[str] = []
    for index, name in enumerate(missing):
        await turns.row()
        rows.append(await _unknown(node, context, name, may_create and index < MAX_CREATED, to_create))
    await create_on_leader(node, to_create)
    return rows


def _names_and_ids(version: int, requested: Sequence[Any]) -> tuple[list[str], list[UUID]]:
    """Return the distinct requested names and ids. If there are any ids, the caller ignores the names."""
    for topic in requested:
        if version < _IDS_FROM:
            if topic.name is None:
                raise InvalidRequest(f"Topic name can not be null for version {version}")
            if getattr(topic, "topic_id", None) is not None:
                raise InvalidRequest(f"Topic IDs are not supported in requests for version {version}")
    ids = dict.fromkeys(topic.topic_id for topic in requested if getattr(topic, "topic_id", None) is not None)
    return list(dict.fromkeys(topic.name for topic in requested if topic.name is not None)), list(ids)


async def _row_by_id(node: Node, context: RequestContext, topic_id: UUID, turns: CooperativeYield) -> Tree:
    await turns.row()
    topic = node.topics.by_id(topic_id)
    if topic is None:
        return error_row(ErrorCode.UNKNOWN_TOPIC_ID, None, topic_id)
    if not _is_allowed(node, context, Operation.DESCRIBE, topic.name):
        return error_row(ErrorCode.TOPIC_AUTHORIZATION_FAILED, None, topic_id)
    return await topic_row(node, topic, turns)


async def _unknown(node: Node, context: RequestContext, name: str, may_create: bool, to_create: list[str]) -> Tree:
    """Return the row of a missing topic. If allowed, the leader creates it; another node adds it to `to_create`."""
    is_internal = name in INTERNAL
    creates = may_create or (is_internal and _is_node(node, context))  # another node needs it for its coordinators
    if creates and not _may_create(node, context, name):
        return error_row(ErrorCode.TOPIC_AUTHORIZATION_FAILED, name, is_internal=is_internal)
    try:
        check_name(name)
    except InvalidTopic:
        return error_row(ErrorCode.INVALID_TOPIC_EXCEPTION, name)
    if creates:
        if not node.quorum.leads:
            to_create.append(name)
        else:
            await _create(node, context, name)
    return error_row(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, name, is_internal=is_internal)


def _may_create(node: Node, context: RequestContext, name: str) -> bool:
    return (
        node.authorizer.allows_cluster(context, Operation.CREATE)
        or _is_allowed(node, context, Operation.CREATE, name)
        or _is_node(node, context)
    )


def _is_node(node: Node, context: RequestContext) -> bool:
    """Return True if another node of the set, which has already authorized its client, sent the request."""
    return node.quorum.replica_set is not None and node.authorizer.allows_cluster(context, Operation.CLUSTER_ACTION)


async def _create(node: Node, context: RequestContext, name: str) -> None:
    """Create a missing topic. Internal ones are waited for, the others are still reported as unknown meanwhile."""
    if name in INTERNAL:
        try:
            await node.topics.create_on_use(name)
        except KafkalogError as error:
            _LOG.warning("cannot create topic %s for a client: %s", name, error)
    elif node.creations.begin(name):
        node.quotas.record_mutations(context, node.config["num.partitions"], is_strict=False)
