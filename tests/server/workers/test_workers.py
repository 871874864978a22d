"""A server of two processes as its clients see it: one cluster, two nodes that lead, and what happens when one ends."""

from __future__ import annotations

import fcntl
import os
import signal
import time
import urllib.request
from collections import Counter
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any, BinaryIO

import pytest

import kafkalog
from kafkalog.errors import IllegalState
from kafkalog.testing import KafkaServer, ServerDidNotStart, kafka_server
from tests.gates import wait_until

ck = pytest.importorskip("confluent_kafka")
from confluent_kafka import admin as ck_admin  # noqa: E402

MAIN, WORKER = 1, 2
"""Node ids: the main process, and the worker."""
QUICK = {"reconnect.backoff.ms": 10, "reconnect.backoff.max.ms": 100, "topic.metadata.refresh.interval.ms": 1000}
TIMEOUT_S = 60


@pytest.fixture(scope="module")
def server() -> Iterator[KafkaServer]:
    """A server of two processes, which all tests here share that do not end one."""
    with kafka_server(workers=2, settings={"kafkalog.http.listener": "127.0.0.1:0"}) as one:
        yield one


def admin_of(server: KafkaServer) -> Any:
    return ck_admin.AdminClient({**QUICK, "bootstrap.servers": server.bootstrap})


def make(server: KafkaServer, name: str, partitions: int = 4, **settings: str) -> Any:
    admin = admin_of(server)
    config = {key.replace("_", "."): value for key, value in settings.items()}
    admin.create_topics([ck_admin.NewTopic(name, partitions, 1, config=config)])[name].result(TIMEOUT_S)
    return admin


def producer_of(server: KafkaServer, **settings: Any) -> Any:
    return ck.Producer({**QUICK, "bootstrap.servers": server.bootstrap, "enable.idempotence": True, **settings})


def write(producer: Any, topic: str, values: Iterable[bytes], partitions: int = 4) -> list[Any]:
    """Write the values, to one partition after the other, and return the errors of those that failed."""
    failed: list[Any] = []
    for number, value in enumerate(values):
        producer.produce(
            topic, value, partition=number % partitions,
            on_delivery=lambda error, _: failed.append(error) if error is not None else None,
        )  # fmt: skip
    assert producer.flush(TIMEOUT_S) == 0
    return failed


def read(server: KafkaServer, topic: str, count: int, *, partitions: int = 4, port: int = 0) -> Counter[bytes]:
    """Read committed records from the beginning until there are `count` and every partition is at its end."""
    consumer = ck.Consumer({
        **QUICK, "bootstrap.servers": f"127.0.0.1:{port}" if port else server.bootstrap, "group.id": "reader",
        "isolation.level": "read_committed", "enable.partition.eof": True, "enable.auto.commit": False,
    })  # fmt: skip
    consumer.assign([ck.TopicPartition(topic, index, 0) for index in range(partitions)])
    found: Counter[bytes] = Counter()
    ends: set[int] = set()

    def is_complete() -> bool:
        for record in consumer.consume(500, 0.2):
            if record.error() is None:
                found[record.value()] += 1
            elif record.error().code() == ck.KafkaError._PARTITION_EOF:
                ends.add(record.partition())
        return len(ends) == partitions and sum(found.values()) >= count

    wait_until(is_complete)
    consumer.close()
    return found


def workers_of(server: KafkaServer) -> list[int]:
    """Return the process ids of the workers beside the main process."""
    children = Path(f"/proc/{server.pid}/task/{server.pid}/children").read_text().split()
    return [int(one) for one in children]


def values_of(count: int, word: str = "value") -> list[bytes]:
    return [f"{word} {number}".encode() for number in range(count)]


def test_each_process_leads_the_partitions_of_its_directory_and_groups_read_all(server: KafkaServer) -> None:
    admin = make(server, "spread")
    metadata = admin.list_topics(timeout=TIMEOUT_S)
    ports = {node: one.port for node, one in metadata.brokers.items()}
    assert ports.keys() == {MAIN, WORKER} and ports[MAIN] == server.port
    leaders = Counter(one.leader for one in metadata.topics["spread"].partitions.values())
    assert leaders == {MAIN: 2, WORKER: 2}
    for directory in server.directories:
        assert len(list(directory.glob("spread-*"))) == 2
    assert write(producer_of(server), "spread", values_of(40)) == []
    consumer = ck.Consumer({
        **QUICK, "bootstrap.servers": f"127.0.0.1:{ports[WORKER]}", "group.id": "readers",
        "auto.offset.reset": "earliest", "enable.auto.commit": False,
    })  # fmt: skip
    consumer.subscribe(["spread"])
    found: list[bytes] = []

    def has_all() -> bool:
        found.extend(one.value() for one in consumer.consume(100, 0.2) if one.error() is None)
        return len(found) >= 40

    wait_until(has_all)
    consumer.commit(asynchronous=False)
    places = consumer.committed([ck.TopicPartition("spread", index) for index in range(4)], timeout=TIMEOUT_S)
    consumer.close()
    assert sorted(found) == sorted(values_of(40)) and [one.offset for one in places] == [10] * 4


def test_transactions_end_in_the_partitions_of_both_processes(server: KafkaServer) -> None:
    make(server, "txns")
    producer = producer_of(server, **{"transactional.id": "both"})
    producer.init_transactions(TIMEOUT_S)
    for word in ("one", "aborted", "two"):
        producer.begin_transaction()
        assert write(producer, "txns", values_of(8, word)) == [] or word == "aborted"
        (producer.abort_transaction if word == "aborted" else producer.commit_transaction)(TIMEOUT_S)
    assert read(server, "txns", 16) == Counter(values_of(8, "one") + values_of(8, "two"))


def test_settings_growth_and_deletion_reach_both_processes(server: KafkaServer) -> None:
    admin = make(server, "changed", 2)
    resource = ck_admin.ConfigResource(
        ck_admin.ConfigResource.Type.TOPIC, "changed",
        incremental_configs=[ck_admin.ConfigEntry("max.message.bytes", "500",
                                                  incremental_operation=ck_admin.AlterConfigOpType.SET)],
    )  # fmt: skip
    admin.incremental_alter_configs([resource])[resource].result(TIMEOUT_S)
    too_large = write(producer_of(server), "changed", [bytes(2000)] * 2, 2)
    assert [one.code() for one in too_large] == [ck.KafkaError.MSG_SIZE_TOO_LARGE] * 2
    admin.create_partitions([ck_admin.NewPartitions("changed", 4)])["changed"].result(TIMEOUT_S)
    assert write(producer_of(server), "changed", values_of(8)) == []
    assert read(server, "changed", 8) == Counter(values_of(8))
    admin.delete_topics(["changed"])["changed"].result(TIMEOUT_S)
    for directory in server.directories:
        assert [one.name for one in directory.glob("changed-*") if not one.name.endswith("-delete")] == []
    make(server, "changed", 4)
    assert read(server, "changed", 0) == Counter()


def test_users_and_what_they_may_do_are_those_of_the_whole_server() -> None:
    settings = {
        "listeners": "SASL_PLAINTEXT://127.0.0.1:0", "sasl.enabled.mechanisms": "PLAIN,SCRAM-SHA-256",
        "authorizer.class.name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
        "super.users": "User:root",
    }  # fmt: skip
    login = {"security.protocol": "SASL_PLAINTEXT", "sasl.mechanism": "PLAIN"}
    root = {**login, "sasl.username": "root", "sasl.password": "a"}
    ann = {**login, "sasl.username": "ann", "sasl.password": "b"}
    with kafka_server(workers=2, settings=settings, users={"root": "a", "ann": "b"}, topics={"t": 2}) as server:
        admin = ck_admin.AdminClient({**QUICK, **root, "bootstrap.servers": server.bootstrap})
        leaders = admin.list_topics(timeout=TIMEOUT_S).topics["t"].partitions
        ours, theirs = sorted(leaders, key=lambda index: leaders[index].leader)
        for operation in (ck_admin.AclOperation.DESCRIBE, ck_admin.AclOperation.WRITE):
            entry = ck_admin.AclBinding(
                ck_admin.ResourceType.TOPIC, "t", ck_admin.ResourcePatternType.LITERAL, "User:ann", "*", operation,
                ck_admin.AclPermissionType.ALLOW,
            )  # fmt: skip
            if operation == ck_admin.AclOperation.WRITE:
                for index in (ours, theirs):
                    denied = ck.KafkaError.TOPIC_AUTHORIZATION_FAILED
                    assert [one.code() for one in write_one(server, ann, index)] == [denied]
            admin.create_acls([entry])[entry].result(TIMEOUT_S)
        for index in (ours, theirs):  # at once: the answer waits until every process has them
            assert write_one(server, ann, index) == []
        worker = admin.list_topics(timeout=TIMEOUT_S).brokers[WORKER]
        wrong = ck_admin.AdminClient({**ann, "sasl.password": "c", "bootstrap.servers": f"{worker.host}:{worker.port}"})
        with pytest.raises(ck.KafkaException):
            wrong.list_topics(timeout=2)


def write_one(server: KafkaServer, login: dict[str, str], partition: int) -> list[Any]:
    failed: list[Any] = []
    producer = ck.Producer({**QUICK, **login, "bootstrap.servers": server.bootstrap})
    producer.produce("t", b"value", partition=partition, on_delivery=lambda error, _: error and failed.append(error))
    assert producer.flush(TIMEOUT_S) == 0
    return failed


def test_a_setting_of_the_node_counts_everywhere_and_a_placement_by_the_client(server: KafkaServer) -> None:
    admin = make(server, "limited", 2)
    kinds, operations = ck_admin.ConfigResource.Type, ck_admin.AlterConfigOpType
    for operation, errors in ((operations.SET, 2), (operations.DELETE, 0)):
        entry = ck_admin.ConfigEntry("message.max.bytes", "500", incremental_operation=operation)
        resource = ck_admin.ConfigResource(kinds.BROKER, str(MAIN), incremental_configs=[entry])
        admin.incremental_alter_configs([resource])[resource].result(TIMEOUT_S)
        failed = write(producer_of(server), "limited", [bytes(2000)] * 2, 2)
        assert [one.code() for one in failed] == [ck.KafkaError.MSG_SIZE_TOO_LARGE] * errors
    with pytest.raises(ck.KafkaException, match="leave out the manual assignment"):
        admin.create_topics([ck_admin.NewTopic("placed", 1, replica_assignment=[[MAIN]])])["placed"].result(TIMEOUT_S)


def test_the_page_and_the_metrics_are_those_of_both_processes(server: KafkaServer) -> None:
    make(server, "measured", 2)
    before = produced(server)
    assert write(producer_of(server, **{"linger.ms": 0}), "measured", values_of(2), 2) == []
    wait_until(lambda: produced(server) == before + 2)  # the page is cached for a moment
    with urllib.request.urlopen(f"http://127.0.0.1:{server.http_port}/") as answer:
        page = answer.read().decode()
    assert all(str(directory) in page for directory in server.directories)


def produced(server: KafkaServer) -> int:
    with urllib.request.urlopen(f"http://127.0.0.1:{server.http_port}/metrics") as answer:
        lines = answer.read().decode().splitlines()
    name = 'kafkalog_server_request_seconds_count{api="produce"} '
    return sum(int(line.removeprefix(name)) for line in lines if line.startswith(name))


def test_faults_and_snapshots_are_refused(server: KafkaServer) -> None:
    with pytest.raises(IllegalState, match="one worker"):
        server.drop_connections()
    with pytest.raises(IllegalState, match="one worker"):
        server.snapshot()


def test_a_worker_that_is_killed_comes_back_with_what_was_acknowledged() -> None:
    with kafka_server(workers=2, topics={"kept": 4}) as server:
        producer = producer_of(server)
        assert write(producer, "kept", values_of(40, "before")) == []
        main, (worker,) = server.pid, workers_of(server)
        port = admin_of(server).list_topics(timeout=TIMEOUT_S).brokers[WORKER].port
        os.kill(worker, signal.SIGKILL)
        assert write(producer, "kept", values_of(40, "after")) == []  # the producer waits for the next one
        assert server.pid == main and workers_of(server) != [worker]
        assert admin_of(server).list_topics(timeout=TIMEOUT_S).brokers[WORKER].port == port
        assert read(server, "kept", 80, port=port) == Counter(values_of(40, "before") + values_of(40, "after"))
        transactional = producer_of(server, **{"transactional.id": "x"})
        transactional.init_transactions(TIMEOUT_S)
        transactional.begin_transaction()
        assert write(transactional, "kept", values_of(8, "committed")) == []
        os.kill(workers_of(server)[0], signal.SIGKILL)  # its markers are written once it is back
        transactional.commit_transaction(TIMEOUT_S)
        assert read(server, "kept", 88)[b"committed 7"] == 1


def test_a_killed_server_leaves_no_worker_and_starts_again_with_all_records(tmp_path: Path) -> None:
    with kafka_server(workers=2, topics={"kept": 4}, directory=tmp_path / "data") as server:
        assert write(producer_of(server), "kept", values_of(40)) == []
        (worker,) = workers_of(server)
        server.kill()
        wait_until(lambda: not Path(f"/proc/{worker}").exists())
        server.start()
        for _ in range(4):
            server.kill()
            server.start()  # at once: a worker of before may listen for a moment
        assert read(server, "kept", 40) == Counter(values_of(40))
        server.stop()
        directories = server.directories
        with kafkalog.open_dirs(directories) as data:
            assert len(data.scan("kept").to_pandas()) == 40
        assert all((one / ".kafka_cleanshutdown").exists() for one in directories)


def test_what_does_not_fit_is_said_at_the_start(tmp_path: Path) -> None:
    second = tmp_path / "data" / "worker-1"
    second.mkdir(parents=True)
    (second / "kafkalog.security.json").write_text("{}")
    with pytest.raises(ServerDidNotStart, match="belongs to the whole server"), kafka_server(
        workers=2, directory=tmp_path / "data"
    ):
        pass
    (second / "kafkalog.security.json").unlink()
    (second / "__consumer_offsets-0").mkdir()
    with pytest.raises(ServerDidNotStart, match="the main process writes that topic"), kafka_server(
        workers=2, directory=tmp_path / "data"
    ):
        pass


def test_a_creation_that_a_worker_does_not_survive_leaves_nothing_and_a_setting_reaches_the_next_one() -> None:
    with kafka_server(workers=2, topics={"kept": 2}) as server:
        ours, theirs = server.directories
        (worker,) = workers_of(server)
        os.kill(worker, signal.SIGSTOP)
        admin = admin_of(server)
        creating = admin.create_topics([ck_admin.NewTopic("t", 2, 1)])["t"]
        wait_until(lambda: any(ours.glob("t-*/partition.metadata")))
        (made,) = ours.glob("t-*/partition.metadata")
        half = theirs / f"t-{1 - int(made.parent.name[-1])}"  # as the worker makes it, which then ends
        half.mkdir()
        (half / made.name).write_bytes(made.read_bytes())
        os.kill(worker, signal.SIGKILL)
        with pytest.raises(ck.KafkaException):
            creating.result(TIMEOUT_S)
        make(server, "t", 2)
        set_of_topic(server, "kept", "max.message.bytes", "500")
        producer = producer_of(server)
        assert write(producer, "t", [b"a", b"b"], 2) == [] and write(producer, "kept", [b"a", b"b"], 2) == []
        too_large = write(producer, "kept", [bytes(2000)] * 2, 2)
        assert [one.code() for one in too_large] == [ck.KafkaError.MSG_SIZE_TOO_LARGE] * 2
        assert not half.exists()


def test_a_setting_reaches_a_worker_that_opens_its_logs() -> None:
    with kafka_server(workers=2, topics={"kept": 2}) as server:
        (worker,) = workers_of(server)
        held = (server.directories[1] / ".lock").open("r+b")
        with held:
            os.kill(worker, signal.SIGKILL)
            wait_until(lambda: is_locked(held))  # from now on its next process waits for the lock, for up to 10 s
            end = time.monotonic() + 3  # which is longer than it takes to start
            while time.monotonic() < end:
                set_of_topic(server, "kept", "max.message.bytes", "500")
                set_of_topic(server, "kept", "max.message.bytes", "600")
        too_large = write(producer_of(server), "kept", [bytes(2000)] * 2, 2)
        assert [one.code() for one in too_large] == [ck.KafkaError.MSG_SIZE_TOO_LARGE] * 2


def is_locked(file: BinaryIO) -> bool:
    """Take the lock of a data directory and return True, or return False if another process has it."""
    try:
        fcntl.lockf(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        return True
    except OSError:
        return False


def set_of_topic(server: KafkaServer, topic: str, name: str, value: str) -> None:
    """Change a setting of a topic. KafkaException."""
    entry = ck_admin.ConfigEntry(name, value, incremental_operation=ck_admin.AlterConfigOpType.SET)
    resource = ck_admin.ConfigResource(ck_admin.ConfigResource.Type.TOPIC, topic, incremental_configs=[entry])
    admin = admin_of(server)
    admin.incremental_alter_configs([resource])[resource].result(TIMEOUT_S)
