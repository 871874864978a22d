"""Share groups of a replica set: only the leader has them, and the next one knows which deliveries are complete."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any, Final

from kafkalog.server.error_codes import ErrorCode
from kafkalog.server.node.node import Node
from tests.server.looping import in_loop
from tests.server.nodes import call
from tests.server.replica.copies import until
from tests.server.replicated.servers import Servers
from tests.server.replicated.test_following_leader import set_of_three
from tests.server.replicated.test_one_cluster import led_by_first
from tests.server.share.sharing import ACCEPT, REJECT, RELEASE, Member, joined, offsets, produce, set_group

ONE: Final = {"offsets.topic.num.partitions": 1, "share.coordinator.state.topic.num.partitions": 1}
LETTERS: Final = "dlq.t"
UNUSED: Final = 10**6
"""Number of a connection that none to a peer has, whose end would release the records."""


async def member_at(node: Node, name: str = "m") -> Member:
    """A member that joins the group again, as clients do after a failover."""
    member = Member(node, name)
    while (answer := await member.beat()).error_code:
        assert answer.error_code in (ErrorCode.COORDINATOR_LOAD_IN_PROGRESS, ErrorCode.NOT_COORDINATOR), answer
        await asyncio.sleep(0)
    return member


async def acquired(member: Member) -> list[tuple[int, int, int]]:
    found: list[tuple[int, int, int]] = []
    while not found:
        found = await member.acquired(max_wait=1000)
    return found


async def ends(node: Node, letters: int) -> None:
    await until(lambda: node.replicas.partition(LETTERS, 0).log.log_end_offset == letters)
    while (await offsets(node))[0][1] != 9:
        await asyncio.sleep(0)


async def begun(servers: Servers) -> dict[int, Node]:
    """The nodes, of which the first leads; a member has accepted, rejected and released records."""
    nodes = await led_by_first(servers)
    first = nodes[1]
    await first.topics.create(LETTERS, 1, {"errors.deadletterqueue.group.enable": "true"})
    member = await joined(first, number=UNUSED)
    await set_group(first, errors_deadletterqueue_topic_name=LETTERS)
    await produce(first, 6, 6)
    assert await acquired(member) == [(0, 11, 1)]
    assert await member.complete((0, 0, ACCEPT), (1, 1, RELEASE), (2, 2, REJECT), (3, 3, ACCEPT)) == 0
    await ends(first, 1)
    return nodes


async def refusals(node: Node) -> list[int]:
    """The codes with which a node that does not lead sends members elsewhere."""
    member = Member(node)
    return [int((await member.beat()).error_code), int(await member.fetch())]


async def goes_on(node: Node) -> None:
    """Deliveries go on at a new leader: what was complete is not delivered again, the rest with its counts."""
    await until(lambda: not node.leaders_calls and node.topics.get("t") is not None)
    await until(lambda: node.replicas.partition("t", 0).high_watermark == 12)  # or not all is delivered at once
    member = await member_at(node)
    assert await acquired(member) == [(1, 1, 2), (4, 11, 1)]
    assert await member.complete((1, 1, ACCEPT), (4, 11, ACCEPT)) == 0
    assert (await offsets(node))[0][1] == 0
    assert node.replicas.partition(LETTERS, 0).log.log_end_offset == 1, "no letter twice"


@in_loop
async def test_only_the_leader_serves_share_groups_and_names_itself(tmp_path: Path) -> None:
    async with set_of_three(tmp_path, **ONE) as servers:
        nodes = await begun(servers)
        codes = [int(ErrorCode.NOT_COORDINATOR), int(ErrorCode.NOT_LEADER_OR_FOLLOWER)]
        for number in (2, 3):
            assert await refusals(nodes[number]) == codes
            asked: dict[str, Any] = {"key_type": 0, "coordinator_keys": ["g"]}
            [row] = (await call(nodes[number], "find_coordinator", 6, asked)).coordinators
            assert (row.error_code, row.node_id) == (0, 1)


@in_loop
async def test_another_leader_goes_on_where_the_last_one_was(tmp_path: Path) -> None:
    async with set_of_three(tmp_path, **ONE) as servers:
        nodes = await begun(servers)
        await nodes[2].quorum.promote()
        await goes_on(nodes[2])
        assert await refusals(nodes[1]) == [ErrorCode.NOT_COORDINATOR, ErrorCode.NOT_LEADER_OR_FOLLOWER]


@in_loop
async def test_a_node_that_leads_after_a_failure_goes_on_as_well(tmp_path: Path) -> None:
    async with set_of_three(tmp_path, **ONE) as servers:
        nodes = await begun(servers)
        await servers.stop(1)
        await nodes[3].quorum.promote()
        await goes_on(nodes[3])
