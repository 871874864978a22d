"""Every node of a replica set gives producer ids, and no two the same."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kafkalog.errors import CorruptCheckpoint
from kafkalog.manager.producer_ids import PRODUCER_IDS_FILE
from kafkalog.server.error_codes import ErrorCode
from kafkalog.server.node.node import Node
from kafkalog.server.txns.producer_ids import BLOCK, ids_of, next_own_id
from tests.server.looping import in_loop
from tests.server.nodes import call
from tests.server.quorum.sets import set_of
from tests.server.txns.small_node import open_node


async def request_producer_id(node: Node, transactional_id: str | None = None) -> Any:
    tree = {"transactional_id": transactional_id, "transaction_timeout": 1000, "producer_id": -1, "producer_epoch": -1}
    return await call(node, "init_producer_id", 4, tree)


@in_loop
async def test_leaders_and_followers_give_ids_that_no_other_has(tmp_path: Path) -> None:
    async with set_of(tmp_path) as nodes:
        seen = []
        for leader in (None, 1, 2):
            if leader is not None:
                await nodes.promote(leader)
            for node in nodes.nodes.values():
                answers = [await request_producer_id(node) for _ in range(3)]
                assert {one.error_code for one in answers} == {0}
                seen += [one.producer_id for one in answers]
        await nodes.stop(3)
        seen.append((await request_producer_id(await nodes.start(3))).producer_id)
        assert len(set(seen)) == len(seen) == 28
        assert (await request_producer_id(nodes[1], "t")).error_code == ErrorCode.NOT_COORDINATOR


@given(st.integers(0, 10**6), st.integers(1, 7), st.data())
def test_each_block_is_one_nodes(at: int, count: int, data: st.DataObject) -> None:
    place = data.draw(st.integers(0, count - 1))
    found = next_own_id(at, (place, count))
    assert found >= at and found // BLOCK % count == place
    assert found - at < count * BLOCK and (found == at or found % BLOCK == 0)


@in_loop
async def test_a_node_of_a_set_gives_ids_from_one_place_once_its_directory_can_be_read(tmp_path: Path) -> None:
    with open_node(tmp_path / "data") as small:
        node: Any = small
        node.producer_ids, node.node_id = None, 2
        node.quorum.replica_set = node.quorum.own_set = SimpleNamespace(ids=(1, 2))
        file = tmp_path / "data" / PRODUCER_IDS_FILE
        file.write_text("no ids")
        for _ in range(2):
            with pytest.raises(CorruptCheckpoint):
                await ids_of(node)
        file.unlink()
        ids = await ids_of(node)
        assert await ids_of(node) is ids
        await ids.ready()
        assert ids.take() == BLOCK, "the second block is the second node's"
