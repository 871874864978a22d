"""Requests between the nodes of a replica set and their answers, as trees with kio's names.

The term is in the row of `__cluster_metadata`, the topic that stands for the whole set, as in the reference's quorum.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Final, Protocol, TypeVar
from uuid import UUID

from kafkalog.errors import InvalidRequest
from kafkalog.server.quorum.decisions import EMPTY, Ballot, Position, Positions
from kafkalog.server.quorum.file import NO_NODE, QuorumState
from kafkalog.types import TopicPartition

if TYPE_CHECKING:
    from kio.schema.begin_quorum_epoch.v1.request import BeginQuorumEpochRequest
    from kio.schema.describe_quorum.v2.response import DescribeQuorumResponse
    from kio.schema.end_quorum_epoch.v1.request import EndQuorumEpochRequest
    from kio.schema.vote.v2.request import VoteRequest
    from kio.schema.vote.v2.response import VoteResponse

    from kafkalog.server.wire.writer import Tree

VOTE: Final = 52
BEGIN_QUORUM_EPOCH: Final = 53
END_QUORUM_EPOCH: Final = 54
DESCRIBE_QUORUM: Final = 55
WHOLE: Final = TopicPartition("__cluster_metadata", 0)
_NOTHING: Final[Positions] = {}


class PartitionRow(Protocol):
    """A row of a message that is about a partition."""

    @property
    def partition_index(self) -> int: ...


R = TypeVar("R", bound=PartitionRow)
R_co = TypeVar("R_co", bound=PartitionRow, covariant=True)


class TopicRows(Protocol[R_co]):
    """The rows of a message that are about a topic."""

    @property
    def topic_name(self) -> str: ...
    @property
    def partitions(self) -> Sequence[R_co]: ...


class PartitionMessage(Protocol[R_co]):
    """A request or an answer with rows for partitions."""

    @property
    def topics(self) -> Sequence[TopicRows[R_co]]: ...


def vote_request(ballot: Ballot, voter: int, cluster_id: str, *, is_pre_vote: bool) -> Tree:
    """Return a request for a vote.

    It has a row with the position of each log of the candidate and the id of its topic. The row of the whole set has
    the version of the candidate's metadata. A topic without a log has a row, too.
    """
    by_topic: dict[str, list[Tree]] = {WHOLE.topic: [_row(ballot, WHOLE.partition, ballot.version, is_pre_vote)]}
    for key, position in {**{TopicPartition(name, 0): EMPTY for name in ballot.topics}, **ballot.positions}.items():
        row = _row(ballot, key.partition, position, is_pre_vote, ballot.topics.get(key.topic))
        by_topic.setdefault(key.topic, []).append(row)
    topics = [{"topic_name": name, "partitions": rows} for name, rows in by_topic.items()]
    return {"cluster_id": cluster_id or None, "voter_id": voter, "topics": topics}


def _row(
    ballot: Ballot, partition: int, position: Position, is_pre_vote: bool, topic_id: UUID | None = None
) -> Tree:
    return {
        "partition_index": partition, "replica_epoch": ballot.term, "replica_id": ballot.candidate,
        "replica_directory_id": topic_id, "voter_directory_id": None, "last_offset_epoch": position[0],
        "last_offset": position[1], "pre_vote": is_pre_vote,
    }  # fmt: skip


def read_ballot(request: VoteRequest) -> tuple[Ballot, bool]:
    """Return the ballot of a request, and whether it is a pre-vote. InvalidRequest."""
    positions: dict[TopicPartition, Position] = {}
    topics: dict[str, UUID | None] = {}
    whole = None
    for topic in request.topics:
        for row in topic.partitions:
            key = TopicPartition(topic.topic_name, row.partition_index)
            if key == WHOLE:
                whole = row
            else:
                positions[key] = (row.last_offset_epoch, row.last_offset)
                topics[topic.topic_name] = getattr(row, "replica_directory_id", None)
    if whole is None:
        raise InvalidRequest(f"the vote request has no row for {WHOLE.topic}, so it has no term")
    version = (whole.last_offset_epoch, whole.last_offset)
    ballot = Ballot(whole.replica_epoch, whole.replica_id, positions, version, topics)
    return ballot, bool(getattr(whole, "pre_vote", False))


def vote_answer(is_granted: bool, state: QuorumState, ahead: Positions = _NOTHING) -> Tree:
    """Return the answer to a request for a vote.

    It has a row for each partition that the candidate may copy from here, with the log's last epoch as leader epoch. A
    row for METADATA means that the metadata may be copied.
    """
    row = {"error_code": 0, "leader_id": state.leader, "leader_epoch": state.term, "vote_granted": is_granted}
    by_topic: dict[str, list[Tree]] = {}
    for key, (last_epoch, _) in ahead.items():
        by_topic.setdefault(key.topic, []).append({
            "partition_index": key.partition, "error_code": 0, "leader_id": NO_NODE, "leader_epoch": last_epoch,
            "vote_granted": False,
        })  # fmt: skip
    topics = [{"topic_name": name, "partitions": rows} for name, rows in by_topic.items()]
    return {"error_code": 0, "topics": [_whole(row), *topics]}


def read_vote(response: VoteResponse) -> tuple[bool, int]:
    """Return whether an answer grants the vote, and its term. ValueError if it is invalid."""
    row = _whole_of(response)
    return bool(row.vote_granted), row.leader_epoch


def read_ahead(response: VoteResponse) -> dict[TopicPartition, int]:
    """Return the partitions that the voter has more of and lets the candidate copy, with their last epoch there."""
    rows = ((TopicPartition(topic.topic_name, row.partition_index), row) for topic in response.topics
            for row in topic.partitions)  # fmt: skip
    return {key: row.leader_epoch for key, row in rows if key != WHOLE}


def begin_request(state: QuorumState, voter: int, cluster_id: str) -> Tree:
    """Return a new leader's notification to another node."""
    row = {"voter_directory_id": None, "leader_id": state.leader, "leader_epoch": state.term}
    return {"cluster_id": cluster_id or None, "voter_id": voter, "topics": [_whole(row)], "leader_endpoints": ()}


def read_begin(request: BeginQuorumEpochRequest) -> tuple[int, int]:
    """Return (term, leader) of a new leader's notification. InvalidRequest."""
    row = _whole_of_request(request)
    return row.leader_epoch, row.leader_id


def end_request(term: int, leader: int, successor: int, cluster_id: str) -> Tree:
    """Return the request that asks the leader of a term to hand over to this successor."""
    row = {
        "leader_id": leader, "leader_epoch": term, "preferred_successors": (successor,),
        "preferred_candidates": ({"candidate_id": successor, "candidate_directory_id": None},),
    }  # fmt: skip
    return {"cluster_id": cluster_id or None, "topics": [_whole(row)], "leader_endpoints": ()}


def read_end(request: EndQuorumEpochRequest) -> tuple[int, int, int]:
    """Return (term, leader, successor) of a handover request. InvalidRequest."""
    row = _whole_of_request(request)
    named = getattr(row, "preferred_successors", None)
    successors = [one.candidate_id for one in row.preferred_candidates] if named is None else list(named)
    if len(successors) != 1:
        raise InvalidRequest(f"a leader hands over to one node, but the request names {len(successors)}")
    return row.leader_epoch, row.leader_id, successors[0]


def term_answer(error_code: int, state: QuorumState) -> Tree:
    """Return the answer to a new leader's notification or a handover request, with the term and its leader.

    Code 0 of a handover means that the leader waits for the successor's vote.
    """
    row = {"error_code": 0, "leader_id": state.leader, "leader_epoch": state.term}
    return {"error_code": error_code, "topics": [_whole(row)]}


def describe_request() -> Tree:
    """Return the request that asks who leads."""
    return {"topics": [_whole({})]}


def describe_row(state: QuorumState, changes: int, ends: Mapping[int, int]) -> Tree:
    """Return the leader as a row of DescribeQuorum.

    The high watermark is the number of changes of topics and settings in the leader's term that are on disk here.
    `ends` has that number for each voter, -1 if unknown.
    """
    return {
        "partition_index": WHOLE.partition, "error_code": 0, "error_message": "", "leader_id": state.leader,
        "leader_epoch": state.term, "high_watermark": changes, "observers": (),
        "current_voters": [
            {"replica_id": one, "replica_directory_id": None, "log_end_offset": end} for one, end in ends.items()
        ],
    }  # fmt: skip


def read_described(response: DescribeQuorumResponse) -> tuple[int, int]:
    """Return (term, leader) of an answer to DescribeQuorum. ValueError if it is invalid."""
    row = _whole_of(response)
    return row.leader_epoch, row.leader_id


def read_changes(response: DescribeQuorumResponse) -> tuple[int, int, int]:
    """Return (term, leader, number of changes of topics and settings) of an answer to DescribeQuorum. ValueError."""
    row = _whole_of(response)
    return row.leader_epoch, row.leader_id, row.high_watermark


def read_end_of(response: DescribeQuorumResponse, node_id: int) -> tuple[int, int]:
    """Return (term, number of changes that a voter has) of an answer to DescribeQuorum. ValueError.

    A leader's number about itself includes changes that are not on disk yet.
    """
    row = _whole_of(response)
    for voter in row.current_voters:
        if voter.replica_id == node_id:
            return row.leader_epoch, voter.log_end_offset
    raise ValueError(f"the message has no row for node {node_id}")


def _whole(row: Tree) -> Tree:
    return {"topic_name": WHOLE.topic, "partitions": [{"partition_index": WHOLE.partition, **row}]}


def _whole_of_request(request: PartitionMessage[R]) -> R:
    try:
        return _whole_of(request)
    except ValueError as error:
        raise InvalidRequest(str(error)) from None


def _whole_of(message: PartitionMessage[R]) -> R:
    code = getattr(message, "error_code", 0)
    if code:
        raise ValueError(f"error {int(code)}")
    for topic in message.topics:
        for row in topic.partitions if topic.topic_name == WHOLE.topic else ():
            if row.partition_index == WHOLE.partition and not getattr(row, "error_code", 0):
                return row
    raise ValueError(f"the message has no row for {WHOLE.topic}")
