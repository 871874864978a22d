"""The metadata that all nodes of a set share, as one node requests it from another."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from kafkalog.errors import NotLeaderOrFollower
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
