"""A power cut takes what was not flushed: with `log.flush.interval.messages=1` that is nothing that was answered.

A node without sockets on a disk that forgets. Records, offsets of groups and transactions are acknowledged, states that
the disk may be left in are taken at its changes, and a node is started on each.
"""

from __future__ import annotations

import asyncio
import shutil
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from random import Random
from typing import Any, NamedTuple

import pytest

import kafkalog
from kafkalog.records.builder import RecordsBuilder
from kafkalog.server.error_codes import ErrorCode
from kafkalog.server.node.node import Node
from kafkalog.server.node.store import open_store
from kafkalog.server.node.topics import id_text
from kafkalog.server.settings.config import ServerConfig
from kafkalog.storage.partition_metadata import read_partition_metadata
from kafkalog.types import TopicPartition
from kafkalog.util.fileio import OS, FileSystem
from tests.crash.disk import MODES, DiskFS, Image, write_image
from tests.server.groups.groups import commit_offset
from tests.server.nodes import SMALL, call
from tests.server.txns import calls

STATES = 24
FLUSHED = ServerConfig({
    **SMALL, "log.flush.interval.messages": 1, "log.segment.bytes": 1 << 20, "log.index.size.max.bytes": 1 << 12,
})  # fmt: skip


class Acknowledged(NamedTuple):
    """Acknowledgements to clients: values in `t-0`, the offset of a group, committed and aborted transactions."""

    values: tuple[bytes, ...] = ()
    offset: int = -1
    committed: tuple[bytes, ...] = ()
    aborted: tuple[bytes, ...] = ()


@asynccontextmanager
async def node_on(path: Path, fs: FileSystem) -> AsyncIterator[Node]:
    opened = open_store([str(path)], FLUSHED, fs=fs)
    node = Node(FLUSHED, opened)
    node.endpoints["PLAINTEXT"] = ("localhost", 9092)
    try:
        await node.start()
        await node.groups.loaded()
        await node.transactions.loaded()
        node.is_ready = True
        yield node
    finally:
        await node.stop()


async def produced(node: Node, topic: str, value: bytes, name: str | None = None, **producer: int) -> None:
    builder = RecordsBuilder(is_transactional=name is not None, **producer)
    builder.append(1, None, value)
    row = {"name": topic, "partition_data": [{"index": 0, "records": bytes(builder.build())}]}
    answer = await call(node, "produce", 9, {
        "transactional_id": name, "acks": -1, "timeout": 1000, "topic_data": [row],
    })  # fmt: skip
    assert answer.responses[0].partition_responses[0].error_code == 0


async def in_transaction(node: Node, value: bytes, sequence: int, producer: Any, is_committed: bool) -> None:
    assert await calls.add_partitions(node, producer, x=[0]) == {("x", 0): 0}
    await produced(
        node, "x", value, "x", producer_id=producer.producer_id, producer_epoch=producer.producer_epoch,
        base_sequence=sequence,
    )  # fmt: skip
    assert (await calls.end_transaction(node, producer, committed=is_committed)).error_code == 0


def values(target: Path, topic: str) -> list[bytes]:
    """Return the values that a reader of committed records gets."""
    with kafkalog.open(target / f"{topic}-0") as log:
        return [bytes(record.value or b"") for record in log.records(isolation="read_committed")]


async def work(node: Node, acknowledged: list[Acknowledged], rng: Random) -> None:
    """Clients that go on until enough states were taken."""
    producer = await calls.init_producer(node)
    for number in range(30):
        value, last = b"%d" % number, acknowledged[-1]
        what = rng.choice(["produce", "produce", "commit", "transaction"])
        if what == "produce":
            await produced(node, "t", value)
            acknowledged.append(last._replace(values=(*last.values, value)))
        elif what == "commit":
            assert await commit_offset(node, number) == 0
            acknowledged.append(last._replace(offset=number))
        else:
            is_committed = rng.random() < 0.7
            sequence = len(last.committed) + len(last.aborted)
            await in_transaction(node, value, sequence, producer, is_committed)
            kind = "committed" if is_committed else "aborted"
            acknowledged.append(last._replace(**{kind: (*getattr(last, kind), value)}))


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(3))
def test_a_power_cut_takes_nothing_that_a_server_has_flushed(place: Path, seed: int) -> None:
    rng, root = Random(f"server {seed}"), place / "data"
    root.mkdir()
    fs = DiskFS(root)
    acknowledged = [Acknowledged()]
    cuts: list[tuple[Image, Acknowledged, str]] = []

    def on_change() -> None:
        if rng.random() < 0.4:
            mode, least = rng.choice(MODES), acknowledged[-1]  # first: acknowledgements may come during the image
            cuts.append((fs.disk.image(mode, rng), least, mode.name))

    async def run() -> None:
        async with node_on(root, fs) as node:
            for name in ("t", "x"):
                await node.topics.create(name, 1)
            await calls.init_producer(node)
            assert await commit_offset(node, 0) == 0
            acknowledged[0] = Acknowledged(offset=0)
            fs.on_change = on_change
            await work(node, acknowledged, rng)
            fs.on_change = lambda: None

    asyncio.run(run())
    assert len(cuts) >= STATES
    for image, least, mode in rng.sample(cuts, STATES):
        asyncio.run(_check(place / "cut", image, least, f"seed {seed}, {mode}, {least}"))


@pytest.mark.parametrize("seed", range(2))
def test_topics_that_were_made_together_outlive_a_power_cut(place: Path, seed: int) -> None:
    """Only the topics file was synced: the next start creates missing partitions."""
    rng, root = Random(f"topics {seed}"), place / "data"
    root.mkdir()
    fs = DiskFS(root)
    cuts: list[tuple[Image, str]] = []
    made: list[Any] = []

    async def run() -> None:
        async with node_on(root, fs) as node:
            made.extend(await node.topics.create_all([node.topics.plan(name, 3) for name in ("t", "u", "v")]))
            cuts.extend((fs.disk.image(mode, rng), mode.name) for mode in MODES)
            await produced(node, "u", b"1")
            cuts.extend((fs.disk.image(mode, rng), mode.name) for mode in MODES)

    asyncio.run(run())
    for number, (image, mode) in enumerate(cuts):
        where = f"seed {seed}, {mode}, {number}"
        write_image(image, place / "cut")
        asyncio.run(_check_topics(place / "cut", made, number >= len(MODES), where))
        shutil.rmtree(place / "cut")


async def _check_topics(target: Path, made: list[Any], has_record: bool, where: str) -> None:
    async with node_on(target, OS) as node:
        assert [node.topics.get(topic.name) for topic in made] == made, where
        for topic in made:
            for index in range(topic.partitions):
                log = node.replicas.partition(topic.name, index).log
                assert read_partition_metadata(OS, log.path) == id_text(topic.id), where
        await produced(node, "u", b"2")
    assert values(target, "u") == [b"1", b"2"][not has_record :], where


async def _check(target: Path, image: Image, least: Acknowledged, where: str) -> None:
    write_image(image, target)
    try:
        async with node_on(target, OS) as node:
            at = node.groups.offsets.get("g", ("t", 0))
            assert at is not None and at.offset >= least.offset, where
            log = node.replicas.partition(*TopicPartition("x", 0)).log
            again = await calls.init_producer(node)
            if again.error_code == ErrorCode.CONCURRENT_TRANSACTIONS:  # one that had begun is aborted
                again = await calls.init_producer(node)
            assert again.error_code == 0, where
            assert log.last_stable_offset == log.log_end_offset, f"{where}: a transaction is left open"
            await in_transaction(node, b"after", 0, again, True)
            await produced(node, "t", b"after")
        *found, last = values(target, "t")
        assert (tuple(found[: len(least.values)]), last) == (least.values, b"after"), where
        assert len(found) <= len(least.values) + 1, where
        *there, last = values(target, "x")
        assert (tuple(there[: len(least.committed)]), last) == (least.committed, b"after"), where
        assert not set(there) & set(least.aborted), where
    finally:
        shutil.rmtree(target)
