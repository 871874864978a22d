"""Shared code of ShareFetch and ShareAcknowledge: the request's acknowledgements, and the session they belong to."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING, Final, NamedTuple
from uuid import UUID

from kafkalog.server.error_codes import ErrorCode, Refused
from kafkalog.server.requests.context import RequestContext
from kafkalog.server.requests.cooperative_yield import CooperativeYield
from kafkalog.server.security.acls import Operation, ResourceType
from kafkalog.server.settings.features import SHARE
from kafkalog.server.share.sessions import Place, SessionKey
from kafkalog.server.share.shares import Outcome
from kafkalog.server.share.window import RENEW, AcknowledgedRange

if TYPE_CHECKING:
    from kio.schema.share_acknowledge.v2.request import AcknowledgeTopic
    from kio.schema.share_fetch.v2.request import FetchTopic

    from kafkalog.server.node.node import Node


_NO_ID: Final = UUID(int=0)
MOST_MEMBER_CHARS: Final = 36
"""Length of a UUID, which is the longest id of a share group's member."""


class Acknowledgements(NamedTuple):
    """The valid acknowledgements by partition, and the outcomes of partitions with invalid ones."""

    ranges: dict[Place, list[AcknowledgedRange]]
    refused: dict[Place, Outcome]


def place_of(topic_id: UUID | None, index: int) -> Place:
    """Return the place of a partition; a request's id of zeros is None."""
    return topic_id or _NO_ID, index


async def acknowledgements(
    node: Node, context: RequestContext, topics: Iterable[FetchTopic | AcknowledgeTopic], *, may_renew: bool
) -> Acknowledgements:
    """Return the acknowledgements in a request, each partition checked by itself: also that the client may read it."""
    found = Acknowledgements({}, {})
    highest = RENEW if may_renew else RENEW - 1
    turns = CooperativeYield()
    for topic in topics:
        for one in topic.partitions:
            await turns.row()
            if not one.acknowledgement_batches:
                continue
            place = place_of(topic.topic_id, one.partition_index)
            ranges = [
                AcknowledgedRange(batch.first_offset, batch.last_offset, batch.acknowledge_types)
                for batch in one.acknowledgement_batches
            ]
            error = place_error(node, context, place) if _are_valid(ranges, highest) else ErrorCode.INVALID_REQUEST
            if error:
                found.refused[place] = int(error), None
            else:
                found.ranges[place] = ranges
    return found


def _are_valid(ranges: Iterable[AcknowledgedRange], highest: int) -> bool:
    before = -1
    for first, last, types in ranges:
        if not before < first <= last or len(types) not in (1, last - first + 1):
            return False
        if not all(0 <= one <= highest for one in types):
            return False
        before = last
    return True


def place_error(node: Node, context: RequestContext, place: Place) -> int:
    """Return 0 for a partition that exists and that the client may read, else the error code."""
    topic = node.topics.by_id(place[0])
    if topic is None:
        return ErrorCode.UNKNOWN_TOPIC_ID
    if not node.authorizer.allows(context, Operation.READ, ResourceType.TOPIC, topic.name):
        return ErrorCode.TOPIC_AUTHORIZATION_FAILED
    return 0 if 0 <= place[1] < topic.partitions else ErrorCode.UNKNOWN_TOPIC_OR_PARTITION


def checked_key(node: Node, context: RequestContext, group_id: str | None, member_id: str | None) -> SessionKey:
    """Return group and member of a request. Refused unless the client may use the group, and both are named."""
    node.features.require(SHARE)
    if group_id is None:
        raise Refused(ErrorCode.INVALID_REQUEST)
    node.authorizer.require(context, Operation.READ, ResourceType.GROUP, group_id)
    if not group_id or not member_id or len(member_id) > MOST_MEMBER_CHARS:
        raise Refused(ErrorCode.INVALID_REQUEST)
    return group_id, member_id
