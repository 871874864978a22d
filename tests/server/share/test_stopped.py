"""A share coordinator that has stopped, such as that of a node which led its replica set before and leads it again."""

import asyncio
from pathlib import Path
from typing import Any

import pytest

from kafkalog.server.error_codes import ErrorCode
from kafkalog.server.node.parts import make_part
from kafkalog.server.node.topics import SHARE_GROUP_STATE
from kafkalog.server.share.state_log import ShareStateLog
from tests.server.looping import in_loop
from tests.server.nodes import node_for
from tests.server.replica.partitions import settle
from tests.server.share.sharing import SMALL, Member, joined, produce


@in_loop
async def test_a_member_that_waited_while_the_leader_changed_begins_no_state(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its state would replace one that the present coordinator knows."""
    async with node_for(tmp_path, **SMALL) as node:
        member = await joined(node)
        await produce(node, 1)
        assert await member.acquired() == [(0, 0, 1)]
        ready, goes_on = ShareStateLog.ready, asyncio.Event()

        async def slowly(log: ShareStateLog, key: Any) -> int:
            await goes_on.wait()
            return await ready(log, key)

        monkeypatch.setattr(ShareStateLog, "ready", slowly)
        waiting = asyncio.ensure_future(Member(node, "n", group="h").beat())
        await settle()
        await node.shares.stop()
        node.parts["shares"] = make_part(node, "shares")
        await node.shares.start()
        log = node.replicas.partition(SHARE_GROUP_STATE, 0).log
        end = log.log_end_offset
        goes_on.set()
        answer = await waiting
        assert (answer.error_code, log.log_end_offset) == (ErrorCode.NOT_COORDINATOR, end)
