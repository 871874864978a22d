"""Very large requests: the event loop keeps serving others, and duplicates are answered once."""

import asyncio
from importlib import import_module
from pathlib import Path
from typing import Any

import pytest

from kafkalog.server.node.node import Node
from kafkalog.server.requests.context import RequestContext
from kafkalog.server.requests.cooperative_yield import TURN_ROWS, in_turns
from kafkalog.server.wire.header import read_header
from tests.server.apis.test_topic_calls import create_tree, metadata_tree, with_node
from tests.server.looping import turns_during
from tests.server.nodes import KEYS, call, connection_for, request_bytes
from tests.server.replica.copies import until
from tests.server.replica.partitions import make_batch
from tests.wire_cases import read_request

COUNT = 20 * TURN_ROWS
NAMES = [f"n{number}" for number in range(COUNT)]
ASKED: dict[str, tuple[int, dict[str, Any]]] = {
    "metadata": (13, metadata_tree(*NAMES)),
    "describe_configs": (4, {
        "resources": [{"resource_type": 2, "resource_name": name, "configuration_keys": None} for name in NAMES],
        "include_synonyms": True, "include_documentation": True,
    }),
    "describe_groups": (6, {"groups": NAMES, "include_authorized_operations": True}),
    "find_coordinator": (6, {"key_type": 0, "coordinator_keys": NAMES}),
    "describe_transactions": (0, {"transactional_ids": NAMES}),
    "offset_fetch": (8, {
        "groups": [{"group_id": name, "topics": None} for name in NAMES], "require_stable": False,
    }),
    "consumer_group_describe": (1, {"group_ids": NAMES, "include_authorized_operations": False}),
}  # fmt: skip


@pytest.mark.parametrize("name", ASKED)
def test_the_loop_serves_others_between_the_rows_of_an_answer(tmp_path: Path, name: str) -> None:
    version, tree = ASKED[name]

    async def use(node: Node) -> None:
        await call(node, name, version, tree)
        answer, turns = await turns_during(call(node, name, version, tree))
        assert turns >= COUNT // TURN_ROWS
        assert any(len(rows) == COUNT for rows in answer if isinstance(rows, tuple))

    with_node(tmp_path, use, auto_create_topics_enable=False)


MANY = range(10_000)
BATCH = make_batch(1)


def partitions_of(rows: list[dict[str, Any]], **more: Any) -> dict[str, Any]:
    """A request for many partitions of one topic."""
    return {"topics": [{"name": "t", "topic": "t", "partitions": rows}], **more}


MANY_PARTITIONS: dict[str, tuple[int, dict[str, Any]]] = {
    "list_offsets": (7, partitions_of(
        [{"partition_index": one, "current_leader_epoch": -1, "timestamp": -1} for one in MANY],
        replica_id=-1, isolation_level=0,
    )),
    "offset_for_leader_epoch": (4, partitions_of(
        [{"partition": one, "current_leader_epoch": -1, "leader_epoch": 0} for one in MANY], replica_id=-1,
    )),
    "delete_records": (2, partitions_of([{"partition_index": one, "offset": 0} for one in MANY], timeout=1000)),
    "offset_commit": (9, partitions_of(
        [{"partition_index": one, "committed_offset": 1, "committed_leader_epoch": -1, "committed_metadata": ""}
         for one in MANY],
        group_id="g", generation_id_or_member_epoch=-1, member_id="", group_instance_id=None,
    )),
    "offset_fetch": (7, {
        "group_id": "g", "topics": [{"name": "t", "partition_indexes": list(MANY)}], "require_stable": False,
    }),
    "fetch": (12, partitions_of(
        [{"partition": one, "current_leader_epoch": -1, "fetch_offset": 0, "last_fetched_epoch": -1,
          "log_start_offset": -1, "partition_max_bytes": 100} for one in MANY],
        replica_id=-1, max_wait=0, min_bytes=1, max_bytes=1 << 20, isolation_level=0, session_id=0, session_epoch=-1,
        forgotten_topics_data=(), rack_id="",
    )),
    "describe_producers": (0, {"topics": [{"name": "t", "partition_indexes": MANY}]}),
    "txn_offset_commit": (3, partitions_of(
        [{"partition_index": one, "committed_offset": 1, "committed_leader_epoch": -1, "committed_metadata": ""}
         for one in MANY],
        transactional_id="x", group_id="g", producer_id=0, producer_epoch=0, generation_id=-1, member_id="",
        group_instance_id=None,
    )),
    "write_txn_markers": (1, {"markers": [{
        "producer_id": 0, "producer_epoch": 0, "transaction_result": True, "coordinator_epoch": 0,
        "topics": [{"name": "t", "partition_indexes": MANY}],
    }]}),
    "add_partitions_to_txn": (3, {
        "v3_and_below_transactional_id": "x", "v3_and_below_producer_id": 0, "v3_and_below_producer_epoch": 0,
        "v3_and_below_topics": [{"name": "t", "partitions": MANY}],
    }),
    "offset_delete": (0, partitions_of([{"partition_index": one} for one in MANY], group_id="g")),
    "delete_groups": (2, {"groups_names": [f"g{one}" for one in MANY]}),
    "alter_share_group_offsets": (0, {"group_id": "s", "topics": [
        {"topic_name": "none", "partitions": [{"partition_index": one, "start_offset": 0} for one in MANY]},
    ]}),
    "describe_share_group_offsets": (0, {"groups": [
        {"group_id": "s", "topics": [{"topic_name": "t", "partitions": MANY}]},
    ]}),
    "metadata": (12, {**metadata_tree(), "topics": None}),
    "create_topics": (7, create_tree(*({"name": f"x{one}"} for one in MANY), validate_only=True)),
    "create_partitions": (3, {
        "topics": [{"name": f"x{one}", "count": 2, "assignments": None} for one in MANY], "timeout": 1000,
        "validate_only": True,
    }),
    "delete_topics": (5, {"topic_names": [f"x{one}" for one in MANY], "timeout": 1000}),
    "incremental_alter_configs": (1, {
        "resources": [{"resource_type": 32, "resource_name": f"g{one}", "configs": ()} for one in MANY],
        "validate_only": True,
    }),
    "produce": (9, {
        "transactional_id": None, "acks": 1, "timeout": 1000,
        "topic_data": [{"name": "t", "partition_data": [{"index": one, "records": BATCH} for one in MANY]}],
    }),
}  # fmt: skip


@pytest.mark.parametrize("name", MANY_PARTITIONS)
def test_others_are_answered_between_the_partitions_of_a_request(tmp_path: Path, name: str) -> None:
    """Another connection has its answer while the large request is worked on, which gives way so many times."""
    version, tree = MANY_PARTITIONS[name]

    async def use(node: Node) -> None:
        await node.topics.create("t", 2)
        await node.topics.ensure_internal("__consumer_offsets")
        if name == "offset_delete":
            await call(node, "offset_commit", *MANY_PARTITIONS["offset_commit"])  # which makes the group
        if name == "metadata":  # partitions that do not exist
            node.topics._put((await node.topics.create("large", 1))._replace(partitions=len(MANY)))
        frame = request_bytes(name, version, tree)
        key, module = KEYS[name], import_module(f"kafkalog.server.apis.{name}")
        position = read_header(frame).body
        request = read_request(key, version, frame, position)
        context = RequestContext(key, version, 7, "test", connection_for(), len(frame))
        large = asyncio.ensure_future(module.handle(node, context, request))
        small = asyncio.ensure_future(call(node, "api_versions", 0))
        turns = 0
        while not large.done():
            await asyncio.sleep(0)
            turns += 1
        assert (await small).error_code == 0 and large.result()
        assert turns >= len(MANY) // TURN_ROWS

    with_node(tmp_path, use)


def test_the_settings_of_a_node_are_told_once(tmp_path: Path) -> None:
    async def use(node: Node) -> None:
        one = {"resource_type": 4, "resource_name": str(node.node_id), "configuration_keys": None}
        tree = {"resources": [one] * 1000, "include_synonyms": True, "include_documentation": True}
        assert len((await call(node, "describe_configs", 4, tree)).results) == 1

    with_node(tmp_path, use)


def test_each_item_comes_once_and_in_order() -> None:
    async def run() -> list[int]:
        return [one async for one in in_turns([3, 1, 3, 2, 1], 2)]

    assert asyncio.run(run()) == [3, 1, 2]


def test_one_request_makes_so_many_topics_and_no_more(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("kafkalog.server.apis.metadata.MAX_CREATED", 2)

    async def use(node: Node) -> None:
        for count in (2, 4, 5, 5):
            answer = await call(node, "metadata", 13, metadata_tree(*NAMES[:5], auto=True))
            await until(lambda: not node.creations._names)
            assert len(answer.topics) == 5 and len(list(node.topics.names())) == count

    with_node(tmp_path, use)
