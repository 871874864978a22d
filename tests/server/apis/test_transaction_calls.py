"""The calls of transactional producers, and the answers in each version, as a broker of 4.3.1 gives them."""

import asyncio
from pathlib import Path
from typing import Any

import pytest

from kafkalog.server.node.node import Node
from kafkalog.server.replica.roles import Role
from kafkalog.server.requests.cooperative_yield import TURN_ROWS
from kafkalog.server.security.acls import Operation, ResourceType
from kafkalog.server.security.authorizer import Authorizer
from tests.server.groups.test_not_replicated import led_elsewhere
from tests.server.nodes import call
from tests.server.replica.partitions import settle
from tests.server.txns.calls import (
    ALL_OF,
    add_offsets,
    add_partitions,
    commit_offsets,
    end_transaction,
    fetch_committed,
    init_producer,
    with_node,
)


@pytest.mark.parametrize("version", ALL_OF["init_producer_id"])
def test_producer_ids(tmp_path: Path, version: int) -> None:
    async def work(node: Node) -> None:
        plain = await init_producer(node, version, None, transaction_timeout=-1)
        assert (plain.error_code, plain.producer_epoch) == (0, 0)
        assert (await init_producer(node, version, None)).producer_id == plain.producer_id + 1
        first, second = await init_producer(node, version), await init_producer(node, version)
        assert (first.producer_epoch, second.producer_epoch) == (0, 1)
        assert first.producer_id == second.producer_id
        assert (await init_producer(node, version, "")).error_code == 42
        assert (await init_producer(node, version, transaction_timeout=1_000_000_000)).error_code == 50
        if version >= 3:
            old = await init_producer(node, version, producer_id=first.producer_id, producer_epoch=0)
            assert (old.error_code, old.producer_id, old.producer_epoch) == (90 if version >= 4 else 47, -1, -1)
            assert (await init_producer(node, version, producer_id=first.producer_id)).error_code == 42
            own = await init_producer(node, version, producer_id=first.producer_id, producer_epoch=1)
            assert (own.error_code, own.producer_epoch) == (0, 2)

    with_node(tmp_path, work)


@pytest.mark.parametrize("version", ALL_OF["add_partitions_to_txn"])
def test_adding_partitions(tmp_path: Path, version: int) -> None:
    async def work(node: Node) -> None:
        producer = await init_producer(node)
        fenced = 90 if version >= 2 else 47
        assert await add_partitions(node, producer, version) == {("t", 0): 0, ("t", 1): 0}
        assert set((await add_partitions(node, producer._replace(producer_epoch=7), version)).values()) == {fenced}
        assert set((await add_partitions(node, producer._replace(producer_id=12345), version)).values()) == {49}
        assert set((await add_partitions(node, producer, version, "other")).values()) == {49}
        assert await add_partitions(node, producer, version, t=[0], none=[0]) == {("t", 0): 55, ("none", 0): 3}
        assert await add_partitions(node, producer, version, t=[2, 1]) == {("t", 2): 3, ("t", 1): 55}
        internal = await add_partitions(node, producer, version, __consumer_offsets=[0])
        assert internal == {("__consumer_offsets", 0): 29 if version < 4 else 3}

    with_node(tmp_path, work)


@pytest.mark.parametrize("version", [4, 5])
def test_brokers_ask_about_many_transactions_at_once(tmp_path: Path, version: int) -> None:
    async def work(node: Node) -> None:
        producer = await init_producer(node)
        assert set((await add_partitions(node, producer, t=[0])).values()) == {0}
        asked = [
            {
                "transactional_id": name, "producer_id": producer.producer_id, "producer_epoch": 0, "verify_only": True,
                "topics": [{"name": "t", "partitions": [0, 1]}],
            }
            for name in ("x", "none")
        ]  # fmt: skip
        response = await call(node, "add_partitions_to_txn", version, {"transactions": asked})
        codes = [
            [part.partition_error_code for part in one.topic_results[0].results_by_partition]
            for one in response.results_by_transaction
        ]
        assert (response.error_code, codes) == (0, [[0, 120], [49, 49]])

    with_node(tmp_path, work)


@pytest.mark.parametrize("version", ALL_OF["end_txn"])
def test_ends(tmp_path: Path, version: int) -> None:
    async def work(node: Node) -> None:
        producer = await init_producer(node)
        fenced = 90 if version >= 2 else 47
        await add_partitions(node, producer)
        assert (await end_transaction(node, producer._replace(producer_epoch=3), version)).error_code == fenced
        assert (await end_transaction(node, producer._replace(producer_id=12345), version)).error_code == 49
        assert (await end_transaction(node, producer, version, "none")).error_code == 49
        ended = await end_transaction(node, producer, version)
        assert ended.error_code == 0
        if version >= 5:
            assert (ended.producer_id, ended.producer_epoch) == (producer.producer_id, 1)
        assert (await end_transaction(node, producer, version)).error_code == 0  # asked for again
        assert (await end_transaction(node, producer, version, committed=False)).error_code == 48

    with_node(tmp_path, work)


@pytest.mark.parametrize("version", ALL_OF["txn_offset_commit"])
def test_offsets_count_once_the_transaction_is_committed(tmp_path: Path, version: int) -> None:
    async def work(node: Node) -> None:
        producer = await init_producer(node)
        assert await commit_offsets(node, producer, version, "none") == 49
        assert await commit_offsets(node, producer, version, topic="none") == (3 if version < 6 else 100)
        if version < 5:
            assert await commit_offsets(node, producer, version) == (48 if version < 4 else 120)
            assert await add_offsets(node, producer, min(version, 4)) == 0
        assert await commit_offsets(node, producer, version) == 0
        assert await fetch_committed(node) == (-1, 0)
        assert (await fetch_committed(node, stable=True))[1] == 88
        assert (await end_transaction(node, producer)).error_code == 0
        assert await fetch_committed(node, stable=True) == (5, 0)
        again = await init_producer(node)
        assert await add_offsets(node, again) == 0
        assert await commit_offsets(node, again, version, at=9) == 0
        assert (await end_transaction(node, again, committed=False)).error_code == 0
        assert await fetch_committed(node, stable=True) == (5, 0)

    with_node(tmp_path, work)


@pytest.mark.parametrize("version", [5, 6])
def test_offsets_of_absent_groups_and_late_members(tmp_path: Path, version: int) -> None:
    """KIP-1319: version 6 has errors of its own for them; all places of the answer are those of the request."""

    async def commit(node: Node, producer: Any, group: str, member: str, epoch: int) -> Any:
        known = node.topics.get("t")
        assert known is not None
        partitions = [
            {"partition_index": index, "committed_offset": 5, "committed_metadata": None} for index in (7, 0, 0)
        ]
        name = {"name": "t"} if version < 6 else {"topic_id": known.id}
        fields = {
            "transactional_id": "x", "group_id": group, "producer_id": producer.producer_id, "generation_id": epoch,
            "producer_epoch": producer.producer_epoch, "member_id": member, "group_instance_id": None,
            "topics": [{**name, "partitions": partitions}],
        }  # fmt: skip
        answer = await call(node, "txn_offset_commit", version, fields)
        return tuple(answer.topics[0].partitions)

    async def work(node: Node) -> None:
        producer = await init_producer(node)
        absent = 22 if version < 6 else 69
        assert await commit(node, producer, "absent", "m", 3) == ((7, 3), (0, absent), (0, absent))
        heartbeat = {
            "group_id": "c", "member_id": "m", "member_epoch": 0, "rebalance_timeout": 1000, "topic_partitions": [],
            "subscribed_topic_names": ["t"],
        }  # fmt: skip
        joined = await call(node, "consumer_group_heartbeat", 1, heartbeat)
        late = 22 if version < 6 else 113
        assert await commit(node, producer, "c", "m", joined.member_epoch + 1) == ((7, 3), (0, late), (0, late))
        assert await commit(node, producer, "c", "m", joined.member_epoch) == ((7, 3), (0, 0), (0, 0))
        assert await commit(node, producer, "c", "other", joined.member_epoch) == ((7, 3), (0, 25), (0, 25))

    with_node(tmp_path, work)


@pytest.mark.parametrize("version", ALL_OF["list_transactions"])
def test_lists(tmp_path: Path, version: int) -> None:
    async def work(node: Node) -> None:
        for name in ("x", "y", "z1"):
            await init_producer(node, name=name)
        producer = await init_producer(node)
        await add_partitions(node, producer)

        async def names(**filters: Any) -> list[str]:
            fields = {"state_filters": [], "producer_id_filters": [], **filters}
            response = await call(node, "list_transactions", version, fields)
            assert response.error_code == 0 and set(response.unknown_state_filters) <= {"Strange"}
            return sorted(one.transactional_id for one in response.transaction_states)

        assert await names() == ["x", "y", "z1"]
        assert await names(state_filters=["Ongoing", "Strange"]) == ["x"]
        assert await names(state_filters=["Strange"]) == []
        assert await names(producer_id_filters=[producer.producer_id]) == ["x"]
        if version >= 1:
            assert await names(state_filters=["Ongoing"], duration_filter=3_600_000) == []
        if version >= 2:
            assert await names(transactional_id_pattern="[yz].*") == ["y", "z1"]
            assert await names(transactional_id_pattern=None) == ["x", "y", "z1"]
            fields = {"state_filters": [], "producer_id_filters": [], "transactional_id_pattern": "("}
            assert (await call(node, "list_transactions", version, fields)).error_code == 128

    with_node(tmp_path, work)


def test_descriptions(tmp_path: Path) -> None:
    async def work(node: Node) -> None:
        producer = await init_producer(node)
        await init_producer(node, name="idle")
        await add_partitions(node, producer)
        fields = {"transactional_ids": ["x", "none", "idle", ""]}
        found = (await call(node, "describe_transactions", 0, fields)).transaction_states
        one = found[0]
        assert (one.error_code, one.transaction_state, one.producer_id) == (0, "Ongoing", producer.producer_id)
        assert (one.transaction_timeout, [tuple(topic) for topic in one.topics]) == (60_000, [("t", (0, 1))])
        assert one.transaction_start_time > 0
        assert [(each.error_code, each.transaction_state) for each in found[1:]] == [(105, ""), (0, "Empty"), (42, "")]
        assert found[2].transaction_start_time == -1

    with_node(tmp_path, work)


class Refusing(Authorizer):
    """Allows all but what is named."""

    def __init__(self, *denied: tuple[Operation, ResourceType]) -> None:
        super().__init__(tuple)
        self.denied = denied

    def allows(self, context: Any, operation: Operation, resource_type: ResourceType, name: str) -> bool:
        return (operation, resource_type) not in self.denied


def test_who_may_not_is_told_so(tmp_path: Path) -> None:
    writes_id = (Operation.WRITE, ResourceType.TRANSACTIONAL_ID)
    writes_topic = (Operation.WRITE, ResourceType.TOPIC)

    async def work(node: Node) -> None:
        producer = await init_producer(node)
        node.authorizer = Refusing(writes_id)
        assert (await init_producer(node)).error_code == 53
        assert (await init_producer(node, name=None)).error_code == 0
        assert set((await add_partitions(node, producer)).values()) == {53}
        assert await add_offsets(node, producer) == await commit_offsets(node, producer) == 53
        assert (await end_transaction(node, producer)).error_code == 53
        node.authorizer = Refusing(writes_topic, (Operation.IDEMPOTENT_WRITE, ResourceType.CLUSTER))
        assert (await init_producer(node, name=None)).error_code == 31
        assert set((await add_partitions(node, producer)).values()) == {29}
        node.authorizer = Refusing((Operation.READ, ResourceType.GROUP))
        assert await add_offsets(node, producer) == await commit_offsets(node, producer) == 30
        node.authorizer = Refusing((Operation.READ, ResourceType.TOPIC))
        assert await commit_offsets(node, producer) == 29
        cluster = [(one, ResourceType.CLUSTER) for one in (Operation.ALTER, Operation.CLUSTER_ACTION)]
        node.authorizer = Refusing(*cluster)
        with pytest.raises(AssertionError):
            await add_partitions(node, producer, 4)
        marker = {
            "producer_id": 1, "producer_epoch": 0, "transaction_result": False, "coordinator_epoch": 0,
            "topics": [{"name": "t", "partition_indexes": [0]}],
        }  # fmt: skip
        response = await call(node, "write_txn_markers", 1, {"markers": [marker]})
        assert response.markers[0].topics[0].partitions[0].error_code == 31
        node.authorizer = Refusing((Operation.DESCRIBE, ResourceType.TRANSACTIONAL_ID))
        listed = await call(node, "list_transactions", 0, {"state_filters": [], "producer_id_filters": []})
        assert listed.transaction_states == ()
        found = await call(node, "describe_transactions", 0, {"transactional_ids": ["x"]})
        assert found.transaction_states[0].error_code == 53
        node.authorizer = Refusing((Operation.DESCRIBE, ResourceType.TOPIC))
        found = await call(node, "describe_transactions", 0, {"transactional_ids": ["x"]})
        assert found.transaction_states[0].topics == ()

    with_node(tmp_path, work)


@pytest.mark.slow
@pytest.mark.parametrize("is_committed", [True, False])
def test_an_end_that_comes_while_offsets_are_taken_leaves_no_transaction_open(
    tmp_path: Path, is_committed: bool
) -> None:
    """Two connections of one producer, one of which commits very many offsets."""

    async def work(node: Node) -> None:
        await node.topics.create("many", 12 * TURN_ROWS)
        rows = [{"partition_index": index, "committed_offset": 5, "committed_metadata": ""}
                for index in range(12 * TURN_ROWS)]  # fmt: skip
        for turns in (0, 1, 6, 12):
            producer = await init_producer(node)
            assert await add_offsets(node, producer) == 0
            fields = {"transactional_id": "x", "group_id": "g", "topics": [{"name": "many", "partitions": rows}]}
            committing = asyncio.create_task(call(node, "txn_offset_commit", 3, {
                **fields, "producer_id": producer.producer_id, "producer_epoch": producer.producer_epoch,
            }))  # fmt: skip
            for _ in range(turns):
                await asyncio.sleep(0)
            assert (await end_transaction(node, producer, committed=is_committed)).error_code == 0
            codes = {row.error_code for row in (await committing).topics[0].partitions}
            assert len(codes) == 1, "all or none"
            log = node.replicas.partition("__consumer_offsets", node.groups.partition_for("g")).log
            assert log.last_stable_offset == log.log_end_offset, f"after {turns} turns"

    with_node(tmp_path, work)


def test_a_marker_of_an_admin_is_reported_once_it_is_replicated(tmp_path: Path) -> None:
    async def work(node: Node) -> None:
        partition = node.replicas.partition("t", 0)
        both = (node.node_id, node.node_id + 1)
        partition.become_leader(Role(node.node_id, 1, partition.role.partition_epoch + 1, both, both))
        topics = [{"name": "t", "partition_indexes": [0, 9]}]
        marker = {"producer_id": 7, "producer_epoch": 0, "transaction_result": False, "coordinator_epoch": 0}
        answer = asyncio.ensure_future(call(node, "write_txn_markers", 1, {"markers": [{**marker, "topics": topics}]}))
        await settle()
        assert not answer.done()
        led_elsewhere(node, partition)
        found = (await answer).markers[0].topics[0].partitions
        assert {one.partition_index: one.error_code for one in found} == {0: 6, 9: 3}

    with_node(tmp_path, work)
