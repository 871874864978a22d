"""Rules for who may lead a replica set: functions of values.

One term applies to all partitions and is their leader epoch. Each term belongs to the one node that may be a candidate
in it (`next_term`). So no term ever has two leaders, even if an operator forces one.

Unless a leader is forced, no record acknowledged with acks=all is lost. The argument is Raft's, for each partition. The
start of an epoch in a log's epoch file takes the place of the entry that Raft writes at the start of a term.

- A leader begins its term at the end of its log before it accepts a write. A follower begins it once its log is known
  to equal the leader's up to there (`replica.roles.epoch_to_begin`); its own records of other leaders are truncated by
  then. So logs with the same last epoch are equal up to the end of the shorter one. (last epoch, end offset) says which
  of two logs is ahead, even if a leader wrote nothing in its term. The start of an epoch is on disk when it counts.
- The high watermark moves up to what all in-sync replicas have, and those are at least a majority, whatever
  `min.insync.replicas` says (`replica.roles.effective_min_isr`). Only a follower that has begun the leader's term
  counts. A log with a later last epoch may still overwrite a record of an earlier term that a majority has (figure 8 of
  the Raft paper). It cannot overwrite a record below the start of this term once a majority has begun the term.
- No vote goes to a candidate that is behind in any partition. A voter stops following before the comparison, so that
  it never reports more to an earlier leader than it compared. A majority votes, so one voter has the acknowledged
  record, in a log whose last epoch is at least that of the leader who acknowledged it. The candidate is not behind that
  voter, so it has the record as well. A follower with an offline log cannot compare that, and does not vote.

A candidate first copies from a voter what that voter has more of (`replica/voter_source.py`). Under load, each of two
remaining nodes may be ahead in another partition, and neither would vote for the other. The copy loses nothing: the log
that is ahead has every acknowledged record that the candidate's log helped to acknowledge. Such a record was
acknowledged in a term that the candidate's log has begun. The log that is ahead has the same last epoch and is longer,
or has a later one, whose leader had a vote from the majority that acknowledged. So no step of the copy truncates an
acknowledged record. The candidate is then where the voter is, and asks for votes as the voter could. Neither of them
follows a leader meanwhile, so the comparison that started the copy stays true.

Topics, settings, users, ACLs and quotas have no log but a version (term, number of changes). A vote compares it like
the end of a log (`quorum/metadata_version.py`). A majority has each version that was acknowledged, so one voter has it,
and the candidate is not behind that voter. Here, too, only versions of the leader's own term count. A deleted topic
leaves nothing to compare: a node that missed the deletion has logs that the candidate lacks. They count unless the
candidate's version shows that it knew everything the voter may know (`begun`), and is not older than the last leader
that wrote to the log. Another leader may have kept the topic that this one deleted.

An acknowledgement is thus as durable as the disks of a majority. Data that a machine had not flushed at a power failure
counts as never received. A forced leader needs no votes and may lack records that others have.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from types import MappingProxyType
from typing import Final, NamedTuple
from uuid import UUID

from kafkalog.server.quorum.file import NO_NODE, QuorumState
from kafkalog.server.quorum.replica_set import ReplicaSet
from kafkalog.server.quorum.version_file import NONE, Version, Versions
from kafkalog.types import TopicPartition

Position = tuple[int, int]
"""Position of a log: its last epoch, then its end offset. The larger position is ahead."""
Positions = Mapping[TopicPartition, Position]
EMPTY: Final = (-1, 0)
METADATA: Final = TopicPartition("__cluster_metadata", 1)
"""Key for the metadata among a voter's logs that are ahead: its topics and settings are newer, or may be."""


class Ballot(NamedTuple):
    """A node's request to lead: its term, log positions, metadata version and topics by name."""

    term: int
    candidate: int
    positions: Positions
    version: Version = NONE
    topics: Mapping[str, UUID | None] = MappingProxyType({})


class VoterState(NamedTuple):
    """A voter's own data: its log positions, metadata versions and topics by name."""

    positions: Positions
    versions: Versions = Versions()
    topics: Mapping[str, UUID | None] = MappingProxyType({})


class Vote(NamedTuple):
    """A node's answer: the vote, the state to store first, the reason for a refusal, and what the candidate lacks."""

    is_granted: bool
    state: QuorumState
    reason: str = ""
    ahead: Positions = MappingProxyType({})


def position_of(last_epoch: int, log_end_offset: int) -> Position:
    """Return the position of a log. A log without records is behind all others, whatever epoch has begun in it."""
    return (last_epoch, log_end_offset) if log_end_offset > 0 else EMPTY


def next_term(term: int, node_id: int, replicas: ReplicaSet) -> int:
    """Return the first term above `term` in which the node may be a candidate: each term belongs to one member."""
    count, own = len(replicas), replicas.ids.index(node_id)
    return term + 1 + (own - (term + 1)) % count


def is_own_term(term: int, node_id: int, replicas: ReplicaSet) -> bool:
    """Return True if the node is the one that may lead in this term."""
    return node_id in replicas and term % len(replicas) == replicas.ids.index(node_id)


def first_term(last_epochs: Iterable[int]) -> int:
    """Return the term of a node that was in no set yet: the highest epoch of its logs, at least 0."""
    return max(0, max(last_epochs, default=0))


def lacks(ballot: Ballot, name: str, topic_id: UUID | None) -> bool:
    """Return True if the candidate has no topic of this name, or one with another id."""
    theirs = ballot.topics.get(name)
    return name not in ballot.topics or None not in (theirs, topic_id) and theirs != topic_id


def is_deleted_there(version: Version, begun: Version, last_epoch: int) -> bool:
    """Return True if a topic that a candidate with all of `version` lacks was deleted there.

    The candidate knew the topic, since the data of the node that has it is not newer (`begun`). No later leader wrote
    to the log.
    """
    return version != NONE and version >= max(begun, (last_epoch, 0))


def ahead_of_candidate(ballot: Ballot, mine: VoterState) -> dict[TopicPartition, Position]:
    """Return what this node has more of than the candidate: positions by partition, and METADATA.

    A topic that the candidate lacks has an entry only if METADATA has one, so that it can copy the topic with the
    metadata.
    """
    lacked = {name for name, topic_id in mine.topics.items() if lacks(ballot, name, topic_id)}
    records = {
        key: position for key, position in mine.positions.items()
        if position > (EMPTY if key.topic in lacked else ballot.positions.get(key, EMPTY))
        and not (key.topic in lacked and is_deleted_there(ballot.version, mine.versions.begun, position[0]))
    }  # fmt: skip
    is_newer = mine.versions.complete > ballot.version or any(key.topic in lacked for key in records)
    return {METADATA: mine.versions.complete, **records} if is_newer else records


def may_copy_metadata(own: Versions, theirs: Versions, given_up: Iterable[Position]) -> bool:
    """Return True if a candidate may replace its metadata with a voter's.

    It may if everything that it has beyond the voter's was deleted there, including the logs that it discards.
    """
    last_epoch = max((position[0] for position in given_up), default=-1)
    return is_deleted_there(theirs.complete, own.begun, last_epoch)


def decide_vote(state: QuorumState, ballot: Ballot, mine: VoterState, replicas: ReplicaSet) -> Vote:
    """Decide on a ballot for a term above the node's own. Grant it if the candidate is behind in nothing.

    The comparison covers every partition and the metadata. In its own term the node may still vote while no one leads.
    It may have heard of the term before the request, and an answer that granted the vote may have been lost.
    """
    if not is_own_term(ballot.term, ballot.candidate, replicas):
        return Vote(False, state, f"node {ballot.candidate} cannot be a candidate in term {ballot.term}")
    is_open = (state.term, state.leader) == (ballot.term, NO_NODE) and state.voted_for in (NO_NODE, ballot.candidate)
    if ballot.term <= state.term and not is_open:
        return Vote(False, state, f"its term {ballot.term} is not above {state.term}")
    ahead = ahead_of_candidate(ballot, mine)
    for key, position in ahead.items():
        if key == METADATA:
            reason = f"the metadata is at (term, changes) {position} here, but at {ballot.version} there"
        else:
            reason = f"{key} is at (epoch, offset) {position} here, but at {ballot.positions.get(key, EMPTY)} there"
        return Vote(False, state, reason, ahead)
    return Vote(True, QuorumState(ballot.term, NO_NODE, ballot.candidate))


def after_report(state: QuorumState, term: int, leader: int, replicas: ReplicaSet) -> QuorumState:
    """Return the state after a report that `leader` (-1: none) leads in `term`.

    A later term is adopted, and so is the leader of this term if none was known. Contradictory reports are ignored.
    """
    known = leader == NO_NODE or is_own_term(term, leader, replicas)
    if not known or term < state.term:
        return state
    if term > state.term:
        return QuorumState(term, leader)
    if state.leader == NO_NODE and leader != NO_NODE:
        return state._replace(leader=leader)
    return state


def may_resume(state: QuorumState, node_id: int, reports: Mapping[int, tuple[int, int]], replicas: ReplicaSet) -> bool:
    """Return True if a restarted leader may ask to continue, after others reported (term, leader).

    A majority, including the node, must report that it leads in the term it knows, and no one may report a later term.
    The node then takes a new term, with votes: the others' logs may have records that its crash lost.
    """
    if state.leader != node_id or any(term > state.term for term, _ in reports.values()):
        return False
    agreed = {one for one, (term, leader) in reports.items() if (term, leader) == (state.term, node_id)}
    return replicas.is_majority(agreed | {node_id})
