"""`handover` without a broker: what it plans, what it refuses, what it writes, and that it can be taken back."""

import errno
import json
import shutil
import struct
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest

import kafkalog
from kafkalog.config import LogConfig
from kafkalog.errors import (
    CorruptCheckpoint,
    DirectoryLocked,
    IllegalArgument,
    IllegalState,
    KafkalogError,
    UnknownTopicOrPartition,
)
from kafkalog.manager.cluster_metadata import METADATA_DIRECTORY, ClusterMetadata, read_cluster_metadata
from kafkalog.manager.log_dir import LogDir
from kafkalog.manager.topics import TOPICS_FILE, TopicStore
from kafkalog.records.builder import RecordsBuilder
from kafkalog.records.control import ControlType
from kafkalog.records.control_batch import marker_batch
from kafkalog.storage.log import UnifiedLog
from kafkalog.storage.partition_metadata import new_topic_id, read_partition_metadata
from kafkalog.storage.producer_snapshot import read_snapshot
from kafkalog.tools.handover import HandoverOptions, HandoverReport, handover, undo_handover
from kafkalog.tools.handover_journal import JOURNAL_FILE
from kafkalog.tools.handover_records import DIRECTORIES_SINCE
from kafkalog.util.fileio import OS
from tests.broker_directory import (
    NODE_ID,
    T0,
    Record,
    batch,
    features,
    format_directory,
    write_meta_properties,
    write_metadata_log,
)
from tests.faults import WRITING_CALLS, FaultFS, each_failure

KEEP = {"retention_ms": -1}


def write(data: Path, name: str, count: int = 10, **settings: Any) -> None:
    data.mkdir(exist_ok=True)
    with kafkalog.open(data / name, "a", **settings) as log:
        for i in range(count):
            log.append([(b"k%d" % i, b"v%d" % i)])


def produced(producer_id: int, *, transactional: bool = False) -> bytearray:
    """The first batch of a producer."""
    builder = RecordsBuilder(
        0, producer_id=producer_id, producer_epoch=0, base_sequence=0, is_transactional=transactional
    )
    builder.append(T0, b"k", b"v")
    return builder.build()


def metadata_of(data: Path) -> ClusterMetadata:
    found = read_cluster_metadata(data)
    assert found is not None
    return found


def content(root: Path) -> dict[str, bytes]:
    """Every file but those that locking and undoing need."""
    passed = (".lock", JOURNAL_FILE)
    return {
        str(path.relative_to(root)): path.read_bytes()
        for path in root.rglob("*")
        if path.is_file() and path.name not in passed
    }


@pytest.fixture(scope="module", params=["fresh", "running"])
def template(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Topics of ours in a directory that was just formatted, and in one in which a controller has been."""
    data = tmp_path_factory.mktemp(request.param) / "data"
    write(data, "orders-0", internal_segment_bytes=2000, cleanup_policy="compact")
    write(data, "orders-1", 3)
    write(data, "small.one-0", **KEEP)
    format_directory(data)
    if request.param == "running":
        write_metadata_log(data)
    return data


@pytest.fixture
def data(template: Path, tmp_path: Path) -> Path:
    """A copy of the template."""
    return Path(shutil.copytree(template, tmp_path / "data"))


def apply(data: Path, **options: Any) -> HandoverReport:
    return handover([data], apply=True, options=HandoverOptions(**options))


def test_a_dry_run_changes_nothing(data: Path) -> None:
    before = content(data)
    report = handover([data])
    assert content(data) == before and not (data / JOURNAL_FILE).exists()
    assert not report.ok and not report.applied and not report.plan.problems
    assert [(topic.name, topic.action, topic.partitions) for topic in report.plan.topics] == [
        ("orders", "new", 2),
        ("small.one", "new", 1),
    ]
    assert "give --apply" in report.summary()


def test_topics_are_known_with_their_ids_and_settings(data: Path) -> None:
    """Leader epochs lie above those of our batches, and the partitions name the directory that they lie in."""
    own = next(line for line in (data / "meta.properties").read_text().splitlines() if line.startswith("directory.id"))
    report = apply(data)
    assert report.ok and report.applied
    metadata = metadata_of(data)
    entries = TopicStore(data).topics()
    assert {name: topic.topic_id for name, topic in metadata.image.topics.items()} == {
        name: entry.topic_id for name, entry in entries.items()
    }
    assert metadata.image.topic_settings("orders") == {"cleanup.policy": "compact", "internal.segment.bytes": "2000"}
    assert metadata.image.topic_settings("small.one") == {"retention.ms": "-1"}
    for number in (0, 1):
        partition = metadata.image.topics["orders"].partitions[number]
        assert partition.replicas == (NODE_ID,) and partition.leader == NODE_ID
        assert partition.leader_epoch == 1
        assert partition.directories == (own.partition("=")[2],)
        assert read_partition_metadata(OS, data / f"orders-{number}") == entries["orders"].topic_id


def test_a_second_handover_has_nothing_to_do(data: Path) -> None:
    apply(data)
    before = content(data)
    report = handover([data])
    assert report.ok and report.plan.is_done and "nothing to hand over" in report.summary()
    assert apply(data).ok
    assert content(data) == before


def test_topics_and_partitions_that_came_later(data: Path) -> None:
    apply(data)
    before = metadata_of(data)
    write(data, "orders-2")
    write(data, "third-0")
    assert [topic.action for topic in apply(data).plan.topics] == ["grown", "known", "new"]
    after = metadata_of(data)
    assert sorted(after.image.topics["orders"].partitions) == [0, 1, 2]
    assert after.image.topics["orders"].partitions[0] == before.image.topics["orders"].partitions[0]
    assert set(after.image.topics) == {"orders", "small.one", "third"}


def test_only_the_topics_named(data: Path) -> None:
    apply(data, topics=("orders",))
    assert set(metadata_of(data).image.topics) == {"orders"}
    with pytest.raises(UnknownTopicOrPartition, match="no topic ordres"):
        handover([data], options=HandoverOptions(("ordres",)))


def test_undo_restores_every_file_but_what_derives_from_the_log(data: Path) -> None:
    before = content(data)
    apply(data)
    assert content(data) != before
    journal = undo_handover([data])
    assert journal.topics == ("orders", "small.one")
    after = content(data)
    for name in set(before) | set(after):
        if name.startswith(METADATA_DIRECTORY) and not name.endswith((".log", "quorum-state")):
            continue
        assert after.get(name) == before.get(name), name
    assert not metadata_of(data).image.topics
    with pytest.raises(IllegalState, match="no handover"):
        undo_handover([data])
    assert apply(data).ok


def test_undo_comes_too_late(data: Path) -> None:
    """Once a controller has written, nothing is taken back."""
    apply(data)
    metadata = metadata_of(data)
    if metadata.is_fresh:
        write_metadata_log(data)
    else:
        log = UnifiedLog.open(metadata.log_path, LogConfig())
        log.append_as_follower(batch(features(), metadata.end_offset, 3), 3)
        log.close()
    before = content(data)
    with pytest.raises(IllegalState, match="the broker has run since"):
        undo_handover([data])
    assert content(data) == before


def test_a_small_segment_size_goes_under_the_name_that_a_broker_takes(data: Path) -> None:
    with pytest.warns(UserWarning, match="segment.bytes"):
        write(data, "tiny-0", segment_bytes=5000)
    apply(data)
    assert metadata_of(data).image.topic_settings("tiny") == {"internal.segment.bytes": "5000"}


def test_an_older_metadata_version_has_no_directories(tmp_path: Path) -> None:
    data = tmp_path / "data"
    write(data, "t-0")
    format_directory(data, level=DIRECTORIES_SINCE - 1)
    apply(data)
    assert metadata_of(data).image.topics["t"].partitions[0].directories == ()


def test_every_file_of_the_metadata_log_stays(tmp_path: Path) -> None:
    """Snapshots of the metadata, quorum state and what waits for its delete are not ours to touch."""
    data = tmp_path / "data"
    write(data, "t-0")
    format_directory(data)
    path = write_metadata_log(data)
    kept = {
        f"{0:020d}-{0:010d}.checkpoint": b"",
        f"{1:020d}-{1:010d}.checkpoint.deleted": b"gone",
        f"{9:020d}-{1:010d}.checkpoint.part": b"half",
        "partition.metadata": b"version: 0\ntopic_id: AAAAAAAAAAAAAAAAAAAAAQ",
    }
    for name, data_ in kept.items():
        (path / name).write_bytes(data_)
    apply(data)
    assert {name: (path / name).read_bytes() for name in kept} == kept


def test_producer_ids_of_our_records_are_not_given_again(data: Path) -> None:
    """A new producer with a known id and sequence would be taken for a repetition, its records for written ones."""
    with kafkalog.open(data / "idem-0", "a", **KEEP) as log:
        log.append_bytes(produced(4711))
    report = apply(data)
    assert report.plan.next_producer_id == 5000
    assert metadata_of(data).image.next_producer_id == 5000
    assert handover([data]).ok


def test_producer_ids_without_any_snapshot(data: Path) -> None:
    with kafkalog.open(data / "idem-0", "a") as log:
        log.append_bytes(produced(4711))
    for path in (data / "idem-0").glob("*.snapshot"):
        assert read_snapshot(path)
        path.unlink()
    assert handover([data]).plan.next_producer_id == 5000


def test_a_producer_id_that_leaves_none(data: Path) -> None:
    with kafkalog.open(data / "idem-0", "a") as log:
        log.append_bytes(produced(2**63 - 5))
    assert "leaves the broker none" in refusal(data)


def test_an_open_transaction_is_told(data: Path) -> None:
    with kafkalog.open(data / "open-0", "a") as log:
        log.append([b"before"])
        log.append_bytes(produced(7, transactional=True))
    notes = handover([data]).plan.notes
    assert any("open-0 has an open transaction from offset 1" in note for note in notes)
    with kafkalog.open(data / "open-0", "a") as log:
        log.replicate(marker_batch(ControlType.ABORT, 7, 0, 0, timestamp=1, base_offset=2, leader_epoch=0))
    assert not any("open transaction" in note for note in handover([data]).plan.notes)


OLD = 1_500_000_000_000


@pytest.fixture
def aged(data: Path) -> Path:
    """A topic with default retention whose records are years old."""
    with kafkalog.open(data / "aged-0", "a") as log:
        log.append([(b"k", b"v", OLD)])
        log.roll()
        log.append([(b"k", b"v", int(time.time() * 1000))])
    return data


def test_records_that_would_expire_at_once_are_not_lost_unasked(aged: Path) -> None:
    before = content(aged)
    report = apply(aged)
    assert not report.ok and not report.applied and content(aged) == before
    assert any("aged-0 below offset 1" in one.what for one in report.plan.problems)
    assert "refused" in report.summary()


def test_keep_records(aged: Path) -> None:
    assert apply(aged, keep_records=True).ok
    assert metadata_of(aged).image.topic_settings("aged") == {"retention.ms": "-1", "retention.bytes": "-1"}
    assert metadata_of(aged).image.topic_settings("orders")["cleanup.policy"] == "compact"


def test_let_expire(aged: Path) -> None:
    report = apply(aged, let_expire=True)
    assert report.ok and any("aged-0 below offset 1" in note for note in report.plan.notes)
    assert metadata_of(aged).image.topic_settings("aged") == {}


@pytest.mark.parametrize("settings", [{"log.retention.ms": "-1"}, {"log.retention.hours": 400_000}])
def test_the_brokers_own_default_decides(aged: Path, settings: dict[str, Any]) -> None:
    assert apply(aged, settings=settings).ok


def test_a_dynamic_default_of_the_broker_decides(tmp_path: Path) -> None:
    data = tmp_path / "data"
    write(data, "aged-0")
    with kafkalog.open(data / "aged-0", "a") as log:
        log.append([(b"k", b"v", OLD)])
    format_directory(data)
    no_limit = {"resourceType": 4, "resourceName": "", "name": "log.retention.ms", "value": "-1"}
    unknown = no_limit | {"name": "some.listener.setting"}
    write_metadata_log(data, [("ConfigRecord", 0, no_limit), ("ConfigRecord", 0, unknown)])
    assert apply(data).ok


def test_retention_by_size_counts_too(data: Path) -> None:
    with kafkalog.open(data / "big-0", "a", retention_bytes=100) as log:
        for _ in range(3):
            log.append([(b"k", b"v" * 200)])
            log.roll()
    assert "big-0 below offset 2" in refusal(data)


# What is refused


def refusal(data: Path, **options: Any) -> str:
    """Why a handover is refused; nothing has changed then."""
    before = content(data)
    report = apply(data, **options)
    assert not report.ok and not report.applied and content(data) == before
    assert report.plan.problems and all(one.hint for one in report.plan.problems)
    return "; ".join(one.what for one in report.plan.problems)


def topic(name: str, topic_id: str, *, replicas: tuple[int, ...] = (NODE_ID,), epoch: int = 0) -> list[Record]:
    partition = {
        "partitionId": 0, "topicId": topic_id, "replicas": list(replicas), "isr": list(replicas),
        "removingReplicas": [], "addingReplicas": [], "leader": replicas[0], "leaderEpoch": epoch, "partitionEpoch": 4,
    }  # fmt: skip
    return [("TopicRecord", 0, {"name": name, "topicId": topic_id}), ("PartitionRecord", 0, partition)]


def existing(tmp_path: Path, records: list[Record], **more: Any) -> Path:
    data = tmp_path / "data"
    write(data, "t-0")
    format_directory(data)
    write_metadata_log(data, records, **more)
    return data


def test_not_formatted(tmp_path: Path) -> None:
    data = tmp_path / "data"
    write(data, "t-0")
    with pytest.raises(IllegalArgument, match=r"not formatted for a broker .*kafka-storage.sh format"):
        handover([data])
    write_meta_properties(data)
    (data / METADATA_DIRECTORY).mkdir()
    with pytest.raises(IllegalArgument, match="no broker's metadata here"):
        handover([data])
    before = content(data)
    with pytest.raises(IllegalArgument):
        handover([data], apply=True)
    assert content(data) == before


@pytest.mark.parametrize(
    ("line", "what"),
    [
        ("version=0", "KRaft"),
        ("node.id=x", "node.id"),
        ("directory.id=short", "topic id"),
        ("cluster.idd=x", "cluster.id"),
    ],
)
def test_malformed_meta_properties(data: Path, line: str, what: str) -> None:
    path = data / "meta.properties"
    name = line.partition("=")[0].removesuffix("d") if "idd" in line else line.partition("=")[0]
    lines = [one for one in path.read_text().splitlines() if not one.startswith(name)]
    path.write_text("\n".join([*lines, line]))
    with pytest.raises(CorruptCheckpoint, match=what) as caught:
        handover([data])
    assert caught.value.path == str(path) and caught.value.hint


def test_a_running_broker(data: Path) -> None:
    with LogDir.acquire(data):
        assert any("in use" in note for note in handover([data]).plan.notes)
    held = "import fcntl,sys;f=open(sys.argv[1],'w');fcntl.lockf(f,fcntl.LOCK_EX);print('held',flush=True);input()"
    with subprocess.Popen(
        [sys.executable, "-c", held, str(data / ".lock")], stdin=subprocess.PIPE, stdout=subprocess.PIPE
    ) as other:
        assert other.stdout is not None and other.stdout.readline()
        before = content(data)
        with pytest.raises(DirectoryLocked):
            apply(data)
        with pytest.raises(DirectoryLocked):
            undo_handover([data])
        assert content(data) == before
        other.communicate(b"\n")


def test_other_controllers_keep_the_metadata(tmp_path: Path) -> None:
    assert "controllers 1, 2, 3" in refusal(existing(tmp_path, [], voters=(1, 2, 3)))


def test_a_metadata_transaction_is_open(tmp_path: Path) -> None:
    assert "transaction" in refusal(existing(tmp_path, [("BeginTransactionRecord", 0, {"name": "x"})]))


def test_the_metadata_log_ends_in_damage(tmp_path: Path) -> None:
    data = existing(tmp_path, [])
    log = next((data / METADATA_DIRECTORY).glob("*.log"))
    with log.open("ab") as file:
        file.write(struct.pack(">qi", 9, 500) + bytes(30))
    assert "ends in damage" in refusal(data)


def test_the_broker_has_a_topic_of_that_name(tmp_path: Path) -> None:
    """Unless told to, we take nobody's topic; told to, our partitions get its id and an epoch above both."""
    theirs = new_topic_id()
    data = existing(tmp_path, topic("t", theirs, epoch=6))
    ours = TopicStore(data).topics()["t"].topic_id
    assert "a topic t of its own" in refusal(data)
    assert apply(data, adopt=True).plan.topics[0].action == "adopted"
    partition = metadata_of(data).image.topics["t"].partitions[0]
    assert partition.leader_epoch > 6 and partition.partition_epoch > 4
    assert read_partition_metadata(OS, data / "t-0") == theirs == TopicStore(data).topics()["t"].topic_id
    assert handover([data]).ok
    with kafkalog.open(data / "t-0", "a") as log:
        log.append(b"still ours to write")
    undo_handover([data])
    assert read_partition_metadata(OS, data / "t-0") == ours == TopicStore(data).topics()["t"].topic_id
    assert metadata_of(data).image.topics["t"].partitions[0].leader_epoch == 6


def test_the_broker_has_the_topic_elsewhere(tmp_path: Path) -> None:
    data = existing(tmp_path, [])
    ours = TopicStore(data).topics()["t"].topic_id
    shutil.rmtree(data / METADATA_DIRECTORY)
    write_metadata_log(data, topic("t", ours, replicas=(7, 8)))
    assert "on the nodes 7, 8" in refusal(data)


def test_partitions_of_two_topics_under_one_name(data: Path) -> None:
    path = data / "orders-1" / "partition.metadata"
    path.write_text(f"version: 0\ntopic_id: {new_topic_id()}")
    assert "belong to different topics" in refusal(data)


def test_a_damaged_epoch_file(data: Path) -> None:
    (data / "orders-0" / "leader-epoch-checkpoint").write_text("nonsense")
    assert "leader-epoch-checkpoint" in refusal(data)


def test_a_damaged_topic_id(data: Path) -> None:
    (data / "orders-0" / "partition.metadata").write_text("nonsense")
    assert "partition.metadata" in refusal(data)


def test_a_damaged_topics_file(data: Path) -> None:
    (data / TOPICS_FILE).write_text("{")
    with pytest.raises(CorruptCheckpoint):
        handover([data])


def test_a_missing_topic_id_is_written(data: Path) -> None:
    (data / "orders-0" / "partition.metadata").unlink()
    apply(data)
    assert read_partition_metadata(OS, data / "orders-0") == TopicStore(data).topics()["orders"].topic_id
    (data / "orders-0" / "partition.metadata").unlink()  # and again, of a topic that is known
    assert not handover([data]).ok
    apply(data)
    assert read_partition_metadata(OS, data / "orders-0") == metadata_of(data).image.topics["orders"].topic_id


def test_a_topic_that_no_file_knows(data: Path) -> None:
    """A directory that a broker made, its metadata lost: the id comes from the partition, the settings are unknown."""
    own = read_partition_metadata(OS, data / "orders-0")
    (data / TOPICS_FILE).unlink()
    report = apply(data)
    assert metadata_of(data).image.topics["orders"].topic_id == own
    assert any("no topics file knows the settings of orders" in note for note in report.plan.notes)


def test_a_brokers_own_topics_get_its_settings_back(data: Path) -> None:
    write(data, "__consumer_offsets-0")
    apply(data)
    settings = metadata_of(data).image.topic_settings("__consumer_offsets")
    assert settings["cleanup.policy"] == "compact" and settings["segment.bytes"] == "104857600"


def test_a_missing_partition_is_left_to_the_broker(data: Path) -> None:
    shutil.rmtree(data / "orders-0")
    report = apply(data)
    assert any("orders-0 has no directory" in note for note in report.plan.notes)
    assert sorted(metadata_of(data).image.topics["orders"].partitions) == [0, 1]


def test_two_data_directories(data: Path, tmp_path: Path) -> None:
    """Each partition names the directory that it lies in; one of another broker, or a copy, is refused."""
    other = tmp_path / "other"
    write(other, "far-0")
    own = write_meta_properties(other)
    report = handover([data, other], apply=True)
    assert report.ok
    assert metadata_of(data).image.topics["far"].partitions[0].directories == (own,)
    write_meta_properties(other, node_id=NODE_ID + 1)
    with pytest.raises(IllegalArgument, match=f"belongs to node {NODE_ID + 1}"):
        handover([data, other])
    shutil.copy(data / "meta.properties", other)
    with pytest.raises(IllegalArgument, match="same directory.id"):
        handover([data, other])


def test_metadata_in_a_directory_of_its_own(tmp_path: Path) -> None:
    data, meta = tmp_path / "data", tmp_path / "meta"
    write(data, "t-0")
    write_meta_properties(data)
    format_directory(meta)
    with pytest.raises(IllegalArgument, match="no broker's metadata"):
        handover([data])
    assert handover([data], apply=True, metadata_dir=meta).ok
    assert set(metadata_of(meta).image.topics) == {"t"}
    undo_handover([data], metadata_dir=meta)
    assert not metadata_of(meta).image.topics


def test_metadata_in_two_directories(data: Path, tmp_path: Path) -> None:
    other = tmp_path / "other"
    format_directory(other)
    with pytest.raises(IllegalArgument, match="has a broker's metadata too"):
        handover([data, other])
    assert handover([data, other], metadata_dir=data).plan.topics


def test_a_damaged_journal(data: Path) -> None:
    apply(data)
    for bad in ("{", "[]", '{"version": 9}', json.dumps({"version": 1, "end_before": 5, "end_after": 1})):
        (data / JOURNAL_FILE).write_text(bad)
        with pytest.raises(CorruptCheckpoint):
            undo_handover([data])


def test_interrupted_anywhere_it_is_made_whole_by_the_next(data: Path, tmp_path: Path) -> None:
    """Every writing call fails in turn: records and metadata are whole each time, and the rest is done later."""
    before = content(data)
    logs = {name for name in before if name.endswith(".log") and not name.startswith(METADATA_DIRECTORY)}
    for nth in each_failure():
        copy = tmp_path / f"copy{nth}"
        shutil.copytree(data, copy)
        fs = FaultFS()
        rule = fs.fail(*WRITING_CALLS, nth=nth, times=1, code=errno.EIO, partial=9)
        try:
            handover([copy], apply=True, fs=fs)
        except (KafkalogError, OSError):
            assert set(metadata_of(copy).image.topics) in (set(), {"orders", "small.one"})
        after = content(copy)
        assert {name: after[name] for name in logs} == {name: before[name] for name in logs}
        assert apply(copy).ok
        assert set(metadata_of(copy).image.topics) == {"orders", "small.one"}
        shutil.rmtree(copy)
        if not rule.fired:
            assert nth > 5
            break
