"""A replica set of one partition as values: its logs, terms and high watermarks change by the server's own decisions.

Steps may come in any order. What is acknowledged is remembered, and looked for in the log of each leader after that.
"""

from __future__ import annotations

import random
from typing import Any, NamedTuple

from kafkalog.server.quorum.decisions import (
    Ballot,
    decide_vote,
    has_won,
    heard,
    next_term,
    position_of,
)
from kafkalog.server.quorum.file import NOBODY, QuorumState
from kafkalog.server.quorum.replica_set import Member, ReplicaSet
from kafkalog.server.replica.following import begins_for_nothing, cut_offset, last_epoch_for
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

T0 = TopicPartition("t", 0)
LAG_MS = 10


class Rules(NamedTuple):
    """What the model leaves away where it is False: each of them is needed."""

    followers_begin_epochs: bool = True
    needs_majority: bool = True
    votes_hold_still: bool = True
    keeps_begun_epochs: bool = True


class Lost(AssertionError):
    """An acknowledged record is not in a leader's log."""


class Node:
    """A log whose records are numbers, and what a node keeps of the set."""

    def __init__(self, number: int) -> None:
        self.number = number
        self.log: list[int] = []
        self.epochs = LeaderEpochCache(f"/nowhere/{number}")
        self.state = QuorumState(0)
        self.restart()

    def restart(self) -> None:
        self.leads = False
        self.high_watermark = 0
        self.followers: dict[int, FollowerState] = {}
        self.role = Role(NOBODY, 0, 0, (), ())
        self.followed: tuple[int, int] | None = None  # the leader, and its term

    @property
    def position(self) -> tuple[int, int]:
        return position_of(self.epochs.latest_epoch, len(self.log))

    def take(self, state: QuorumState) -> None:
        if state != self.state:
            self.state, self.leads = state, False

    def cut(self, offset: int) -> None:
        del self.log[offset:]
        self.epochs.truncate_from_end(offset)


class Model:
    """The set, and the steps that it can take. Deterministic for a seed."""

    def __init__(self, seed: int, rules: Rules, count: int = 3, min_isr: int = 1) -> None:
        self.random = random.Random(seed)
        self.rules = rules
        self.replicas = ReplicaSet(Member(one, "h", 9000 + one) for one in range(1, count + 1))
        self.nodes = {one: Node(one) for one in self.replicas.ids}
        self.min_isr = min_isr
        self.ballots: list[tuple[Ballot, set[int]]] = []
        self.down: set[int] = set()
        self.acknowledged: dict[int, tuple[int, int]] = {}  # by offset: the record, and the term
        self.elections = self.written = self.now_ms = 0
        self.story: list[str] = []

    def run(self, steps: int) -> None:
        """So many steps; Lost."""
        kinds = {
            self.append: 3, self.fetch: 20, self.tell: 5, self.stop: 3, self.late: 1, self.stand: 1, self.ask: 2,
            self.count: 2, self.elect: 4,
        }  # fmt: skip
        weights = [self.random.choice((0.3, 1, 3)) * weight for weight in kinds.values()]
        for step in self.random.choices(list(kinds), weights, k=steps):
            self.now_ms += 1
            step()

    def alive(self) -> list[Node]:
        return [one for one in self.nodes.values() if one.number not in self.down]

    # Leading

    def append(self) -> None:
        """Every leader takes writes, one that is deposed and does not know it as well."""
        for leader in [one for one in self.alive() if one.leads]:
            self.written += 1
            leader.log.append(self.written)
            if leader.epochs.latest_epoch < leader.state.term:
                leader.epochs.assign(leader.state.term, len(leader.log) - 1)
            self.raise_high_watermark(leader)

    def raise_high_watermark(self, leader: Node) -> None:
        least = majority_of(len(self.replicas)) if self.rules.needs_majority else 1
        if len(leader.role.isr) < effective_min_isr(self.min_isr, leader.role, least):
            return
        end = LogOffsetMetadata(len(leader.log))
        mark = next_high_watermark(end, leader.role, leader.followers, self.now_ms, LAG_MS).message_offset
        if mark > leader.high_watermark:
            leader.high_watermark = mark
            self.story.append(f"{leader.number} acknowledges {leader.log[:mark]} in term {leader.state.term}")
            for offset in range(mark):
                record, _ = self.acknowledged.setdefault(offset, (leader.log[offset], leader.state.term))
                if record != leader.log[offset]:
                    raise Lost(f"offset {offset} was acknowledged twice: {self.story}")

    def late(self) -> None:
        """A follower is late, and in sync no more."""
        for leader in [one for one in self.alive() if one.leads and len(one.role.isr) > 1]:
            gone = self.random.choice([one for one in leader.role.isr if one != leader.number])
            leader.role = with_isr(leader.role, [one for one in leader.role.isr if one != gone])
            leader.followers[gone] = FollowerState(last_caught_up_ms=-LAG_MS - 1)
            self.raise_high_watermark(leader)

    # Following

    def fetch(self) -> None:
        """A follower asks the leader it follows, which may know nothing yet of a later one."""
        node = self.random.choice(self.alive() or [None])  # type: ignore[list-item]
        if node is None or node.leads:
            return
        if node.state.leader not in (NOBODY, node.number):
            node.followed = (node.state.leader, node.state.term)
        elif self.rules.votes_hold_still:
            node.followed = None
        if node.followed is None:
            return
        leader, term = self.nodes[node.followed[0]], node.followed[1]
        if leader.number in self.down or not leader.leads or leader.state.term != term:
            return
        self.answer(leader, node)

    def answer(self, leader: Node, node: Node) -> None:
        term, offset = leader.state.term, len(node.log)
        last = last_epoch_for(term, node.epochs.entries, offset)
        if not self.rules.keeps_begun_epochs:
            last = node.epochs.latest_epoch
        if last >= 0:
            there = leader.epochs.end_offset_for(last, len(leader.log))
            if there.epoch < last or there.start_offset < offset:
                own = node.epochs.end_offset_for(there.epoch, offset)
                node.cut(cut_offset(there.start_offset, offset, None if own.start_offset < 0 else own))
                return
        if self.rules.followers_begin_epochs:
            begins = epoch_to_begin(leader.epochs.entries[-1], offset, last, 0)
            if begins is not None:
                node.epochs.assign(*begins)
                return
        counts = last >= term or not self.rules.followers_begin_epochs
        place = LogOffsetMetadata(offset) if counts else UNKNOWN_PLACE
        state = leader.followers[node.number].fetched(place, 0, self.now_ms, len(leader.log))
        leader.followers[node.number] = state
        begin = leader.epochs.entries[-1].start_offset
        if node.number not in leader.role.isr and may_join(state, leader.high_watermark, begin):
            leader.role = with_isr(leader.role, (*leader.role.isr, node.number))
        self.raise_high_watermark(leader)
        taken = leader.log[offset : offset + self.random.choice((0, 1, 1, 2, 9))]
        if taken and begins_for_nothing(node.epochs.entries, offset, leader.epochs.epoch_for(offset)):
            node.epochs.truncate_from_end(offset)
        for at, record in enumerate(taken, offset):
            epoch = leader.epochs.epoch_for(at)
            if epoch > node.epochs.latest_epoch:
                node.epochs.assign(epoch, at)
            node.log.append(record)

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
        node.take(QuorumState(term, NOBODY, node.number))
        self.ballots.append((Ballot(term, node.number, {T0: node.position}), {node.number}))

    def ask(self) -> None:
        """All who live are asked for their vote, in any order; some of the messages are lost."""
        for ballot, votes in self.ballots[-2:]:
            for node in self.random.sample(self.alive(), len(self.alive())):
                if self.random.random() < 0.6 and node.number != ballot.candidate:
                    vote = decide_vote(node.state, ballot, {T0: node.position}, self.replicas)
                    if vote.is_granted:
                        node.take(vote.state)
                        votes.add(node.number)

    def count(self) -> None:
        """A node that has a majority leads."""
        for ballot, votes in self.ballots[-2:]:
            self.lead(ballot, votes)

    def lead(self, ballot: Ballot, votes: set[int]) -> None:
        node = self.nodes[ballot.candidate]
        mine = QuorumState(ballot.term, NOBODY, ballot.candidate)
        if node.number in self.down or node.state != mine or not has_won(votes, self.replicas):
            return
        node.take(QuorumState(ballot.term, node.number, node.number))
        self.elections += 1
        self.story.append(f"{node.number} leads in {ballot.term} by {sorted(votes)}, with {node.log} {node.position}")
        for offset, (record, term) in self.acknowledged.items():
            # who won in an earlier term, and hears of it late, gets nothing acknowledged
            if term < ballot.term and node.log[offset : offset + 1] != [record]:
                raise Lost(f"record {record} was acknowledged: {self.story}")
        node.epochs.assign(ballot.term, len(node.log))
        node.leads, node.followed = True, None
        node.role = Role(node.number, ballot.term, 0, self.replicas.ids, tuple(sorted(votes)))
        fresh = FollowerState(last_caught_up_ms=self.now_ms)
        others = self.replicas.others(node.number)
        node.followers = {one: fresh if one in votes else FollowerState(last_caught_up_ms=-99) for one in others}
        node.high_watermark = min(node.high_watermark, len(node.log))

    # What happens to nodes

    def tell(self) -> None:
        """A node learns what another one knows."""
        if len(self.alive()) > 1:
            told, source = self.random.sample(self.alive(), 2)
            told.take(heard(told.state, source.state.term, source.state.leader, self.replicas))
            if told.state.leader == told.number and not told.leads:
                told.state = told.state._replace(leader=NOBODY)

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
    """How many seeds lost a record, and how many elections and acknowledged records there were in all."""
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


__all__ = ["ALL", "Lost", "Model", "Rules", "losses"]
