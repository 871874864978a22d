"""FetchSnapshot (KIP-630): a node of the replica set copies users, ACLs, quotas and settings.

It asks the leader, or a voter that has newer ones and lends them before it votes."""

from __future__ import annotations

from typing import TYPE_CHECKING

from kafkalog.errors import InvalidRequest
from kafkalog.server.error_codes import ErrorCode, Refused
from kafkalog.server.quorum.messages import WHOLE
from kafkalog.server.quorum.metadata import PART_BYTES, NeedsTls, content_of, part_of
from kafkalog.server.requests.context import Answer, RequestContext
from kafkalog.server.security.acls import Operation

if TYPE_CHECKING:
    from kio.schema.fetch_snapshot.v1.request import FetchSnapshotRequest

    from kafkalog.server.node.node import Node


async def handle(node: Node, context: RequestContext, request: FetchSnapshotRequest) -> Answer:
    """Return a part of the snapshot of `__cluster_metadata`. The client needs CLUSTER_ACTION."""
    node.authorizer.require_cluster(context, Operation.CLUSTER_ACTION)
    rows = [row for topic in request.topics if topic.name == WHOLE.topic for row in topic.partitions]
    if len(rows) != 1 or rows[0].partition != WHOLE.partition:
        raise InvalidRequest(f"the only snapshot is that of {WHOLE.topic}")
    quorum = node.quorum
    if not quorum.leads and not quorum.copy_grant.is_granted_to(request.replica_id):
        raise Refused(ErrorCode.NOT_LEADER_OR_FOLLOWER)
    if node.credentials.file.state.users and not context.connection.is_private:
        raise Refused(NeedsTls.code)
    # both numbers only grow within a term, and the content has both
    snapshot = (quorum.metadata.changes + quorum.metadata.stored[1], quorum.state.term)
    requested = (rows[0].snapshot_id.end_offset, rows[0].snapshot_id.epoch)
    position = rows[0].position if requested == snapshot else 0
    sent = quorum.metadata.sent
    content = sent[1] if position and sent is not None and sent[0] == snapshot else content_of(node)
    row = part_of(content, snapshot, position, request.max_bytes, (quorum.leader, quorum.state.term))
    is_last = position + min(request.max_bytes, PART_BYTES) >= len(content)
    quorum.metadata.sent = None if is_last else (snapshot, content)
    topics = [{"name": WHOLE.topic, "partitions": [row]}]
    return {"error_code": 0, "topics": topics, "node_endpoints": ()}


def refused(node: Node, context: RequestContext, request: object, error: Refused) -> Answer:
    """Return the error at the top level and in the row that nodes of the set read."""
    row = part_of(b"", (-1, -1), 0, 1, (-1, -1))
    topics = [{"name": WHOLE.topic, "partitions": [{**row, "error_code": error.code}]}]
    return {"error_code": error.code, "topics": topics, "node_endpoints": ()}
