"""`handover` without a broker: its plan, its refusals, its writes, and their reversal."""

import errno
import json
import shutil
import time
from pathlib import Path
from typing import Any

import pytest

import kafkalog
from kafkalog.config.topic import LogConfig
from kafkalog.errors import (
    CorruptCheckpoint,
    IllegalArgument,
    IllegalState,
    KafkalogError,
    UnknownTopicOrPartition,
)
from kafkalog.manager.cluster_metadata import METADATA_DIRECTORY
from kafkalog.manager.producer_ids import write_next_producer_id
from kafkalog.manager.topics import TopicStore
from kafkalog.records.control import ControlType
from kafkalog.records.control_batch import marker_batch
from kafkalog.storage.log import UnifiedLog
from kafkalog.storage.partition_metadata import read_partition_metadata
from kafkalog.storage.producer_snapshot import read_snapshot
from kafkalog.tools.handover.directories import HandoverOptions, handover, undo_handover
from kafkalog.tools.handover.journal import JOURNAL_FILE
from kafkalog.tools.handover.records import DIRECTORIES_SINCE
from kafkalog.util.fileio import OS
from tests.broker_directory import (
    NODE_ID,
    batch,
    features,
    format_directory,
    write_meta_properties,
    write_metadata_log,
)
from tests.faults import WRITING_CALLS, FaultFS, each_failure
from tests.handover_cases import KEEP, apply, content, metadata_of, produced, refusal, write


def test_a_dry_run_changes_nothing(broker_dir: Path) -> None:
    before = content(broker_dir)
    report = handover([broker_dir])
    assert content(broker_dir) == before and not (broker_dir / JOURNAL_FILE).exists()
    assert not report.ok and not report.applied and not report.plan.problems
    assert [(topic.name, topic.action, topic.partitions) for topic in report.plan.topics] == [
        ("orders", "new", 2),
        ("small.one", "new", 1),
    ]
    assert "give --apply" in report.summary()


def test_topics_are_known_with_their_ids_and_settings(broker_dir: Path) -> None:
    """Leader epochs lie above those of our batches, and the partitions name the directory that they lie in."""
    lines = (broker_dir / "meta.properties").read_text().splitlines()
    own = next(line for line in lines if line.startswith("directory.id"))
    report = apply(broker_dir)
    assert report.ok and report.applied
    metadata = metadata_of(broker_dir)
    entries = TopicStore(broker_dir).topics()
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
        assert read_partition_metadata(OS, broker_dir / f"orders-{number}") == entries["orders"].topic_id


def test_a_second_handover_has_nothing_to_do(broker_dir: Path) -> None:
    apply(broker_dir)
    before = content(broker_dir)
    report = handover([broker_dir])
    assert report.ok and report.plan.is_done and "nothing to hand over" in report.summary()
    assert apply(broker_dir).ok
    assert content(broker_dir) == before


def test_topics_and_partitions_that_came_later(broker_dir: Path) -> None:
    apply(broker_dir)
    before = metadata_of(broker_dir)
    write(broker_dir, "orders-2")
    write(broker_dir, "third-0")
    assert [topic.action for topic in apply(broker_dir).plan.topics] == ["grown", "known", "new"]
    after = metadata_of(broker_dir)
    assert sorted(after.image.topics["orders"].partitions) == [0, 1, 2]
    assert after.image.topics["orders"].partitions[0] == before.image.topics["orders"].partitions[0]
    assert set(after.image.topics) == {"orders", "small.one", "third"}


def test_only_the_topics_named(broker_dir: Path) -> None:
    apply(broker_dir, topics=("orders",))
    assert set(metadata_of(broker_dir).image.topics) == {"orders"}
    with pytest.raises(UnknownTopicOrPartition, match="no topic ordres"):
        handover([broker_dir], options=HandoverOptions(("ordres",)))


def test_undo_restores_every_file_but_what_derives_from_the_log(broker_dir: Path) -> None:
    before = content(broker_dir)
    apply(broker_dir)
    assert content(broker_dir) != before
    journal = undo_handover([broker_dir])
    assert journal.topics == ("orders", "small.one")
    after = content(broker_dir)
    for name in set(before) | set(after):
        if name.startswith(METADATA_DIRECTORY) and not name.endswith((".log", "quorum-state")):
            continue
        assert after.get(name) == before.get(name), name
    assert not metadata_of(broker_dir).image.topics
    with pytest.raises(IllegalState, match="no handover"):
        undo_handover([broker_dir])
    assert apply(broker_dir).ok


def test_undo_comes_too_late(broker_dir: Path) -> None:
    """Once a controller has written, nothing is reverted."""
    apply(broker_dir)
    metadata = metadata_of(broker_dir)
    if metadata.is_fresh:
        write_metadata_log(broker_dir)
    else:
        log = UnifiedLog.open(metadata.log_path, LogConfig())
        log.append_as_follower(batch(features(), metadata.end_offset, 3), 3)
        log.close()
    before = content(broker_dir)
    with pytest.raises(IllegalState, match="the broker has run since"):
        undo_handover([broker_dir])
    assert content(broker_dir) == before


def test_a_small_segment_size_goes_under_the_name_that_a_broker_takes(broker_dir: Path) -> None:
    with pytest.warns(UserWarning, match="segment.bytes"):
        write(broker_dir, "tiny-0", segment_bytes=5000)
    apply(broker_dir)
    assert metadata_of(broker_dir).image.topic_settings("tiny") == {"internal.segment.bytes": "5000"}


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


def test_producer_ids_of_our_records_are_not_given_again(broker_dir: Path) -> None:
    """A new producer with a known id and sequence would be taken for a repetition, its records for written ones."""
    with kafkalog.open(broker_dir / "idem-0", "a", **KEEP) as log:
        log.append_bytes(produced(4711))
    report = apply(broker_dir)
    assert report.plan.next_producer_id == 5000
    assert metadata_of(broker_dir).image.next_producer_id == 5000
    assert handover([broker_dir]).ok


def test_producer_ids_that_a_server_gave_and_nobody_wrote_under_are_not_given_again(broker_dir: Path) -> None:
    write_next_producer_id(broker_dir, 9000)
    assert handover([broker_dir], apply=True).plan.next_producer_id == 9000
    assert metadata_of(broker_dir).image.next_producer_id == 9000
    assert handover([broker_dir]).plan.next_producer_id is None


def test_producer_ids_without_any_snapshot(broker_dir: Path) -> None:
    with kafkalog.open(broker_dir / "idem-0", "a") as log:
        log.append_bytes(produced(4711))
    for path in (broker_dir / "idem-0").glob("*.snapshot"):
        assert read_snapshot(path)
        path.unlink()
    assert handover([broker_dir]).plan.next_producer_id == 5000


def test_a_producer_id_that_leaves_none(broker_dir: Path) -> None:
    with kafkalog.open(broker_dir / "idem-0", "a") as log:
        log.append_bytes(produced(2**63 - 5))
    assert "leaves the broker no ids" in refusal(broker_dir)


def test_an_open_transaction_is_told(broker_dir: Path) -> None:
    with kafkalog.open(broker_dir / "open-0", "a") as log:
        log.append([b"before"])
        log.append_bytes(produced(7, transactional=True))
    notes = handover([broker_dir]).plan.notes
    assert any("open-0 has an open transaction from offset 1" in note for note in notes)
    with kafkalog.open(broker_dir / "open-0", "a") as log:
        log.replicate(marker_batch(ControlType.ABORT, 7, 0, 0, timestamp=1, base_offset=2, leader_epoch=0))
    assert not any("open transaction" in note for note in handover([broker_dir]).plan.notes)


OLD = 1_500_000_000_000


@pytest.fixture
def aged(broker_dir: Path) -> Path:
    """A topic with default retention whose records are years old."""
    with kafkalog.open(broker_dir / "aged-0", "a") as log:
        log.append([(b"k", b"v", OLD)])
        log.roll()
        log.append([(b"k", b"v", int(time.time() * 1000))])
    return broker_dir


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


def test_retention_by_size_counts_too(broker_dir: Path) -> None:
    with kafkalog.open(broker_dir / "big-0", "a", retention_bytes=100) as log:
        for _ in range(3):
            log.append([(b"k", b"v" * 200)])
            log.roll()
    assert "big-0 below offset 2" in refusal(broker_dir)


def test_two_data_directories(broker_dir: Path, tmp_path: Path) -> None:
    """Each partition names the directory that it lies in; one of another broker, or a copy, is refused."""
    other = tmp_path / "other"
    write(other, "far-0")
    own = write_meta_properties(other)
    report = handover([broker_dir, other], apply=True)
    assert report.ok
    assert metadata_of(broker_dir).image.topics["far"].partitions[0].directories == (own,)
    write_meta_properties(other, node_id=NODE_ID + 1)
    with pytest.raises(IllegalArgument, match=f"belongs to node {NODE_ID + 1}"):
        handover([broker_dir, other])
    shutil.copy(broker_dir / "meta.properties", other)
    with pytest.raises(IllegalArgument, match="same directory.id"):
        handover([broker_dir, other])


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


def test_a_damaged_journal(broker_dir: Path) -> None:
    apply(broker_dir)
    good = json.loads((broker_dir / JOURNAL_FILE).read_bytes())
    for bad in ("{", "[]", '{"version": 9}', json.dumps({"version": 1, "end_before": 5, "end_after": 1}),
                json.dumps(good | {"carried": []})):  # fmt: skip
        (broker_dir / JOURNAL_FILE).write_text(bad)
        with pytest.raises(CorruptCheckpoint):
            undo_handover([broker_dir])


def test_interrupted_anywhere_it_is_made_whole_by_the_next(broker_dir: Path, tmp_path: Path) -> None:
    """Every writing call fails in turn: records and metadata are whole each time, and the rest is done later."""
    before = content(broker_dir)
    logs = {name for name in before if name.endswith(".log") and not name.startswith(METADATA_DIRECTORY)}
    for nth in each_failure():
        copy = tmp_path / f"copy{nth}"
        shutil.copytree(broker_dir, copy)
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
