"""Patterns of strangers: in a thread, with a limit, and remembered."""

import asyncio
from pathlib import Path
from types import SimpleNamespace
from typing import Any

from kafkalog.server.error_codes import ErrorCode
from kafkalog.server.node.pool import CallPool
from kafkalog.server.requests.patterns import MAX_REMEMBERED, TopicPatterns
from kafkalog.util.safe_pattern import PatternError
from tests.server.looping import in_loop
from tests.server.nodes import call, node_for

COSTLY = "(a?){990}.*"


class Topics(SimpleNamespace):
    """As many topics as take long, without their logs."""

    def names(self) -> list[str]:
        return [f"{'a' * 240}{number}" for number in range(self.count)]


def patterns_of(count: int) -> tuple[TopicPatterns, Any]:
    pool = CallPool(1)
    node: Any = SimpleNamespace(topics=Topics(count=count), large=asyncio.Semaphore(1), run=pool.run, pool=pool)
    return TopicPatterns(node), node


@in_loop
async def test_a_costly_pattern_holds_up_nobody_and_is_refused_once() -> None:
    patterns, node = patterns_of(1000)
    turns = 0

    async def others() -> None:
        nonlocal turns
        while True:
            turns += 1
            await asyncio.sleep(0)

    task = asyncio.create_task(others())
    for _ in range(3):
        found = (await patterns.of([COSTLY]))[COSTLY]
        assert isinstance(found, PatternError) and "costs more" in str(found)
    task.cancel()
    assert turns > 5
    assert node.pool.counts.waits_ms.count + node.pool.pending <= 1
    node.pool.close()


@in_loop
async def test_what_a_pattern_stands_for_is_found_anew_when_there_are_other_topics() -> None:
    patterns, node = patterns_of(2)
    for count in (2, 3, 2):
        node.topics.count = count
        assert await patterns.of(["a+.", "b"]) == {"a+.": set(node.topics.names()), "b": set()}
    for number in range(MAX_REMEMBERED + 10):
        await patterns.of([f"x{number}"])
    assert len(patterns._found) == MAX_REMEMBERED
    node.pool.close()


@in_loop
async def test_members_and_lists_with_patterns_are_told_what_is_wrong(tmp_path: Path) -> None:
    async with node_for(tmp_path) as node:
        for number in range(4):
            await node.topics.create(f"{'a' * 240}{number}", 1)
        beat = {
            "group_id": "g", "member_id": "m", "member_epoch": 0, "instance_id": None, "rack_id": None,
            "rebalance_timeout": 1000, "subscribed_topic_names": None, "server_assignor": None, "topic_partitions": [],
        }  # fmt: skip
        for pattern, code in (
            ("(", ErrorCode.INVALID_REGULAR_EXPRESSION), (r"(a?\b?){400}.*", ErrorCode.INVALID_REGULAR_EXPRESSION),
            ("a{240}[0-2]", 0),
        ):  # fmt: skip
            tree = {**beat, "subscribed_topic_regex": pattern}
            answer = await call(node, "consumer_group_heartbeat", 1, tree)
            assert answer.error_code == code, pattern
        assert len(answer.assignment.topic_partitions) == 3


@in_loop
async def test_a_client_whose_own_pattern_matches_no_topic_yet_joins(tmp_path: Path) -> None:
    """Java's consumer sends an empty list of names for a `Pattern` that matches nothing."""
    async with node_for(tmp_path) as node:

        async def send_heartbeat(**fields: Any) -> tuple[int, int, list[tuple[int, ...]]]:
            tree = {"group_id": "g", "member_id": "m", "rebalance_timeout": 1000, "topic_partitions": [], **fields}
            answer = await call(node, "consumer_group_heartbeat", 1, tree)
            assigned = [row.partitions for row in answer.assignment.topic_partitions]
            return answer.error_code, answer.member_epoch, assigned

        assert await send_heartbeat(member_epoch=0, subscribed_topic_names=[]) == (0, 1, [])
        await node.topics.create("t", 1)
        assert await send_heartbeat(member_epoch=1, subscribed_topic_names=["t"]) == (0, 2, [(0,)])
        found = await send_heartbeat(member_id="n", member_epoch=0, subscribed_topic_regex="")
        assert found == (0, 2, []), "nothing to assign to it"
