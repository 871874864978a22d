"""Full collections of a server do not go through the logs that it has had for some time."""

import asyncio
import gc
import weakref
from collections.abc import Iterator
from pathlib import Path

import pytest

from kafkalog.server.running import NEW_LOGS, FrozenLogs
from tests.server.nodes import node_for


@pytest.fixture(scope="module", autouse=True)
def _frozen_before() -> Iterator[None]:
    """Leave nothing frozen that was not before; that costs seconds, so it is done once."""
    yield
    gc.unfreeze()
    gc.collect()
    gc.freeze()


def test_logs_of_a_long_request_are_frozen_between_its_parts(tmp_path: Path) -> None:
    async def use() -> None:
        async with node_for(tmp_path) as node:
            frozen = FrozenLogs(lambda: len(node.store.current_logs))
            frozen.freeze()
            before, seen = gc.get_freeze_count(), []

            def follow() -> None:
                frozen.follow()
                seen.append((len(node.store.current_logs), gc.get_freeze_count() > before))

            node.topics.between_steps = follow
            await node.topics.create("t", 3 * NEW_LOGS // 2)
            assert [count >= NEW_LOGS for count, _ in seen] == [is_frozen for _, is_frozen in seen]
            assert seen[-1][1] and not seen[0][1]

    asyncio.run(use())


def test_garbage_is_freed_before_the_rest_is_frozen() -> None:
    class Node:
        pass

    one = Node()
    one.itself = one  # type: ignore[attr-defined]
    gone = weakref.ref(one)
    del one
    FrozenLogs(lambda: 0).freeze()
    assert gone() is None


def test_logs_count_again_after_others_were_deleted() -> None:
    count = [0]
    frozen = FrozenLogs(lambda: count[0])
    for count[0], is_frozen in ((NEW_LOGS, True), (0, False), (NEW_LOGS - 1, False), (NEW_LOGS, True)):
        before = gc.get_freeze_count()
        kept = [[] for _ in range(1000)]
        frozen.follow()
        assert (gc.get_freeze_count() > before) == is_frozen, count
        del kept
