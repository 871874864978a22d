"""`kafkalog transactions`: what is open, since where, and who holds it."""

import json
from collections.abc import Iterator
from pathlib import Path

import pytest

from kafkalog.testing import kafka_server
from tests.commands import kafkalog, ok
from tests.transactional import Log

ck = pytest.importorskip("confluent_kafka", reason="confluent-kafka is not installed")


@pytest.fixture(scope="module")
def data(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """A running server's directory: one transaction is committed, one open in two partitions."""
    directory = tmp_path_factory.mktemp("server") / "data"
    settings = {"transaction.state.log.num.partitions": 2}
    with kafka_server(directory=directory, topics={"orders": 2, "users": 1}, settings=settings) as server:
        producers = [
            ck.Producer({
                "bootstrap.servers": server.bootstrap, "transactional.id": name, "transaction.timeout.ms": 900_000,
            })
            for name in ("done", "held")
        ]  # fmt: skip
        for producer in producers:
            producer.init_transactions(60)
            producer.begin_transaction()
            for partition in (0, 1):
                producer.produce("orders", b"value", b"key", partition)
            assert producer.flush(60) == 0
            if producer is producers[0]:
                producer.commit_transaction(60)
        yield directory
        producers[1].abort_transaction(60)


def rows(*arguments: str | Path) -> list[dict[str, object]]:
    return [json.loads(line) for line in ok("transactions", *arguments, "-J").splitlines()]


def test_open_transactions_are_listed_with_their_holders(data: Path) -> None:
    found = rows("-d", data)
    starts = [(one["topic"], one["partition"], one["first_offset"]) for one in found]
    assert starts == [("orders", 0, 2), ("orders", 1, 2)]
    [holder] = {(one["transactional_id"], one["state"], one["timeout_ms"]) for one in found}
    assert holder == ("held", "Ongoing", 900_000)
    assert len({one["producer_id"] for one in found}) == 1
    assert rows("-d", data, "-t", "orders", "-p", "1") == found[1:]
    assert rows("-d", data, "-t", "users") == []


def test_the_table(data: Path) -> None:
    lines = ok("transactions", "-d", data).decode().splitlines()
    assert lines[0].split() == [
        "PARTITION", "PRODUCER", "ID", "EPOCH", "FIRST", "OFFSET", "LAST", "WRITE", "TRANSACTIONAL", "ID", "STATE",
    ]  # fmt: skip
    assert len(lines) == 3 and all("held" in line and "Ongoing" in line for line in lines[1:])


def test_without_the_coordinators_topic(tmp_path: Path) -> None:
    log = Log()
    for event in (("data", 7, 2), ("data", 9, 1), ("commit", 7, 0), ("plain", 0, 3)):
        log.add(event)
    log.write(tmp_path / "t-0")
    [found] = rows("-d", tmp_path)
    assert (found["producer_id"], found["first_offset"]) == (9, 2)
    assert found["transactional_id"] is found["state"] is None


def test_damage_is_reported_and_the_rest_listed(tmp_path: Path) -> None:
    for number in (0, 1):
        log = Log()
        for event in (("data", 7 + number, 2), ("plain", 0, 3)):
            log.add(event)
        log.write(tmp_path / f"t-{number}")
    path = tmp_path / "t-0" / "00000000000000000000.log"
    content = bytearray(path.read_bytes())
    content[70] ^= 1  # in the first batch: another one follows
    path.write_bytes(content)
    for snapshot in (tmp_path / "t-0").glob("*.snapshot"):
        snapshot.unlink()  # with one at the log's end no batch has to be read
    done = kafkalog("transactions", "-d", tmp_path, "-J")
    listed = [json.loads(line) for line in done.stdout.splitlines()]
    assert [(one["partition"], one["producer_id"]) for one in listed] == [(1, 8)]
    assert done.returncode == 1 and b"t-0" in done.stderr, done


def test_nothing_is_open(tmp_path: Path) -> None:
    log = Log()
    log.add(("plain", 0, 3))
    log.write(tmp_path / "t-0")
    done = kafkalog("transactions", "-d", tmp_path)
    assert (done.returncode, done.stdout, done.stderr) == (0, b"", b"no transaction is open\n")
    assert kafkalog("transactions", "-d", tmp_path, "-t", "missing").returncode == 1
