"""A partition that cannot be opened is offline: requests for it get the reason, the other partitions are served."""

import asyncio
import logging
import os
import struct
from collections.abc import Callable
from pathlib import Path

import pytest

import kafkalog
from kafkalog.errors import CorruptCheckpoint, CorruptRecord, KafkalogError
from kafkalog.manager.log_manager import LogManager
from kafkalog.server.status.page import page
from kafkalog.server.status.snapshot import status_of
from kafkalog.types import TopicPartition
from tests.server.nodes import call, node_for

LAST = 2**63 - 2
BAD = TopicPartition("t", 1)
WHO = {
    "topics": [{"topic_id": None, "name": "t"}], "allow_auto_topic_creation": False,
    "include_topic_authorized_operations": False,
}  # fmt: skip


def past_the_last_offset(directory: Path) -> None:
    """Leave a batch that ends at 2^63-1, in a segment that begins where it does."""
    log = directory / f"{0:020d}.log"
    content = bytearray(log.read_bytes())
    content[:8] = struct.pack(">q", LAST)
    for path in directory.glob("0*"):
        path.unlink()
    (directory / f"{LAST:020d}.log").write_bytes(content)


def a_bad_checkpoint(directory: Path) -> None:
    (directory / "leader-epoch-checkpoint").write_text("7\n")


DAMAGES = [(past_the_last_offset, CorruptRecord), (a_bad_checkpoint, CorruptCheckpoint)]


@pytest.fixture(params=DAMAGES, ids=["2^63-1", "checkpoint"])
def damaged(tmp_path: Path, request: pytest.FixtureRequest) -> tuple[Path, type[KafkalogError]]:
    """A data directory with three partitions of two records; the second one cannot be opened, for the error given."""
    damage: Callable[[Path], None]
    damage, kind = request.param
    with kafkalog.open_dirs(tmp_path, "a") as dirs:
        dirs.create_topic("t", 3)
        for number in range(3):
            dirs["t", number].append([b"a", b"b"])
    damage(tmp_path / "t-1")
    return tmp_path, kind


@pytest.mark.parametrize("is_clean", [True, False], ids=["closed well", "not closed"])
def test_a_store_opens_without_a_log_that_is_damaged(
    damaged: tuple[Path, type[KafkalogError]], is_clean: bool, caplog: pytest.LogCaptureFixture
) -> None:
    path, kind = damaged
    if not is_clean:
        (path / ".kafka_cleanshutdown").unlink()
    for _ in range(2):  # a second start finds it the same
        with kafkalog.open_dirs(path, "a") as dirs:
            assert list(dirs)[:3] == [TopicPartition("t", number) for number in range(3)] and BAD in dirs
            assert {key: type(error) for key, error in dirs.problems.items()} == {BAD: kind}
            for _ in range(2):
                with pytest.raises(kind) as caught:
                    dirs["t", 1]
            assert str(path / "t-1") in (caught.value.path or "")
            assert dirs["t", 0].append([b"c"]).last_offset >= 2 and dirs["t", 2][0].value == b"a"
            assert all(one.offline_error is None for one in dirs.directories)
            assert dirs.alter_topic("t", partitions=4).partitions == (0, 1, 2, 3)
    reported = [one for one in caplog.records if one.levelno == logging.ERROR]
    assert len(reported) == 2 and all(f"{path / 't-1'} is offline" in one.message for one in reported)


def test_a_log_that_is_damaged_raises_its_error_by_itself(damaged: tuple[Path, type[KafkalogError]]) -> None:
    path, kind = damaged
    with pytest.raises(kind):
        kafkalog.open(path / "t-1", "a")


def test_a_delete_takes_the_damaged_partition_too(damaged: tuple[Path, type[KafkalogError]]) -> None:
    path, _ = damaged
    with kafkalog.open_dirs(path, "a", log_segment_delete_delay_ms=3_600_000) as dirs:
        dirs.delete_topic("t")
        assert list(dirs) == [] and dirs.problems == {}
        assert sum(name.startswith("t-1.") and name.endswith("-delete") for name in os.listdir(path)) == 1
        dirs.create_topic("t", 2)
        assert dirs["t", 1].append([b"new"]).last_offset == 0


def test_a_partition_that_is_offline_is_not_made_anew(damaged: tuple[Path, type[KafkalogError]]) -> None:
    path, kind = damaged
    before = sorted(path.glob("t-1/*.log"))
    with LogManager.open([path]) as manager, pytest.raises(kind):
        manager.get_or_create(BAD)
    assert sorted(path.glob("t-1/*.log")) == before


def test_a_server_serves_the_others_and_says_which_is_offline(damaged: tuple[Path, type[KafkalogError]]) -> None:
    path, kind = damaged

    async def use() -> None:
        async with node_for(path) as node:
            answer = await call(node, "metadata", 12, WHO)
            (topic,) = answer.topics
            reported = [(one.partition_index, one.error_code, one.leader_id, len(one.offline_replicas))
                    for one in topic.partitions]  # fmt: skip
            assert reported == [(0, 0, 1, 0), (1, 5, -1, 1), (2, 0, 1, 0)]
            rows = [{"partition_index": number, "current_leader_epoch": -1, "timestamp": -1} for number in range(3)]
            asked = {"replica_id": -1, "isolation_level": 0, "topics": [{"name": "t", "partitions": rows}]}
            answer = await call(node, "list_offsets", 7, asked)
            got = [(one.error_code, one.offset) for one in answer.topics[0].partitions]
            assert got == [(0, 2), (56, -1), (0, 2)]
            html = page(await status_of(node))
            problem = str(node.store.problems[BAD].message)
            assert "1 offline" in html and problem.replace("'", "&#x27;") in html
            metrics = node.store.problems
            assert {type(one) for one in metrics.values()} == {kind}

    asyncio.run(use())


def test_a_damaged_log_of_group_offsets_leaves_the_other_coordinators(tmp_path: Path) -> None:
    """Groups that it keeps have no coordinator; the rest of the node starts."""

    async def fill() -> None:
        async with node_for(tmp_path) as node:
            await node.topics.ensure_internal("__consumer_offsets")
            await node.topics.create("t", 1)

    async def use() -> None:
        async with node_for(tmp_path) as node:
            assert list(node.store.problems) == [TopicPartition("__consumer_offsets", 0)]
            answer = await call(node, "metadata", 12, WHO)
            assert answer.topics[0].partitions[0].error_code == 0

    asyncio.run(fill())
    a_bad_checkpoint(tmp_path / "__consumer_offsets-0")
    asyncio.run(use())
