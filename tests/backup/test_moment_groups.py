"""Groups and transactions of a restore at a moment: as they were then, on our server that serves the restored files."""

import struct
import time
from pathlib import Path
from typing import Any

import pytest

import kafkalog
from kafkalog.backup import create_backup, restore_backup, restore_directories
from kafkalog.backup.restore_at.groups import Commit
from kafkalog.records.encoder import encoded
from kafkalog.records.internal import coordinator_record
from kafkalog.records.schemas.groups import KEYS, VALUES
from kafkalog.server.groups.records import offset_record
from kafkalog.server.groups.stored import committed_offsets, read_groups
from kafkalog.server.groups.values import CommittedOffset
from kafkalog.testing import kafka_server
from kafkalog.types import TopicPartition
from tests.backup.load import TIMEOUT_S
from tests.backup.test_transactions import producer, read_committed, send

pytest.importorskip("confluent_kafka", reason="confluent-kafka is not installed: pip install kafkalog[test]")
TOPICS = {"left": 1, "right": 1}


def now_ms() -> int:
    """The time, after which no record has it."""
    now = time.time_ns() // 1_000_000
    time.sleep(0.02)
    return now


def commit(bootstrap: str, offset: int, group: str = "readers") -> None:
    from confluent_kafka import Consumer, TopicPartition

    consumer = Consumer({"bootstrap.servers": bootstrap, "group.id": group, "enable.auto.commit": False})
    consumer.commit(offsets=[TopicPartition("left", 0, offset)], asynchronous=False)
    consumer.close()


def committed_in(directory: Path, group: str = "readers") -> int | None:
    found = read_groups([str(directory)]).committed.get((group, "left", 0))
    return None if found is None else found.offset


def transact(one: Any, value: bytes) -> None:
    one.begin_transaction()
    send(one, value)
    one.commit_transaction(TIMEOUT_S)


def test_groups_and_transactions_are_those_of_then(tmp_path: Path) -> None:
    with kafka_server(directory=tmp_path / "data", topics=TOPICS) as server:
        one = producer(server.bootstrap)
        transact(one, b"first")
        commit(server.bootstrap, 1)
        before = now_ms()
        one.begin_transaction()
        send(one, b"second")
        within = now_ms()
        one.commit_transaction(TIMEOUT_S)
        commit(server.bootstrap, 2)
        transact(one, b"third")
        after = now_ms()
        live = restore_directories(server.directory, tmp_path / "live", at=within)
        create_backup(server.directory, tmp_path / "backups", committed=committed_offsets)
    for name, at, values, offset in (
        ("before", before, [b"first"], 1), ("within", within, [b"first"], 1),
        ("after", after, [b"first", b"second", b"third"], 2),
    ):  # fmt: skip
        manifest = restore_backup(tmp_path / "backups", tmp_path / name, at=at)
        assert manifest.groups == {"readers": {"left": {0: offset}}} and not manifest.notes
        with kafka_server(directory=tmp_path / name) as server:
            assert read_committed(server.bootstrap, "left") == read_committed(server.bootstrap, "right") == values
            again = producer(server.bootstrap)
            transact(again, b"last")
            assert read_committed(server.bootstrap, "left") == [*values, b"last"]
    assert live.groups == {"readers": {"left": {0: 1}}} and not (tmp_path / "live.kafkalog-restore").exists()
    with kafkalog.open(tmp_path / "live" / "left-0") as log:
        assert [record.value for record in log.records(isolation="read_committed")] == [b"first"]


def test_a_commit_that_compaction_removed_comes_from_the_backup_before(tmp_path: Path) -> None:
    backups, then = tmp_path / "backups", []
    with kafka_server(directory=tmp_path / "data", topics=TOPICS) as server:
        one = producer(server.bootstrap)
        for number in range(5):
            transact(one, b"%d" % number)
        for offset in (1, 3):
            commit(server.bootstrap, offset)
            create_backup(server.directory, backups, committed=committed_offsets)
            then.append(now_ms())
            time.sleep(1)
        commit(server.bootstrap, 4)
        commit(server.bootstrap, 5, "others")
    for path in (tmp_path / "data").glob("__consumer_offsets-*"):
        with kafkalog.open(path, "a") as log:
            log.compact(roll=True, from_start=True)
    create_backup(tmp_path / "data", backups, committed=committed_offsets)
    manifest = restore_backup(backups, tmp_path / "restored", at=then[1])
    assert committed_in(tmp_path / "restored") == 3 and committed_in(tmp_path / "restored", "others") is None
    assert any("'readers'" in note and "set to 3, by the backup" in note for note in manifest.notes)
    assert any("'others'" in note and "if it had one" in note for note in manifest.notes)


def test_no_group_is_ahead_of_its_log(tmp_path: Path) -> None:
    """A record of the future cuts the log where it lies, before offsets that a group has read."""
    with kafka_server(directory=tmp_path / "data", topics=TOPICS) as server:
        from confluent_kafka import Producer

        sender = Producer({"bootstrap.servers": server.bootstrap})
        early = now_ms()
        for number in range(5):
            sender.produce("left", b"%d" % number, timestamp=early + (1_000_000 if number == 2 else 0))
            sender.flush(TIMEOUT_S)
        commit(server.bootstrap, 5)
        at = now_ms()
        create_backup(server.directory, tmp_path / "backups", committed=committed_offsets)
    manifest = restore_backup(tmp_path / "backups", tmp_path / "restored", at=at)
    assert committed_in(tmp_path / "restored") == 2 and "is set to the end of the restored log, 2" in manifest.notes[-1]
    restore_backup(tmp_path / "backups", tmp_path / "by-time", at=at, by="time")
    assert committed_in(tmp_path / "by-time") == 5
    with kafkalog.open(tmp_path / "by-time" / "left-0") as log:
        assert [record.offset for record in log.records()] == [0, 1, 3, 4]


def write_offsets(data: Path, *offsets: int | None) -> None:
    """Commit offsets of `readers`, as a server would; None deletes. A record of another key is always replaced."""
    with kafkalog.open(data / "__consumer_offsets-0", "a", cleanup_policy="compact") as log:
        for offset in offsets:
            key, value = offset_record("readers", "left", 0, CommittedOffset(offset or 0, -1, "", 0))
            other, own = offset_record("others", "left", 0, CommittedOffset(0, -1, "", 0))
            log.append([(other, own), (key, value if offset is not None else None)])
            time.sleep(0.02)


def clean(data: Path) -> None:
    with kafkalog.open(data / "__consumer_offsets-0", "a", cleanup_policy="compact") as log:
        log.compact(roll=True, from_start=True)


def test_an_offset_deleted_before_the_moment_stays_deleted(tmp_path: Path) -> None:
    """The backup before still has it, but the log says that it was deleted since."""
    data, backups = tmp_path / "data", tmp_path / "backups"
    write_offsets(data, 1)
    create_backup(data, backups, committed=committed_offsets)
    time.sleep(1)
    write_offsets(data, None)
    clean(data)
    at = now_ms()
    write_offsets(data, 5)
    create_backup(data, backups, committed=committed_offsets)
    manifest = restore_backup(backups, tmp_path / "restored", at=at)
    assert committed_in(tmp_path / "restored") is None and manifest.groups == {"others": {"left": {0: 0}}}


def test_an_offset_deleted_after_the_moment_comes_from_the_backup_before(tmp_path: Path) -> None:
    data, backups = tmp_path / "data", tmp_path / "backups"
    write_offsets(data, 1)
    create_backup(data, backups, committed=committed_offsets)
    time.sleep(1)
    at = now_ms()
    write_offsets(data, None)
    clean(data)
    create_backup(data, backups, committed=committed_offsets)
    manifest = restore_backup(backups, tmp_path / "restored", at=at)
    assert committed_in(tmp_path / "restored") == 1 and manifest.groups["readers"] == {"left": {0: 1}}
    assert any("'readers'" in note and "set to 1, by the backup" in note for note in manifest.notes)


def create_left(data: Path, records: int) -> None:
    with kafkalog.open_dirs(data, "a") as dirs:
        if "left" in dirs.topics:
            dirs.delete_topic("left")
        dirs.create_topic("left", 1)
        dirs["left", 0].append([b"%d" % number for number in range(records)])


def test_an_offset_in_an_older_topic_of_the_name_is_not_taken(tmp_path: Path) -> None:
    """The group would miss the records of the topic that was created since, up to an offset in the deleted one."""
    data, backups = tmp_path / "data", tmp_path / "backups"
    create_left(data, 5)
    write_offsets(data, 4)
    create_backup(data, backups, committed=committed_offsets)
    time.sleep(1)
    create_left(data, 6)
    write_offsets(data, None)
    at = now_ms()
    write_offsets(data, 1)
    clean(data)
    create_backup(data, backups, committed=committed_offsets)
    manifest = restore_backup(backups, tmp_path / "restored", at=at)
    assert committed_in(tmp_path / "restored") is None
    assert any("'readers'" in note and "the topic was created again" in note for note in manifest.notes)


@pytest.mark.parametrize(("kind", "version"), [(0, 0), (1, 3)])
def test_an_offset_is_written_in_the_version_of_its_record(kind: int, version: int) -> None:
    """Also for a key of the oldest kind, whose value has no leader epoch."""
    key = struct.pack(">h", kind) + encoded(KEYS[kind], {"group": "readers", "topic": "left", "partition": 0}, 0)
    deleted = Commit(key, 9, "readers", TopicPartition("left", 0), kind, version, None)
    _, value = deleted.with_offset(5, 1000)
    found = coordinator_record(key, value, KEYS, VALUES)
    assert found.version == version and found.value is not None
    assert (found.value["offset"], found.value["commitTimestamp"]) == (5, 1000)
    again = coordinator_record(*deleted._replace(value=found.value).with_offset(6, 2000), KEYS, VALUES).value
    assert again == {**found.value, "offset": 6}
