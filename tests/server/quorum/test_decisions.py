"""Election rules as tables, and against any order of messages."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kafkalog.server.quorum.decisions import (
    EMPTY,
    Ballot,
    Position,
    VoterState,
    after_report,
    ahead_of_candidate,
    decide_vote,
    first_term,
    is_own_term,
    may_resume,
    next_term,
    position_of,
)
from kafkalog.server.quorum.file import NO_NODE, QuorumState
from kafkalog.server.quorum.replica_set import Member, ReplicaSet
from kafkalog.types import TopicPartition

T0, T1 = TopicPartition("t", 0), TopicPartition("t", 1)
THREE = ReplicaSet(Member(one, "h", 9000 + one) for one in (1, 2, 3))


def test_the_larger_epoch_is_ahead_and_then_the_longer_log() -> None:
    assert position_of(4, 10) == (4, 10)
    assert position_of(4, 0) == EMPTY  # an epoch that was begun and has nothing is not ahead
    for mine, theirs, ahead in (
        ({T0: (2, 5)}, {T0: (2, 5)}, {}),
        ({T0: (2, 6)}, {T0: (2, 5)}, {T0: (2, 6)}),
        ({T0: (3, 1)}, {T0: (2, 500)}, {T0: (3, 1)}),
        ({T0: (2, 500)}, {T0: (3, 1), T1: (3, 1)}, {}),
        ({T0: (0, 1), T1: (0, 1)}, {T0: (0, 1)}, {T1: (0, 1)}),
        ({T0: EMPTY}, {}, {}),
    ):
        assert ahead_of_candidate(Ballot(5, 2, theirs), VoterState(mine)) == ahead


@given(st.integers(0, 1000), st.sampled_from(THREE.ids))
def test_each_term_is_one_nodes(term: int, node_id: int) -> None:
    mine = next_term(term, node_id, THREE)
    assert term < mine <= term + len(THREE)
    assert [one for one in THREE.ids if is_own_term(mine, one, THREE)] == [node_id]


def test_the_first_term_is_the_highest_epoch_of_any_log() -> None:
    assert [first_term(epochs) for epochs in ([], [-1], [3, 7, -1])] == [0, 0, 7]


@pytest.mark.parametrize(
    ("state", "term", "candidate", "theirs", "granted"),
    [
        (QuorumState(3, 1), 4, 2, (2, 9), True),
        (QuorumState(3, 1), 4, 2, (2, 8), False),  # it would lose what is here
        (QuorumState(3, 1), 4, 2, (3, 1), True),
        (QuorumState(3, 1), 5, 2, (2, 9), False),  # term 5 is node 3's
        (QuorumState(3, 1), 7, 2, (2, 9), True),
        (QuorumState(4, 1), 4, 2, (2, 9), False),
        (QuorumState(4, NO_NODE, 2), 4, 2, (2, 9), True),  # its first answer was lost
        (QuorumState(4), 4, 2, (2, 9), True),  # it heard of the term before it was asked
        (QuorumState(4, 2, 2), 4, 2, (2, 9), False),
        (QuorumState(5, NO_NODE, 3), 4, 2, (2, 9), False),
        (QuorumState(3, 1), 4, 9, (2, 9), False),
    ],
)
def test_a_vote(state: QuorumState, term: int, candidate: int, theirs: Position, granted: bool) -> None:
    vote = decide_vote(state, Ballot(term, candidate, {T0: theirs}), VoterState({T0: (2, 9)}), THREE)
    assert vote.is_granted == granted
    assert vote.state == (QuorumState(term, NO_NODE, candidate) if granted else state)
    assert bool(vote.reason) != granted


def test_more_than_half_of_the_members_are_a_majority() -> None:
    assert [THREE.is_majority(votes) for votes in ({1}, {1, 3}, {1, 8, 9})] == [False, True, False]
    assert ReplicaSet([Member(7, "h", 1)]).is_majority({7})


@pytest.mark.parametrize(
    ("state", "term", "leader", "after"),
    [
        (QuorumState(3, 1, 1), 4, 2, QuorumState(4, 2)),
        (QuorumState(3, 1, 1), 4, NO_NODE, QuorumState(4)),
        (QuorumState(4, NO_NODE, 2), 4, 2, QuorumState(4, 2, 2)),
        (QuorumState(4, 2, 2), 4, NO_NODE, QuorumState(4, 2, 2)),
        (QuorumState(4, 2, 2), 3, 1, QuorumState(4, 2, 2)),
        (QuorumState(4, 2, 2), 7, 1, QuorumState(4, 2, 2)),  # term 7 is not node 1's
        (QuorumState(4, 2, 2), 6, 9, QuorumState(4, 2, 2)),
    ],
)
def test_what_a_node_keeps_of_what_it_hears(state: QuorumState, term: int, leader: int, after: QuorumState) -> None:
    assert after_report(state, term, leader, THREE) == after


@pytest.mark.parametrize(
    ("reported", "may"),
    [
        ({}, False),
        ({2: (3, 1)}, True),
        ({2: (3, NO_NODE)}, False),
        ({2: (2, 1)}, False),
        ({2: (3, 1), 3: (4, NO_NODE)}, False),
        ({2: (3, 1), 3: (3, 1)}, True),
        ({9: (3, 1)}, False),
    ],
)
def test_a_leader_leads_on_only_where_a_majority_says_so(reported: dict[int, tuple[int, int]], may: bool) -> None:
    assert may_resume(QuorumState(3, 1, 1), 1, reported, THREE) == may
    assert not may_resume(QuorumState(3, 2, 1), 1, reported, THREE)


def test_a_set_of_one_needs_nobody() -> None:
    assert may_resume(QuorumState(3, 7, 7), 7, {}, ReplicaSet([Member(7, "h", 1)]))


class Nodes:
    """Three nodes that forget nothing, and a post that loses, repeats and mixes up what they send."""

    def __init__(self) -> None:
        self.states = {one: QuorumState(0) for one in THREE.ids}
        self.ends = dict.fromkeys(THREE.ids, (0, 1))
        self.ballots: list[Ballot] = []
        self.votes: dict[int, set[int]] = {}
        self.leaders: dict[int, set[int]] = {}
        self.forced: set[int] = set()

    def stand(self, node: int) -> None:
        term = next_term(self.states[node].term, node, THREE)
        self.states[node] = QuorumState(term, NO_NODE, node)
        self.ballots.append(Ballot(term, node, {T0: self.ends[node]}))
        self.votes[len(self.ballots) - 1] = {node}

    def ask(self, number: int, node: int) -> None:
        ballot = self.ballots[number]
        vote = decide_vote(self.states[node], ballot, VoterState({T0: self.ends[node]}), THREE)
        if vote.is_granted:
            assert self.ends[node] <= ballot.positions[T0], "a candidate that is behind got a vote"
            assert vote.state.term >= self.states[node].term
            self.votes[number].add(node)
        self.states[node] = vote.state

    def count(self, number: int, is_forced: bool) -> None:
        ballot = self.ballots[number]
        is_candidate = self.states[ballot.candidate] == QuorumState(ballot.term, NO_NODE, ballot.candidate)
        if is_candidate and (is_forced or THREE.is_majority(self.votes[number])):
            self.states[ballot.candidate] = QuorumState(ballot.term, ballot.candidate, ballot.candidate)
            self.leaders.setdefault(ballot.term, set()).add(ballot.candidate)

    def tell(self, source: int, target: int) -> None:
        state = self.states[source]
        self.states[target] = after_report(self.states[target], state.term, state.leader, THREE)


STEPS = st.lists(
    st.tuples(
        st.sampled_from(["stand", "ask", "count", "force", "tell", "write"]), st.integers(0, 99), st.integers(0, 2)
    ),
    max_size=60,
)


@settings(max_examples=300, deadline=None)
@given(STEPS)
def test_no_term_has_two_leaders_whatever_comes_in_which_order(steps: list[tuple[Any, int, int]]) -> None:
    nodes = Nodes()
    for step, first, second in steps:
        one = THREE.ids[second]
        if step == "stand":
            nodes.stand(one)
        elif step == "tell":
            nodes.tell(THREE.ids[first % 3], one)
        elif step == "write":
            epoch, end = nodes.ends[one]
            nodes.ends[one] = (max(epoch, nodes.states[one].term), end + 1)
        elif nodes.ballots:
            number = first % len(nodes.ballots)
            if step == "ask":
                nodes.ask(number, one)
            else:
                nodes.count(number, step == "force")
    assert all(len(leaders) == 1 for leaders in nodes.leaders.values())
    for state in nodes.states.values():
        assert state.leader == NO_NODE or state.leader in nodes.leaders[state.term]
