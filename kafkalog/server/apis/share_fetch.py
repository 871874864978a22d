"""ShareFetch (KIP-932): acquire records for a member of a share group, after its acknowledgements are applied."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Final, Protocol
from uuid import UUID

from kafkalog.server.error_codes import ErrorCode, Refused
from kafkalog.server.requests.acknowledgements import acknowledgements, checked_key, place_error, place_of
from kafkalog.server.requests.context import Answer, RequestContext
from kafkalog.server.requests.cooperative_yield import CooperativeYield
from kafkalog.server.settings.groups import group_setting
from kafkalog.server.share.partition import Fetched
from kafkalog.server.share.sessions import FINAL, INITIAL, Place, ShareSession
from kafkalog.server.share.shares import FetchLimits, Outcome

if TYPE_CHECKING:
    from kio.schema.share_fetch.v2.request import FetchTopic, ForgottenTopic

    from kafkalog.server.node.node import Node

    class _Request(Protocol):
        """The fields of all versions; times are in ms."""

        group_id: str | None
        member_id: str | None
        share_session_epoch: int
        max_wait: int
        max_bytes: int
        max_records: int
        batch_size: int
        topics: tuple[FetchTopic, ...]
        forgotten_topics_data: tuple[ForgottenTopic, ...]


_RECORD_LIMIT: Final = 1
NO_LEADER: Final[Mapping[str, int]] = {"leader_id": -1, "leader_epoch": -1}
"""Leader of a partition that this node leads: clients are not sent elsewhere."""


async def handle(node: Node, context: RequestContext, request: _Request) -> Answer:
    """Return the acquired records as file ranges, after waiting for some."""
    key = checked_key(node, context, request.group_id, request.member_id)
    epoch, shares = request.share_session_epoch, node.shares
    is_renewal = getattr(request, "is_renew_ack", False)
    if is_renewal and not _is_only_renewal(request):
        raise Refused(ErrorCode.INVALID_REQUEST)
    session = None if epoch == INITIAL else shares.sessions.resume(key, epoch)  # now: a later one is another request's
    given = await acknowledgements(node, context, request.topics, may_renew=is_renewal)
    asked = (place_of(topic.topic_id, one.partition_index) for topic in request.topics for one in topic.partitions)
    if session is None:
        if given.ranges or given.refused:
            raise Refused(ErrorCode.INVALID_REQUEST)
        session = await shares.sessions.open(key, context.connection.id, asked)
        if not context.connection.is_open:  # it was closed before there was a session to end with it
            shares.disconnected(context.connection.id)
    if epoch > INITIAL:
        await shares.sessions.add(session, asked)
    acknowledged = given.refused | await shares.acknowledge(session, given.ranges)
    if epoch == FINAL:
        await shares.close_session(session)
        return await _answer(node, key[0], {}, acknowledged)
    turns = CooperativeYield()
    for topic in request.forgotten_topics_data:
        for index in topic.partitions:
            await turns.row()
            session.partitions.pop(place_of(topic.topic_id, index), None)
    fetched = {} if is_renewal else await _fetch(node, context, request, session)
    if epoch != INITIAL:
        fetched = {place: one for place, one in fetched.items() if one.rows or one.error_code}
    return await _answer(node, key[0], fetched, acknowledged)


def _is_only_renewal(request: _Request) -> bool:
    return not (request.max_wait or request.max_bytes or request.max_records)


async def _fetch(
    node: Node, context: RequestContext, request: _Request, session: ShareSession
) -> dict[Place, Fetched]:
    places = list(session.partitions)
    if places:  # each partition gets its turn at being the first
        turn = session.epoch % len(places)
        places = places[turn:] + places[:turn]
    readable: list[Place] = []
    errors: dict[Place, Fetched] = {}
    turns = CooperativeYield()
    for place in places:
        await turns.row()
        if code := place_error(node, context, place):
            errors[place] = Fetched(int(code))
        else:
            readable.append(place)
    limits = FetchLimits(
        request.max_wait,
        min(request.max_bytes, node.config["fetch.max.bytes"]),
        request.max_records if request.max_records > 0 else 0,
        request.batch_size,
        getattr(request, "share_acquire_mode", 0) == _RECORD_LIMIT,
    )
    context.connection.may_cancel = True  # what changes is done, and nothing is acquired for a client that has gone
    found = await node.shares.fetch(session, readable, limits)
    if node.quotas.file.state.quotas:  # acquired records are sent in any case, and the next request is read later
        size = sum(one.records.size for one in found.values() if one.records is not None)
        context.throttle_ms = max(context.throttle_ms, node.quotas.record_fetch(context, size))
    return errors | found


async def _answer(
    node: Node, group_id: str, fetched: Mapping[Place, Fetched], acknowledged: Mapping[Place, Outcome]
) -> dict[str, object]:
    topics: dict[UUID, list[dict[str, object]]] = {}
    turns = CooperativeYield()
    for place in {**acknowledged, **fetched}:
        await turns.row()
        code, message = acknowledged.get(place, (0, None))
        topics.setdefault(place[0], []).append(_row(place[1], fetched.get(place, Fetched()), int(code), message))
    return session_answer(node, group_id, topics)


def session_answer(
    node: Node, group_id: str, topics: Mapping[UUID, list[dict[str, object]]]
) -> dict[str, object]:
    """Return the response of ShareFetch or ShareAcknowledge with these rows of partitions."""
    return {
        "error_code": 0,
        "error_message": None,
        "acquisition_lock_timeout": group_setting(node, group_id, "share.record.lock.duration.ms"),
        "responses": [{"topic_id": topic_id, "partitions": rows} for topic_id, rows in topics.items()],
        "node_endpoints": [],
    }


def _row(index: int, one: Fetched, code: int, message: str | None) -> dict[str, object]:
    return {
        "partition_index": index,
        "error_code": int(one.error_code),
        "error_message": None,
        "acknowledge_error_code": code,
        "acknowledge_error_message": message,
        "current_leader": NO_LEADER,
        "records": b"" if one.records is None else one.records,
        "acquired_records": [
            {"first_offset": row.first, "last_offset": row.last, "delivery_count": row.deliveries} for row in one.rows
        ],
    }
