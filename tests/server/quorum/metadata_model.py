"""A replica set whose topics come and go, and that has a setting: the steps of `model` and those of the metadata.

What a majority had when it was answered must be with each leader after that: a topic that was made and not deleted,
none that was deleted, the setting or a later one.
"""

from __future__ import annotations

from typing import Any, NamedTuple
from uuid import UUID

from kafkalog.config.keys import MAX_LONG
from kafkalog.server.quorum.decisions import METADATA, Ballot, VoterState, ahead_of_candidate, may_copy_metadata
from kafkalog.server.quorum.file import NO_NODE
from kafkalog.server.quorum.version_file import NONE, Version, Versions, unknown
from kafkalog.types import TopicPartition
from tests.server.quorum.model import Lost, Model, Node, Part, Rules


class MetadataRules(NamedTuple):
    """Rules that the model drops where a field is False: each of them is needed."""

    compares_versions: bool = True
    reads_version_first: bool = True
    reads_version_last: bool = True
    keeps_begun: bool = True
    leaders_begun_is_open: bool = True
    ignores_with_version: bool = True
    counts_what_is_done: bool = True
    ends_with_its_term: bool = True
    takes_all: bool = True
    waits_for_majority: bool = True
    copies_metadata: bool = True
    copies_what_is_later: bool = True
    ignores_what_is_deleted: bool = True
    takes_before_it_fetches: bool = True


class Reading(NamedTuple):
    """A follower's read of its leader's metadata and the steps still pending; `content` is None before the read."""

    of: tuple[int, int]  # the leader, and its term
    first: Version
    last: Version = NONE
    topics: frozenset[TopicPartition] | None = None
    setting: int = 0
    has_begun: bool = False


class MetaNode(Node):
    """A node with topics of one partition, whose names are never used again."""

    def __init__(self, number: int) -> None:
        self.setting = self.kept_setting = 0
        self.versions = unknown(0)
        self.changes = self.kept = 0  # of a leader, in memory and on disk
        self.is_exact = True
        """Whether what it has is what some leader had at one version."""
        super().__init__(number, 0)

    def restart(self) -> None:
        """Restart the node; its disk survives."""
        super().restart()
        self.reading: Reading | None = None
        self.pending: list[tuple[int, str, Any]] = []  # unreplicated changes
        self.setting = self.kept_setting
        if self.changes != self.kept:
            self.is_exact = False
        self.changes = self.kept


class MetadataModel(Model):
    """The set, with the steps that its metadata can take."""

    nodes: dict[int, MetaNode]  # type: ignore[assignment]

    def __init__(self, seed: int, rules: MetadataRules, count: int = 3, records: Rules | None = None) -> None:
        super().__init__(seed, records or Rules(), count)
        self.meta = rules
        self.nodes = {one: MetaNode(one) for one in self.replicas.ids}  # type: ignore[assignment]
        self.keys = ()
        self.answered: list[tuple[str, Any, int]] = []  # what was answered: kind, what, in which term
        self.deletes: set[TopicPartition] = set()  # asked for, by whomever
        self.answers = self.metadata_copied = self.stuck_apart = 0

    def run(self, steps: int) -> None:
        """So many steps; Lost."""
        kinds = {
            self.append: 4, self.fetch: 30, self.tell: 6, self.stop: 2, self.drop_late: 1, self.stand: 0.3, self.ask: 1,
            self.count: 1, self.elect: 1, self.promote: 1, self.create: 2, self.delete: 1, self.alter: 1,
            self.save_changes: 6,
            self.read: 40, self.apply: 40, self.answer_clients: 8,
        }  # fmt: skip
        weights = [self.random.choice((0.3, 1, 3)) * weight for weight in kinds.values()]
        for step in self.random.choices(list(kinds), weights, k=steps):
            self.now_ms += 1
            step()

    def random_key(self) -> TopicPartition:
        return self.random.choice(self.keys) if self.keys else TopicPartition("none", 0)

    def leaders(self) -> list[MetaNode]:
        return [one for one in self.alive() if one.leads]  # type: ignore[misc]

    # Changes

    def create(self) -> None:
        """A leader makes a topic; one that is deposed and does not know it as well."""
        for leader in self.leaders():
            key = TopicPartition(f"t{len(self.keys)}", 0)
            self.keys = (*self.keys, key)
            part = leader.parts[key] = Part()
            self.begin(leader, part)
            self.changed(leader, "create", key)

    def delete(self) -> None:
        """A leader deletes one."""
        for leader in self.leaders():
            if leader.parts:
                key = self.random.choice(list(leader.parts))
                del leader.parts[key]
                self.deletes.add(key)
                self.changed(leader, "delete", key)

    def alter(self) -> None:
        """A leader changes the setting, which is on disk when it is counted."""
        for leader in self.leaders():
            self.written += 1
            leader.setting = self.written
            if self.meta.counts_what_is_done:
                leader.kept_setting = leader.setting
            self.changed(leader, "alter", leader.setting)

    def changed(self, leader: MetaNode, kind: str, what: Any) -> None:
        leader.changes += 1
        leader.is_exact = False
        leader.pending.append((leader.changes, kind, what))

    def stop(self) -> None:
        """A node that starts again leads in no term that it led in."""
        super().stop()
        self.ballots = [one for one in self.ballots if one[0].candidate not in self.down]

    def save_changes(self) -> None:
        """A leader's count comes to the disk."""
        for leader in self.leaders():
            leader.kept = leader.changes
            leader.versions = leader.versions._replace(complete=(leader.state.term, leader.kept))
            if not self.meta.leaders_begun_is_open:
                leader.versions = leader.versions._replace(begun=leader.versions.complete)
            leader.is_exact = True

    def answer_clients(self) -> None:
        """A leader answers for all that a majority has."""
        for leader in self.leaders():
            term = leader.state.term
            have = [(term, leader.kept)]
            for other in self.alive():
                if other is not leader and self.follows(other, leader):  # type: ignore[arg-type]
                    complete = other.versions.complete  # type: ignore[attr-defined]
                    have.append(complete if complete[0] == term else NONE)
            needed = len(self.replicas) // 2 + 1 if self.meta.waits_for_majority else 1
            if len(have) < needed:
                continue
            reached = sorted(have, reverse=True)[needed - 1]
            for number, kind, what in list(leader.pending):
                if (term, number) <= reached:
                    leader.pending.remove((number, kind, what))
                    self.answered.append((kind, what, term))
                    self.answers += 1
                    self.story.append(f"{leader.number} answers {kind} {what} in {term}")

    def follows(self, node: MetaNode, leader: MetaNode) -> bool:
        """Return True if the node reports its state to this leader, also after a vote (an answer in flight)."""
        return not node.leads and node.state.term >= leader.state.term

    # Following

    def read(self) -> None:
        """A follower reads the version, then what there is, then the version again."""
        node: Any = self.random.choice(self.alive() or [None])  # type: ignore[list-item]
        if node is None or node.leads or node.state.leader in (NO_NODE, node.number):
            return
        of = (node.state.leader, node.state.term)
        leader = self.nodes[of[0]]
        if leader.number in self.down or not leader.leads or leader.state.term != of[1]:
            return
        reading = node.reading
        if reading is None or reading.of != of or (reading.has_begun and self.random.random() < 0.5):
            if node.versions.complete != (of[1], leader.kept) or self.random.random() < 0.1:
                node.reading = Reading(of, (of[1], leader.kept))
        elif reading.topics is None:
            node.reading = reading._replace(topics=frozenset(leader.parts), setting=leader.setting)
        elif reading.last == NONE:
            last = (of[1], leader.changes) if self.meta.reads_version_last else reading.first
            first = reading.first if self.meta.reads_version_first else (of[1], leader.kept)
            node.reading = reading._replace(last=last, first=first)

    def apply(self) -> None:
        """A follower does one thing of what it read."""
        node: Any = self.random.choice(self.alive() or [None])  # type: ignore[list-item]
        reading = None if node is None else node.reading
        if reading is None or reading.topics is None or reading.last == NONE or node.leads:
            return
        if reading.of != (node.state.leader, node.state.term) and self.meta.ends_with_its_term:
            node.reading = None
        elif not reading.has_begun:
            if self.meta.keeps_begun:
                node.versions = node.versions._replace(begun=max(reading.last, node.versions.begun))
            node.is_exact, node.reading = False, reading._replace(has_begun=True)
        else:
            self.applied(node, reading)

    def applied(self, node: MetaNode, reading: Reading) -> None:
        assert reading.topics is not None
        gone, new = node.parts.keys() - reading.topics, reading.topics - node.parts.keys()
        if gone:
            del node.parts[min(gone)]
        elif new:
            node.parts[min(new)] = Part()
        else:
            if self.meta.takes_all or self.random.random() < 0.5:
                node.setting = node.kept_setting = reading.setting
            begun = node.versions.begun if self.meta.keeps_begun else reading.first
            node.versions = Versions(begun, reading.first)
            node.is_exact, node.reading = reading.first == reading.last, None

    def answer(self, leader: Node, node: Node, key: TopicPartition) -> None:
        """A follower fetches once it has the leader's metadata, unless it cannot have it."""
        assert isinstance(node, MetaNode)
        if node.versions.complete[0] < leader.state.term and self.meta.takes_before_it_fetches:
            if self.random.random() < 0.9:
                return
            node.is_exact = False
        super().answer(leader, node, key)

    # Votes

    def ballot(self, node: Node, term: int) -> Ballot:
        assert isinstance(node, MetaNode)
        ids = {key.topic: UUID(int=int(key.topic[1:]) + 1) for key in node.parts}
        return Ballot(term, node.number, node.positions, node.versions.complete, ids)

    def voter_state(self, voter: Node) -> VoterState:
        assert isinstance(voter, MetaNode)
        begun, complete = voter.versions
        if voter.leads:
            complete = (voter.state.term, voter.changes)
        if not self.meta.compares_versions:
            complete = NONE
        if not self.meta.ignores_with_version:
            begun = NONE
        if not self.meta.ignores_what_is_deleted:
            begun = (MAX_LONG, 0)
        ids = {key.topic: UUID(int=int(key.topic[1:]) + 1) for key in voter.parts}
        return VoterState(voter.positions, Versions(begun, complete), ids)

    def copy(self, node: Node, voter: Node, steps: int) -> None:
        """Copy what a voter has in addition: the metadata whole or up to some step, then records."""
        assert isinstance(node, MetaNode) and isinstance(voter, MetaNode)
        if node.leads or voter.leads or node is voter:
            return
        ahead = ahead_of_candidate(self.ballot(node, 0), self.voter_state(voter))
        given_up = [part.position for key, part in node.parts.items() if key not in voter.parts]
        is_later = may_copy_metadata(node.versions, voter.versions, given_up) or not self.meta.copies_what_is_later
        if METADATA in ahead and self.meta.copies_metadata and is_later and self.meta.compares_versions:
            self.metadata_copied += 1
            node.reading, node.is_exact = None, False
            node.versions = node.versions._replace(begun=max(voter.versions.begun, node.versions.begun))
            for key in sorted(node.parts.keys() ^ voter.parts.keys())[:steps]:
                if key in voter.parts:
                    node.parts[key] = Part()
                else:
                    del node.parts[key]
            if node.parts.keys() != voter.parts.keys():
                return
            node.setting = node.kept_setting = voter.setting
            node.versions, node.is_exact = voter.versions, voter.is_exact
        for key, position in ahead_of_candidate(self.ballot(node, 0), self.voter_state(voter)).items():
            for _ in range(steps):
                if key not in node.parts or node.parts[key].position >= position:
                    break
                if self.compared(voter.parts[key], node.parts[key], position[0]) is not None:
                    self.append_some(voter.parts[key], node.parts[key])

    def fail_promotion(self, node: Node) -> None:
        """A promotion may find no candidate while one node's metadata lies between two versions."""
        if all(one.is_exact for one in self.alive()):  # type: ignore[attr-defined]
            super().fail_promotion(node)
        self.stuck_apart += 1

    def compared_keys(self) -> list[TopicPartition]:
        """Return the partitions to compare, without those whose unreplicated delete left records."""
        return [key for key in self.keys if key not in self.deletes]

    def count_votes(self, ballot: Ballot, votes: set[int]) -> None:
        """As with records; what was answered for is looked for."""
        node = self.nodes[ballot.candidate]
        did_lead = node.leads
        super().count_votes(ballot, votes)
        if did_lead or not node.leads:
            return
        self.story.append(f"{node.number} has {sorted(node.parts)}, {node.setting}, {node.versions}")
        for kind, what, term in self.answered:
            if term < ballot.term:
                self.check(node, kind, what)
        node.reading, node.pending = None, []
        node.versions = Versions((ballot.term, MAX_LONG), (ballot.term, 0))
        if not self.meta.leaders_begun_is_open:
            node.versions = Versions((ballot.term, 0), (ballot.term, 0))
        node.changes = node.kept = 0
        node.is_exact = True

    def check(self, node: MetaNode, kind: str, what: Any) -> None:
        is_lost = {
            "create": lambda: what not in node.parts and what not in self.deletes,
            "delete": lambda: what in node.parts,
            "alter": lambda: node.setting < what,
        }[kind]()
        if is_lost:
            raise Lost(f"{kind} {what} was answered: {self.story}")


def metadata_losses(rules: MetadataRules, seeds: range, *, steps: int = 300, count: int = 3) -> dict[str, int]:
    """Return the number of seeds that lost something, and the totals."""
    found = dict.fromkeys(("lost", "elections", "answers", "promotions", "copied", "apart", "acknowledged"), 0)
    for seed in seeds:
        model = MetadataModel(seed, rules, count)
        try:
            model.run(steps)
        except Lost:
            found["lost"] += 1
        found["elections"] += model.elections
        found["answers"] += model.answers
        found["promotions"] += model.promotions
        found["copied"] += model.metadata_copied
        found["apart"] += model.stuck_apart
        found["acknowledged"] += len(model.acknowledged)
    return found
