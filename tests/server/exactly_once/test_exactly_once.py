"""Read, process, write with transactions, while the server and the client are killed: nothing twice, nothing lost.

KAFKALOG_KILLS sets the number of kills of each; the default is one.
"""

import os
import random
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from tests.commands import LINE, ROOT, environment
from tests.ports import neighbouring_ports
from tests.server.exactly_once.worker import LIBRDKAFKA, PARTITIONS

KILLS = int(os.environ.get("KAFKALOG_KILLS", "1"))
RECORDS_A_KILL = 40
DEADLINE_S = 300 + 15 * KILLS
SETTINGS = {
    "group.min.session.timeout.ms": 1000, "group.initial.rebalance.delay.ms": 0, "offsets.topic.num.partitions": 2,
    "transaction.state.log.num.partitions": 2, "transaction.abort.timed.out.transaction.cleanup.interval.ms": 1000,
    "log.cleaner.dedupe.buffer.size": 4194304,
}  # fmt: skip
SOURCE, TARGET = "source", "target"


class Killed:
    """A process that is killed and started again, with what it says in `log`."""

    def __init__(self, command: list[str], log: Path) -> None:
        self._command = command
        self._log = log
        self._process: subprocess.Popen[bytes] | None = None

    def start(self) -> None:
        with self._log.open("ab") as out:
            self._process = subprocess.Popen(
                self._command, stdin=subprocess.DEVNULL, stdout=out, stderr=out, env=environment(), cwd=ROOT
            )

    def kill(self) -> None:
        assert self._process is not None
        self._process.kill()
        self._process.wait()

    @property
    def has_ended(self) -> bool:
        assert self._process is not None
        return self._process.poll() is not None

    def said(self) -> str:
        return self._log.read_text(encoding="utf-8", errors="replace")[-4000:]


@contextmanager
def run_process(process: Killed) -> Iterator[Killed]:
    process.start()
    try:
        yield process
    finally:
        process.kill()


def server_on(directory: Path, workers: int) -> tuple[Killed, str]:
    """A server on `directory`, at a port that it keeps over its restarts; its workers are at the next ones."""
    address = f"127.0.0.1:{neighbouring_ports(workers)}"
    settings = [word for name, value in SETTINGS.items() for word in ("-X", f"{name}={value}")]
    places = [word for number in range(workers) for word in ("-d", str(directory / f"data{number}"))]
    command = [*LINE, "serve", *places, "--workers", str(workers), "--listen", address, *settings]
    return Killed(command, directory / "server.log"), address


def fill(bootstrap: str, count: int) -> list[bytes]:
    """Makes the topics and `count` records in the first one; their values."""
    import confluent_kafka as ck
    from confluent_kafka.admin import AdminClient, NewTopic

    admin = AdminClient({**LIBRDKAFKA, "bootstrap.servers": bootstrap})
    made = admin.create_topics([NewTopic(SOURCE, PARTITIONS, 1), NewTopic(TARGET, PARTITIONS, 1)], request_timeout=60)
    for future in made.values():
        future.result()
    failed: list[Any] = []
    producer = ck.Producer({**LIBRDKAFKA, "bootstrap.servers": bootstrap, "enable.idempotence": True})
    values = [b"record %d" % number for number in range(count)]
    for number, value in enumerate(values):
        producer.produce(
            SOURCE, value, partition=number % PARTITIONS,
            on_delivery=lambda error, _: failed.append(error) if error else None,
        )  # fmt: skip
    assert producer.flush(60) == 0 and not failed
    return values


class Reader:
    """Reads what is committed in the target, from the beginning on; it lives through restarts of the server."""

    def __init__(self, bootstrap: str) -> None:
        import confluent_kafka as ck

        self.found: Counter[bytes] = Counter()
        self._ends = set(range(PARTITIONS))
        self._consumer = ck.Consumer({
            **LIBRDKAFKA, "bootstrap.servers": bootstrap, "group.id": "reader", "isolation.level": "read_committed",
            "enable.auto.commit": False, "fetch.wait.max.ms": 50, "enable.partition.eof": True,
        })  # fmt: skip
        self._consumer.assign([ck.TopicPartition(TARGET, index, 0) for index in range(PARTITIONS)])

    def read(self) -> None:
        import confluent_kafka as ck

        for record in self._consumer.consume(100, 0.1):
            if record.error() is None:
                self.found[record.value()] += 1
                self._ends.discard(record.partition())
            elif record.error().code() == ck.KafkaError._PARTITION_EOF:
                self._ends.add(record.partition())

    @property
    def is_at_end(self) -> bool:
        return len(self._ends) == PARTITIONS

    def close(self) -> None:
        self._consumer.close()


def is_answering(bootstrap: str) -> bool:
    from confluent_kafka.admin import AdminClient

    try:
        return bool(AdminClient({**LIBRDKAFKA, "bootstrap.servers": bootstrap}).list_topics(timeout=1).brokers)
    except Exception:
        return False


@pytest.mark.crash
@pytest.mark.slow
@pytest.mark.parametrize(("client", "workers"), [("librdkafka", 1), ("librdkafka", 2), ("aiokafka", 1)])
def test_every_record_is_processed_once(tmp_path: Path, client: str, workers: int) -> None:
    pytest.importorskip("confluent_kafka")
    pytest.importorskip(client if client == "aiokafka" else "confluent_kafka")
    chance = random.Random(7)
    count = RECORDS_A_KILL * (2 * KILLS + 1)
    server, bootstrap = server_on(tmp_path, workers)
    worker = Killed(
        [sys.executable, "-m", "tests.server.exactly_once.worker", client, bootstrap, SOURCE, TARGET],
        tmp_path / "worker.log",
    )
    victims = [server, worker] * KILLS
    with run_process(server):
        deadline = time.monotonic() + DEADLINE_S
        while not is_answering(bootstrap):
            assert not server.has_ended and time.monotonic() < deadline, server.said()
        values = fill(bootstrap, count)
        with run_process(worker):
            reader = Reader(bootstrap)
            next_kill = RECORDS_A_KILL // 2
            while len(reader.found) < count:
                assert time.monotonic() < deadline, (
                    f"{len(reader.found)} of {count} came\n{worker.said()}\n{server.said()}"
                )
                reader.read()
                assert not server.has_ended, server.said()
                if worker.has_ended:
                    worker.start()
                if victims and len(reader.found) >= next_kill:
                    time.sleep(chance.random() / 50)
                    victim = victims.pop(0)
                    victim.kill()
                    victim.start()
                    next_kill += RECORDS_A_KILL
            assert not victims
        while not reader.is_at_end:
            reader.read()
            assert time.monotonic() < deadline
        reader.close()
    assert reader.found == Counter(values)
