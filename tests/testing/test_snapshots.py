"""Snapshots: the data of all nodes as it was, behind connections that stay."""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator
from contextlib import nullcontext
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from confluent_kafka import Consumer, TopicPartition

from kafkalog.errors import IllegalState, KafkalogError, StorageError
from kafkalog.server.error_codes import ErrorCode
from kafkalog.testing import KafkaCluster, KafkaServer, kafka_cluster, kafka_server
from kafkalog.testing.inside import archive as archives
from kafkalog.testing.inside.archive import restore_archive, write_archive
from kafkalog.testing.inside.snapshots import Reopening
from kafkalog.util.clock import SYSTEM_CLOCK
from tests.builder import R, batch
from tests.testing.calls import Link
from tests.testing.test_faults import METADATA, code_of, produced

NO_TRANSACTION = {
    "transactional_id": None, "transaction_timeout": 60_000, "producer_id": -1, "producer_epoch": -1,
}  # fmt: skip


@pytest.fixture(scope="module")
def server() -> Iterator[KafkaServer]:
    with kafka_server(topics={"orders": 2}) as found:
        yield found


def commit(server: KafkaServer | KafkaCluster, offset: int) -> None:
    consumer = Consumer({"bootstrap.servers": server.bootstrap, "group.id": "g", "log_level": 0})
    consumer.commit(offsets=[TopicPartition("orders", 0, offset)], asynchronous=False)
    consumer.close()


def test_records_topics_and_groups_are_as_they_were(server: KafkaServer) -> None:
    with Link(server.bootstrap) as link:
        assert code_of(link.call("produce", 9, produced(count=3))) == 0
        commit(server, 1)
        before, id_before = server.snapshot(), link.call("metadata", 12, METADATA).topics[0].topic_id
        for _ in range(2):
            assert code_of(link.call("produce", 9, produced(count=5))) == 0
            commit(server, 4)
            server.create_topics({"another": 1})
            server.delete_topics(["orders"])
            assert server.lag("g") is None
            server.restore(before)
            assert (server.record_count("orders"), server.record_count("another"), server.lag("g")) == (3, 0, 2)
            assert len(server.records("orders")) == 3
            assert not list(server.directory.glob("another-*"))
            assert link.call("metadata", 12, METADATA).topics[0].topic_id == id_before  # the connection is still open
        assert code_of(link.call("produce", 9, produced())) == 0
        assert server.record_count("orders") == 4


def test_request_in_progress_waits_for_the_copy(server: KafkaServer) -> None:
    control = server._control
    assert control is not None
    with Link(server.bootstrap) as link:
        control.call("close_logs")
        link.send("metadata", 8, METADATA)
        link.sock.settimeout(0.05)
        with pytest.raises(TimeoutError):
            link.sock.recv(1)
        with pytest.raises(KafkalogError, match="closed already"):
            control.call("close_logs")
        control.call("open_logs", term=0, leader=1)
        link.sock.settimeout(60)
        assert link.receive()


def test_faults_and_restarts_go_on_after_a_restore(server: KafkaServer) -> None:
    before = server.snapshot()
    with server.fault("Produce", error=7) as fault, Link(server.bootstrap) as link:
        server.restore(before)
        assert code_of(link.call("produce", 9, produced())) == 7
        assert fault.matched == 1
    count = server.record_count("orders")
    server.kill()
    server.start()
    assert server.record_count("orders") == count


def test_producer_ids_never_go_back(server: KafkaServer) -> None:
    before = server.snapshot()
    with Link(server.bootstrap) as link:
        id_of_one_that_goes_on = link.call("init_producer_id", 4, NO_TRANSACTION).producer_id
        server.restore(before)
        assert link.call("init_producer_id", 4, NO_TRANSACTION).producer_id > id_of_one_that_goes_on


def test_idempotent_producer_that_goes_on_is_out_of_order(server: KafkaServer) -> None:
    """As in a broker that lost records. librdkafka calls it fatal, so the docs say to create another producer."""
    with Link(server.bootstrap) as link:

        def send(producer_id: int, sequence: int) -> int:
            request = produced(partition=1)
            one = R(b"x", timestamp=SYSTEM_CLOCK.milliseconds())  # a producer that wrote last a day ago is forgotten
            records = batch([one], producer_id=producer_id, producer_epoch=0, base_sequence=sequence)
            request["topic_data"][0]["partition_data"][0]["records"] = records
            return code_of(link.call("produce", 9, request))

        ids = [link.call("init_producer_id", 4, NO_TRANSACTION).producer_id for _ in range(2)]
        assert send(ids[0], 0) == 0
        before = server.snapshot()
        assert send(ids[0], 1) == 0
        assert send(ids[1], 0) == 0
        server.restore(before)
        assert send(ids[0], 2) == ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER
        assert send(ids[1], 1) == 0, "the partition does not know it"
        assert send(link.call("init_producer_id", 4, NO_TRANSACTION).producer_id, 0) == 0


def term_of(cluster: KafkaCluster, node: int) -> int:
    return int(cluster._states()[node]["term"])


def test_cluster_is_as_it_was_and_has_its_leader() -> None:
    with kafka_cluster(nodes=3, topics={"orders": 1}) as cluster:
        first = cluster.leader
        with Link(cluster.address(first)) as link:
            assert code_of(link.call("produce", 9, produced(count=3))) == 0
            term = term_of(cluster, first)
            before = cluster.snapshot()
            assert (cluster.leader, term_of(cluster, first)) == (first, term), "the logs stayed open"
            assert code_of(link.call("produce", 9, produced(count=2))) == 0
            cluster.move_leader()
            cluster.restore(before)
            assert (cluster.leader, cluster.record_count("orders")) == (first, 3)
            assert code_of(link.call("produce", 9, produced())) == 0
        cluster.move_leader()
        cluster.wait_for(topic="orders", records=4)  # no node has lost a record
        cluster.kill(cluster.leader)
        cluster.heal()
        cluster.restore(before)
        assert (cluster.leader, cluster.record_count("orders")) == (first, 3)
        cluster.kill(first)
        with pytest.raises(IllegalState, match="a node does not run"):
            cluster.restore(before)


def contents_of(directory: Path) -> dict[str, bytes | None]:
    found = directory.rglob("*")
    return {str(one.relative_to(directory)): one.read_bytes() if one.is_file() else None for one in found}


def test_archive_restores_what_changed_and_leaves_the_rest(tmp_path: Path) -> None:
    folder, archive = tmp_path / "folder", str(tmp_path / "archive")
    large = bytes(range(256)) * 1000
    wanted = {
        "same": b"1", "changed": b"22", "longer": b"3", "shorter": b"4444", "emptied": b"", "new/inner/file": b"5",
        "large-same": large, "large-longer": large, "large-shorter": large + b"6", "becomes-folder": b"7",
        "becomes-file/inner": b"8", "linked": b"9", "gone": b"0", "kept": b"old",
    }  # fmt: skip
    for name, content in wanted.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_bytes(content)
    (folder / "gone").chmod(0o600)  # as the file with the users' keys
    (folder / "empty").mkdir()
    before = contents_of(folder)
    write_archive(str(folder), archive, {"kept"})
    inodes = {name: (folder / name).stat().st_ino for name in ("same", "large-same")}
    times = (folder / "changed").stat().st_mtime_ns

    (folder / "changed").write_bytes(b"00")
    os.utime(folder / "changed", ns=(times, times))  # two changes within a tick of the file system's clock
    (tmp_path / "fork").hardlink_to(folder / "linked")
    for name in ("longer", "emptied", "large-longer", "linked"):
        (folder / name).write_bytes(before[name] + b"more")  # type: ignore[operator]
    for name in ("shorter", "large-shorter"):
        os.truncate(folder / name, 1)
    shutil.rmtree(folder / "new")
    shutil.rmtree(folder / "becomes-file")
    for name in ("gone", "becomes-folder"):
        (folder / name).unlink()
    for name in ("added/deep/file", "becomes-folder/inner"):
        (folder / name).parent.mkdir(parents=True)
        (folder / name).write_bytes(b"x")
    (folder / "becomes-file").write_bytes(b"x")
    (folder / "empty").rmdir()
    (folder / "kept").write_bytes(b"mine")

    restore_archive(archive, str(folder), {"kept"})
    assert contents_of(folder) == before | {"kept": b"mine"}
    assert {name: (folder / name).stat().st_ino for name in inodes} == inodes
    assert (folder / "changed").stat().st_mtime_ns == times
    assert (folder / "gone").stat().st_mode & 0o777 == 0o600
    assert (tmp_path / "fork").read_bytes() == b"9more"


@pytest.mark.parametrize("size", [10, 100_000])
def test_archive_refuses_a_file_that_shrinks_meanwhile(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, size: int
) -> None:
    (tmp_path / "folder").mkdir()
    (tmp_path / "folder" / "file").write_bytes(bytes(size))

    def shrunk(path: str, flags: int, mode: int = 0o777) -> int:
        if path.endswith("file"):
            os.truncate(path, 5)
        return system_open(path, flags, mode)

    system_open = os.open
    monkeypatch.setattr(os, "open", shrunk)
    with pytest.raises(StorageError, match="changed while it was copied"):
        write_archive(str(tmp_path / "folder"), str(tmp_path / "archive"), ())


@pytest.mark.parametrize("tries", [2, 3])
def test_copy_is_tried_again_if_a_file_is_deleted_while_files_are_listed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, tries: int
) -> None:
    (tmp_path / "file").touch()
    taken = 0

    def rows(directory: str) -> Iterator[Any]:
        nonlocal taken
        taken += 1
        if taken < tries:
            raise FileNotFoundError(2, "a job has deleted it", directory)
        return system_rows(directory)

    system_rows = archives._rows
    monkeypatch.setattr(archives, "_rows", rows)
    store = SimpleNamespace(finished_files=nullcontext)
    server: Any = SimpleNamespace(node=SimpleNamespace(store=store))
    nothing: Any = None
    Reopening(server, nothing, nothing, nothing, nothing, str(tmp_path))._copy(str(tmp_path / "archive"))
    assert taken == tries


def test_archive_refuses_a_file_that_a_longer_one_replaces(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "folder").mkdir()
    (tmp_path / "folder" / "file").write_bytes(b"short")

    def replaced(path: str, flags: int, mode: int = 0o777) -> int:
        if path.endswith("file"):
            (tmp_path / "new").write_bytes(b"longer content")
            os.replace(tmp_path / "new", path)
        return system_open(path, flags, mode)

    system_open = os.open
    monkeypatch.setattr(os, "open", replaced)
    with pytest.raises(StorageError, match="changed while it was copied"):
        write_archive(str(tmp_path / "folder"), str(tmp_path / "archive"), ())


def test_server_that_cannot_close_its_logs_goes_on() -> None:
    settings = {"kafkalog.http.listener": "127.0.0.1:0"}
    with kafka_server(topics={"orders": 2}, settings=settings) as server, Link(server.bootstrap) as link:
        with pytest.raises(KafkalogError, match=r"kafkalog\.http\.listener has no snapshots.*leave the setting out"):
            server.snapshot()
        assert code_of(link.call("produce", 9, produced())) == 0
