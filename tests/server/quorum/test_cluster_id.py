"""One cluster id for all nodes of a set: who makes it, who takes it, and whom it keeps out."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from kafkalog.server.node.store import NODE_FILE, Identity, keep_identity
from kafkalog.server.quorum.cluster_id import OtherCluster
from kafkalog.server.quorum.decisions import Ballot, next_term
from kafkalog.server.quorum.errors import ElectionFailed
from kafkalog.server.quorum.messages import begin_request, end_request, vote_request
from tests.server.looping import in_loop
from tests.server.nodes import call
from tests.server.quorum.sets import CLUSTER_ID, Set
from tests.server.quorum.test_handover import WithoutVotes
from tests.server.quorum.test_leading import with_topic

ANOTHER = "b3RoZXIgY2x1c3RlciBpZA"


def stored_cluster_id(nodes: Set, number: int) -> str | None:
    """The cluster id in a node's directory."""
    path = nodes.path / str(number) / NODE_FILE
    return json.loads(path.read_text())["cluster_id"] if path.exists() else None


async def reported_cluster_id(nodes: Set, number: int) -> str | None:
    """Return the cluster id reported to a client."""
    tree = {"topics": [], "allow_auto_topic_creation": False, "include_topic_authorized_operations": False}
    found: str | None = (await call(nodes[number], "metadata", 13, tree)).cluster_id
    return found


@in_loop
async def test_a_candidate_without_an_id_whose_votes_are_lost_is_promoted_later(tmp_path: Path) -> None:
    """Those who voted have the id that it proposed, and it has none."""
    nodes = Set(tmp_path, 3, {})
    nodes.cluster_id = ""
    try:
        for number in (1, 2, 3):
            await nodes.start(number)
        quorum = nodes.quorum(1)
        peers, quorum.peers = quorum.peers, WithoutVotes(nodes, 1)
        with pytest.raises(ElectionFailed, match="1 of 3 nodes voted for node 1"):
            await quorum.promote()
        assert nodes[1].cluster_id == "" != nodes[2].cluster_id
        quorum.peers = peers
        await nodes.promote(1)
        assert nodes[1].cluster_id == nodes[2].cluster_id == nodes[3].cluster_id
    finally:
        await nodes.close()


@in_loop
async def test_new_nodes_have_no_id_until_one_of_them_leads(tmp_path: Path) -> None:
    nodes = Set(tmp_path, 3, {})
    nodes.cluster_id = ""
    try:
        for number in (1, 2, 3):
            await nodes.start(number)
            assert (await reported_cluster_id(nodes, number), stored_cluster_id(nodes, number)) == (None, None)
        nodes.cut.add(3)
        await nodes.promote(1)
        made = nodes[1].cluster_id
        assert len(made) == 22
        stored = [stored_cluster_id(nodes, number) for number in (1, 2, 3)]
        assert stored == [made, made, None]  # who voted has it
        assert [await reported_cluster_id(nodes, 1), await reported_cluster_id(nodes, 2)] == [made, made]
        await nodes.stop(2)
        assert (await nodes.start(2)).cluster_id == made

        nodes.cut = {1}  # the leader is lost: its id is not
        with pytest.raises(ElectionFailed):  # node 3 was in no cluster
            await nodes.quorum(3).promote()
        await nodes.promote(2)
        assert nodes[3].cluster_id == stored_cluster_id(nodes, 3) == made
    finally:
        await nodes.close()


@in_loop
async def test_a_new_node_that_leads_by_force_makes_an_id(tmp_path: Path) -> None:
    nodes = Set(tmp_path, 3, {})
    nodes.cluster_id = ""
    try:
        await nodes.start(1)
        await nodes.promote(1, is_forced=True)
        assert stored_cluster_id(nodes, 1) == nodes[1].cluster_id != ""
    finally:
        await nodes.close()


@in_loop
async def test_who_has_other_data_gives_no_vote_and_hears_of_no_leader(tmp_path: Path) -> None:
    nodes = Set(tmp_path, 3, {})
    (tmp_path / "3").mkdir()
    keep_identity(str(tmp_path / "3"), Identity(3, ANOTHER))
    try:
        for number in (1, 2, 3):
            await nodes.start(number)
        ballot = Ballot(next_term(0, 1, nodes.quorum(3).replica_set), 1, {})  # type: ignore[arg-type]
        for is_pre_vote in (True, False):
            for cluster_id in (CLUSTER_ID, ""):
                answer = await call(
                    nodes[3], "vote", 2, vote_request(ballot, 3, cluster_id, is_pre_vote=is_pre_vote)
                )
                assert (answer.error_code, answer.topics) == (OtherCluster.code, ())
        await nodes.promote(1)
        state = nodes.quorum(1).state
        for name, request in (
            ("begin_quorum_epoch", begin_request(state, 3, CLUSTER_ID)),
            ("end_quorum_epoch", end_request(state.term, 1, 2, CLUSTER_ID)),
        ):
            assert (await call(nodes[3], name, 1, request)).error_code == OtherCluster.code
        with pytest.raises(ElectionFailed, match=f"node 1 does not hand over: error {OtherCluster.code}"):
            await nodes.quorum(3).promote()
        await nodes.stop(1)
        with pytest.raises(ElectionFailed, match="1 of 3 nodes would vote"):
            await nodes.quorum(3).promote()
        assert stored_cluster_id(nodes, 3) == nodes[3].cluster_id == ANOTHER
    finally:
        await nodes.close()


@in_loop
async def test_topics_of_no_cluster_are_not_given_up(tmp_path: Path) -> None:
    nodes = Set(tmp_path, 3, {})
    nodes.cluster_id = ""
    try:
        for number in (1, 2, 3):
            await nodes.start(number)
        await with_topic(nodes, 2)
        with pytest.raises(OtherCluster, match=f"to cluster {ANOTHER}, but this directory has topics") as error:
            nodes.quorum(2).cluster.check_candidate(ANOTHER)
        assert error.value.path == str(tmp_path / "2") and "empty directory" in (error.value.hint or "")
        with pytest.raises(OtherCluster):
            await nodes.quorum(2).cluster.take(ANOTHER, "the leader", {})
        await nodes.quorum(2).cluster.take(ANOTHER, "the leader", {"t": nodes[2].topics.get("t")})  # a copy
        assert stored_cluster_id(nodes, 2) == ANOTHER
        with pytest.raises(OtherCluster, match=rf"belongs to cluster {CLUSTER_ID}.*of cluster {ANOTHER}"):
            nodes.quorum(2).cluster.check(CLUSTER_ID, "the leader")
    finally:
        await nodes.close()
