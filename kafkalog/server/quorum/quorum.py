"""A node in its replica set: its term, its votes, and whether it leads.

The event loop owns everything here. A change takes effect in memory first, so that a leader that steps down accepts no
more writes. It is on disk before the node reports it.
"""

from __future__ import annotations

import asyncio
import logging
import sys
from collections.abc import Awaitable, Callable, Coroutine, Mapping
from typing import TYPE_CHECKING, Final

from kafkalog.errors import KafkalogError
from kafkalog.server.quorum import messages
from kafkalog.server.quorum.cluster_id import ClusterId
from kafkalog.server.quorum.decisions import (
    Ballot,
    Positions,
    Vote,
    VoterState,
    after_report,
    decide_vote,
    first_term,
    may_resume,
    next_term,
    position_of,
)
from kafkalog.server.quorum.errors import ElectionFailed
from kafkalog.server.quorum.file import NO_NODE, QuorumFile, QuorumState
from kafkalog.server.quorum.handover import HOLD_SECONDS, TIMEOUT, HandOver, NotCaughtUp
from kafkalog.server.quorum.known_nodes import KnownNodes
from kafkalog.server.quorum.log_copy_grant import LogCopyGrant
from kafkalog.server.quorum.metadata_version import MetadataVersion
from kafkalog.server.quorum.poll import ASK_SECONDS, LastEpochs, NoPeers, Peers, Poll
from kafkalog.server.quorum.replica_set import ReplicaSet, check_member, parse_replicas
from kafkalog.server.quorum.state_file import StateFiles
from kafkalog.server.quorum.version_file import NONE, VersionFile
from kafkalog.server.quorum.watch import watch
from kafkalog.server.replica.roles import Role, majority_of
from kafkalog.types import TopicPartition

if TYPE_CHECKING:
    from kafkalog.server.node.node import Node

_LOG: Final = logging.getLogger(__name__)
REGAIN_SECONDS: Final = ASK_SECONDS + 1
"""Wait of a leader that stepped down before it asks for votes: longer than `ASK_SECONDS`, the limit for an answer."""
RESUME_SECONDS: Final = 0.5
"""Interval at which a restarted leader asks the others for the current leader."""


class Quorum:
    """A node's view of its replica set. `replica_set` is None for a node that is alone, which always leads.

    `on_change` callbacks are called on the loop when the term or the leader changes, or this node starts or stops
    leading.
    """

    def __init__(
        self, node: Node, replicas: ReplicaSet | None, peers: Peers | None = None, forwards: Peers | None = None
    ) -> None:
        self.replica_set = replicas
        self.peers: Peers = NoPeers() if peers is None else peers
        self.forwards: Peers = NoPeers() if forwards is None else forwards
        """Connections for clients' requests, which may wait longer than the set's own."""
        self.nodes = KnownNodes()
        self.state = self._stored = QuorumState(0)
        self.leads = replicas is None
        self.alive: tuple[int, ...] = (node.node_id,)
        """Nodes that voted for this one when it became the leader: the first in-sync replicas."""
        self.poll = Poll(node, self)
        self.metadata = MetadataVersion(node, self)
        self.leaders_changes = -1
        """Number of changes of topics and settings by the leader in its term; -1 while unknown."""
        self.news = asyncio.Event()
        """Set to ask the leader immediately for changes."""
        self.on_leaders_change: Callable[[], object] = lambda: None
        self.before_taking_over: list[Callable[[], Awaitable[object]]] = []
        """Awaited while the old leader waits. On return, this node has the leader's topics and settings."""
        self.copy_ahead: Callable[[int, LastEpochs], Awaitable[object]] = _no_copy
        """Copies from a voter the partitions that it has more of, given with their last epochs there.

        KafkalogError or OSError if the copy fails.
        """
        self.copy_grant = LogCopyGrant(node)
        self.handover = HandOver(node)
        self.cluster = ClusterId(node)
        self.is_handing_over = False
        """True while this node leads but changes nothing, because another node is about to lead."""
        self._node = node
        self._file: StateFiles[QuorumState] | None = None
        self._listeners: list[Callable[[], object]] = []
        self._changing = asyncio.Lock()
        self._electing = asyncio.Lock()
        self._tasks: set[asyncio.Task[object]] = set()

    # Start and stop

    async def start(self) -> None:
        """Read the stored state. A former leader asks the others if it may continue.

        CorruptCheckpoint, StorageError.
        """
        if self.replica_set is None:
            return
        store = self._node.store

        def directories() -> list[str]:
            return [one.path for one in store.online]

        self._file = StateFiles(QuorumFile, directories, fs=store.fs)
        stored = await self._node.run(self._file.load)
        last = first_term(log.state.leader_epoch for log in store.logs.values())
        self.state = self._stored = QuorumState(last) if stored is None else stored
        await self.metadata.start(VersionFile(directories()[0], fs=store.fs), self.state.term)
        self._node.topics.on_change(lambda *_: self.metadata.changed())
        self._node.credentials.file.on_change = self.metadata.changed
        self._node.dynamic.on_change = self.metadata.changed
        self._node.features.on_change = self.metadata.changed
        self._node.topics.first_epoch = lambda: self.state.term if self.leads else 0
        self.handover.start()
        if self.state.leader == self._node.node_id or len(self.replica_set) == 1:
            self.later(self._resume())
        self.later(watch(self, self._node.node_id))

    async def stop(self) -> None:
        """Stop all tasks in progress, without notifying the other nodes."""
        await self.handover.stop()
        await self.copy_grant.stop()
        if self.replica_set is not None:
            await self.metadata.stop()
        for task in tuple(self._tasks):
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        await self.peers.close()
        await self.forwards.close()

    def on_change(self, callback: Callable[[], object]) -> None:
        """Call `callback` after each change."""
        self._listeners.append(callback)

    def others(self, node_id: int) -> tuple[int, ...]:
        """Return all nodes of the set except this one."""
        return self.own_set.others(node_id)

    def take_leaders_changes(self, changes: int) -> None:
        """Record the leader's number of changes, and call `on_leaders_change` if it is new."""
        if changes != self.leaders_changes:
            self.leaders_changes = changes
            self.on_leaders_change()

    async def notify(self, other: int) -> None:
        """Notify another node that this one leads, so that it asks for changes at once."""
        await self.poll.notify(other, self.state)

    def later(self, work: Coroutine[object, None, object]) -> None:
        """Run `work` in the background while the node runs."""
        task = asyncio.get_running_loop().create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    # Requests from other nodes

    async def vote(self, ballot: Ballot, *, is_pre_vote: bool = False) -> Vote:
        """Decide on a ballot and return the vote, which is on disk by then. StorageError.

        With `is_pre_vote` nothing changes: the answer is what the vote would be. The candidate may then copy what this
        node is `ahead` with.
        """
        async with self._changing:
            vote = self._decide(ballot, "pre-vote" if is_pre_vote else "vote")
            may_copy = False
            if vote.ahead and is_pre_vote and not self.leads and not self._electing.locked():
                may_copy = await self.copy_grant.begin(ballot.candidate)
                vote = self._decide(ballot, "pre-vote after granting a copy")
            elif vote.is_granted:
                self.copy_grant.end()
            if vote.is_granted and not is_pre_vote:
                # compare after this node has stopped following: everything that it reported to a leader counts
                async with self._node.following.held():
                    # nothing runs between the comparison and stepping down: a leader's later appends are not
                    # acknowledged
                    vote = self._decide(ballot, "vote")
                    if vote.is_granted:
                        _LOG.info("voted for node %d in term %d", ballot.candidate, ballot.term)
                        await self._adopt(vote.state)
            return Vote(vote.is_granted, self.state, vote.reason, vote.ahead if may_copy else {})

    def _decide(self, ballot: Ballot, request: str) -> Vote:
        mine = VoterState(self.positions(), self.metadata.versions, self.cluster.topic_ids())
        vote = decide_vote(self.state, ballot, mine, self.own_set)
        if vote.is_granted and not self.leads and (offline := self._offline_log()) is not None:
            vote = Vote(False, self.state, f"{offline} is offline here, and may have records that the candidate lacks")
        if vote.reason:
            _LOG.info("refused node %d a %s for term %d: %s", ballot.candidate, request, ballot.term, vote.reason)
        return vote

    def _offline_log(self) -> TopicPartition | None:
        """Return a partition of a topic here whose log cannot be compared, or None.

        A leader may still hand over: its records were in the in-sync replicas while its disk worked.
        """
        logs = self._node.store.logs
        keys = (TopicPartition(one.name, at) for one in self._node.topics.each() for at in range(one.partitions))
        return next((key for key in keys if key not in logs), None)

    async def learn_leader(self, term: int, leader: int) -> QuorumState:
        """Apply a report that `leader` leads in `term` and return the state. StorageError.

        A leader steps down for a later term.
        """
        async with self._changing:
            await self._adopt(after_report(self.state, term, leader, self.own_set))
            return self.state

    def role(self) -> Role:
        """Return the role of all partitions.

        A follower knows only that the leader is in sync, until the leader reports the ISR (`Partition.learn_in_sync`).
        """
        state, ids = self.state, self.own_set.ids
        if self.leads:
            return Role(self._node.node_id, state.term, 0, ids, self.alive)
        leader = NO_NODE if state.leader == self._node.node_id else state.leader  # not confirmed as leader yet
        return Role(leader, state.term, 0, ids, () if leader == NO_NODE else (leader,))

    @property
    def leader(self) -> int:
        """Node that leads, as far as it is known; -1: none."""
        return self._node.node_id if self.replica_set is None else self.role().leader

    def positions(self) -> Positions:
        """Return the position of each log."""
        logs = self._node.store.logs
        return {key: position_of(log.state.leader_epoch, log.log_end_offset) for key, log in logs.items()}

    def ballot(self, term: int) -> Ballot:
        """Return this node's ballot as a candidate.

        With an offline disk the ballot has no version, since deletions cannot be known then.
        """
        is_whole = not any(True for _ in self._node.store.offline)
        version = self.metadata.versions.complete if is_whole else NONE
        return Ballot(term, self._node.node_id, self.positions(), version, self.cluster.topic_ids())

    # Leading

    async def promote(self, *, is_forced: bool = False, yields: bool = False) -> None:
        """Make this node the leader. A leader that answers first hands over to it. ElectionFailed, StorageError.

        With `is_forced`, neither a handover nor votes are needed. With `yields` it follows a leader that answers.
        """
        async with self._electing:
            if not self.leads:
                await self._elect(is_forced, yields)

    async def _elect(self, is_forced: bool, yields: bool) -> None:
        me = self._node.node_id
        known = (self.state.term, self.state.leader)
        reports = await (self.poll.leaders() if is_forced else self.poll.leaders_with(known))
        for term, leader in () if is_forced else reports.values():
            await self.learn_leader(term, leader)
        if yields and self.state.leader not in (NO_NODE, me):
            return
        term = next_term(max([self.state.term, *(one[0] for one in reports.values())]), me, self.own_set)
        needed: tuple[int, ...] = ()  # a leader that handed over steps down by its vote, or not at all
        if not is_forced:
            needed = await self._request_handover(reports)
        before = self.state
        async with self._node.following.held():  # another leader's records must not follow the start of the term
            if not is_forced:
                would = await self._would_vote(term)
                if not self.own_set.is_majority(would) or not would.issuperset(needed):
                    raise self._failed(would, "would vote")
            mine = QuorumState(term, NO_NODE, me)
            async with self._changing:
                # a node that leads since the reports has handed nothing over, and a later term would end it
                if term <= self.state.term or not (is_forced or self.state == before):
                    raise ElectionFailed(f"term {self.state.term} began meanwhile", hint="try again")
                await self._adopt(mine)
            votes, _ = await self.poll.votes(self.ballot(term), is_pre_vote=False)
            async with self._changing:
                if self.state != mine:
                    raise ElectionFailed(f"term {self.state.term} began meanwhile")
                if not (is_forced or self.own_set.is_majority(votes)) or not votes.issuperset(needed):
                    raise self._failed(votes, "voted")
                await self._lead(QuorumState(term, me, me), tuple(sorted(votes)))
        for other in self.own_set.others(me):
            self.later(self.notify(other))

    async def lead_uncontested(self) -> None:
        """Lead in the next term without votes. StorageError.

        Only for a test that restores all nodes together: the others open with this node as their leader.
        """
        me = self._node.node_id
        async with self._electing, self._changing:
            term = next_term(self.state.term, me, self.own_set)
            await self._lead(QuorumState(term, me, me), self.own_set.ids)

    async def _lead(self, state: QuorumState, alive: tuple[int, ...]) -> None:
        _LOG.info("this node leads in term %d, with %s", state.term, ", ".join(map(str, alive)))
        assert self._file is not None
        await self.cluster.lead()
        await self.metadata.lead(state.term)
        await self._node.run(self._file.write, state)
        self._stored = state
        await self._node.run(self._begin_epochs, state.term)
        self.state, self.alive, self.leads = state, alive, True
        self._notify_listeners()

    def _begin_epochs(self, term: int) -> None:
        """Begin the term at the end of each log, which puts the log ahead of one that ends there in an earlier term."""
        for key, log in tuple(self._node.store.logs.items()):
            try:
                log.begin_epoch(term)
            except KafkalogError as error:
                _LOG.error("cannot begin epoch %d of %s: %s", term, key, error)

    async def _resume(self) -> None:
        while not self.leads:
            answers = await self.poll.leaders()
            is_one = len(self.own_set) == 1
            try:
                for term, leader in answers.values():
                    await self.learn_leader(term, leader)
                if not is_one and self.state.leader == NO_NODE:
                    return await self.regain(REGAIN_SECONDS)
                if not is_one and self.state.leader != self._node.node_id:
                    return
                if is_one or may_resume(self.state, self._node.node_id, answers, self.own_set):
                    await self.promote(yields=True)
                    return
            except (KafkalogError, OSError) as error:
                _LOG.warning("this node led before its restart but cannot lead again: %s", error)
            await asyncio.sleep(RESUME_SECONDS)

    async def regain(self, interval_s: float, tries: int = sys.maxsize) -> None:
        """After stepping down, ask for votes again until a leader is known, but not in the interval after another did.

        Its candidate may be about to lead. A later term would make it step down before it has handed over.
        """
        term = self.state.term
        for _ in range(tries):
            await asyncio.sleep(interval_s)
            if self.leads or self.state.leader != NO_NODE:
                return
            seen, term = term, self.state.term
            if term != seen:
                continue
            try:
                await self.promote(yields=True)  # a leader's news may only be late
            except (KafkalogError, OSError) as error:
                _LOG.warning("no node has led since this node stepped down, and it cannot lead again: %s", error)

    async def _adopt(self, state: QuorumState) -> None:
        """Adopt and store a state in which this node does not lead; one whose write has failed is written again."""
        if state != self.state:
            if self.leads:
                _LOG.warning("this node stopped leading: term %d, leader %d", state.term, state.leader)
                self.later(self.regain(REGAIN_SECONDS))
                self.metadata.resign()
            self.state, self.leads, self.leaders_changes = state, False, -1
            self.copy_grant.end()
            self._notify_listeners()
        if state != self._stored:
            assert self._file is not None
            await self._node.run(self._file.write, state)
            self._stored = state

    def _notify_listeners(self) -> None:
        for callback in self._listeners:
            callback()

    @property
    def own_set(self) -> ReplicaSet:
        """The replica set of this node, which is in one."""
        assert self.replica_set is not None, "this node is not in a replica set"
        return self.replica_set

    async def is_confirmed(self) -> bool:
        """Return True if a majority confirms now that this node leads in its term.

        A leader that was suspended may not know that another node has led since. A node that is alone always leads.
        """
        if self.replica_set is None:
            return True
        mine = (self.state.term, self._node.node_id)
        is_agreed = await self.poll.is_agreed_by(mine, majority_of(len(self.own_set)))
        return is_agreed and self.leads and self.state.term == mine[0]

    # Requests to other nodes

    async def _request_handover(self, reports: Mapping[int, tuple[int, int]]) -> tuple[int, ...]:
        """Ask the current leader to hand over and return it in a tuple, or () if no leader answers. ElectionFailed.

        A leader that handed over waits for the vote.
        """
        leaders = [(term, other) for other, (term, leader) in reports.items() if leader == other]
        if not leaders:
            return ()
        term, leader = max(leaders)
        await self.learn_leader(term, leader)
        me, within_s = self._node.node_id, self._node.config[TIMEOUT] / 1000 + HOLD_SECONDS + ASK_SECONDS
        request = messages.end_request(term, leader, me, self._node.cluster_id)
        try:
            answer = await self.poll.ask(leader, messages.END_QUORUM_EPOCH, request, within_s)
        except (KafkalogError, OSError, TimeoutError) as error:
            _LOG.warning("node %d did not hand over: %s", leader, error or type(error).__name__)
            if await self._still_leads(leader, term):
                raise ElectionFailed(f"node {leader} leads, but did not hand over in time", hint="try again") from None
            return ()
        if int(answer.error_code) == NotCaughtUp.code:
            raise ElectionFailed(
                f"node {leader} stays the leader: node {me} did not have all of its records in time",
                hint=f"try again once it has, or with a larger {TIMEOUT}; --force discards the records it lacks",
            )
        if answer.error_code:
            raise ElectionFailed(f"node {leader} does not hand over: error {int(answer.error_code)}", hint="try again")
        try:
            for step in self.before_taking_over:
                await step()
        except (KafkalogError, OSError, TimeoutError) as error:
            raise ElectionFailed(f"cannot get the topics of node {leader}: {error}", hint="try again") from None
        return (leader,)

    async def _still_leads(self, leader: int, term: int) -> bool:
        """Ask a leader on another connection than that on which its answer is late."""
        try:
            async with asyncio.timeout(ASK_SECONDS):
                answer = await self.forwards.ask(leader, messages.DESCRIBE_QUORUM, messages.describe_request())
            return messages.read_described(answer) == (term, leader)
        except (KafkalogError, OSError, TimeoutError, ValueError, AttributeError):
            return False

    async def _would_vote(self, term: int) -> set[int]:
        """Return the nodes that would vote for this one, after copying what other nodes have more of.

        It copies from one node at a time, since each comparison applies to the logs as they are then.
        """
        left, within_s = set(self.own_set.ids), self._node.config[TIMEOUT] / 1000
        while True:
            would, ahead = await self.poll.votes(self.ballot(term), is_pre_vote=True)
            voters = left & ahead.keys()
            if self.own_set.is_majority(would) or not voters:
                return would
            voter = min(voters)
            left.discard(voter)
            _LOG.info("node %d is ahead in %d partitions: copying them first", voter, len(ahead[voter]))
            try:
                async with asyncio.timeout(within_s):
                    await self.copy_ahead(voter, ahead[voter])
            except (KafkalogError, OSError, TimeoutError, ValueError) as error:
                _LOG.warning("cannot copy the missing records from node %d: %s", voter, error or type(error).__name__)

    def _failed(self, votes: set[int], verb: str) -> ElectionFailed:
        others = ", ".join(str(one) for one in self.own_set.ids if one not in votes)
        return ElectionFailed(
            f"{len(votes)} of {len(self.own_set)} nodes {verb} for node {self._node.node_id}; a majority is needed",
            hint=f"see the logs of {others}; a node that is ahead can be promoted instead",
        )


async def _no_copy(voter: int, ahead: object) -> None:
    raise ConnectionRefusedError(f"no connection to copy from node {voter}")


def make(node: Node) -> Quorum:
    """Return the quorum of a node that has `store` and `topics`. ConfigError if the node is not in its set."""
    replicas = parse_replicas(node.config["kafkalog.replicas"])
    if replicas is not None:
        from kafkalog.server.quorum.links import PeerLinks, settings_of  # not needed by a node that is alone

        check_member(replicas, node.node_id)
        settings = settings_of(node.config)
        return Quorum(node, replicas, PeerLinks(replicas, settings), PeerLinks(replicas, settings))
    return Quorum(node, None)
