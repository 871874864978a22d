"""Answers of groups in cases that a broker of 4.4 was asked in, too: members that come and go, ids, assignors."""

from __future__ import annotations

from pathlib import Path
from typing import Any, Final

import pytest

from kafkalog.server.error_codes import ErrorCode, Refused
from kafkalog.server.groups.classic_group import State
from kafkalog.server.groups.consumer_heartbeat import assignor_of
from kafkalog.server.groups.effects import MEMBER_TIMER
from kafkalog.util.java_hash import in_java_order
from tests.server.groups.groups import JOIN, READS_T, commit_offset, create_topic, fetch_offset
from tests.server.groups.test_consumer_heartbeat import Driver as ConsumerDriver
from tests.server.groups.test_mixed_groups import Group
from tests.server.groups.test_offset_delete import committed_places, deleted
from tests.server.groups.test_rebalance import Driver
from tests.server.looping import in_loop
from tests.server.nodes import call, node_for, run_node
from tests.server.txns.calls import add_partitions, init_producer

READS_NOTHING: Final = b"\0\0" + b"\0\0\0\0" + b"\xff\xff\xff\xff"


def protocols(*names: str) -> tuple[tuple[str, bytes], ...]:
    return tuple((name, b"m") for name in names)


def refusal(driver: ConsumerDriver, member_id: str, epoch: int) -> int:
    """Return the error code for a heartbeat with instance id `i`, or without one for member `b`."""
    with pytest.raises(Refused) as refused:
        driver.send_heartbeat(member_id, epoch, instance_id=None if member_id == "b" else "i")
    return refused.value.code


# Classic groups


def test_an_id_that_was_given_holds_up_the_next_generation() -> None:
    driver = Driver()
    driver.join("given", is_id_required=True)
    assert driver.join("a").generation == 1, "a new group does not wait for it"
    assert driver.join("again", "id-of-a", protocols=protocols("range", "other")) is None
    driver.fire(MEMBER_TIMER + "id-of-given")
    assert driver.answers["again"].generation == 2


def test_an_id_that_leaves_has_the_others_join_again() -> None:
    driver = Driver()
    driver.join("given", is_id_required=True)
    driver.join("a")
    assert driver.leave("id-of-given") == 0
    assert driver.group.state is State.PREPARING_REBALANCE
    assert driver.sync("late", "id-of-a", {"id-of-a": b""}).error_code == ErrorCode.REBALANCE_IN_PROGRESS


def test_an_id_without_an_instance_does_not_join_with_one() -> None:
    driver = Driver()
    driver.join("given", is_id_required=True)
    refused = driver.join("a", "id-of-given", instance_id="i")
    assert (refused.error_code, refused.member_id) == (ErrorCode.UNKNOWN_SERVER_ERROR, "")


def test_of_protocols_with_as_many_votes_the_one_first_in_a_hash_map_of_java_is_taken() -> None:
    assert in_java_order(["range", "roundrobin", "sticky"]) == ["sticky", "range", "roundrobin"]
    assert len(in_java_order([f"protocol {number}" for number in range(40)])) == 40
    driver = Driver()
    driver.join("a", protocols=protocols("roundrobin", "range"))
    driver.join("b", protocols=protocols("range", "roundrobin"))
    driver.join("again", "id-of-a", protocols=protocols("roundrobin", "range"))
    assert driver.answers["b"].protocol == "range"


@in_loop
async def test_a_group_of_ids_only_is_deleted(tmp_path: Path) -> None:
    async with node_for(tmp_path) as node:
        given = await call(node, "join_group", 9, {**JOIN, "group_id": "g"})
        assert given.error_code == ErrorCode.MEMBER_ID_REQUIRED
        assert await node.groups.delete("g") == 0
        late = await call(node, "join_group", 9, {**JOIN, "group_id": "g", "member_id": given.member_id})
        assert late.error_code == ErrorCode.UNKNOWN_MEMBER_ID


def test_what_members_read_is_that_of_their_generation() -> None:
    """A member that joins again with another subscription waits for others, and until then reads what it read."""
    driver = Driver()
    driver.join("a", protocols=(("range", READS_NOTHING),))
    driver.join("given", is_id_required=True)
    assert driver.join("again", "id-of-a", protocols=(("range", READS_T),)) is None
    assert driver.group.read_topics == set()
    driver.leave("id-of-given")
    assert (driver.answers["again"].generation, driver.group.read_topics) == (2, {"t"})


# The empty group id


@in_loop
async def test_the_empty_id_has_offsets_but_no_members(tmp_path: Path) -> None:
    async with node_for(tmp_path) as node:
        await create_topic(node)
        assert await commit_offset(node, 7, "") == 0
        assert (await fetch_offset(node, "")).committed_offset == 7
        assert await described(node) == (0, "Empty", True)
        wanted = {"group_ids": [""], "include_authorized_operations": False}
        consumers = await call(node, "consumer_group_describe", 1, wanted)
        assert consumers.groups[0].error_code == ErrorCode.INVALID_GROUP_ID
        deletes = [(await call(node, "delete_groups", 2, {"groups_names": [""]})).results[0].error_code for _ in "12"]
        assert deletes == [0, ErrorCode.GROUP_ID_NOT_FOUND]
        assert await described(node) == (ErrorCode.GROUP_ID_NOT_FOUND, "Dead", False)


async def described(node: Any) -> tuple[int, str, bool]:
    """Return the error code and state of the group without an id, and True if the allowed operations are there."""
    tree = {"groups": [""], "include_authorized_operations": True}
    [row] = (await call(node, "describe_groups", 6, tree)).groups
    return row.error_code, row.group_state, row.authorized_operations != -(1 << 31)


def test_a_transaction_has_no_offsets_for_the_empty_id(tmp_path: Path) -> None:
    async def body(node: Any) -> None:
        partition = {"partition_index": 0, "committed_offset": 1, "committed_metadata": ""}
        answer = await call(node, "txn_offset_commit", 5, {
            "transactional_id": "x", "group_id": "", "producer_id": 1, "producer_epoch": 0, "generation_id": -1,
            "member_id": "", "topics": [{"name": "t", "partitions": [partition]}],
        })  # fmt: skip
        assert answer.topics[0].partitions[0].error_code == ErrorCode.INVALID_GROUP_ID

    run_node(tmp_path, body)


def test_offsets_of_an_open_transaction_are_deleted(tmp_path: Path) -> None:
    async def body(node: Any) -> None:
        await node.transactions.loaded()
        producer = await init_producer(node)
        await add_partitions(node, producer)
        fields = {"transactional_id": "x", "producer_id": producer.producer_id, "producer_epoch": 0, "group_id": "g"}
        assert (await call(node, "add_offsets_to_txn", 3, fields)).error_code == 0
        partition = {"partition_index": 0, "committed_offset": 5, "committed_metadata": ""}
        topics = [{"name": "t", "partitions": [partition]}]
        more = {"generation_id": -1, "member_id": "", "topics": topics}
        answer = await call(node, "txn_offset_commit", 3, fields | more)
        assert answer.topics[0].partitions[0].error_code == 0
        assert (await fetch_offset(node)).error_code == ErrorCode.UNSTABLE_OFFSET_COMMIT
        assert await deleted(node, ("t", 0)) == {("t", 0): 0}
        assert (await fetch_offset(node)).error_code == 0
        assert (await call(node, "end_txn", 3, fields | {"committed": True})).error_code == 0
        assert committed_places(node) == set()

    run_node(tmp_path, body)


# Consumer groups


def test_a_full_group_takes_back_only_its_static_member() -> None:
    driver = ConsumerDriver()
    driver.rules = driver.rules._replace(max_size=1)
    driver.send_heartbeat("a", instance_id="i")
    for epoch in (0, 3):
        assert refusal(driver, "b", epoch) == ErrorCode.GROUP_MAX_SIZE_REACHED
    driver.send_heartbeat("a", -2, instance_id="i")
    assert driver.send_heartbeat("c", instance_id="i").epoch == 2


def test_a_static_member_joins_again_only_after_it_left() -> None:
    driver = ConsumerDriver()
    driver.send_heartbeat("a", instance_id="i")
    assert refusal(driver, "a", 0) == ErrorCode.UNRELEASED_INSTANCE_ID
    driver.send_heartbeat("a", -2, instance_id="i")
    assert driver.send_heartbeat("a", instance_id="i").epoch == 2


def test_a_member_with_another_instance_id_gives_up_its_own() -> None:
    driver = ConsumerDriver()
    driver.send_heartbeat("a", instance_id="i")
    driver.send_heartbeat("a", instance_id="j")
    assert driver.group.instances == {"j": "a"} == driver.rebuild_group().instances
    assert refusal(driver, "a", 2) == ErrorCode.UNKNOWN_MEMBER_ID


def test_a_rack_or_an_assignor_that_is_outvoted_begins_no_epoch() -> None:
    driver = ConsumerDriver()
    driver.send_heartbeat("a", assignor="uniform")
    assert driver.send_heartbeat("a", 2, rack_id="r").epoch == 2
    driver.send_heartbeat("b", assignor="uniform")
    driver.send_heartbeat("c", assignor="range")
    assert (driver.group.epoch, assignor_of(driver.group, driver.rules.assignors)) == (4, "uniform")
    driver.send_heartbeat("b", 3, assignor="range")
    assert (driver.group.epoch, assignor_of(driver.group, driver.rules.assignors)) == (5, "range")


def test_a_group_without_members_has_nothing_to_assign() -> None:
    driver = ConsumerDriver()
    driver.send_heartbeat("a")
    driver.send_heartbeat("a", -1)
    assert (driver.group.epoch, driver.group.target_epoch) == (3, 3) == (3, driver.rebuild_group().target_epoch)


def test_a_full_request_may_name_a_pattern_only() -> None:
    driver = ConsumerDriver()
    driver.send_heartbeat("a")
    owned = driver.group.members["a"].assigned
    for regex, is_sent in (("", True), (None, False)):
        done = driver.send_heartbeat("a", 2, regex=regex, rebalance_timeout_ms=1000, owned=owned)
        assert done.sends_assignment is is_sent, regex


# Groups of both protocols


@in_loop
async def test_a_classic_client_of_a_consumer_group_gets_an_id_as_consumers_do(tmp_path: Path) -> None:
    async with node_for(tmp_path, group_consumer_max_size=2) as node:
        await create_topic(node)
        group = Group(node)
        await group.consumer("a")
        joined = await group.join()
        assert (joined.error_code, len(joined.member_id)) == (0, 22)
        refused = await call(node, "join_group", 9, {**JOIN, "group_id": "g", "member_id": "b"})
        assert (refused.error_code, refused.member_id) == (ErrorCode.GROUP_MAX_SIZE_REACHED, "")


@in_loop
async def test_a_classic_member_keeps_one_of_the_protocols_that_all_have(tmp_path: Path) -> None:
    async with node_for(tmp_path) as node:
        await create_topic(node)
        group = Group(node)
        classic = await group.classic()
        assert (await group.consumer("a")).error_code == 0
        for protocol, code in (("other", ErrorCode.INCONSISTENT_GROUP_PROTOCOL), ("range", 0)):
            assert (await group.join(classic, protocol=protocol)).error_code == code


@in_loop
async def test_who_holds_an_instance_id_is_checked_before_the_subscription(tmp_path: Path) -> None:
    async with node_for(tmp_path) as node:
        await create_topic(node)
        group = Group(node)
        await group.consumer("a", instance_id="i")
        refused = await group.join("b", group_instance_id="i", metadata=b"junk")
        assert (refused.error_code, refused.member_id) == (ErrorCode.FENCED_INSTANCE_ID, "")


@pytest.mark.parametrize(("epoch", "code"), [(0, 0), (1, 42), (-1, 42)])
@in_loop
async def test_only_one_who_joins_may_have_no_id_yet(tmp_path: Path, epoch: int, code: int) -> None:
    async with node_for(tmp_path) as node:
        await create_topic(node)
        tree = {
            "group_id": "g", "member_id": "", "member_epoch": epoch, "rebalance_timeout": 1000, "topic_partitions": [],
            "subscribed_topic_names": ["t"], "instance_id": None, "rack_id": None, "server_assignor": None,
        }  # fmt: skip
        assert (await call(node, "consumer_group_heartbeat", 0, tree)).error_code == code


@pytest.mark.parametrize(("member_id", "code"), [("b", ErrorCode.FENCED_INSTANCE_ID), ("a", 0), ("", 0)])
@in_loop
async def test_who_leaves_a_consumer_group_by_instance_id_is_its_holder(
    tmp_path: Path, member_id: str, code: int
) -> None:
    async with node_for(tmp_path) as node:
        await create_topic(node)
        await Group(node).consumer("a", instance_id="i")
        members = [{"member_id": member_id, "group_instance_id": "i"}, {"member_id": "a", "group_instance_id": "j"}]
        answer = await call(node, "leave_group", 5, {"group_id": "g", "members": members})
        assert [one.error_code for one in answer.members] == [code, ErrorCode.UNKNOWN_MEMBER_ID]
