"""A leader hands over to the node that an operator chose, or leads on."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from kafkalog.errors import NotLeaderOrFollower
from kafkalog.server.error_codes import ErrorCode
from kafkalog.server.quorum import handover
from kafkalog.server.quorum.decisions import next_term
from kafkalog.server.quorum.errors import ElectionFailed, NotController
from kafkalog.server.quorum.file import NO_NODE, QuorumState
from kafkalog.server.quorum.handover import NotCaughtUp
from kafkalog.server.quorum.messages import END_QUORUM_EPOCH, VOTE, end_request
from kafkalog.server.quorum.poll import Poll
from kafkalog.server.settings.kinds import GROUP
from kafkalog.types import TopicPartition
from tests.server.looping import in_loop
from tests.server.nodes import call
from tests.server.quorum.sets import T0, Peers, Set, fetch, set_of, wait_until
from tests.server.quorum.test_leading import append, with_topic
from tests.server.replica.partitions import make_batch


@pytest.fixture
def soon_over(monkeypatch: pytest.MonkeyPatch) -> None:
    """A leader holds appends for a moment only where its successor does nothing."""
    monkeypatch.setattr(handover, "HOLD_SECONDS", 0.3)


@pytest.fixture
def never_over(monkeypatch: pytest.MonkeyPatch) -> None:
    """A leader holds appends until its successor, or the test, ends that."""
    monkeypatch.setattr(handover, "HOLD_SECONDS", 3600)


async def with_leader(nodes: Set) -> int:
    """Node 1 leads, with one record; its term."""
    await with_topic(nodes, 1, 2, 3)
    await nodes.promote(1)
    await append(nodes[1])
    await wait_until(lambda: nodes.quorum(2).leader == nodes.quorum(3).leader == 1)
    return nodes.quorum(1).state.term


async def asked(nodes: Set, term: int, successor: int = 2, leader: int = 1) -> int:
    """The error code of the question whether node 1 hands over."""
    request = end_request(term, leader, successor, nodes[1].cluster_id)
    answer = await call(nodes[1], "end_quorum_epoch", 1, request)
    return int(answer.error_code)


@pytest.mark.usefixtures("never_over")
@in_loop
async def test_appends_wait_for_the_one_who_leads_next(tmp_path: Path) -> None:
    """FLOW-4: they get the error that this node does not lead."""
    async with set_of(tmp_path) as nodes:
        term = await with_leader(nodes)
        await fetch(nodes[1], 2, 1, current_leader_epoch=term)
        assert await asked(nodes, term) == 0
        waiting = asyncio.ensure_future(append(nodes[1]))
        with pytest.raises(NotLeaderOrFollower, match="is handing over"):
            nodes[1].replicas.append_now(T0, make_batch())
        create = {"topics": [], "timeout": 1000, "validate_only": False}
        assert (await call(nodes[1], "create_topics", 7, create)).topics == ()
        assert nodes[1].leaders_calls and not waiting.done()
        await nodes.quorum(1).learn_leader(next_term(term, 2, nodes.quorum(1).own_set), 2)
        assert (await waiting).error_code == ErrorCode.NOT_LEADER_OR_FOLLOWER


@pytest.mark.usefixtures("never_over")
@in_loop
async def test_no_topic_setting_or_user_changes_while_another_node_is_about_to_lead(tmp_path: Path) -> None:
    """The successor has copied all of them already."""
    async with set_of(tmp_path) as nodes:
        term = await with_leader(nodes)
        await fetch(nodes[1], 2, 1, current_leader_epoch=term)
        assert await asked(nodes, term) == 0
        node = nodes[1]
        before = node.topics.get("t")
        for change in (
            node.topics.create("new", 1), node.topics.add_partitions("t", 9), node.topics.delete("t"),
            node.topics.alter("t", {"retention.ms": "5"}), node.dynamic.change("", {"log.retention.ms": "5"}),
            node.dynamic.change_kept(GROUP, "g", {"consumer.session.timeout.ms": "50000"}),
            node.credentials.file.change(node.run, lambda state: state),
        ):  # fmt: skip
            with pytest.raises(NotController, match="another node is about to lead the replica set"):
                await change
        assert (node.topics.get("t"), node.topics.get("new")) == (before, None)
        assert node.topics.settings("t").overrides() == {}
        assert node.dynamic.of_group("g") == {}


@pytest.mark.usefixtures("soon_over")
@in_loop
async def test_a_leader_whose_successor_does_not_ask_for_votes_leads_on(tmp_path: Path) -> None:
    async with set_of(tmp_path) as nodes:
        term = await with_leader(nodes)
        await fetch(nodes[1], 2, 1, current_leader_epoch=term)
        assert await asked(nodes, term) == 0
        assert (await append(nodes[1])).error_code == 0  # it waited
        assert nodes.quorum(1).leads and nodes.quorum(1).state.term == term
        assert not nodes[1].leaders_calls


@in_loop
async def test_a_successor_that_fetches_no_more_leads_not_and_nothing_has_changed(tmp_path: Path) -> None:
    async with set_of(tmp_path, kafkalog_handover_timeout_ms=100) as nodes:
        term = await with_leader(nodes)
        assert await asked(nodes, term) == NotCaughtUp.code
        assert await asked(nodes, term - 1) == ErrorCode.FENCED_LEADER_EPOCH
        assert await asked(nodes, term, successor=1) == ErrorCode.FENCED_LEADER_EPOCH
        assert await asked(nodes, term, successor=9) == ErrorCode.FENCED_LEADER_EPOCH
        assert await asked(nodes, term, leader=3) == ErrorCode.FENCED_LEADER_EPOCH
        assert (await append(nodes[1])).error_code == 0
        assert nodes.quorum(1).state.term == term and nodes.quorum(1).leads


class WithoutVotes(Peers):
    """The way of a node that gets no answer to what is no pre-vote."""

    async def ask(self, node_id: int, api_key: int, request: Mapping[str, Any]) -> Any:
        answer = await super().ask(node_id, api_key, request)
        if api_key == VOTE and not request["topics"][0]["partitions"][0]["pre_vote"]:
            raise ConnectionResetError("the answer is lost")
        return answer


@pytest.mark.usefixtures("soon_over")
@in_loop
async def test_a_leader_that_stepped_down_for_nobody_takes_a_new_term(tmp_path: Path) -> None:
    async with set_of(tmp_path) as nodes:
        await with_topic(nodes, 1, 2, 3)
        await nodes.promote(1)
        await wait_until(lambda: nodes.quorum(2).leader == nodes.quorum(3).leader == 1)
        term = nodes.quorum(1).state.term
        nodes.quorum(2).peers = WithoutVotes(nodes, 2)
        with pytest.raises(ElectionFailed, match="1 of 3 nodes voted for node 2"):
            await nodes.quorum(2).promote()
        assert not nodes.quorum(1).leads  # its vote was given
        await wait_until(lambda: bool(nodes.quorum(1).leads))
        assert nodes.quorum(1).state.term > term + 1
        assert (await append(nodes[1])).error_code == 0


@in_loop
async def test_who_stepped_down_and_has_not_heard_yet_of_the_next_leader_leaves_it_the_lead(tmp_path: Path) -> None:
    async with set_of(tmp_path) as nodes:
        nodes.cut.add(3)
        await nodes.promote(1)
        nodes.cut.clear()
        assert nodes.quorum(3).leader == NO_NODE
        await nodes.quorum(3).regain(0, 1)
        assert nodes.quorum(1).leads and nodes.quorum(3).leader == 1


@in_loop
async def test_who_stepped_down_leaves_time_to_another_candidate(tmp_path: Path) -> None:
    """FLOW-4: a term after that of a leader that has just begun would end it before it hands over."""
    async with set_of(tmp_path) as nodes:
        own = nodes.quorum(3)
        regained = asyncio.ensure_future(own.regain(0.05, 1))
        await asyncio.sleep(0)
        voted = QuorumState(next_term(own.state.term, 2, own.own_set), NO_NODE, 2)
        await own._adopt(voted)
        await regained
        assert own.state == voted
        await own.regain(0, 1)
        assert own.leads


class WithHeldVotes(Peers):
    """Peers whose answers about votes come once `may_come` is set."""

    def __init__(self, nodes: Set, number: int) -> None:
        super().__init__(nodes, number)
        self.has_asked, self.may_come = asyncio.Event(), asyncio.Event()

    async def ask(self, node_id: int, api_key: int, request: Mapping[str, Any]) -> Any:
        answer = await super().ask(node_id, api_key, request)
        if api_key == VOTE:
            self.has_asked.set()
            await self.may_come.wait()
        return answer


@pytest.mark.parametrize("yields", [False, True])
@in_loop
async def test_a_candidate_does_not_end_a_leader_of_which_it_heard_since_it_began(tmp_path: Path, yields: bool) -> None:
    """KIP-996: its later term would, though no one votes for it; the leader has handed nothing over."""
    async with set_of(tmp_path) as nodes:
        await with_topic(nodes, 1, 2, 3)
        late = nodes.quorum(3)
        late.peers = peers = WithHeldVotes(nodes, 3)
        promoted = asyncio.ensure_future(late.promote(yields=yields))
        await peers.has_asked.wait()
        await nodes.promote(2)
        await wait_until(lambda: late.leader == 2)
        term = nodes.quorum(2).state.term
        peers.may_come.set()
        with pytest.raises(ElectionFailed, match=f"term {term} began meanwhile"):
            await promoted
        assert late.state.term == term < next_term(0, 3, late.own_set)
        assert nodes.quorum(2).leads


@in_loop
async def test_a_leader_that_cannot_be_reached_is_not_waited_for(tmp_path: Path) -> None:
    async with set_of(tmp_path) as nodes:
        await with_leader(nodes)
        for one in (2, 3):
            await append_as_follower(nodes, one)
        nodes.cut.add(1)
        await nodes.promote(2)
        await wait_until(lambda: nodes.quorum(3).leader == 2)
        nodes.cut.clear()
        await wait_until(lambda: nodes.quorum(1).leader == 2)
        assert (await append(nodes[1])).error_code == ErrorCode.NOT_LEADER_OR_FOLLOWER


class WithLateLeader(Poll):
    """Questions to all nodes, which node 1 answers too late."""

    async def leaders(self) -> dict[int, tuple[int, int]]:
        found = await super().leaders()
        del found[1]
        return found


@in_loop
async def test_a_leader_that_answers_late_hands_over_as_well(tmp_path: Path) -> None:
    """FLOW-4: it has a record with acks=1, which nodes 2 and 3 would be a majority without."""
    async with set_of(tmp_path, kafkalog_handover_timeout_ms=100) as nodes:
        term = await with_leader(nodes)
        nodes.quorum(2).poll = WithLateLeader(nodes[2], nodes.quorum(2))
        with pytest.raises(ElectionFailed, match="node 1 stays the leader"):
            await nodes.quorum(2).promote()
        assert nodes.quorum(1).state.term == term
        await nodes.quorum(2).promote(is_forced=True)


class WithoutHandOver(Peers):
    """Peers whose answers to the request for a handover are lost."""

    async def ask(self, node_id: int, api_key: int, request: Mapping[str, Any]) -> Any:
        if api_key == END_QUORUM_EPOCH:
            raise TimeoutError
        return await super().ask(node_id, api_key, request)


@in_loop
async def test_a_leader_that_is_alive_and_does_not_hand_over_in_time_leads_on(tmp_path: Path) -> None:
    """FLOW-4: it has a record with acks=1, and may be handing over to another node."""
    async with set_of(tmp_path) as nodes:
        term = await with_leader(nodes)
        own = nodes.quorum(2)
        own.peers, own.forwards = WithoutHandOver(nodes, 2), Peers(nodes, 2)
        with pytest.raises(ElectionFailed, match="node 1 leads, but did not hand over in time"):
            await own.promote()
        assert nodes.quorum(1).leads and nodes.quorum(1).state.term == own.state.term == term
        nodes.cut.add(1)  # now it is not
        await own.promote()
        assert own.leads


async def append_as_follower(nodes: Set, number: int) -> None:
    source = nodes[1].replicas.find(T0)
    data = source.log.read(0, 1 << 20, "log_end", True).records.read()
    nodes[number].replicas.find(T0).append_as_follower(bytearray(data), source.leader_epoch)


@pytest.mark.usefixtures("never_over")
@in_loop
async def test_a_change_that_has_begun_is_done_before_the_successor_has_all(tmp_path: Path) -> None:
    """FLOW-4: and none begins after that, by whichever way."""
    async with set_of(tmp_path) as nodes:
        term = await with_leader(nodes)
        await fetch(nodes[1], 2, 1, current_leader_epoch=term)
        topics, go_on = nodes[1].topics, asyncio.Event()
        run = topics._run

        async def slow(*work: Any) -> Any:
            await go_on.wait()
            return await run(*work)

        topics._run = slow
        making = asyncio.ensure_future(topics.create("begun", 1))
        await asyncio.sleep(0)
        late = asyncio.ensure_future(asked(nodes, term))
        await wait_until(lambda: bool(nodes.quorum(1).is_handing_over))
        refused = asyncio.ensure_future(topics.create("late", 1))
        await asyncio.sleep(0)
        assert not late.done() and not making.done()
        go_on.set()
        assert (await making).name == "begun" and await late == 0
        with pytest.raises(NotController):
            await refused
        with pytest.raises(NotController):
            await nodes[1].dynamic.change("", {"message.max.bytes": "1000"})
        with pytest.raises(NotController):
            await nodes[1].credentials.file.change(nodes[1].run, lambda state: state)


@in_loop
async def test_a_topic_of_a_leader_begins_with_its_term(tmp_path: Path) -> None:
    """EPOCH-5: made in the pool, so that the first look-up writes nothing on the loop."""
    async with set_of(tmp_path) as nodes:
        term = await with_leader(nodes)
        await nodes[1].topics.create("new", 1)
        await nodes[1].topics.add_partitions("new", 2)
        for index in range(2):
            assert list(nodes[1].store.get(TopicPartition("new", index)).leader_epochs) == [(term, 0)]
        await nodes[2].topics.create("new", 1)
        assert list(nodes[2].store.get(TopicPartition("new", 0)).leader_epochs) == [(0, 0)]


@in_loop
async def test_a_leader_that_steps_down_on_the_way_holds_no_appends(tmp_path: Path) -> None:
    """In a set without records the successor has all of them even then."""
    async with set_of(tmp_path) as nodes:
        await with_topic(nodes, 1, 2, 3)
        await nodes.promote(1)
        quorum, stepping_down = nodes.quorum(1), []
        term, on_change = quorum.state.term, quorum.handover.on_change

        def step_down_then() -> None:
            on_change()
            if quorum.is_handing_over:
                stepping_down.append(asyncio.ensure_future(quorum.learn_leader(term + 1, NO_NODE)))

        quorum.handover.on_change = step_down_then
        assert await asked(nodes, term) == ErrorCode.FENCED_LEADER_EPOCH
        await asyncio.gather(*stepping_down)
        assert not quorum.leads and not quorum.is_handing_over
        assert (await append(nodes[1])).error_code == ErrorCode.NOT_LEADER_OR_FOLLOWER


@in_loop
async def test_a_leader_that_starts_again_asks_no_leader_that_appears_meanwhile_to_hand_over(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It asks twice who leads; in between another node begins to lead, and it follows that."""
    async with set_of(tmp_path) as nodes:
        await nodes.promote(1)
        await wait_until(lambda: [nodes.quorum(one).leader for one in (2, 3)] == [1, 1])
        nodes.cut |= {2, 3}
        await nodes.stop(1)
        await nodes.start(1)
        quorum = nodes.quorum(1)
        ask = quorum.poll.leaders

        async def leaders() -> dict[int, tuple[int, int]]:
            reports = await ask()
            if reports and not nodes.quorum(2).leads:
                nodes.cut.add(1)
                await nodes.quorum(2).promote(is_forced=True)
                nodes.cut.clear()
            return reports

        monkeypatch.setattr(quorum.poll, "leaders", leaders)
        nodes.cut.clear()
        await wait_until(lambda: quorum.leader in (1, 2))
        await asyncio.gather(*(task for task in quorum._tasks if "_resume" in repr(task)))
        assert (quorum.leader, nodes.quorum(2).leads) == (2, True)
        assert "end_quorum_epoch" not in {name for asker, _, name in nodes.asked if asker == 1}
