"""The tasks that poll for the leader: they end when they are stopped, and not by an error."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from kafkalog.errors import StorageError
from kafkalog.server.quorum import quorum as quorum_module
from kafkalog.server.quorum.file import NO_NODE, QuorumFile
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
        done, _ = await asyncio.wait([peers.watching], timeout=60)
        peers.watching = None
        assert done


@in_loop
async def test_a_former_leader_whose_disk_is_full_at_its_start_leads_once_there_is_room(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """No other node asks for votes without an operator."""
    for name in ("REGAIN_SECONDS", "RESUME_SECONDS"):
        monkeypatch.setattr(quorum_module, name, 0.05)
    refused = []

    def refuse(*_: object) -> None:
        refused.append(1)
        raise StorageError("no space left on device")

    async with set_of(tmp_path) as nodes:
        await nodes.promote(1)
        term = nodes.quorum(1).state.term
        await nodes.stop(1)
        for other in (2, 3):
            await nodes.quorum(other).learn_leader(term + 1, NO_NODE)  # a candidate that went away
        with monkeypatch.context() as full_disk:
            full_disk.setattr(QuorumFile, "write", refuse)
            await nodes.start(1)
            await wait_until(lambda: bool(refused))
        await wait_until(lambda: nodes.quorum(1).leads)
