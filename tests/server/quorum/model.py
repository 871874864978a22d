"""A replica set of some partitions as values: its logs, terms and high watermarks change by the server's own decisions.

Steps may come in any order. What is acknowledged is remembered, and looked for in the log of each leader after that.
"""

from __future__ import annotations

import random
from typing import Any, NamedTuple

from kafkalog.server.quorum.decisions import (
    Ballot,
    VoterState,
    after_report,
    ahead_of_candidate,
    decide_vote,
    next_term,
    position_of,
)
from kafkalog.server.quorum.file import NO_NODE, QuorumState
from kafkalog.server.quorum.replica_set import Member, ReplicaSet
from kafkalog.server.replica.following import has_unused_epoch, last_epoch_for, truncation_offset
from kafkalog.server.replica.roles import (
    ALL,
    UNKNOWN_PLACE,
    FollowerState,
    Role,
    effective_min_isr,
    epoch_to_begin,
    majority_of,
    may_join,
    next_high_watermark,
    with_isr,
)
from kafkalog.storage.leader_epoch import LeaderEpochCache
from kafkalog.types import LogOffsetMetadata, TopicPartition

LAG_MS = 10


class Rules(NamedTuple):
    """Rules that the model drops where a field is False: each of them is needed."""

    followers_begin_epochs: bool = True
    needs_majority: bool = True
    votes_hold_still: bool = True
    keeps_begun_epochs: bool = True
    keeps_begins_at_cuts: bool = True
    copies_what_is_ahead: bool = True


class Lost(AssertionError):
    """An acknowledged record is not in a leader's log."""


class Stuck(AssertionError):
    """A majority is alive, and the node that was promoted does not lead."""


class Part:
    """A log whose records are numbers, and what a node that leads knows of its followers."""

    def __init__(self) -> None:
        self.log: list[int] = []
        self.epochs = LeaderEpochCache("/nowhere")
        self.restart()

    def restart(self) -> None:
        self.high_watermark = 0
        self.followers: dict[int, FollowerState] = {}
        self.role = Role(NO_NODE, 0, 0, (), ())

    @property
    def position(self) -> tuple[int, int]:
        return position_of(self.epochs.latest_epoch, len(self.log))

    def truncate(self, offset: int, keeps_begins: bool) -> None:
        del self.log[offset:]
        self.epochs.truncate_from_end(offset + keeps_begins)


class Node:
    """A node's state of the set, and its partitions."""

    def __init__(self, number: int, partitions: int) -> None:
        self.number = number
        self.parts = {TopicPartition("t", index): Part() for index in range(partitions)}
        self.state = QuorumState(0)
        self.restart()

    def restart(self) -> None:
        self.leads = False
        self.voters: tuple[int, ...] = ()
        self.followed: tuple[int, int] | None = None  # the leader, and its term
        for part in self.parts.values():
            part.restart()

    @property
    def positions(self) -> dict[TopicPartition, tuple[int, int]]:
        return {key: part.position for key, part in self.parts.items()}

    def take(self, state: QuorumState) -> None:
        if state != self.state:
            self.state, self.leads = state, False


class Model:
    """The set, and the steps that it can take. Deterministic for a seed."""

    def __init__(self, seed: int, rules: Rules, count: int = 3, min_isr: int = 1, partitions: int = 1) -> None:
        self.random = random.Random(seed)
        self.rules = rules
        self.replicas = ReplicaSet(Member(one, "h", 9000 + one) for one in range(1, count + 1))
        self.nodes = {one: Node(one, partitions) for one in self.replicas.ids}
        self.keys = tuple(TopicPartition("t", index) for index in range(partitions))
        self.min_isr = min_isr
        self.ballots: list[tuple[Ballot, set[int]]] = []
        self.down: set[int] = set()
        self.acknowledged: dict[tuple[TopicPartition, int], tuple[int, int]] = {}  # by offset: the record, the term
        self.elections = self.promotions = self.copied = self.written = self.now_ms = 0
        self.story: list[str] = []

    def run(self, steps: int) -> None:
        """So many steps; Lost."""
        kinds = {
            self.append: 3, self.fetch: 20, self.tell: 5, self.stop: 3, self.drop_late: 1, self.stand: 1, self.ask: 2,
            self.count: 2, self.elect: 4,
        }  # fmt: skip
        if len(self.keys) > 1:
            kinds[self.promote], kinds[self.copy_some] = 3, 3
        weights = [self.random.choice((0.3, 1, 3)) * weight for weight in kinds.values()]
        for step in self.random.choices(list(kinds), weights, k=steps):
            self.now_ms += 1
            step()

    def alive(self) -> list[Node]:
        return [one for one in self.nodes.values() if one.number not in self.down]

    def random_key(self) -> TopicPartition:
        return self.random.choice(self.keys) if len(self.keys) > 1 else self.keys[0]

    # Leading

    def append(self) -> None:
        """Every leader takes writes, one that is deposed and does not know it as well."""
        for leader in [one for one in self.alive() if one.leads]:
            key = self.random_key()
            part = leader.parts.get(key)
            if part is None:
                continue
            self.written += 1
            part.log.append(self.written)
            if part.epochs.latest_epoch < leader.state.term:
                part.epochs.assign(leader.state.term, len(part.log) - 1)
            self.raise_high_watermark(leader, key)

    def raise_high_watermark(self, leader: Node, key: TopicPartition) -> None:
        part = leader.parts[key]
        least = majority_of(len(self.replicas)) if self.rules.needs_majority else 1
        if len(part.role.isr) < effective_min_isr(self.min_isr, part.role, least):
            return
        end = LogOffsetMetadata(len(part.log))
        mark = next_high_watermark(end, part.role, part.followers, self.now_ms, LAG_MS).message_offset
        if mark > part.high_watermark:
            part.high_watermark = mark
            self.story.append(f"{leader.number} acknowledges {key} {part.log[:mark]} in term {leader.state.term}")
            for offset in range(mark):
                record, _ = self.acknowledged.setdefault((key, offset), (part.log[offset], leader.state.term))
                if record != part.log[offset]:
                    raise Lost(f"offset {offset} of {key} was acknowledged twice: {self.story}")

    def drop_late(self) -> None:
        """A follower is late, and in sync no more."""
        key = self.random_key()
        for leader in [one for one in self.alive() if one.leads]:
            part = leader.parts.get(key)
            if part is None or len(part.role.isr) < 2:
                continue
            gone = self.random.choice([one for one in part.role.isr if one != leader.number])
            part.role = with_isr(part.role, [one for one in part.role.isr if one != gone])
            part.followers[gone] = FollowerState(last_caught_up_ms=-LAG_MS - 1)
            self.raise_high_watermark(leader, key)

    # Following

    def fetch(self) -> None:
        """A follower asks the leader it follows, which may know nothing yet of a later one."""
        node = self.random.choice(self.alive() or [None])  # type: ignore[list-item]
        if node is None or node.leads:
            return
        if node.state.leader not in (NO_NODE, node.number):
            node.followed = (node.state.leader, node.state.term)
        elif self.rules.votes_hold_still:
            node.followed = None
        if node.followed is None:
            return
        leader, term = self.nodes[node.followed[0]], node.followed[1]
        if leader.number in self.down or not leader.leads or leader.state.term != term:
            return
        self.answer(leader, node, self.random_key())

    def answer(self, leader: Node, node: Node, key: TopicPartition) -> None:
        """A leader answers a follower."""
        if key not in leader.parts or key not in node.parts:
            return
        there, part, term = leader.parts[key], node.parts[key], leader.state.term
        offset = len(part.log)
        last = self.compared(there, part, term)
        if last is None:
            return
        counts = last >= term or not self.rules.followers_begin_epochs
        place = LogOffsetMetadata(offset) if counts else UNKNOWN_PLACE
        state = there.followers[node.number].fetched(place, 0, self.now_ms, len(there.log))
        there.followers[node.number] = state
        begin = there.epochs.entries[-1].start_offset
        if node.number not in there.role.isr and may_join(state, there.high_watermark, begin):
            there.role = with_isr(there.role, (*there.role.isr, node.number))
        self.raise_high_watermark(leader, key)
        self.append_some(there, part)

    def compared(self, there: Part, part: Part, term: int) -> int | None:
        """Return the last reported epoch if the logs agree so far; None if the follower's own log was truncated."""
        offset = len(part.log)
        last = last_epoch_for(term, part.epochs.entries, offset)
        if not self.rules.keeps_begun_epochs:
            last = part.epochs.latest_epoch
        if last >= 0:
            reported = there.epochs.end_offset_for(last, len(there.log))
            if reported.epoch < last or reported.start_offset < offset:
                own = part.epochs.end_offset_for(reported.epoch, offset)
                at = truncation_offset(reported.start_offset, offset, None if own.start_offset < 0 else own)
                part.truncate(at, self.rules.keeps_begins_at_cuts)
                return None
        if self.rules.followers_begin_epochs and there.epochs.entries:
            begins = epoch_to_begin(there.epochs.entries[-1], offset, last, 0)
            if begins is not None:
                part.epochs.assign(*begins)
                return None
        return last

    def append_some(self, there: Part, part: Part) -> None:
        """Some of the records that come next."""
        offset = len(part.log)
        taken = there.log[offset : offset + self.random.choice((0, 1, 1, 2, 9))]
        if taken and has_unused_epoch(part.epochs.entries, offset, there.epochs.epoch_for(offset)):
            part.epochs.truncate_from_end(offset)
        for at, record in enumerate(taken, offset):
            epoch = there.epochs.epoch_for(at)
            if epoch > part.epochs.latest_epoch:
                part.epochs.assign(epoch, at)
            part.log.append(record)

    # Copying what a voter has more of

    def copy_some(self) -> None:
        """A candidate begins to copy, and does not come to the end."""
        if len(self.alive()) > 1:
            node, voter = self.random.sample(self.alive(), 2)
            self.copy(node, voter, self.random.randrange(4))

    def copy(self, node: Node, voter: Node, steps: int) -> None:
        """So many steps at most of each partition of which the voter has more."""
        if node.leads or voter.leads or not self.rules.copies_what_is_ahead:
            return
        ballot = Ballot(node.state.term, node.number, node.positions)
        for key, position in ahead_of_candidate(ballot, VoterState(voter.positions)).items():
            for _ in range(steps):
                if node.parts[key].position >= position:
                    break
                self.copied += 1
                if self.compared(voter.parts[key], node.parts[key], position[0]) is not None:
                    self.append_some(voter.parts[key], node.parts[key])

    def promote(self) -> None:
        """An operator promotes a node while no live node leads; no message is lost."""
        alive = self.alive()
        if any(one.leads for one in alive) or not self.replicas.is_majority([one.number for one in alive]):
            return
        node = self.random.choice(alive)
        for voter in alive:
            self.copy(node, voter, 1000)
        term = next_term(max(one.state.term for one in alive), node.number, self.replicas)
        ballot, votes = self.ballot(node, term), {node.number}
        node.take(QuorumState(term, NO_NODE, node.number))
        for voter in alive:
            vote = decide_vote(voter.state, ballot, self.voter_state(voter), self.replicas)
            if vote.is_granted and voter is not node:
                voter.take(vote.state)
                votes.add(voter.number)
        self.count_votes(ballot, votes)
        if not node.leads:
            self.fail_promotion(node)
        self.promotions += node.leads

    def fail_promotion(self, node: Node) -> None:
        """A node was promoted, and a majority did not vote for it."""
        raise Stuck(f"{node.number} has {node.positions}: {self.story}")

    # Elections, one message at a time

    def elect(self) -> None:
        """An election without anything in between, of which most nodes hear."""
        self.stand()
        self.ask()
        self.count()
        for _ in self.alive():
            self.tell()

    def stand(self) -> None:
        """A node that does not lead wants to."""
        node = self.random.choice(self.alive() or [None])  # type: ignore[list-item]
        if node is None or node.leads:
            return
        known = max(one.state.term for one in self.alive())
        term = next_term(known, node.number, self.replicas)
        node.take(QuorumState(term, NO_NODE, node.number))
        self.ballots.append((self.ballot(node, term), {node.number}))

    def ballot(self, node: Node, term: int) -> Ballot:
        """Return the candidate's ballot."""
        return Ballot(term, node.number, node.positions)

    def voter_state(self, voter: Node) -> VoterState:
        """Return the state that a voter compares with a ballot."""
        return VoterState(voter.positions)

    def ask(self) -> None:
        """All who live are asked for their vote, in any order; some of the messages are lost."""
        for ballot, votes in self.ballots[-2:]:
            for node in self.random.sample(self.alive(), len(self.alive())):
                if self.random.random() < 0.6 and node.number != ballot.candidate:
                    vote = decide_vote(node.state, ballot, self.voter_state(node), self.replicas)
                    if vote.is_granted:
                        node.take(vote.state)
                        votes.add(node.number)

    def count(self) -> None:
        """A node that has a majority leads."""
        for ballot, votes in self.ballots[-2:]:
            self.count_votes(ballot, votes)

    def count_votes(self, ballot: Ballot, votes: set[int]) -> None:
        node = self.nodes[ballot.candidate]
        mine = QuorumState(ballot.term, NO_NODE, ballot.candidate)
        if node.number in self.down or node.state != mine or not self.replicas.is_majority(votes):
            return
        node.take(QuorumState(ballot.term, node.number, node.number))
        self.elections += 1
        logs = {key: node.parts[key].log if key in node.parts else [] for key in self.compared_keys()}
        self.story.append(f"{node.number} leads in {ballot.term} by {sorted(votes)}, with {logs} {node.positions}")
        for (key, offset), (record, term) in self.acknowledged.items():
            # who won in an earlier term, and hears of it late, gets nothing acknowledged
            if term < ballot.term and key in logs and logs[key][offset : offset + 1] != [record]:
                raise Lost(f"record {record} of {key} was acknowledged: {self.story}")
        node.leads, node.followed, node.voters = True, None, tuple(sorted(votes))
        for part in node.parts.values():
            self.begin(node, part)

    def compared_keys(self) -> list[TopicPartition]:
        """Return the partitions without a delete request."""
        return list(self.keys)

    def begin(self, node: Node, part: Part) -> None:
        """A leader begins its term in a partition."""
        fresh = FollowerState(last_caught_up_ms=self.now_ms)
        others = self.replicas.others(node.number)
        part.epochs.assign(node.state.term, len(part.log))
        part.role = Role(node.number, node.state.term, 0, self.replicas.ids, node.voters)
        part.followers = {one: fresh if one in node.voters else FollowerState(last_caught_up_ms=-99) for one in others}
        part.high_watermark = min(part.high_watermark, len(part.log))

    # What happens to nodes

    def tell(self) -> None:
        """A node learns what another one knows."""
        if len(self.alive()) > 1:
            reported, source = self.random.sample(self.alive(), 2)
            reported.take(after_report(reported.state, source.state.term, source.state.leader, self.replicas))
            if reported.state.leader == reported.number and not reported.leads:
                reported.state = reported.state._replace(leader=NO_NODE)

    def stop(self) -> None:
        """A node stops, or starts again with the log that it has."""
        node = self.nodes[self.random.choice(self.replicas.ids)]
        if node.number in self.down:
            self.down.discard(node.number)
            return
        if self.random.random() < 0.5:
            return
        self.down.add(node.number)
        node.restart()


def losses(rules: Rules, seeds: range, *, steps: int = 150, **more: Any) -> tuple[int, int, int]:
    """Return the number of seeds that lost a record, of elections and of acknowledged records."""
    lost = elections = acknowledged = 0
    for seed in seeds:
        model = Model(seed, rules, **more)
        try:
            model.run(steps)
        except Lost:
            lost += 1
        elections += model.elections
        acknowledged += len(model.acknowledged)
    return lost, elections, acknowledged


__all__ = ["ALL", "Lost", "Model", "Rules", "Stuck", "losses"]
