"""ShareAcknowledge (KIP-932): complete the delivery of records that a member of a share group has acquired."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Protocol
from uuid import UUID

from kafkalog.server.apis.share_fetch import NO_LEADER, session_answer
from kafkalog.server.error_codes import ErrorCode, Refused
from kafkalog.server.requests.acknowledgements import acknowledgements, checked_key
from kafkalog.server.requests.context import Answer, RequestContext
from kafkalog.server.requests.cooperative_yield import CooperativeYield
from kafkalog.server.share.sessions import FINAL, INITIAL, Place
from kafkalog.server.share.shares import Outcome

if TYPE_CHECKING:
    from kio.schema.share_acknowledge.v2.request import AcknowledgeTopic

    from kafkalog.server.node.node import Node

    class _Request(Protocol):
        """The fields of all versions."""

        group_id: str | None
        member_id: str | None
        share_session_epoch: int
        topics: tuple[AcknowledgeTopic, ...]


async def handle(node: Node, context: RequestContext, request: _Request) -> Answer:
    """Apply the acknowledgements and return an error code for each partition; the last request ends the session."""
    key = checked_key(node, context, request.group_id, request.member_id)
    epoch = request.share_session_epoch
    if epoch == INITIAL:
        raise Refused(ErrorCode.INVALID_SHARE_SESSION_EPOCH)
    session = node.shares.sessions.resume(key, epoch)
    given = await acknowledgements(node, context, request.topics, may_renew=getattr(request, "is_renew_ack", False))
    outcomes = given.refused | await node.shares.acknowledge(session, given.ranges)
    if epoch == FINAL:
        await node.shares.close_session(session)
    return await _answer(node, key[0], outcomes)


async def _answer(node: Node, group_id: str, outcomes: Mapping[Place, Outcome]) -> dict[str, object]:
    topics: dict[UUID, list[dict[str, object]]] = {}
    turns = CooperativeYield()
    for place, (code, message) in outcomes.items():
        await turns.row()
        row: dict[str, object] = {
            "partition_index": place[1],
            "error_code": int(code),
            "error_message": message,
            "current_leader": NO_LEADER,
        }
        topics.setdefault(place[0], []).append(row)
    return session_answer(node, group_id, topics)
