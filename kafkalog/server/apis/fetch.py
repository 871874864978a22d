"""Fetch: return records as file ranges, for full requests and incremental fetch sessions."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from itertools import cycle
from typing import TYPE_CHECKING, Final, Protocol, final
from uuid import UUID

from kafkalog.errors import KafkalogError
from kafkalog.server.error_codes import ErrorCode, Refused
from kafkalog.server.node.addresses import address_of
from kafkalog.server.replica.fetch_session import (
    FINAL,
    FULL,
    NO_SESSION,
    FetchSession,
    Key,
    SessionPartition,
    next_epoch,
)
from kafkalog.server.replica.results import FetchParams, FetchPartition, FetchResult, new_asked, new_key, new_params
from kafkalog.server.replica.roles import Role
from kafkalog.server.requests.context import Answer, RequestContext
from kafkalog.server.requests.cooperative_yield import TURNS
from kafkalog.server.security.acls import Operation, ResourceType

if TYPE_CHECKING:
    from kio.schema.fetch.v18.request import FetchPartition as RequestedPartition
    from kio.schema.fetch.v18.request import ReplicaState

    from kafkalog.server.node.node import Node
    from kafkalog.server.node.topics import Topic
    from kafkalog.types import Isolation

    @final
    class _Id(UUID):
        """An id, which is never false."""

    class _Topic(Protocol):
        """The fields of all versions: `topic` up to version 12, `topic_id` from version 13 on."""

        topic: str
        topic_id: _Id | None
        partitions: tuple[RequestedPartition, ...]

    class _Forgotten(Protocol):
        topic: str
        topic_id: _Id | None
        partitions: tuple[int, ...]

    class _Request(Protocol):
        """The fields of all versions: `replica_id` up to version 14, then `replica_state`; times are in ms."""

        replica_id: int
        replica_state: ReplicaState
        max_wait: int
        min_bytes: int
        max_bytes: int
        isolation_level: int
        session_id: int
        session_epoch: int
        topics: tuple[_Topic, ...]
        forgotten_topics_data: tuple[_Forgotten, ...]


_FIRST_WITH_SESSIONS: Final = 7
_FIRST_WITH_EPOCHS: Final = 9
_FIRST_WITH_LAST_EPOCH: Final = 12
_FIRST_WITH_IDS: Final = 13
_FIRST_WITH_REPLICA_STATE: Final = 15
_FIRST_WITH_LEADERS: Final = 16
_LAST_WITHOUT_STORAGE_ERROR: Final = 5
_NO_TOPIC: Final = object()
_MOVED: Final = frozenset({ErrorCode.NOT_LEADER_OR_FOLLOWER, ErrorCode.FENCED_LEADER_EPOCH})
Answers = list[tuple[Key, FetchResult]]
FoundTopic = tuple[str, UUID | None, int, int]
"""A topic's name, its id if requested by id, the error code for all its partitions, and its number of partitions."""
RequestedTopics = Mapping[str | int | None, FoundTopic]


async def handle(node: Node, context: RequestContext, request: _Request) -> Answer:
    """Return the partitions' records as file ranges, after waiting for enough bytes."""
    version = context.api_version
    replica_id = request.replica_state.replica_id if version >= _FIRST_WITH_REPLICA_STATE else request.replica_id
    uses_ids = version >= _FIRST_WITH_IDS
    session_id, epoch = NO_SESSION, FINAL
    if version >= _FIRST_WITH_SESSIONS:
        session_id, epoch = request.session_id, request.session_epoch
    requested = _requested_partitions(version, request)
    sessions = node.replicas.sessions
    session: FetchSession | None = None
    if epoch in (FULL, FINAL):
        if session_id != NO_SESSION:
            sessions.close(session_id)
    else:
        forgotten = _forgotten(version, request) if request.forgotten_topics_data else ()
        found = sessions.resume(session_id, epoch, uses_ids, list(requested.values()), forgotten)
        if isinstance(found, ErrorCode):
            return answer_tree((), {}, int(found))
        session, requested = found, found.partitions or requested  # one that ends empty is as none

    params = _params(node, context, request, replica_id)
    if epoch == FINAL and not requested and context.is_between_nodes:  # a follower that stops
        node.replicas.drop_followers(replica_id)
    answers, topics = await _answers(node, context, params, requested)
    throttle_ms = 0
    if replica_id < 0 and node.quotas.file.state.quotas:
        size = sum(one.records.size for _, one in answers if one.records is not None)
        throttle_ms = node.quotas.record_fetch(context, size)
        if throttle_ms:
            node.quotas.unrecord_fetch(context, size)
            context.throttle_ms = max(context.throttle_ms, throttle_ms)
    if session is not None and session.id == NO_SESSION:
        session = None
    if session is not None and session.epoch != next_epoch(epoch):  # another request advanced it meanwhile
        return answer_tree((), {}, ErrorCode.INVALID_FETCH_SESSION_EPOCH)
    if throttle_ms:
        return answer_tree((), {}, 0, NO_SESSION if session is None else session.id)
    answered_id = NO_SESSION
    if session is not None:
        answered_id, answers = session.id, session.news(answers)
    elif epoch == FULL:
        new_session = sessions.create(requested, uses_ids, params.is_from_follower)
        if new_session is not None:
            answered_id = new_session.id
            new_session.news(answers)
    answer = answer_tree(answers, topics, 0, answered_id)
    if version >= _FIRST_WITH_LEADERS:
        leaders = {one.current_leader[0] for _, one in answers if one.current_leader is not None}
        answer["node_endpoints"] = endpoint_trees(node, context, leaders) if leaders else ()
    return answer


def refused(node: Node, context: RequestContext, request: _Request, error: Refused) -> Answer:
    """Return the error at the top level from version 7 on; before, for every partition."""
    if context.api_version >= _FIRST_WITH_SESSIONS:
        return answer_tree((), {}, error.code)
    answers: Answers = [
        ((topic.topic, one.partition), FetchResult(error.code))
        for topic in request.topics
        for one in topic.partitions
    ]
    return answer_tree(answers, {topic.topic: (topic.topic, None, 0, 0) for topic in request.topics})


def _requested_partitions(version: int, request: _Request) -> dict[Key, SessionPartition]:
    uses_ids, has_epochs = version >= _FIRST_WITH_IDS, version >= _FIRST_WITH_EPOCHS
    has_last, has_start = version >= _FIRST_WITH_LAST_EPOCH, version >= 5
    requested: dict[Key, SessionPartition] = {}
    for topic in request.topics:
        topic_key = topic.topic if not uses_ids else topic.topic_id and topic.topic_id.int
        for one in topic.partitions:
            requested[topic_key, one.partition] = SessionPartition(
                topic_key,
                one.partition,
                one.fetch_offset,
                one.partition_max_bytes,
                one.current_leader_epoch if has_epochs else -1,
                one.last_fetched_epoch if has_last else -1,
                one.log_start_offset if has_start else -1,
            )
    return requested


def _forgotten(version: int, request: _Request) -> list[Key]:
    uses_ids = version >= _FIRST_WITH_IDS
    return [
        (topic.topic if not uses_ids else topic.topic_id and topic.topic_id.int, index)
        for topic in request.forgotten_topics_data
        for index in topic.partitions
    ]


def _params(node: Node, context: RequestContext, request: _Request, replica_id: int) -> FetchParams:
    max_bytes = min(request.max_bytes, node.config["fetch.max.bytes"])
    if replica_id >= 0:
        context.is_between_nodes = node.authorizer.allows_cluster(context, Operation.CLUSTER_ACTION)
        copies = context.is_between_nodes and node.quorum.copy_grant.is_granted_to(replica_id)
        min_bytes = min(request.min_bytes, max_bytes)
        return FetchParams(request.max_wait, min_bytes, max_bytes, "log_end", replica_id, copies)
    by_quota = node.quotas.max_fetch_bytes(context) if node.quotas.file.state.quotas else None
    if by_quota is not None:
        max_bytes = min(max_bytes, by_quota)
    isolation: Isolation = "committed" if request.isolation_level == 1 else "high_watermark"
    return new_params((request.max_wait, min(request.min_bytes, max_bytes), max_bytes, isolation, replica_id, False))


async def _answers(
    node: Node, context: RequestContext, params: FetchParams, requested: Mapping[Key, SessionPartition]
) -> tuple[Answers, RequestedTopics]:
    """Return the results, with the topics: first the partitions that were read, then the rejected ones."""
    rejected: Answers = []
    keys: list[Key] = []
    readable: list[FetchPartition] = []
    topics: dict[str | int | None, FoundTopic] = {}
    turns = cycle(TURNS)
    for key, one in list(requested.items()):  # another request may change the session meanwhile
        if next(turns):
            await asyncio.sleep(0)
        topic, index = key
        if topic not in topics:
            found = node.topics.get(topic) if isinstance(topic, str) else node.topics.by_number(topic)
            if found is None or node.authorizer.is_enabled:
                topics[topic] = _checked(node, context, params, topic, found)
            else:
                topics[topic] = found.name, None if isinstance(topic, str) else found.id, 0, found.partitions
        name, topic_id, code, partitions = topics[topic]
        if not code and not 0 <= index < partitions:
            code = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        if code:
            rejected.append((key, FetchResult(code, aborted=())))
            continue
        keys.append(key)
        readable.append(
            new_asked((
                new_key((name, index)), one.fetch_offset, one.max_bytes, topic_id,
                one.current_leader_epoch, one.last_fetched_epoch, one.log_start_offset,
            ))
        )  # fmt: skip
    results: Sequence[FetchResult] = await node.replicas.fetch(params, readable)
    for position, result in enumerate(results):
        if result.error_code:
            results = await _with_errors(node, context, params, readable, results, position)
            break
    return [*zip(keys, results, strict=True), *rejected], topics


async def _with_errors(
    node: Node,
    context: RequestContext,
    params: FetchParams,
    requested: Sequence[FetchPartition],
    results: Sequence[FetchResult],
    first: int,
) -> Sequence[FetchResult]:
    """Adapt the results' errors to the request's version. `first` is the index of the first error."""
    if not params.is_from_follower:
        results = await _confirm_out_of_range(node, requested, results)
    turns = cycle(TURNS)
    for position in range(first, len(results)):
        if next(turns):
            await asyncio.sleep(0)
        if results[position].error_code:
            _adapt_error(node, context, requested[position], results[position])
    return results


async def _confirm_out_of_range(
    node: Node, requested: Sequence[FetchPartition], results: Sequence[FetchResult]
) -> Sequence[FetchResult]:
    """Replace OFFSET_OUT_OF_RANGE beyond the log's end with NOT_LEADER_OR_FOLLOWER if this node may no longer lead.

    A deposed leader that does not know it yet would make clients reset their position; nothing else stops a client
    that sends no leader epoch."""
    suspect = {
        position
        for position, (one, result) in enumerate(zip(requested, results, strict=True))
        if result.error_code == ErrorCode.OFFSET_OUT_OF_RANGE and one.fetch_offset >= _start_of(node, one)
    }
    if not suspect or await node.quorum.is_confirmed():
        return results
    moved = FetchResult(ErrorCode.NOT_LEADER_OR_FOLLOWER)
    return [moved if position in suspect else result for position, result in enumerate(results)]


def _start_of(node: Node, requested: FetchPartition) -> int:
    try:
        return node.replicas.find(requested.topic_partition).log.log_start_offset
    except KafkalogError:  # it was deleted meanwhile
        return 0


def _checked(
    node: Node, context: RequestContext, params: FetchParams, topic: str | int | None, found: Topic | None
) -> FoundTopic:
    """Check a topic; return its FoundTopic, with the error code for all its partitions, or 0."""
    if isinstance(topic, str):
        name, topic_id = topic, None
    elif found is None:
        name, topic_id = "", None if topic is None else UUID(int=topic)
    else:
        name, topic_id = found.name, found.id
    code = 0 if found is not None or isinstance(topic, str) else ErrorCode.UNKNOWN_TOPIC_ID
    if node.authorizer.is_enabled and (not code or params.is_from_follower):
        if params.is_from_follower:
            allowed = node.authorizer.allows_cluster(context, Operation.CLUSTER_ACTION)
        else:
            allowed = node.authorizer.allows(context, Operation.READ, ResourceType.TOPIC, name)
        code = code if allowed else ErrorCode.TOPIC_AUTHORIZATION_FAILED
    if not code and found is None:
        code = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    return name, topic_id, code, 0 if found is None else found.partitions


def _adapt_error(node: Node, context: RequestContext, requested: FetchPartition, result: FetchResult) -> None:
    """Adapt an error code to the request's version and add the current leader."""
    code = result.error_code
    if code == ErrorCode.KAFKA_STORAGE_ERROR and context.api_version <= _LAST_WITHOUT_STORAGE_ERROR:
        result.error_code = ErrorCode.NOT_LEADER_OR_FOLLOWER
    if code in _MOVED and context.api_version >= _FIRST_WITH_LEADERS:
        with suppress(KafkalogError):  # it was deleted meanwhile
            role = node.replicas.find(requested.topic_partition).role
            if role.leader != node.node_id or code == ErrorCode.FENCED_LEADER_EPOCH:  # else it asks others
                result.current_leader = hint_of(role)


def hint_of(role: Role) -> tuple[int, int] | None:
    """Return (leader, epoch) to report with an error (KIP-951), or None while there is no leader.

    A leader of -1 between two reported leaders makes librdkafka read uninitialized memory, so it is never sent."""
    return (role.leader, role.leader_epoch) if role.leader >= 0 else None


def leader_tree(leader: tuple[int, int]) -> dict[str, int]:
    """Return a partition's leader and epoch in the form used in responses (KIP-951)."""
    return {"leader_id": leader[0], "leader_epoch": leader[1]}


def endpoint_trees(node: Node, context: RequestContext, leaders: Iterable[int]) -> Sequence[Mapping[str, object]]:
    """Return the endpoints of exactly the reported leaders (KIP-951)."""
    found = (address_of(node, context.connection.listener, leader) for leader in sorted(leaders))
    return [one._asdict() for one in found if one is not None]


def answer_tree(
    answers: Iterable[tuple[Key, FetchResult]], requested: RequestedTopics, error_code: int = 0, session_id: int = 0
) -> dict[str, object]:
    """Build the response, with records as ranges. Consecutive partitions of a topic are grouped; the order is kept."""
    topics: list[dict[str, object]] = []
    last: object = _NO_TOPIC
    for (topic, index), one in answers:
        if topic != last:
            partitions: list[dict[str, object]] = []
            name, topic_id, _, _ = requested[topic]
            topics.append({"topic": name, "topic_id": topic_id, "partitions": partitions})
            last = topic
        row: dict[str, object] = {
            "partition_index": index,
            "error_code": one.error_code,
            "high_watermark": one.high_watermark,
            "last_stable_offset": one.last_stable_offset,
            "log_start_offset": one.log_start_offset,
            "aborted_transactions": one.aborted and [
                {"producer_id": producer_id, "first_offset": offset} for producer_id, offset in one.aborted
            ],
            "records": b"" if one.records is None else one.records,
        }
        if one.diverging_epoch is not None:
            row["diverging_epoch"] = {"epoch": one.diverging_epoch[0], "end_offset": one.diverging_epoch[1]}
        if one.current_leader is not None:
            row["current_leader"] = leader_tree(one.current_leader)
        partitions.append(row)
    return {"error_code": error_code, "session_id": session_id, "responses": topics}
