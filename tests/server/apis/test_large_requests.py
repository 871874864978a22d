"""Requests that ask for very much: the loop serves others meanwhile, and what is asked for twice is told once."""

import asyncio
from pathlib import Path
from typing import Any

import pytest

from kafkalog.server.node import Node
from kafkalog.server.turns import TURN_ROWS, in_turns
from tests.server.apis.test_topic_calls import metadata_tree, with_node
from tests.server.nodes import call

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
        turns, is_over = 0, False

        async def count() -> None:
            nonlocal turns
            while not is_over:
                turns += 1
                await asyncio.sleep(0)

        others = asyncio.create_task(count())
        answer = await call(node, name, version, tree)
        is_over = True
        await others
        assert turns >= COUNT // TURN_ROWS
        assert any(len(rows) == COUNT for rows in answer if isinstance(rows, tuple))

    with_node(tmp_path, use, auto_create_topics_enable=False)


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
    monkeypatch.setattr("kafkalog.server.apis.metadata.MOST_MADE", 2)

    async def use(node: Node) -> None:
        for count in (2, 4, 5, 5):
            answer = await call(node, "metadata", 13, metadata_tree(*NAMES[:5], auto=True))
            assert len(answer.topics) == 5 and len(list(node.topics.names())) == count

    with_node(tmp_path, use)
