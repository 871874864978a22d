"""A mirror of our own server: ids, settings, bytes; while it is written, over restarts, and of a trimmed source."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from kafkalog.errors import InconsistentTopicId, UnknownTopicOrPartition
from kafkalog.manager.log_manager import LogManager
from kafkalog.server.client.cluster import Cluster, Leader
from kafkalog.server.client.errors import PeerUnreachable
from kafkalog.server.mirror import mirror as mirror_module
from kafkalog.server.mirror.mirror import Mirror, _supported
from kafkalog.server.mirror.running import open_mirror
from kafkalog.server.node.pool import CallPool
from kafkalog.server.node.topics import id_text
from kafkalog.server.serving import Server
from kafkalog.storage.partition_metadata import read_partition_metadata
from kafkalog.types import TopicPartition
from kafkalog.util.clock import SYSTEM_CLOCK
from kafkalog.util.fileio import OS
from tests.builder import R, batch
from tests.server.client.peers import HOST, error_of, server_on
from tests.server.looping import in_loop
from tests.server.replica.copies import QUICK, bytes_from, partitions_of, until

T0 = TopicPartition("t", 0)


def append(server: Server, key: TopicPartition, *values: bytes) -> None:
    server.node.replicas.append_now(key, bytearray(batch([R(value) for value in values])), required_acks=1)


@asynccontextmanager
async def mirror_of(server: Server, path: Path, *topics: str, **more: Any) -> AsyncIterator[tuple[Mirror, LogManager]]:
    """A mirror that is not started yet, with its store."""
    opened, pool = open_mirror([path]), CallPool(2)
    mirror = Mirror(
        opened.manager, more.pop("bootstrap", [(HOST, server.ports["PLAINTEXT"])]), topics,
        run=pool.run, monotonic_ms=SYSTEM_CLOCK.monotonic_ms, limits=QUICK,
    )  # fmt: skip
    try:
        yield mirror, opened.manager
    finally:
        await mirror.stop()
        pool.close()
        opened.close()


async def until_same(server: Server, store: LogManager, *keys: TopicPartition) -> None:
    def is_same(key: TopicPartition) -> bool:
        own, log = store.get(key), server.node.replicas.find(key).log
        assert own is not None
        return (own.log_end_offset, own.high_watermark) == (log.log_end_offset, log.high_watermark)

    await until(lambda: all(is_same(key) for key in keys))
    for key in keys:
        own = store.get(key)
        assert own is not None
        assert bytes_from(own, own.log_start_offset) == bytes_from(
            server.node.replicas.find(key).log, own.log_start_offset
        )


@in_loop
async def test_topics_are_copied_while_they_are_written(tmp_path: Path) -> None:
    async with server_on(tmp_path / "source") as server:
        keys = [*partitions_of("t", "u")]
        await server.node.topics.create("t", 2, {"retention.ms": "-1", "segment.bytes": "1048576"})
        await server.node.topics.create("u", 2)
        await server.node.topics.create("other", 1)
        for key in keys:
            for index in range(20):
                append(server, key, b"%d" % index * 50, b"more")
        async with mirror_of(server, tmp_path / "copy", "t", "u") as (mirror, store):
            await mirror.start()
            await until_same(server, store, *keys)
            for index in range(100):
                append(server, keys[index % 4], b"later")
            await until_same(server, store, *keys)
            await until(lambda: mirror.is_in_sync)
            assert mirror.failures == []
            assert sorted({key.topic for key in store.logs}) == ["t", "u"]
            topic = server.node.topics.get("t")
            log = store.logs[T0]
            assert read_partition_metadata(OS, log.path) == id_text(topic.id)
            assert (log.config.retention_ms, log.config.segment_bytes) == (-1, 1048576)
        async with mirror_of(server, tmp_path / "copy", "t", "u") as (mirror, store):  # it goes on where it was
            end = store.logs[T0].log_end_offset
            assert end == server.node.replicas.find(T0).log.log_end_offset == store.logs[T0].high_watermark
            append(server, T0, b"once more")
            await server.node.topics.alter("t", {"retention.ms": "1000000", "segment.bytes": None})
            await mirror.start()
            await until_same(server, store, *keys)
            assert store.logs[T0].config.retention_ms == 1000000


@in_loop
async def test_new_partitions_and_settings_come_with_the_next_look(tmp_path: Path) -> None:
    async with server_on(tmp_path / "source") as server:
        await server.node.topics.create("t", 1)
        async with mirror_of(server, tmp_path / "copy", "t") as (mirror, store):
            await mirror.start()
            await server.node.topics.add_partitions("t", 3)
            append(server, TopicPartition("t", 2), b"0")
            await mirror.refresh()
            await until_same(server, store, *(TopicPartition("t", index) for index in range(3)))


@pytest.mark.parametrize("is_created_again", [False, True])
@in_loop
async def test_a_deleted_topic_does_not_keep_the_others_back(tmp_path: Path, is_created_again: bool) -> None:
    async with server_on(tmp_path / "source") as server:
        await server.node.topics.create("gone", 1)
        await server.node.topics.create("t", 1)
        async with mirror_of(server, tmp_path / "copy", "gone", "t") as (mirror, store):
            await mirror.start()
            await server.node.topics.delete("gone")
            if is_created_again:
                await server.node.topics.create("gone", 1)
            await server.node.topics.add_partitions("t", 3)
            append(server, TopicPartition("t", 2), b"0")
            assert isinstance(
                await error_of(mirror.refresh()), InconsistentTopicId if is_created_again else UnknownTopicOrPartition
            )
            await until_same(server, store, *(TopicPartition("t", index) for index in range(3)))


@in_loop
async def test_what_the_source_has_let_go_of_goes_here_too(tmp_path: Path) -> None:
    async with server_on(tmp_path / "source") as server:
        await server.node.topics.create("t", 1)
        for index in range(30):
            append(server, T0, b"%d" % index)
        async with mirror_of(server, tmp_path / "copy", "t") as (mirror, store):
            await mirror.start()
            await until_same(server, store, T0)
            server.node.replicas.find(T0).delete_records(10)
            append(server, T0, b"x")
            await until(lambda: store.logs[T0].log_start_offset == 10)
        for index in range(30):
            append(server, T0, b"%d" % index)
        server.node.replicas.find(T0).delete_records(50)  # and what the mirror lacks
        async with mirror_of(server, tmp_path / "copy", "t") as (mirror, store):
            await mirror.start()
            await until(lambda: store.logs[T0].log_start_offset == 50)
            await until_same(server, store, T0)


@in_loop
async def test_what_cannot_be_mirrored_is_told(tmp_path: Path) -> None:
    async with server_on(tmp_path / "source") as server:
        await server.node.topics.create("t", 1)
        async with mirror_of(server, tmp_path / "copy", "t", "absent") as (mirror, _):
            error = await error_of(mirror.start())
            assert isinstance(error, UnknownTopicOrPartition) and "has no topic absent" in str(error)
            assert server.node.topics.get("absent") is None
        async with mirror_of(server, tmp_path / "copy", "t", bootstrap=[(HOST, 1)]) as (mirror, _):
            assert isinstance(await error_of(mirror.start()), PeerUnreachable)
        async with mirror_of(server, tmp_path / "copy", "t") as (mirror, store):
            await mirror.start()
            append(server, T0, b"0")
            await until_same(server, store, T0)
        await server.node.topics.delete("t")
        await server.node.topics.create("t", 1)
        async with mirror_of(server, tmp_path / "copy", "t") as (mirror, store):
            error = await error_of(mirror.start())
            assert isinstance(error, InconsistentTopicId) and "deleted and created again" in str(error)
            assert store.logs[T0].log_end_offset == 1


@in_loop
async def test_a_source_that_comes_back_is_followed_on(tmp_path: Path) -> None:
    async with server_on(tmp_path / "source") as server:
        await server.node.topics.create("t", 1)
        append(server, T0, b"0")
        port = server.ports["PLAINTEXT"]
        copy = mirror_of(server, tmp_path / "copy", "t")
        mirror, store = await copy.__aenter__()
        await mirror.start()
        await until_same(server, store, T0)
    await until(lambda: bool(mirror.failures))
    async with server_on(tmp_path / "source", listeners=f"PLAINTEXT://{HOST}:{port}") as server:
        append(server, T0, b"1")
        await until_same(server, store, T0)
        await copy.__aexit__(None, None, None)


@in_loop
async def test_a_broker_that_leads_nothing_or_has_gone_is_not_connected_to(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It would be tried each second, with an error and its traceback in the log."""
    async with server_on(tmp_path / "source") as server:
        await server.node.topics.create("t", 1)
        address, topic, read = (HOST, server.ports["PLAINTEXT"]), "t", mirror_module.read_cluster
        nodes: dict[int, tuple[str, int]] = {8: address}

        async def moved(*args: Any) -> Cluster:
            found = await read(*args)
            leader = Leader(next(iter(nodes), -1), found.topics[topic].leaders[0].epoch)
            return found._replace(nodes=nodes, topics={topic: found.topics[topic]._replace(leaders=(leader,))})

        monkeypatch.setattr(mirror_module, "read_cluster", moved)
        async with mirror_of(server, tmp_path / "copy", topic) as (mirror, store):
            await mirror.start()
            append(server, T0, b"0")
            await until_same(server, store, T0)
            nodes = {9: address}
            await mirror.refresh()
            append(server, T0, b"1")
            await until_same(server, store, T0)
            assert mirror._fetchers.keys() == {9} and mirror.failures == []
            nodes = {}
            await mirror.refresh()
            with pytest.raises(PeerUnreachable, match="no broker 9 now"):
                await mirror._connect_to(9)


def test_settings_that_mean_nothing_here_are_left_out() -> None:
    given = {"segment.bytes": "1048576", "leader.replication.throttled.replicas": "*", "some.day": "1"}
    assert _supported(given)["segment.bytes"] == "1048576" and "some.day" not in _supported(given)


@pytest.mark.parametrize("given", ["nobody", "host:", ":9092", "host:99999", "host:9a"])
def test_addresses_that_are_none(given: str, tmp_path: Path) -> None:
    from click.testing import CliRunner

    from kafkalog.cli.mirror_cmd import command

    done = CliRunner().invoke(command, ["--from", given, "-d", str(tmp_path), "-t", "t"])
    assert done.exit_code == 2 and "is not HOST:PORT" in done.output
