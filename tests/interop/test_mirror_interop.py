"""A mirror of a real broker's topics while they are written: the same batches; and a broker serves the same of it."""

import time
from collections.abc import Iterable
from pathlib import Path

from confluent_kafka import Consumer, Producer
from confluent_kafka import TopicPartition as Place

import kafkalog
from kafkalog.storage.file_records import FileRecords
from kafkalog.storage.names import parse_topic_partition_dir
from kafkalog.tools.handover.directories import HandoverOptions, handover
from kafkalog.types import TopicPartition
from kafkalog.util.checkpoint import OffsetCheckpoint
from tests.interop.broker import QUIET, Broker
from tests.interop.mirrors import (
    PARTITIONS,
    is_same,
    keys_of,
    mirrored,
    mirroring,
    served,
    served_from,
    start_of,
    topics_on,
    until,
    write,
)
from tests.interop.reference import Reference
from tests.interop.test_handover_interop import write_old_formats

TOPICS = {
    "plain": {"segment.bytes": "1048576"},
    "codecs": {"compression.type": "zstd"},
    "compacted": {"cleanup.policy": "compact", "segment.bytes": "1048576"},
    "transactions": {},
}
# segments end, are cleaned and are deleted while others are written
EAGER = {
    "log.initial.task.delay.ms": "100",
    "log.cleaner.backoff.ms": "100",
    "log.cleaner.min.cleanable.ratio": "0",
    "log.retention.check.interval.ms": "200",
    "log.segment.delete.delay.ms": "100",
}
SHRINKING = {
    "compacted": {"cleanup.policy": "compact", "segment.ms": "100"},
    "short": {"retention.bytes": "20000", "segment.ms": "100"},
    "trimmed": {},
}


def transactional(bootstrap: str, name: str) -> Producer:
    producer = Producer({
        "bootstrap.servers": bootstrap, "transactional.id": name, "transaction.timeout.ms": 900_000,
    })  # fmt: skip
    producer.init_transactions(60)
    return producer


def transact(producer: Producer, rounds: Iterable[int]) -> None:
    """A transaction for each round: those of odd ones are aborted."""
    for number in rounds:
        begin(producer, number)
        if number % 2:
            producer.abort_transaction(60)
        else:
            producer.commit_transaction(60)


def begin(producer: Producer, number: int) -> None:
    producer.begin_transaction()
    for index in range(10):
        producer.produce("transactions", b"%d" % number, partition=index % PARTITIONS)
    producer.flush(60)


def test_a_mirror_has_the_same_batches_and_a_broker_serves_them(tmp_path: Path, reference: Reference) -> None:
    """Every codec, transactions that were committed, aborted and are open, over a stop of the mirror."""
    source, copy = tmp_path / "source", tmp_path / "copy"
    keys = keys_of(*TOPICS)
    plain = [name for name in TOPICS if name != "transactions"]
    with Broker(reference, tmp_path / "work", source, QUIET) as broker:
        topics_on(broker, TOPICS)
        ended, left_open = (transactional(broker.bootstrap, name) for name in ("ended", "open"))
        write(broker.bootstrap, range(3), *plain)
        transact(ended, range(3))
        with mirroring(broker.bootstrap, copy, *TOPICS) as mirror:
            write(broker.bootstrap, range(3, 6), *plain)
            transact(ended, range(3, 6))
            until(lambda: is_same(source, copy, keys), mirror)
        begin(left_open, 6)
        write(broker.bootstrap, range(6, 8), *plain)
        transact(ended, range(6, 8))
        assert mirrored(broker.bootstrap, copy, *TOPICS)[0] == 0
        assert is_same(source, copy, keys)
        wanted = served(broker, keys)
        for key in keys:
            name = f"{key}/partition.metadata"
            assert (copy / name).read_text() == (source / name).read_text()
        first = str(keys_of("transactions")[0])
        assert len(wanted["read_committed"][first]) < len(wanted["read_uncommitted"][first])
    assert served_from(reference, tmp_path / "standby", copy, keys) == wanted


def test_segments_of_all_formats_are_copied_as_they_are(tmp_path: Path, reference: Reference) -> None:
    """FILE-1: batches of v0 and v1 as old brokers left them, in one log with newer ones too."""
    source, copy = tmp_path / "source", tmp_path / "copy"
    source.mkdir()
    write_old_formats(source)
    keys = sorted(parse_topic_partition_dir(path.name) for path in source.iterdir() if path.is_dir())
    assert {magic for key in keys for magic in magics_in(source, key)} == {0, 1, 2}
    broker = Broker(reference, tmp_path / "work", source, QUIET)
    broker.format()
    assert handover([source], apply=True, options=HandoverOptions(let_expire=True)).ok
    with broker:
        status, said = mirrored(broker.bootstrap, copy, *sorted({key.topic for key in keys}))
        assert status == 0, said[-3000:]
        assert is_same(source, copy, keys)
        wanted = served(broker, keys)
    assert served_from(reference, tmp_path / "standby", copy, keys) == wanted


def magics_in(data: Path, key: TopicPartition) -> set[int]:
    found = set()
    for path in (data / f"{key}").glob("*.log"):
        records = FileRecords.open(path, mutable=False)
        found |= {batch.magic for batch in records.batches()}
        records.close_handlers()
    return found


def test_a_source_that_compacts_and_deletes_meanwhile(tmp_path: Path, reference: Reference) -> None:
    """Records copied before the move stay; the start of the log is the source's; a copy that is begun
    later has what the source has by then, with its gaps."""
    source, copy, later = tmp_path / "source", tmp_path / "copy", tmp_path / "later"
    keys = keys_of(*SHRINKING)
    compacted = keys_of("compacted")
    with Broker(reference, tmp_path / "work", source, EAGER) as broker:
        admin = topics_on(broker, SHRINKING)
        with mirroring(broker.bootstrap, copy, *SHRINKING) as mirror:
            for number in range(12):
                write(broker.bootstrap, [number], *SHRINKING)
                time.sleep(0.15)  # so that segments end
            places = [Place("trimmed", index, 100 + index) for index in range(PARTITIONS)]
            for future in admin.delete_records(places).values():
                future.result(60)
            until(lambda: all(is_compacted(source, key) for key in compacted), mirror)
            bounds = until_still(broker.bootstrap, keys)
            until(lambda: all(end_of(copy, key) == end for key, (_, end) in bounds.items()), mirror)
        for topic in ("short", "trimmed"):
            assert all(0 < bounds[key][0] < bounds[key][1] for key in keys_of(topic))
        for fresh in (copy, later):
            assert mirrored(broker.bootstrap, fresh, *SHRINKING)[0] == 0
            assert {key: (start_of(fresh, key), end_of(fresh, key)) for key in keys} == bounds
        assert is_same(source, later, compacted)
        wanted = served(broker, keys)
    for key in compacted:
        all_of_it, left = offsets_and_values(copy, key), offsets_and_values(source, key)
        assert len(left) < len(all_of_it) and left.items() <= all_of_it.items()
    assert served_from(reference, tmp_path / "standby", later, keys) == wanted


def is_compacted(data: Path, key: TopicPartition) -> bool:
    """Return True if the cleaner has reached the active segment."""
    try:
        known = OffsetCheckpoint(str(data / "cleaner-offset-checkpoint")).read()
    except FileNotFoundError:
        return False
    active = max((data / f"{key}").glob("*.log"))
    return known.get(key) == int(active.stem) > 0


def until_still(bootstrap: str, keys: Iterable[TopicPartition]) -> dict[TopicPartition, tuple[int, int]]:
    """Begin and end of each log, once the retention has nothing more to delete."""
    consumer = Consumer({"bootstrap.servers": bootstrap, "group.id": "bounds"})

    def bounds() -> dict[TopicPartition, tuple[int, int]]:
        return {key: consumer.get_watermark_offsets(Place(*key), timeout=60) for key in keys}

    found = [bounds()]

    def is_still() -> bool:
        time.sleep(1)
        found.append(bounds())
        return found[-1] == found[-2] and all(found[-1][key][0] > 0 for key in keys if key.topic == "short")

    try:
        until(is_still)
    finally:
        consumer.close()
    return found[-1]


def end_of(data: Path, key: TopicPartition) -> int:
    if not (data / f"{key}").is_dir():
        return 0
    with kafkalog.open(data / f"{key}") as log:
        return log.end_offset


def offsets_and_values(data: Path, key: TopicPartition) -> dict[int, tuple[bytes | None, bytes | None]]:
    with kafkalog.open(data / f"{key}") as log:
        return {record.offset: (record.key, record.value) for record in log.records()}
