"""A voter that is ahead of a candidate lets it copy what it lacks, and follows no leader meanwhile."""

from __future__ import annotations

from pathlib import Path

from tests.server.looping import in_loop
from tests.server.nodes import call, connection_for
from tests.server.quorum.sets import set_of


@in_loop
async def test_only_a_node_lengthens_the_time_in_which_it_may_copy(tmp_path: Path) -> None:
    """While it may, this node follows no leader."""
    async with set_of(tmp_path, authorizer_class_name="x", super_users="User:boss") as nodes:
        grant = nodes.quorum(1).copy_grant
        assert await grant.begin(3)
        request = {"replica_state": {"replica_id": 3, "replica_epoch": -1}, "max_wait": 0, "min_bytes": 1,
                   "max_bytes": 1000, "isolation_level": 0, "session_id": 0, "session_epoch": -1, "rack_id": "",
                   "topics": (), "forgotten_topics_data": ()}  # fmt: skip
        for principal in ("User:anyone", "User:boss"):
            until = grant._until
            await call(nodes[1], "fetch", 16, request, connection=connection_for(principal))
            assert (grant._until > until) is (principal == "User:boss")
