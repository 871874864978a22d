"""CreateTopics: create each topic that the client may create."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Final

from kafkalog.errors import (
    InvalidPartitions,
    InvalidRequest,
    KafkalogError,
    PolicyViolation,
)
from kafkalog.server.error_codes import ErrorCode, Refused, code_of
from kafkalog.server.node.topics import METADATA_TOPIC, Topic, TopicPlan, check_partition_count
from kafkalog.server.requests.assignments import check_factor, check_may_assign, check_nodes, check_replicas, nodes_of
from kafkalog.server.requests.context import Answer, RequestContext
from kafkalog.server.requests.cooperative_yield import CooperativeYield
from kafkalog.server.security.acls import Operation, ResourceType
from kafkalog.server.settings.checks import checked_topic_settings
from kafkalog.server.settings.rows import created_rows

if TYPE_CHECKING:
    from kio.schema.create_topics.v7.request import CreatableTopic, CreateTopicsRequest

    from kafkalog.server.node.node import Node
    from kafkalog.server.wire.writer import Tree

_TURN_ROWS: Final = 4  # each row includes all settings of its topic
_STRICT_FROM: Final = 6
"""First version that rejects a client over its quota; in earlier versions the client is throttled."""


async def handle(node: Node, context: RequestContext, request: CreateTopicsRequest) -> Answer:
    """Create the topics together. In a replica set the response waits for a majority, up to the request's timeout
    (`node.before_answers`)."""
    counts: Counter[str] = Counter(topic.name for topic in request.topics)
    may_all = node.authorizer.allows_cluster(context, Operation.CREATE)
    rows: dict[str, Tree] = {}
    plans: dict[str, TopicPlan] = {}
    valid: dict[str, CreatableTopic] = {}
    turns = CooperativeYield(_TURN_ROWS)
    for requested in request.topics:
        await turns.row()
        name: str = requested.name
        if counts[name] > 1:
            rows[name] = _error(name, ErrorCode.INVALID_REQUEST, "Duplicate topic name.")
        elif name == METADATA_TOPIC:
            message = f"Creation of internal topic {METADATA_TOPIC} is prohibited."
            rows[name] = _error(name, ErrorCode.INVALID_REQUEST, message)
        elif not (may_all or node.authorizer.allows(context, Operation.CREATE, ResourceType.TOPIC, name)):
            rows[name] = _error(name, ErrorCode.TOPIC_AUTHORIZATION_FAILED, "Authorization failed.")
        else:
            rows[name], valid[name] = {}, requested
    _check_count(node, valid.values())
    for name, requested in valid.items():
        await turns.row()
        try:
            plans[name] = _plan(node, context, requested, request.validate_only)
        except KafkalogError as error:
            rows[name] = _error(name, code_of(error), error.message)
    created: Sequence[Topic | KafkalogError] = [plan.topic for plan in plans.values()]
    if plans and not request.validate_only:
        created = await _create(node, list(plans.values()))
    configs: dict[tuple[tuple[str, str | None], ...], list[Tree]] = {}  # many topics have the same settings
    for (name, plan), topic in zip(plans.items(), created, strict=True):
        await turns.row()
        if isinstance(topic, KafkalogError):
            rows[name] = _error(name, code_of(topic), topic.message)
        else:
            given = {config.name: config.value for config in valid[name].configs}
            key = tuple(given.items())
            if key not in configs:
                configs[key] = created_rows(node, node.store.config.log_config(plan.settings), given)
            rows[name] = _row(node, context, topic, configs[key])
    return {"topics": list(rows.values())}


def refused(node: Node, context: RequestContext, request: CreateTopicsRequest, error: Refused) -> Answer:
    """Return the error for each topic, also for one that is named twice."""
    return {"topics": [_error(topic.name, error.code, error.message) for topic in request.topics]}


def _plan(node: Node, context: RequestContext, requested: CreatableTopic, validate_only: bool) -> TopicPlan:
    """Charge the client's quota and return a topic's plan.

    Raises as `Topics.plan`, ConfigError, ThrottlingQuotaExceeded.
    """
    node.topics.check_new(requested.name)
    given = {config.name: config.value for config in requested.configs}
    given |= {config.name: None for config in requested.configs if config.value is None}  # even if named again
    settings = checked_topic_settings(given, node.store.config.topic_defaults)
    plan = node.topics.plan(requested.name, _partitions(node, requested), settings)
    if not validate_only:
        node.quotas.record_mutations(context, plan.topic.partitions, is_strict=context.api_version >= _STRICT_FROM)
    return plan


async def _create(node: Node, plans: list[TopicPlan]) -> Sequence[Topic | KafkalogError]:
    try:
        return await node.topics.create_all(plans)
    except KafkalogError as error:
        return [error] * len(plans)


def _row(node: Node, context: RequestContext, topic: Topic, configs: list[Tree]) -> Tree:
    name = topic.name
    row = {"name": name, "topic_id": topic.id, "error_code": ErrorCode.NONE, "error_message": None}
    if not node.authorizer.allows(context, Operation.DESCRIBE_CONFIGS, ResourceType.TOPIC, name):
        return {**_error(name, 0, None), **row, "topic_config_error_code": int(ErrorCode.TOPIC_AUTHORIZATION_FAILED)}
    return {
        **row,
        "num_partitions": topic.partitions,
        "replication_factor": len(nodes_of(node)),
        "configs": configs,
    }


def _partitions(node: Node, requested: CreatableTopic) -> int:
    """Return the number of partitions for a new topic; -1 means the node's default."""
    if not requested.assignments:
        check_factor(requested.replication_factor)
        if requested.num_partitions < -1 or requested.num_partitions == 0:
            raise InvalidPartitions("Number of partitions was set to an invalid non-positive value.")
        check_nodes(requested.replication_factor, len(nodes_of(node)))
        return requested.num_partitions
    prefix = "A manual partition assignment was specified, but"
    if requested.replication_factor != -1:
        raise InvalidRequest(f"{prefix} replication factor was not set to -1.")
    if requested.num_partitions != -1:
        raise InvalidRequest(f"{prefix} numPartitions was not set to -1.")
    check_may_assign(node)
    by_partition: dict[int, Sequence[int]] = {one.partition_index: one.broker_ids for one in requested.assignments}
    check_replicas(nodes_of(node), by_partition, requested.assignments)
    return len(requested.assignments)


def _check_count(node: Node, topics: Iterable[CreatableTopic]) -> None:
    """Raise Refused, for the whole call, if these topics have more partitions than one call may create."""
    total = 0
    for topic in topics:
        if topic.assignments:
            total += len(topic.assignments)
        elif topic.num_partitions == -1:
            total += node.config["num.partitions"]
        else:
            total += max(topic.num_partitions, 0)
    try:
        check_partition_count(total)
    except PolicyViolation as error:
        raise Refused(ErrorCode(code_of(error)), error.message) from None


def _error(name: str, error_code: int, message: str | None) -> dict[str, object]:
    return {
        "name": name,
        "topic_id": None,
        "error_code": error_code,
        "error_message": message,
        "configs": (),
    }
