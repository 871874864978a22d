"""Servers of two processes: TLS, read-only, too few descriptors, a stop with a paused worker."""

from __future__ import annotations

import hashlib
import os
import resource
import shutil
import signal
import socket
import sys
from collections import Counter
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest

import kafkalog
from kafkalog.server.wire.reader import read_response
from kafkalog.testing import kafka_server
from tests.gates import wait_until
from tests.server.net.certificates import authority, certificate
from tests.server.nodes import KEYS, request_bytes
from tests.server.test_serve_cmd import run_server, send_request
from tests.server.workers.test_workers import (
    MAIN,
    QUICK,
    TIMEOUT_S,
    WORKER,
    admin_of,
    producer_of,
    read,
    values_of,
    workers_of,
    write,
)

ck = pytest.importorskip("confluent_kafka")
from confluent_kafka import admin as ck_admin  # noqa: E402


@pytest.mark.skipif(shutil.which("openssl") is None, reason="needs the openssl command")
def test_both_processes_take_clients_over_tls_with_a_password(tmp_path: Path) -> None:
    authority(tmp_path)
    key = certificate(tmp_path, "server", "/CN=localhost")
    settings = {
        "listeners": "SASL_SSL://127.0.0.1:0", "ssl.keystore.location": str(key),
        "sasl.enabled.mechanisms": "SCRAM-SHA-256",
    }  # fmt: skip
    login = {
        "security.protocol": "SASL_SSL", "ssl.ca.location": str(tmp_path / "ca.pem"), "sasl.username": "ann",
        "sasl.mechanism": "SCRAM-SHA-256", "sasl.password": "b",
    }  # fmt: skip
    with kafka_server(workers=2, settings=settings, users={"ann": "b"}, topics={"t": 2}) as server:
        admin = ck_admin.AdminClient({**QUICK, **login, "bootstrap.servers": server.bootstrap})
        found = admin.list_topics(timeout=TIMEOUT_S)
        assert Counter(one.leader for one in found.topics["t"].partitions.values()) == {MAIN: 1, WORKER: 1}
        assert write(producer_of(server, **login), "t", values_of(4), 2) == []
        for broker in found.brokers.values():
            stranger = ck_admin.AdminClient(
                {**login, "sasl.password": "c", "bootstrap.servers": f"{broker.host}:{broker.port}"}
            )
            with pytest.raises(ck.KafkaException):
                stranger.list_topics(timeout=2)
        directories = server.directories
        server.stop()
        with kafkalog.open_dirs(directories) as data:
            assert len(data.scan("t").to_pandas()) == 4


def contents_of(directory: Path) -> dict[str, str]:
    return {
        str(one.relative_to(directory)): hashlib.sha256(one.read_bytes()).hexdigest()
        for one in sorted(directory.rglob("*")) if one.is_file() and one.name != ".lock"
    }  # fmt: skip


def test_two_processes_serve_read_only_and_write_nothing(tmp_path: Path) -> None:
    with kafka_server(workers=2, topics={"t": 2}, directory=tmp_path / "data") as server:
        assert write(producer_of(server), "t", values_of(20), 2) == []
        directories = server.directories
    before = contents_of(tmp_path / "data")
    given = [word for one in directories for word in ("-d", str(one))]
    with run_server(tmp_path, *given, "--workers", "2", "--read-only") as (process, port):
        admin = ck_admin.AdminClient({"bootstrap.servers": f"127.0.0.1:{port}"})
        leaders = Counter(one.leader for one in admin.list_topics(timeout=TIMEOUT_S).topics["t"].partitions.values())
        assert leaders == {MAIN: 1, WORKER: 1}
        assert read(server, "t", 20, partitions=2, port=port) == Counter(values_of(20))
        producer = ck.Producer({"bootstrap.servers": f"127.0.0.1:{port}", "message.timeout.ms": 2000})
        assert len(write(producer, "t", [b"x", b"y"], 2)) == 2
        process.terminate()
        assert process.wait(timeout=60) == 0
    assert contents_of(tmp_path / "data") == before


def test_a_worker_without_free_descriptors_serves_its_clients_and_later_takes_others() -> None:
    with kafka_server(workers=2, topics={"t": 2}) as server:
        (worker,) = workers_of(server)
        port = admin_of(server).list_topics(timeout=TIMEOUT_S).brokers[WORKER].port
        producer = producer_of(server)
        assert write(producer, "t", values_of(2), 2) == []
        in_use = len(os.listdir(f"/proc/{worker}/fd"))
        limits = resource.prlimit(worker, resource.RLIMIT_NOFILE)
        resource.prlimit(worker, resource.RLIMIT_NOFILE, (in_use + 8, limits[1]))
        with ExitStack() as connections:
            for _ in range(40):
                connections.enter_context(socket.create_connection(("127.0.0.1", port), timeout=TIMEOUT_S))
            wait_until(lambda: len(os.listdir(f"/proc/{worker}/fd")) >= in_use + 8)
            assert write(producer, "t", values_of(2), 2) == []
            assert send_request(server.port)
            assert len(os.listdir(f"/proc/{worker}/fd")) <= in_use + 8
        assert send_request(port)
        assert workers_of(server) == [worker]
        assert read(server, "t", 4, partitions=2) == Counter(values_of(2) * 2)


def test_a_paused_worker_holds_a_stop_for_seconds_only_and_nothing_acknowledged_is_lost(tmp_path: Path) -> None:
    with kafka_server(workers=2, topics={"t": 2}, directory=tmp_path / "data") as server:
        assert write(producer_of(server), "t", values_of(4), 2) == []
        (worker,) = workers_of(server)
        os.kill(worker, signal.SIGSTOP)
        server.stop()  # within its own time limit, which is shorter than the one for a worker that answers
        assert not Path(f"/proc/{worker}").exists()
        assert "worker 1 does not answer and is killed" in server.log()
        server.start()
        assert read(server, "t", 4, partitions=2) == Counter(values_of(4))


def test_a_worker_that_was_paused_goes_on_and_the_main_process_serves_meanwhile() -> None:
    with kafka_server(workers=2, topics={"t": 2}) as server:
        leaders = admin_of(server).list_topics(timeout=TIMEOUT_S).topics["t"].partitions
        ours, theirs = sorted(leaders, key=lambda index: leaders[index].leader)
        producer, failed = producer_of(server), list[Any]()
        (worker,) = workers_of(server)
        os.kill(worker, signal.SIGSTOP)
        producer.produce("t", b"theirs", partition=theirs, on_delivery=lambda error, _: error and failed.append(error))
        assert write_to(producer_of(server), ours) is None
        assert len(producer) == 1
        os.kill(worker, signal.SIGCONT)
        assert producer.flush(TIMEOUT_S) == 0 and failed == []
        assert workers_of(server) == [worker]
        assert read(server, "t", 2, partitions=2) == Counter([b"ours", b"theirs"])


def write_to(producer: Any, partition: int, value: bytes = b"ours") -> Any:
    """Write a record to topic t and return its error, or None."""
    errors: list[Any] = []
    producer.produce("t", value, partition=partition, on_delivery=lambda error, _: errors.append(error))
    assert producer.flush(TIMEOUT_S) == 0
    return errors[0]


def test_a_fetch_that_waits_in_a_worker_ends_when_the_main_process_deletes_its_topic() -> None:
    with kafka_server(workers=2, topics={"t": 2}) as server:
        admin = admin_of(server)
        found = admin.list_topics(timeout=TIMEOUT_S)
        partitions = found.topics["t"].partitions
        (theirs,) = [index for index in partitions if partitions[index].leader == WORKER]
        partition = {
            "partition": theirs, "current_leader_epoch": -1, "fetch_offset": 0, "last_fetched_epoch": -1,
            "log_start_offset": -1, "partition_max_bytes": 1 << 20,
        }  # fmt: skip
        fetch = request_bytes("fetch", 11, {
            "replica_id": -1, "max_wait": 1000 * TIMEOUT_S, "min_bytes": 1, "max_bytes": 1 << 20, "isolation_level": 0,
            "session_id": 0, "session_epoch": -1, "topics": [{"topic": "t", "partitions": [partition]}],
            "forgotten_topics_data": [], "rack_id": "",
        })  # fmt: skip
        with socket.create_connection(("127.0.0.1", found.brokers[WORKER].port), timeout=TIMEOUT_S) as sock:
            sock.sendall(len(fetch).to_bytes(4, "big") + fetch)
            with pytest.raises(TimeoutError):
                sock.settimeout(0.5)
                sock.recv(1)
            sock.settimeout(TIMEOUT_S - 5)  # less than the fetch waits for records
            admin.delete_topics(["t"])["t"].result(TIMEOUT_S)
            size = int.from_bytes(sock.recv(4, socket.MSG_WAITALL), "big")
            answer = read_response(KEYS["fetch"], 11, bytearray(sock.recv(size, socket.MSG_WAITALL)), 4)
        assert answer.responses[0].partitions[0].error_code == 3


HAS_RESERVE = not getattr(sys, "_is_gil_enabled", lambda: True)()
"""CPython without the GIL reserves 1 GiB of addresses at its start, so a limit of them refuses it nothing."""


@pytest.mark.parametrize("what", ["disk", pytest.param("memory", marks=pytest.mark.skipif(
    HAS_RESERVE, reason="memory comes from addresses that the interpreter has reserved"
))])  # fmt: skip
def test_a_worker_without_room_refuses_and_loses_nothing(what: str, tmp_path: Path) -> None:
    with kafka_server(workers=2, topics={"t": 2}, directory=tmp_path / "data") as server:
        leaders = admin_of(server).list_topics(timeout=TIMEOUT_S).topics["t"].partitions
        ours, theirs = sorted(leaders, key=lambda index: leaders[index].leader)
        assert write_to(producer_of(server), theirs, b"before") is None
        (worker,) = workers_of(server)
        if what == "disk":  # as on a full one: a write writes a part, or fails
            resource.prlimit(worker, resource.RLIMIT_FSIZE, (100_000, resource.RLIM_INFINITY))
        else:
            size = int(Path(f"/proc/{worker}/statm").read_text().split()[0]) * resource.getpagesize()
            resource.prlimit(worker, resource.RLIMIT_AS, (size, resource.RLIM_INFINITY))
        acknowledged: Counter[bytes] = Counter()
        producer = producer_of(server, **{"enable.idempotence": False, "message.timeout.ms": 3000, "linger.ms": 0})
        while write_to(producer, theirs, value := os.urandom(900_000 if what == "memory" else 30_000)) is None:
            acknowledged[value] += 1
            assert len(acknowledged) < 50, "the limit has no effect"
        assert write_to(producer_of(server), ours) is None
        # The interpreter itself may run short a few times. A loop that calls a reader again and again writes thousands.
        assert server.log().count("MemoryError") < 200
        server.kill()
        server.start()
        found = read(server, "t", len(acknowledged) + 2, partitions=2)
        assert acknowledged <= found and found[b"before"] == found[b"ours"] == 1
