"""Nodes swap roles while clients write: acknowledged records stay, in order, and clients wait only briefly."""

from __future__ import annotations

import asyncio
from pathlib import Path
from time import monotonic

from kafkalog.server.error_codes import ErrorCode
from kafkalog.server.replica.results import AppendParams
from kafkalog.server.serving import Server
from tests.builder import R, batch
from tests.server.looping import in_loop
from tests.server.replica.copies import bytes_from, until
from tests.server.replicated.test_following_leader import T0, T1, set_of_three, until_same

SENT_AGAIN = frozenset({ErrorCode.NOT_LEADER_OR_FOLLOWER, ErrorCode.NOT_ENOUGH_REPLICAS})


class Writer:
    """Writes numbers to a partition of the current leader, and records the acknowledged ones."""

    def __init__(self, servers: dict[int, Server], acks: int) -> None:
        self.servers = servers
        self.acks = acks
        self.acknowledged: list[tuple[int, bytes]] = []
        self.longest_s = 0.0
        self.is_over = False

    async def run(self) -> None:
        key = T0 if self.acks == 1 else T1
        number, last = 0, monotonic()
        while not self.is_over:
            leaders = [one.node for one in self.servers.values() if one.node.quorum.leads]
            if leaders:
                value = b"%d" % number
                found = (await leaders[0].replicas.append(
                    {key: bytearray(batch([R(value)]))}, AppendParams(self.acks, 30_000)
                ))[key]  # fmt: skip
                assert self.is_over or found.error_code in SENT_AGAIN or not found.error_code, found
                if not found.error_code:
                    self.acknowledged.append((found.base_offset, value))
                    self.longest_s, last = max(self.longest_s, monotonic() - last), monotonic()
                    number += 1
            await asyncio.sleep(0)


@in_loop
async def test_no_acknowledged_record_is_lost_when_leaders_hand_over(tmp_path: Path) -> None:
    """FLOW-4: nor one of acks=1, where no node dies."""
    async with set_of_three(tmp_path) as servers:
        await servers[1].node.quorum.promote()
        await servers[1].node.topics.create("t", 2)
        await until(lambda: all(one.node.topics.get("t") is not None for one in servers.values()))
        writers = [Writer(servers, 1), Writer(servers, -1)]
        tasks = [asyncio.ensure_future(one.run()) for one in writers]
        for leader in (2, 3, 1, 2):
            await until_more(writers)
            await servers[leader].node.quorum.promote()
            assert servers[leader].node.quorum.leads
            for task in tasks:
                assert not task.done() or task.result() is None
        await until_more(writers)
        for one in writers:
            one.is_over = True
        await asyncio.gather(*tasks)
        await until_same(servers, 2, T0, T1)
        for key, one in zip((T0, T1), writers, strict=True):
            log = servers[3].node.store.get(key)
            kept = by_offset(bytes_from(log, 0))
            for offset, value in one.acknowledged:
                assert kept[offset].endswith(bytes([2 * len(value)]) + value + b"\0")
            assert one.acknowledged == sorted(one.acknowledged)


async def until_more(writers: list[Writer]) -> None:
    """Return once each has written some more."""
    counts = [len(one.acknowledged) for one in writers]
    await until(lambda: all(len(one.acknowledged) > n + 20 for one, n in zip(writers, counts, strict=True)))


def by_offset(data: bytes) -> dict[int, bytes]:
    """Batches of one record each: their bytes, at the end of which the value stands."""
    found, position = {}, 0
    while position < len(data):
        end = position + 12 + int.from_bytes(data[position + 8 : position + 12], "big")
        found[int.from_bytes(data[position : position + 8], "big")] = data[position:end]
        position = end
    return found
