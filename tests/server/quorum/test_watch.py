"""The task that polls for the leader ends when it is stopped."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from kafkalog.server.quorum.watch import watch
from tests.server.looping import in_loop
from tests.server.quorum.sets import Peers, set_of, wait_until


class EndsItself(Peers):
    """A way to the others on which each answer comes together with the end of who asked."""

    watching: asyncio.Task[None] | None = None

    async def ask(self, node_id: int, api_key: int, request: Mapping[str, Any]) -> Any:
        answer = await super().ask(node_id, api_key, request)
        if self.watching is not None:
            asyncio.get_running_loop().call_soon(self.watching.cancel)
        return answer


@in_loop
async def test_an_answer_that_comes_with_the_end_does_not_undo_it(tmp_path: Path) -> None:
    async with set_of(tmp_path) as nodes:
        await nodes.promote(1)
        quorum = nodes.quorum(2)
        await wait_until(lambda: quorum.leader == 1)
        peers = quorum.peers = EndsItself(nodes, 2)
        peers.watching = asyncio.ensure_future(watch(quorum, 2))
        done, _ = await asyncio.wait([peers.watching], timeout=20)
        peers.watching = None
        assert done
