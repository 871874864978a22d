"""A server that only reads: what a broker left is served, and not one byte of it changes."""

import asyncio
import hashlib
import logging
import os
from pathlib import Path
from typing import Any

import pytest

import kafkalog
from kafkalog.errors import ConfigError, DirectoryLocked, PartitionNotFound
from kafkalog.server.node.node import Node
from kafkalog.server.node.temporary_dirs import NoWritesToLinks, stand_ins
from kafkalog.server.security.users import add_user
from kafkalog.server.serving import serving
from kafkalog.server.settings.config import ServerConfig
from kafkalog.server.txns.transaction import prepared
from kafkalog.storage.names import CLEAN_SHUTDOWN_FILE
from tests.server.nodes import SMALL, call
from tests.server.txns.calls import add_partitions, init_producer, produce, with_node

COUNT = 300


@pytest.fixture
def left(tmp_path: Path) -> Path:
    path = tmp_path / "left"
    with kafkalog.open_dirs(path, "a") as dirs:
        dirs.create_topic("orders", partitions=2, settings={"internal.segment.bytes": 10_000})
        for number in range(COUNT):
            dirs["orders", 0].append(b"%d" % number + bytes(100))
    return path


def directory_state(path: Path) -> dict[str, tuple[str, int]]:
    return {
        str(one.relative_to(path)): (hashlib.sha256(one.read_bytes()).hexdigest(), one.stat().st_mtime_ns)
        for one in sorted(path.rglob("*"))
        if one.is_file()
    }


def make_config() -> ServerConfig:
    return ServerConfig({**SMALL, "listeners": "PLAINTEXT://127.0.0.1:0"})


async def fetch_ends(node: Any) -> Any:
    rows = [{"partition_index": index, "timestamp": -1} for index in (0, 1)]
    tree = {"replica_id": -1, "topics": [{"name": "orders", "partitions": rows}]}
    answer = await call(node, "list_offsets", 1, tree)
    return [one.offset for one in answer.topics[0].partitions]


@pytest.mark.parametrize("is_ending", [False, True])
def test_transactions_stay_as_they_were_left(tmp_path: Path, is_ending: bool) -> None:
    path = tmp_path / "data"

    async def work(node: Node) -> None:
        producer = await init_producer(node, transaction_timeout=1)
        await add_partitions(node, producer)
        assert await produce(node, producer) == 0
        known = node.transactions.describe("x")[1]
        if is_ending:
            node.transactions._log.write(prepared(known, True, 0, node.clock()))  # and the process ends here

    with_node(path, work)
    before = directory_state(path)

    async def run() -> None:
        settings = make_config().with_({"transaction.abort.timed.out.transaction.cleanup.interval.ms": 20})
        async with serving([str(path)], settings, is_read_only=True) as server:
            node = server.node
            await node.transactions.loaded()
            was = node.transactions.describe("x")[1].state
            await asyncio.sleep(0.2)
            assert node.transactions.describe("x")[1].state == was
            assert not list(node.store.offline)
            partition = node.replicas.partition("t", 0)
            assert (partition.last_stable_offset, partition.log.log_end_offset) == (0, 1)

    asyncio.run(run())
    assert directory_state(path) == before


def test_a_node_of_a_replica_set_is_not_read_only(left: Path) -> None:
    """The others would count on its records and votes, which are gone when it ends."""
    settings = make_config().with_({"node.id": 1, "kafkalog.replicas": ["1@127.0.0.1:9091", "2@127.0.0.1:9092"]})

    async def run() -> None:
        async with serving([str(left)], settings, is_read_only=True):
            pass

    with pytest.raises(ConfigError, match="replica set would forget"):
        asyncio.run(run())


async def refusals(node: Any) -> list[int]:
    topics = [{"name": "more", "num_partitions": 1, "replication_factor": 1, "assignments": [], "configs": []}]
    made = await call(node, "create_topics", 4, {"topics": topics, "timeout": 1000, "validate_only": False})
    gone = await call(node, "delete_topics", 4, {"topic_names": ["orders"], "timeout": 1000})
    return [made.topics[0].error_code, gone.responses[0].error_code]


def leave_untrimmed(partition: Path) -> None:
    """As Kafka 4.4 closes a preallocated log without trimming it."""
    for suffix, zeros in ((".log", 5000), (".index", 800), (".timeindex", 1200)):
        with max(partition.glob(f"*{suffix}")).open("ab") as file:
            file.write(bytes(zeros))


@pytest.mark.parametrize("damage", ["", "untrimmed", "unclean", "torn"])
def test_all_is_read_and_nothing_written(left: Path, damage: str) -> None:
    if damage == "untrimmed":
        leave_untrimmed(left / "orders-0")
    elif damage:
        (left / CLEAN_SHUTDOWN_FILE).unlink()
    if damage == "torn":
        last = max((left / "orders-0").glob("*.log"))
        with last.open("ab") as file:
            file.write(bytes(50))
    before = directory_state(left)

    async def run() -> None:
        async with serving([str(left)], make_config(), is_read_only=True) as server:
            assert await fetch_ends(server.node) == [COUNT, 0]
            assert await refusals(server.node) == [44, 44]
            copies = [Path(one.path) for one in server.node.store.directories]
        assert not any(copy.exists() for copy in copies)

    asyncio.run(run())
    assert directory_state(left) == before


def test_an_untrimmed_log_is_served_and_appended_to(left: Path) -> None:
    leave_untrimmed(left / "orders-0")
    with kafkalog.open_dirs(left) as dirs:
        assert [record.offset for record in dirs["orders", 0].records()] == list(range(COUNT))
    with kafkalog.open_dirs(left, "a") as dirs:
        assert dirs["orders", 0].append(b"next").first_offset == COUNT
    with kafkalog.open_dirs(left) as dirs:
        assert [record.offset for record in dirs["orders", 0].records()] == list(range(COUNT + 1))


def test_what_lies_before_damage_in_an_earlier_segment_is_served(left: Path) -> None:
    """Recovery cuts the segment: a copy of it, while the file stays as it was left."""
    (left / CLEAN_SHUTDOWN_FILE).unlink()
    (left / "recovery-point-offset-checkpoint").unlink()
    second = sorted((left / "orders-0").glob("*.log"))[1]
    data = bytearray(second.read_bytes())
    data[len(data) // 2] ^= 0xFF
    second.write_bytes(data)
    before = directory_state(left)

    async def run() -> None:
        async with serving([str(left)], make_config(), is_read_only=True) as server:
            end, other = await fetch_ends(server.node)
            assert int(second.stem) < end < COUNT and other == 0

    asyncio.run(run())
    assert directory_state(left) == before


@pytest.mark.parametrize("damage", ["cut", "strange", "flipped"])
def test_a_damaged_last_segment_of_a_clean_directory_is_recovered_in_a_copy(left: Path, damage: str) -> None:
    """The marker says that all is whole; the disk, or who copied the directory, has it otherwise for one partition."""
    last = max((left / "orders-0").glob("*.log"))
    with kafkalog.open_dirs(left, "a") as dirs:
        dirs["orders", 1].append(b"whole")
    data = bytearray(last.read_bytes())
    if damage == "cut":
        del data[-50:]
    elif damage == "strange":
        data += b"x" * 100
    else:
        data[-50] ^= 0xFF
    last.write_bytes(data)
    assert (left / CLEAN_SHUTDOWN_FILE).exists()
    before = directory_state(left)

    async def run() -> None:
        async with serving([str(left)], make_config(), is_read_only=True) as server:
            assert not list(server.node.store.offline)
            assert await fetch_ends(server.node) == [COUNT - (damage != "strange"), 1]

    asyncio.run(run())
    assert directory_state(left) == before


def test_its_users_log_in_and_no_topic_is_made_by_asking_for_it(left: Path, caplog: pytest.LogCaptureFixture) -> None:
    add_user(left, "u", "secret")
    before = directory_state(left)

    async def run() -> None:
        async with serving([str(left)], make_config(), is_read_only=True) as server:
            assert await server.node.credentials.is_password("u", "secret")
            for _ in range(2):
                answer = await call(server.node, "metadata", 3, {"topics": [{"name": "new"}]})
                assert answer.topics[0].error_code == 3 and server.node.topics.names() == ["orders"]

    asyncio.run(run())
    assert directory_state(left) == before and "chmod 600" not in caplog.text


def test_a_directory_that_cannot_be_written_to(left: Path) -> None:
    for one in [left, *left.rglob("*")]:
        os.chmod(one, 0o500 if one.is_dir() else 0o400)
    try:

        async def run() -> None:
            async with serving([str(left)], make_config(), is_read_only=True) as server:
                assert await fetch_ends(server.node) == [COUNT, 0]

        asyncio.run(run())
    finally:
        for one in [left, *left.rglob("*")]:
            os.chmod(one, 0o700)


def test_a_directory_that_is_written_to_is_left_alone(left: Path) -> None:
    async def run() -> None:
        async with serving([str(left)], make_config(), is_read_only=True):
            raise AssertionError("it served")

    with kafkalog.open_dirs(left, "a"), pytest.raises(DirectoryLocked):
        asyncio.run(run())


def test_no_directory(tmp_path: Path) -> None:
    async def run() -> None:
        async with serving([str(tmp_path / "none")], make_config(), is_read_only=True):
            raise AssertionError("it served")

    with pytest.raises(PartitionNotFound):
        asyncio.run(run())


def test_a_stand_in_has_partitions_and_files_and_nothing_else_that_lies_there(left: Path) -> None:
    for name in ("notes", f"orders-0.{'0' * 32}-delete", "lost+found", "__cluster_metadata-0"):
        (left / name).mkdir()
        (left / name / "text").write_bytes(bytes(1000))
    with stand_ins([str(left)]) as [made]:
        assert {one.name for one in Path(made).iterdir() if one.is_dir()} == {
            "orders-0", "orders-1", "__cluster_metadata-0",
        }  # fmt: skip
        files = {one.name for one in left.iterdir() if one.is_file()}
        assert {one.name for one in Path(made).iterdir() if one.is_file()} == files - {".lock"}
        assert all(one.stat().st_mode & 0o777 == 0o600 for one in Path(made).iterdir() if one.is_file())


def test_how_much_of_a_directory_that_was_not_closed_well_is_copied_is_logged(
    left: Path, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO)
    with stand_ins([str(left)]):
        assert "was not shut down cleanly" not in caplog.text
    (left / CLEAN_SHUTDOWN_FILE).unlink()
    with stand_ins([str(left)]) as [made]:
        copied = [one for one in Path(made).rglob("*.log") if not one.is_symlink()]
        last = [max((left / f"orders-{index}").glob("*.log")) for index in (0, 1)]
        assert sorted(one.name for one in copied) == sorted(one.name for one in last)
        size = sum(one.stat().st_size for one in last)
        words = f"{left} was not shut down cleanly: copied {size} bytes of its last segments to recover them"
        assert size > 0 and words in caplog.messages


def test_a_cut_behind_a_link_cuts_a_copy_and_readers_go_on_with_it(tmp_path: Path) -> None:
    source, link = tmp_path / "source", tmp_path / "link"
    source.write_bytes(b"0123456789")
    link.symlink_to(source)
    with NoWritesToLinks().open_file(link, "rw") as file:
        file.truncate(4)
        assert os.pread(file.fileno(), 100, 0) == b"0123"
    assert (source.read_bytes(), link.read_bytes(), link.is_symlink()) == (b"0123456789", b"0123", False)
    assert sorted(tmp_path.iterdir()) == [link, source]
