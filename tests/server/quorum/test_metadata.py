"""The metadata that all nodes of a set share, as one node requests it from another."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from kafkalog.errors import NotLeaderOrFollower
from kafkalog.server.apis import fetch_snapshot
from kafkalog.server.quorum import metadata
from tests.server.looping import in_loop
from tests.server.nodes import call
from tests.server.quorum.sets import set_of


@in_loop
async def test_a_node_that_does_not_lead_says_so_and_it_is_asked_again_later(tmp_path: Path) -> None:
    """An error that passes: who follows looks for the leader, and nothing is wrong."""
    async with set_of(tmp_path) as nodes:

        class Connection:
            peer = "node 1"

            async def request(self, api_key: int, tree: Any) -> Any:
                return await call(nodes[1], "fetch_snapshot", 1, tree)

        with pytest.raises(NotLeaderOrFollower, match="did not send its settings"):
            await metadata.ask(Connection(), 2, 0)


@in_loop
async def test_a_snapshot_whose_version_is_written_between_its_parts_is_read_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The number of changes on disk is in it: with one more digit, the next part would begin a byte too early."""
    monkeypatch.setattr(metadata, "PART_BYTES", 200)
    async with set_of(tmp_path) as nodes:
        await nodes.promote(1)
        own = nodes.quorum(1).metadata
        own.changes = 9
        await own.save()
        own.changes = 10
        parts = []

        class Connection:
            peer = "node 1"

            async def request(self, api_key: int, tree: Any) -> Any:
                parts.append(await call(nodes[1], "fetch_snapshot", 1, tree))
                if len(parts) == 1:
                    await own.save()
                return parts[-1]

        found = await metadata.ask(Connection(), 2, nodes.quorum(1).state.term)
        assert found == metadata.read_content(metadata.content_of(nodes[1]))
        assert found.versions.complete[1] == 10 and len(parts) > 2


@in_loop
async def test_the_parts_of_a_snapshot_are_of_one_content(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """It is formatted once for all parts, and kept until the last one."""
    formatted: list[bytes] = []
    monkeypatch.setattr(
        fetch_snapshot, "content_of", lambda node: formatted.append(metadata.content_of(node)) or formatted[-1]
    )
    monkeypatch.setattr(metadata, "PART_BYTES", 50)
    monkeypatch.setattr(fetch_snapshot, "PART_BYTES", 50)
    async with set_of(tmp_path) as nodes:
        await nodes.promote(1)
        parts = []

        class Connection:
            peer = "node 1"

            async def request(self, api_key: int, tree: Any) -> Any:
                parts.append(await call(nodes[1], "fetch_snapshot", 1, tree))
                assert (nodes.quorum(1).metadata.sent is not None) == (50 * len(parts) < len(formatted[0]))
                return parts[-1]

        for times in (1, 2):
            parts.clear()
            found = await metadata.ask(Connection(), 2, nodes.quorum(1).state.term)
            assert found == metadata.read_content(metadata.content_of(nodes[1]))
            assert len(formatted) == times and len(parts) > 2


@in_loop
@pytest.mark.parametrize("size", [-1, 2])
async def test_a_snapshot_that_is_longer_than_its_size_is_refused(size: int) -> None:
    """Parts would come without an end, and fill the memory."""

    class Connection:
        peer = "node 1"
        asked = 0

        async def request(self, api_key: int, tree: Any) -> Any:
            self.asked += 1
            assert self.asked < 9
            position = tree["topics"][0]["partitions"][0]["position"]
            row = SimpleNamespace(
                error_code=0, snapshot_id=SimpleNamespace(end_offset=1, epoch=1), position=position, size=size,
                unaligned_records=b"part",
            )  # fmt: skip
            return SimpleNamespace(topics=[SimpleNamespace(partitions=[row])])

    with pytest.raises(ValueError, match="too large or incomplete"):
        await metadata.ask(Connection(), 2, 0)
