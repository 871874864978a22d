"""A real broker takes over a directory that kafkalog wrote: nothing is lost, nothing is changed, and we go on after it.

The topics are those of the captured broker, each with its settings and its batches of every codec, producer and
transaction, written by kafkalog into a new directory; and topics of our own, of every codec and old format.
"""

import base64
import json
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

import kafkalog
from kafkalog.records.builder import RecordsBuilder
from kafkalog.records.control import ControlType
from kafkalog.records.control_batch import marker_batch
from kafkalog.storage.file_records import FileRecords
from kafkalog.storage.names import parse_topic_partition_dir
from kafkalog.tools.handover.directories import handover
from kafkalog.types import TopicPartition
from tests.golden_cases import Case, cases, partitions
from tests.interop import ours
from tests.interop.broker import QUIET, Broker
from tests.interop.reference import RecordTuple, Reference

LEVELS = ("read_uncommitted", "read_committed")
CODECS = ("gzip", "snappy", "lz4", "zstd")
EPOCHS = "leader-epoch-checkpoint"
LATE = "late-0"
PRODUCED = ("own.zstd", "own-stamped", "own_deleted")
T1 = 1_790_000_000_000
Contents = dict[str, bytes]


@dataclass
class TakenOver:
    """Results of each step."""

    data: Path
    names: list[str] = field(default_factory=list)
    before: dict[str, Contents] = field(default_factory=dict)
    after_reference: dict[str, Contents] = field(default_factory=dict)
    after_broker: dict[str, Contents] = field(default_factory=dict)
    ours: dict[str, dict[str, list[RecordTuple]]] = field(default_factory=dict)
    theirs: dict[str, dict[str, list[RecordTuple]]] = field(default_factory=dict)
    settings: dict[str, dict[str, str]] = field(default_factory=dict)
    report: dict[str, Any] = field(default_factory=dict)
    listing: list[str] = field(default_factory=list)
    log: str = ""

    @property
    def partitions(self) -> list[TopicPartition]:
        return [parse_topic_partition_dir(name) for name in self.names]


def captured() -> list[Case]:
    return [case for case in partitions("logdir") if not case.topic.startswith("__")]


def captured_settings() -> dict[str, dict[str, str]]:
    top = cases("logdir")[0]
    path = next(top.expected_path(name) for name in top.expected if name.endswith("topic-configs.json"))
    found: dict[str, dict[str, str]] = json.loads(path.read_text())
    return found


def copy_batches(source: Path, log: kafkalog.Log) -> None:
    """Every batch of a partition directory, one append each, with the offsets and epochs it has."""
    for path in sorted(source.glob("*.log")):
        data = path.read_bytes()
        records = FileRecords.open(path, mutable=False)
        for batch in list(records.batches()):
            copied = bytearray(data[batch.position : batch.position + batch.size])
            if batch.magic == 2 and batch.leader_epoch < 0:  # of a file that no leader wrote
                copied[12:16] = bytes(4)
            log.replicate(copied)
        records.close_handlers()


def log_start(case: Case) -> int:
    path = next(case.expected_path(name) for name in case.expected if "listoffsets" in name)
    return int(json.loads(path.read_text())["read_uncommitted"]["earliest"]["offset"])


def write_captured(data: Path) -> None:
    """The captured topics, in kafkalog's hand."""
    settings = captured_settings()
    for case in captured():
        with kafkalog.open(data / case.name, "a", **settings.get(case.topic, {})) as log:
            copy_batches(case.directory, log)
            if log_start(case) > 0:
                log.delete_before(log_start(case))


def write_own(data: Path) -> None:
    """Topics that kafkalog made itself: every codec, times of its own, a transaction of each end, deletions."""
    keep = {"retention_ms": -1}
    for codec in CODECS:
        with kafkalog.open(data / f"own.{codec}-0", "a", internal_segment_bytes=4000, **keep) as log:
            for i in range(40):
                headers = [("h", b"x"), ("n", None)]
                rows = [(b"k%d" % j, b"hello lagou %d" % j * 5, i * 10 + j, headers) for j in range(9)]
                log.append(rows, compression=codec)
    with kafkalog.open(data / "own-stamped-0", "a", message_timestamp_type="LogAppendTime") as log:
        for i in range(30):
            log.append([b"%d" % i, None, b""])
        log.roll()
    with kafkalog.open(data / "own_deleted-0", "a", internal_segment_bytes=1000, **keep) as log:
        for i in range(100):
            log.append([b"value %d" % i])
        log.delete_before(73)
    for number in range(3):
        with kafkalog.open(data / f"own-keyed-{number}", "a", cleanup_policy="compact,delete", **keep) as log:
            log.append([(b"k%d" % (i % 5), b"%d" % i) for i in range(number * 50)] or [(b"k", None)])
    with kafkalog.open(data / "own-markers-0", "a", **keep) as log:
        for kind in (ControlType.COMMIT, ControlType.ABORT):
            log.append([b"between"])
            log.append_bytes(transactional(4000 + kind, b"of " + kind.name.encode()))
            log.replicate(
                marker_batch(kind, 4000 + kind, 0, 0, timestamp=9, base_offset=log.end_offset, leader_epoch=0)
            )


def transactional(producer_id: int, value: bytes) -> bytearray:
    builder = RecordsBuilder(
        0, producer_id=producer_id, producer_epoch=0, base_sequence=0, is_transactional=True
    )
    builder.append(5, b"k", value)
    return builder.build()


def write_old_formats(data: Path) -> None:
    """Write batches of format v0 and v1 as an old broker left them: no current client writes them, all read them."""
    for case in partitions("legacy"):
        with kafkalog.open(data / f"old.{case.name}", "a", retention_ms=-1) as log:
            copy_batches(case.directory, log)


def contents(directory: Path, *, leave_out: tuple[str, ...] = ()) -> Contents:
    return {path.name: path.read_bytes() for path in sorted(directory.iterdir()) if path.name not in leave_out}


def own_records(data: Path, names: list[str], level: str) -> dict[str, list[RecordTuple]]:
    found = {}
    for name in names:
        with kafkalog.open(data / name) as log:
            found[name] = [
                (record.offset, record.timestamp, record.key, record.value, tuple(record.headers))
                for record in log.records(isolation=level)
            ]
    return found


@pytest.fixture(scope="module")
def taken(reference: Reference, tmp_path_factory: pytest.TempPathFactory) -> TakenOver:
    """Written by us, opened and closed by the reference's log class, handed over, served by a broker, stopped well."""
    root = tmp_path_factory.mktemp("handover")
    data = root / "data"
    data.mkdir()
    write_captured(data)
    write_own(data)
    write_old_formats(data)
    found = TakenOver(data, sorted(path.name for path in data.iterdir() if path.is_dir()))
    for name in found.names:  # at each load, ours and theirs, what lies at or below the log start is tidied up
        kafkalog.open(data / name, "a").close()
    found.before = {name: contents(data / name) for name in found.names}
    found.ours = {level: own_records(data, found.names, level) for level in LEVELS}
    for name in found.names:
        settings = captured_settings().get(parse_topic_partition_dir(name).topic, {})
        with kafkalog.open(data / name) as log:
            start = log.start_offset
        reference.open(data / name, settings, clean=True, log_start=start).close()
    found.after_reference = {name: contents(data / name) for name in found.names}
    broker = Broker(reference, root / "work", data, QUIET)
    broker.format()
    found.report = json.loads(ours.command("handover", "-d", str(data), "--apply", "--let-expire", "-J"))
    with broker:
        found.theirs = {level: broker.consume_all(found.partitions, level) for level in LEVELS}
        found.settings = broker.ask("topic_settings", topics=sorted({one.topic for one in found.partitions}))
    found.log = broker.log()
    found.listing = sorted(path.name for path in data.iterdir())
    found.after_broker = {name: contents(data / name) for name in found.names}
    return found


def test_there_is_something_of_everything(taken: TakenOver) -> None:
    codecs, magics, producers = set(), set(), 0
    for name in taken.names:
        for path in (taken.data / name).glob("*.log"):
            records = FileRecords.open(path, mutable=False)
            for batch in records.batches():
                codecs.add(int(batch.compression))
                magics.add(batch.magic)
                producers += batch.producer_id >= 0
            records.close_handlers()
    assert codecs == {0, 1, 2, 3, 4} and magics == {0, 1, 2} and producers > 100
    assert len(taken.names) > 40
    uncommitted, committed = (sum(map(len, taken.ours[level].values())) for level in LEVELS)
    assert uncommitted > committed > 10_000


@pytest.mark.parametrize("level", LEVELS)
def test_the_brokers_consumer_reads_every_record(taken: TakenOver, level: str) -> None:
    for name in taken.names:
        assert taken.theirs[level][name] == taken.ours[level][name], name


@pytest.mark.parametrize("level", LEVELS)
def test_these_are_the_records_that_the_captured_broker_had(taken: TakenOver, level: str) -> None:
    """An oracle that kafkalog has no part in."""
    for case in captured():
        path = next(case.expected_path(name) for name in case.expected if name.endswith(f".{level}.jsonl"))
        rows = [json.loads(line) for line in path.read_text().splitlines()]
        expected = [(row["offset"], row["timestamp"], row["key"], row["value"]) for row in rows]
        found = [(offset, at, text(key), text(value)) for offset, at, key, value, _ in taken.theirs[level][case.name]]
        assert found == expected, case.name


def text(data: bytes | None) -> str | None:
    return None if data is None else base64.b64encode(data).decode()


def test_no_directory_is_stray(taken: TakenOver) -> None:
    assert set(taken.names) <= set(taken.listing)
    assert not [name for name in taken.listing if name.endswith(("-stray", "-delete"))]
    assert "stray" not in taken.log.lower().replace("strayed", "")


def test_topics_have_the_settings_that_they_had_here(taken: TakenOver) -> None:
    for topic, settings in captured_settings().items():
        assert taken.settings[topic] == settings
    assert taken.settings["own-stamped"] == {"message.timestamp.type": "LogAppendTime"}
    assert taken.settings["own-keyed"] == {"cleanup.policy": "compact,delete", "retention.ms": "-1"}


def compared(taken: TakenOver, name: str, files: Contents) -> Contents:
    """Return the files that must stay: where all records are deleted, an unrelated snapshot may come and go."""
    if taken.ours[LEVELS[0]][name]:
        return dict(files)
    return {file: data for file, data in files.items() if not file.endswith(".snapshot")}


def test_the_reference_changes_no_file(taken: TakenOver) -> None:
    """A clean open and close of its log class: the same files, sizes and contents, whatever is in them."""
    for name in taken.names:
        before, found = taken.before[name], taken.after_reference[name]
        assert compared(taken, name, found) == compared(taken, name, before), name


def test_the_broker_changes_no_file_but_the_epochs(taken: TakenOver) -> None:
    """It adds the epoch that it leads with, and nothing else: no index is rebuilt, nothing is recovered or deleted."""
    for name in taken.names:
        before, after = (compared(taken, name, files[name]) for files in (taken.before, taken.after_broker))
        had, has = (files.pop(EPOCHS).decode().splitlines()[2:] for files in (before, after))
        assert after == before, name
        assert has[: len(had)] == had and len(has) == len(had) + 1, name
    assert "since clean shutdown file was found" in taken.log


@pytest.fixture(scope="module")
def after(reference: Reference, taken: TakenOver) -> TakenOver:
    """We append to every partition, and hand another topic over to the log of metadata that there is now.

    The broker starts again, reads, takes more, and is killed; we open all again.
    """
    data = taken.data
    with kafkalog.open(data / LATE, "a", retention_ms=-1) as log:
        log.append([(b"k", b"%d" % i) for i in range(50)])
    found = TakenOver(data, [*taken.names, LATE])
    for name in found.names:
        with kafkalog.open(data / name, "a") as log:
            log.append((b"k", b"after the broker", T1))
    found.report = json.loads(ours.command("handover", "-d", str(data), "--apply", "--let-expire", "-J"))
    found.ours = {level: own_records(data, found.names, level) for level in LEVELS}
    broker = Broker(reference, data.parent / "work", data, QUIET)
    with broker:
        found.theirs = {level: broker.consume_all(found.partitions, level) for level in LEVELS}
        for topic in PRODUCED:
            broker.ask("produce", topic=topic, prefix="of the broker ", count=20)
        broker.kill()
    found.log = broker.log()
    return found


def test_we_opened_and_wrote_after_a_clean_stop(taken: TakenOver, after: TakenOver) -> None:
    """All that was there is there, ours is the last record, and the broker's consumer gets it."""
    for name in taken.names:
        had, has = taken.ours[LEVELS[0]][name], after.ours[LEVELS[0]][name]
        assert has[:-1] == had and has[-1][2:4] == (b"k", b"after the broker"), name
    for level in LEVELS:
        assert after.theirs[level] == after.ours[level]


def test_a_topic_goes_into_the_log_of_metadata_that_the_broker_has(taken: TakenOver, after: TakenOver) -> None:
    actions = {one["topic"]: one["action"] for one in after.report["topics"]}
    assert actions == {one["topic"]: "known" for one in taken.report["topics"]} | {"late": "new"}
    assert [record[3] for record in after.theirs[LEVELS[0]][LATE]][:-1] == [b"%d" % i for i in range(50)]


def test_no_producer_gets_an_id_of_ours(taken: TakenOver, after: TakenOver) -> None:
    largest = 4001
    for topic in PRODUCED:
        with kafkalog.open(after.data / f"{topic}-0") as log:
            new = [batch.header.producer_id for batch in log.batches() if batch.header.producer_id >= 0][-20:]
            assert len(set(new)) == 1 and new[0] > largest


def test_we_open_and_write_after_a_kill(after: TakenOver) -> None:
    """No marker vouches for the directory: each partition is recovered, and has all that the broker acknowledged."""
    assert not (after.data / ".kafka_cleanshutdown").exists()
    for name in after.names:
        had = after.ours[LEVELS[0]][name]
        with kafkalog.open(after.data / name, "a") as log:
            found = [record.value for record in log.records()]
            expected = [record[3] for record in had]
            if name.removesuffix("-0") in PRODUCED:
                expected += [b"of the broker %d" % i for i in range(20)]
            assert found == expected, name
            assert log.append((b"k", b"ours again", T1)).first_offset == had[-1][0] + 1 + 20 * (len(found) > len(had))
    assert handover([after.data]).ok
