"""Transactions through both sources, in both isolation levels: committed, aborted, and one that is still open."""

import pytest

from tests.spark.beside_kafka import BesideKafka, same

pytest.importorskip("pyspark", reason="PySpark is not installed")

T0 = 1_700_000_000_000
TOPIC = "tx"
COMMITTED = {"isolationLevel": "read_committed"}


@pytest.fixture(scope="module")
def kafka(beside: BesideKafka) -> BesideKafka:
    """40 committed, 40 aborted and 20 plain records in each partition, then 5 of an open transaction and 3 plain."""
    beside.create(TOPIC, 2)
    producer = beside.producer(transactional_id="a", compression_type="lz4")
    producer.init_transactions(60)
    for ends in (True, False) * 4:
        producer.begin_transaction()
        name = b"kept" if ends else b"dropped"
        beside.send(TOPIC, [(p, T0 + i, b"%d" % i, name, [("h", name)]) for p in range(2) for i in range(10)], producer)
        (producer.commit_transaction if ends else producer.abort_transaction)(60)
        beside.send(TOPIC, [(p, T0, None, b"plain", ()) for p in range(2) for _ in range(2)])
    producer.begin_transaction()
    beside.send(TOPIC, [(0, T0, None, b"open", ()) for _ in range(5)], producer)
    beside.send(TOPIC, [(0, T0, None, b"behind", ()) for _ in range(3)])
    beside.open_producers.append(producer)  # its transaction stays open
    return beside


def test_uncommitted(kafka: BesideKafka) -> None:
    rows = same(kafka, subscribe=TOPIC, includeHeaders="true")
    assert len(rows) == 2 * (40 + 40 + 16) + 5 + 3


def test_committed(kafka: BesideKafka) -> None:
    rows = same(kafka, subscribe=TOPIC, includeHeaders="true", **COMMITTED)
    assert {bytes(row.value) for row in rows} == {b"kept", b"plain"} and len(rows) == 2 * (40 + 16)


@pytest.mark.parametrize(("start", "options"), [(5, COMMITTED), (30, COMMITTED), (11, {})])
def test_from_the_middle_of_a_transaction(kafka: BesideKafka, start: int, options: dict[str, str]) -> None:
    offsets = f'{{"{TOPIC}":{{"0":{start},"1":{start}}}}}'
    rows = same(kafka, subscribe=TOPIC, startingOffsets=offsets, minPartitions=4, **options)
    assert rows and min(row.offset for row in rows) >= start


def test_the_offset_of_a_marker_holds_no_record(kafka: BesideKafka) -> None:
    rows = same(kafka, assign='{"tx":[1]}')
    marker = min(set(range(rows[-1].offset)) - {row.offset for row in rows})
    starting, ending = (f'{{"tx":{{"1":{at}}}}}' for at in (marker, marker + 1))
    assert same(kafka, assign='{"tx":[1]}', startingOffsets=starting, endingOffsets=ending) == []
