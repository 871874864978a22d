"""Who may lead a replica set: values in, values out.

One term counts for all partitions and is their leader epoch. A term belongs to the one node that may be a candidate in
it (`next_term`), so that no term ever has two leaders, not even where an operator forces one.

Why nothing is lost that was acknowledged with acks=all, as long as nobody is forced: it is Raft's argument, partition
by partition, with the begin of an epoch in a log's epoch file where Raft writes an entry at the begin of a term.

- A leader begins its term at the end of its log before it takes a write. A follower begins it when its log has been
  found to be the same up to there (`replica.roles.epoch_to_begin`): its own records of other leaders are cut by then.
  So logs with the same last epoch are the same as far as the shorter one goes, and (last epoch, end offset) says which
  of two logs is ahead, even where a leader wrote nothing in its term. The begin of an epoch is on disk when it counts.
- The high watermark moves up to what all replicas in sync have, and those are a majority at least, whatever
  `min.insync.replicas` says (`replica.roles.effective_min_isr`). Only a follower that has begun the leader's term is
  counted: a record of an earlier term that lies in a majority may still be overwritten by a log with a later last epoch
  (figure 8 of the Raft paper), one below the begin of this term in a majority may not.
- A vote goes to nobody who is behind in any partition, and a node that votes follows nobody from before the comparison
  on, so that it never tells an earlier leader of more than it compared. A majority votes, so one of them has what was
  acknowledged, in a log whose last epoch is that of the leader who acknowledged it, or later; the candidate is not
  behind that one, so it has it, too.

A candidate first copies from a voter what that one has more of (`replica/voter_source.py`): under load each of two
nodes that are left may be ahead in another partition, and neither would vote for the other. Nothing is lost by it: a
log that is ahead has all that the candidate was counted for. What was acknowledged with its help was so in a term that
the candidate's log has begun, and the log that is ahead has the same last epoch, and is longer, or a later one, whose
leader had a vote of the majority that acknowledged. So what is cut was nobody's acknowledged record, at each step of
the copy; the candidate then stands where the voter does, and asks for votes as that one could. It follows nobody
meanwhile, nor does the voter: the comparison that the copy began with stays true.

Topics, settings, users, ACLs and quotas are no log, but have a version (term, number of changes), which a vote compares
as it compares the end of a log (`quorum/metadata_version.py`): a majority has the version that was answered for, so one
of those who vote has it, and the candidate is not behind that one. Here, too, only versions of the leader's own term
are counted. A deleted topic leaves nothing to compare: a node that has not heard of the delete has logs that the
candidate lacks. They count, unless the candidate's version says that it knew all that the voter may know (`begun`), and
is not older than the last leader that wrote to the log: another leader may have kept the topic that this one gave up.

An acknowledgement is thus worth as much as the disks of a majority: what a machine has not flushed when its power goes
is as if it had never come there. Who is forced needs no votes, and may lack what others have.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from types import MappingProxyType
from typing import Final, NamedTuple
from uuid import UUID

from kafkalog.server.quorum.file import NOBODY, QuorumState
from kafkalog.server.quorum.replica_set import ReplicaSet
from kafkalog.server.quorum.version_file import NONE, Version, Versions
from kafkalog.types import TopicPartition

Position = tuple[int, int]
"""How far a log is: the last epoch in it, then its end offset. The larger one is ahead."""
Positions = Mapping[TopicPartition, Position]
EMPTY: Final = (-1, 0)
METADATA: Final = TopicPartition("__cluster_metadata", 1)
"""Stands among the logs of which a voter has more where its topics and settings are newer, or may be."""


class Ballot(NamedTuple):
    """A node that wants to lead, in which term, how far its logs are, which version of the metadata it has, and the
    topics that it has, by name."""

    term: int
    candidate: int
    positions: Positions
    version: Version = NONE
    topics: Mapping[str, UUID | None] = MappingProxyType({})


class Standing(NamedTuple):
    """What a voter has: how far its logs are, between which versions its metadata is, and its topics by name."""

    positions: Positions
    versions: Versions = Versions()
    topics: Mapping[str, UUID | None] = MappingProxyType({})


class Vote(NamedTuple):
    """What a node answers, what it keeps before that, why it refuses, and what it has more of than the candidate."""

    is_granted: bool
    state: QuorumState
    reason: str = ""
    ahead: Positions = MappingProxyType({})


def position_of(last_epoch: int, log_end_offset: int) -> Position:
    """How far a log is; one without any record is behind all others, whatever epoch was begun in it."""
    return (last_epoch, log_end_offset) if log_end_offset > 0 else EMPTY


def ahead_of(mine: Positions, theirs: Positions) -> dict[TopicPartition, Position]:
    """The partitions of which there is more here than there."""
    return {key: position for key, position in mine.items() if position > theirs.get(key, EMPTY)}


def next_term(term: int, node_id: int, replicas: ReplicaSet) -> int:
    """The first term above this one in which the node may be a candidate: each term is one member's."""
    count, own = len(replicas), replicas.ids.index(node_id)
    return term + 1 + (own - (term + 1)) % count


def is_own_term(term: int, node_id: int, replicas: ReplicaSet) -> bool:
    """Whether the node is the one that may lead in this term."""
    return node_id in replicas and term % len(replicas) == replicas.ids.index(node_id)


def first_term(last_epochs: Iterable[int]) -> int:
    """The term of a node that was in no set yet: the highest epoch of its logs, at least 0."""
    return max(0, max(last_epochs, default=0))


def lacks(ballot: Ballot, name: str, topic_id: UUID | None) -> bool:
    """Whether the candidate has no such topic, or another one of that name."""
    theirs = ballot.topics.get(name)
    return name not in ballot.topics or None not in (theirs, topic_id) and theirs != topic_id


def is_deleted_there(version: Version, begun: Version, last_epoch: int) -> bool:
    """Whether a topic that one lacks who has all of a version was deleted there: it knew the topic, for what another
    one has who has the topic is not newer, and no later leader wrote to the log."""
    return version != NONE and version >= max(begun, (last_epoch, 0))


def compared(ballot: Ballot, mine: Standing) -> dict[TopicPartition, Position]:
    """What there is more of here than with the candidate: records by partition, and METADATA. Of topics that it lacks
    there is an entry only where it can copy them with the metadata, and METADATA is one as well."""
    lacked = {name for name, topic_id in mine.topics.items() if lacks(ballot, name, topic_id)}
    records = {
        key: position for key, position in mine.positions.items()
        if position > (EMPTY if key.topic in lacked else ballot.positions.get(key, EMPTY))
        and not (key.topic in lacked and is_deleted_there(ballot.version, mine.versions.begun, position[0]))
    }  # fmt: skip
    is_newer = mine.versions.complete > ballot.version or any(key.topic in lacked for key in records)
    return {METADATA: mine.versions.complete, **records} if is_newer else records


def may_copy_metadata(own: Versions, theirs: Versions, given_up: Iterable[Position]) -> bool:
    """Whether a candidate may have a voter's metadata in the place of its own: what it has beyond was deleted there,
    logs that it gives up among it."""
    last_epoch = max((position[0] for position in given_up), default=-1)
    return is_deleted_there(theirs.complete, own.begun, last_epoch)


def decide_vote(state: QuorumState, ballot: Ballot, mine: Standing, replicas: ReplicaSet) -> Vote:
    """Whether a node gives its vote: for a term above its own, to a candidate that is behind in no partition, and not
    in its metadata.

    In its own term it may still vote as long as nobody leads: it may have heard of the term before it was asked, and an
    answer that granted the vote may have been lost.
    """
    if not is_own_term(ballot.term, ballot.candidate, replicas):
        return Vote(False, state, f"node {ballot.candidate} is no candidate of term {ballot.term}")
    is_open = (state.term, state.leader) == (ballot.term, NOBODY) and state.voted_for in (NOBODY, ballot.candidate)
    if ballot.term <= state.term and not is_open:
        return Vote(False, state, f"its term {ballot.term} is not above {state.term}")
    ahead = compared(ballot, mine)
    for key, position in ahead.items():
        if key == METADATA:
            words = f"the metadata has (term, changes) {position} here, and there {ballot.version}"
        else:
            words = f"{key} is at (epoch, offset) {position} here, and there at {ballot.positions.get(key, EMPTY)}"
        return Vote(False, state, words, ahead)
    return Vote(True, QuorumState(ballot.term, NOBODY, ballot.candidate))


def has_won(granted: Collection[int], replicas: ReplicaSet, *, is_forced: bool = False) -> bool:
    """Whether a candidate with these votes, its own among them, leads."""
    return is_forced or replicas.is_majority(granted)


def heard(state: QuorumState, term: int, leader: int, replicas: ReplicaSet) -> QuorumState:
    """What a node keeps after it heard that `leader` (-1: nobody) leads in `term`.

    A later term counts, and so does the leader of this one where none was known; what contradicts itself is ignored.
    """
    known = leader == NOBODY or is_own_term(term, leader, replicas)
    if not known or term < state.term:
        return state
    if term > state.term:
        return QuorumState(term, leader)
    if state.leader == NOBODY and leader != NOBODY:
        return state._replace(leader=leader)
    return state


def may_resume(state: QuorumState, node_id: int, told: Mapping[int, tuple[int, int]], replicas: ReplicaSet) -> bool:
    """Whether a leader that has started again may ask to lead on, after others told (term, leader).

    A majority, itself counted, has to say that it leads in the term it knows, and nobody that there is a later one. It
    then takes a new term, with votes: what the end of its process lost may be in the others' logs.
    """
    if state.leader != node_id or any(term > state.term for term, _ in told.values()):
        return False
    agreed = {one for one, (term, leader) in told.items() if (term, leader) == (state.term, node_id)}
    return replicas.is_majority(agreed | {node_id})
