"""Fetch: where the records lie that are asked for, by one request or by what a session remembers."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from typing import TYPE_CHECKING, Any, Final

from kafkalog.errors import KafkalogError
from kafkalog.server.context import Answer, RequestContext
from kafkalog.server.error_codes import ErrorCode
from kafkalog.server.nodes import address_of
from kafkalog.server.replica.fetch_session import (
    FINAL,
    FULL,
    NO_SESSION,
    FetchSession,
    Key,
    SessionPartition,
    next_epoch,
)
from kafkalog.server.replica.results import FetchParams, FetchPartition, FetchResult
from kafkalog.server.replica.roles import Role
from kafkalog.server.security.acls import Operation, ResourceType
from kafkalog.server.turns import Turns
from kafkalog.server.wire.fetch_response import FetchAnswer, FetchedPartition, FetchedTopic, NodeEndpoint
from kafkalog.types import TopicPartition

if TYPE_CHECKING:
    from kafkalog.server.node import Node

_FIRST_WITH_SESSIONS: Final = 7
_FIRST_WITH_ZSTD: Final = 10
_FIRST_WITH_EPOCHS: Final = 9
_FIRST_WITH_LAST_EPOCH: Final = 12
_FIRST_WITH_IDS: Final = 13
_FIRST_WITH_REPLICA_STATE: Final = 15
_FIRST_WITH_LEADERS: Final = 16
_LAST_WITHOUT_STORAGE_ERROR: Final = 5
_MOVED: Final = frozenset({ErrorCode.NOT_LEADER_OR_FOLLOWER, ErrorCode.FENCED_LEADER_EPOCH})
Answers = list[tuple[Key, FetchedPartition]]


async def handle(node: Node, context: RequestContext, request: Any) -> Answer:
    """The records of the partitions, as ranges of files; it waits until there are enough."""
    version = context.api_version
    replica_id = request.replica_state.replica_id if version >= _FIRST_WITH_REPLICA_STATE else request.replica_id
    uses_ids = version >= _FIRST_WITH_IDS
    session_id, epoch = NO_SESSION, FINAL
    if version >= _FIRST_WITH_SESSIONS:
        session_id, epoch = request.session_id, request.session_epoch
    asked = {one.key: one for one in _asked(version, request)}
    sessions = node.replicas.sessions
    session: FetchSession | None = None
    if epoch in (FULL, FINAL):
        if session_id != NO_SESSION:
            sessions.close(session_id)
    else:
        found = sessions.resume(session_id, epoch, uses_ids, list(asked.values()), _forgotten(version, request))
        if isinstance(found, ErrorCode):
            return FetchAnswer((), int(found), throttle_ms=context.throttle_ms)
        session, asked = found, found.partitions

    params = _params(node, context, request, replica_id)
    answers, names = await _answers(node, context, params, asked)
    size = sum(one.records.size for _, one in answers if one.records is not None)
    throttle_ms = 0 if params.is_from_follower else node.quotas.record_fetch(context, size)
    if throttle_ms:
        node.quotas.unrecord_fetch(context, size)
        context.throttle_ms = max(context.throttle_ms, throttle_ms)
    if session is not None and session.id == NO_SESSION:
        session = None
    if session is not None and session.epoch != next_epoch(epoch):  # somebody else went on with it meanwhile
        return FetchAnswer((), ErrorCode.INVALID_FETCH_SESSION_EPOCH, throttle_ms=context.throttle_ms)
    if throttle_ms:
        return FetchAnswer((), 0, NO_SESSION if session is None else session.id, context.throttle_ms)
    answered_id = NO_SESSION
    if session is not None:
        answered_id, answers = session.id, session.news(answers)
    elif session is None and epoch == FULL:
        made = sessions.create(asked, uses_ids, params.is_from_follower)
        if made is not None:
            answered_id = made.id
            made.news(answers)
    leaders = {one.current_leader[0] for _, one in answers if one.current_leader is not None}
    endpoints = leader_endpoints(node, context, leaders) if leaders else ()
    return FetchAnswer(_topics(answers, names), 0, answered_id, context.throttle_ms, endpoints)


def refused(node: Node, context: RequestContext, request: Any, error_code: int, message: str | None) -> Answer:
    """The error for the whole, from version 7 on; before, for every partition."""
    if context.api_version >= _FIRST_WITH_SESSIONS:
        return FetchAnswer((), error_code, throttle_ms=context.throttle_ms)
    topics = [
        FetchedTopic(topic.topic, None, [FetchedPartition(one.partition, error_code) for one in topic.partitions])
        for topic in request.topics
    ]
    return FetchAnswer(topics, throttle_ms=context.throttle_ms)


def _asked(version: int, request: Any) -> list[SessionPartition]:
    uses_ids, has_epochs = version >= _FIRST_WITH_IDS, version >= _FIRST_WITH_EPOCHS
    has_last, has_start = version >= _FIRST_WITH_LAST_EPOCH, version >= 5
    return [
        SessionPartition(
            topic.topic_id if uses_ids else topic.topic,
            one.partition,
            one.fetch_offset,
            one.partition_max_bytes,
            one.current_leader_epoch if has_epochs else -1,
            one.last_fetched_epoch if has_last else -1,
            one.log_start_offset if has_start else -1,
        )
        for topic in request.topics
        for one in topic.partitions
    ]


def _forgotten(version: int, request: Any) -> list[Key]:
    uses_ids = version >= _FIRST_WITH_IDS
    return [
        (topic.topic_id if uses_ids else topic.topic, index)
        for topic in request.forgotten_topics_data
        for index in topic.partitions
    ]


def _params(node: Node, context: RequestContext, request: Any, replica_id: int) -> FetchParams:
    most = min(request.max_bytes, node.config["fetch.max.bytes"])
    if replica_id >= 0:
        copies = node.quorum.lending.lends_to(replica_id)
        return FetchParams(request.max_wait, min(request.min_bytes, most), most, "log_end", replica_id, copies)
    by_quota = node.quotas.max_fetch_bytes(context)
    if by_quota is not None:
        most = min(most, by_quota)
    isolation: Any = "committed" if request.isolation_level == 1 else "high_watermark"
    return FetchParams(request.max_wait, min(request.min_bytes, most), most, isolation, replica_id)


async def _answers(
    node: Node, context: RequestContext, params: FetchParams, asked: Mapping[Key, SessionPartition]
) -> tuple[Answers, dict[Any, str]]:
    """What is answered for all that is asked, with the topics' names: first what was read, then what was refused."""
    wrong: Answers = []
    right: list[tuple[Key, FetchPartition]] = []
    uses_ids = context.api_version >= _FIRST_WITH_IDS
    names: dict[Any, str] = {}
    codes: dict[Any, int] = {}
    turns = Turns()
    for key, one in list(asked.items()):  # others may change the session meanwhile
        await turns.row()
        topic = key[0]
        if topic not in codes:
            names[topic], codes[topic] = _check_topic(node, context, params, topic, uses_ids)
        code = codes[topic] or _check_codec(node, context, names[topic], one.index)
        if code:
            wrong.append((key, FetchedPartition(one.index, code, aborted=())))
            continue
        wanted = FetchPartition(
            TopicPartition(names[topic], one.index), one.fetch_offset, one.max_bytes,
            None if isinstance(topic, str) else topic,
            one.current_leader_epoch, one.last_fetched_epoch, one.log_start_offset,
        )  # fmt: skip
        right.append((key, wanted))
    results = await node.replicas.fetch(params, [wanted for _, wanted in right])
    if not params.is_from_follower:
        results = await _surely_out_of_range(node, right, results)
    answers: Answers = []
    for (key, wanted), result in zip(right, results, strict=True):
        await turns.row()
        answers.append((key, _fetched(node, context, wanted, result)))
    return answers + wrong, names


async def _surely_out_of_range(
    node: Node, asked: Sequence[tuple[Key, FetchPartition]], results: Sequence[FetchResult]
) -> Sequence[FetchResult]:
    """The results, but that nobody is told to be beyond the end by a node that leads no more and does not know it yet:
    a client would give up its position, and nothing else refuses one that names no leader epoch."""
    late = {
        at for at, ((_, one), result) in enumerate(zip(asked, results, strict=True))
        if result.error_code == ErrorCode.OFFSET_OUT_OF_RANGE and one.fetch_offset >= _start_of(node, one)
    }  # fmt: skip
    if not late or await node.quorum.is_confirmed():
        return results
    moved = FetchResult(ErrorCode.NOT_LEADER_OR_FOLLOWER)
    return [moved if at in late else result for at, result in enumerate(results)]


def _start_of(node: Node, asked: FetchPartition) -> int:
    try:
        start: int = node.replicas.find(asked.topic_partition).log.log_start_offset
    except KafkalogError:  # it was deleted meanwhile
        return 0
    return start


def _check_topic(
    node: Node, context: RequestContext, params: FetchParams, topic: Any, uses_ids: bool
) -> tuple[str, int]:
    found = node.topics.by_id(topic) if uses_ids else node.topics.get(topic)
    if found is None and uses_ids:
        return "", ErrorCode.UNKNOWN_TOPIC_ID
    name = topic if found is None else found.name
    if params.is_from_follower:
        allowed = node.authorizer.allows_cluster(context, Operation.CLUSTER_ACTION)
    else:
        allowed = node.authorizer.allows(context, Operation.READ, ResourceType.TOPIC, name)
    if not allowed:
        return name, ErrorCode.TOPIC_AUTHORIZATION_FAILED
    return name, 0 if found is not None else ErrorCode.UNKNOWN_TOPIC_OR_PARTITION


def _check_codec(node: Node, context: RequestContext, name: str, index: int) -> int:
    """UNSUPPORTED_COMPRESSION_TYPE, and UNKNOWN_TOPIC_OR_PARTITION for a number that the topic does not have."""
    topic = node.topics.get(name)
    if topic is None or not 0 <= index < topic.partitions:
        return ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    if context.api_version < _FIRST_WITH_ZSTD and node.topics.settings(name).compression_type == "zstd":
        return ErrorCode.UNSUPPORTED_COMPRESSION_TYPE
    return 0


def _fetched(node: Node, context: RequestContext, asked: FetchPartition, result: FetchResult) -> FetchedPartition:
    code = result.error_code
    one = FetchedPartition(
        asked.topic_partition.partition, code, result.high_watermark, result.last_stable_offset,
        result.log_start_offset, result.aborted, result.records, -1, result.diverging_epoch,
    )  # fmt: skip
    if code == ErrorCode.KAFKA_STORAGE_ERROR and context.api_version <= _LAST_WITHOUT_STORAGE_ERROR:
        one.error_code = ErrorCode.NOT_LEADER_OR_FOLLOWER
    if code in _MOVED and context.api_version >= _FIRST_WITH_LEADERS:
        with suppress(KafkalogError):  # it was deleted meanwhile
            role = node.replicas.find(asked.topic_partition).role
            if role.leader != node.node_id or code == ErrorCode.FENCED_LEADER_EPOCH:  # else it is to ask others
                one.current_leader = hint_of(role)
    return one


def hint_of(role: Role) -> tuple[int, int] | None:
    """(leader, epoch) to tell with an error (KIP-951); None while nobody leads. Between two that are told, a leader of
    -1 makes librdkafka read memory that it has not set, so such a partition tells nothing."""
    return (role.leader, role.leader_epoch) if role.leader >= 0 else None


def leader_endpoints(node: Node, context: RequestContext, leaders: Iterable[int]) -> Sequence[NodeEndpoint]:
    """Where those nodes are that are told to lead: each of them, and no other (KIP-951)."""
    found = (address_of(node, context.connection.listener, leader) for leader in sorted(leaders))
    return tuple(NodeEndpoint(*one) for one in found if one is not None)


def _topics(answers: Answers, names: Mapping[Any, str]) -> list[FetchedTopic]:
    """Neighbours of one topic together, in the order of the answers."""
    topics: list[FetchedTopic] = []
    last: Any = _topics
    for (topic, _), one in answers:
        if topic != last:
            partitions: list[FetchedPartition] = []
            topic_id = None if isinstance(topic, str) else topic
            topics.append(FetchedTopic(names.get(topic, ""), topic_id, partitions))
            last = topic
        partitions.append(one)
    return topics
