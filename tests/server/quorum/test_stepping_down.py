"""A leader that steps down: its appends that are in the pool end before records of another leader follow."""

from __future__ import annotations

import asyncio
import threading
from pathlib import Path

import pytest

from kafkalog.server.error_codes import ErrorCode
from kafkalog.server.replica.results import AppendParams
from kafkalog.storage.log import UnifiedLog
from tests.builder import R, batch
from tests.gates import PATIENCE_S
from tests.server.looping import in_loop
from tests.server.quorum.sets import T0, set_of
from tests.server.quorum.test_leading import with_topic


class SlowCheck:
    """Appends in the pool stop where they look at the clock, before they take the lock of this log, until `release`."""

    def __init__(self, log: UnifiedLog) -> None:
        self._loop_thread, self._read = threading.get_ident(), log.fields.milliseconds
        self._has_begun, self._may_go_on = threading.Event(), threading.Event()
        self.release = self._may_go_on.set
        log.fields.milliseconds = self._milliseconds

    def _milliseconds(self) -> int:
        if threading.get_ident() != self._loop_thread:
            self._has_begun.set()
            assert self._may_go_on.wait(PATIENCE_S)
        return self._read()

    async def begun(self) -> None:
        """Return once an append has come that far."""
        await asyncio.to_thread(self._has_begun.wait, PATIENCE_S)


@pytest.mark.parametrize("leads", [False, True])
@in_loop
async def test_no_append_goes_on_once_a_node_that_does_not_lead_follows_no_one(tmp_path: Path, leads: bool) -> None:
    """PART-4: a record of an earlier epoch that came after those of a later leader would replace one of them for ever.

    A node that leads does not wait for its clients, who go on.
    """
    async with set_of(tmp_path, message_max_bytes=2_000_000) as nodes:
        await with_topic(nodes, 1, 2, 3)
        await nodes.promote(1)
        node = nodes[1]
        log = node.replicas.find(T0).log
        check = SlowCheck(log)
        data = bytearray(batch([R(bytes(1_200_000))]))
        writing = asyncio.ensure_future(node.replicas.append({T0: data}, AppendParams(1, 10_000)))
        await check.begun()
        if not leads:
            await nodes.quorum(1).learn_leader(nodes.quorum(1).state.term + 1, -1)

        async def log_end_when_held() -> int:
            async with node.following.held():
                return log.log_end_offset

        found = asyncio.ensure_future(log_end_when_held())
        for _ in range(100):
            await asyncio.sleep(0)
        check.release()
        assert (await writing)[T0].error_code == (0 if leads else ErrorCode.NOT_LEADER_OR_FOLLOWER)
        assert await found == (0 if leads else 1)
