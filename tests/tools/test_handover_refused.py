"""`handover` refuses what a broker would not survive; what only lies a little askew it takes."""

import shutil
import struct
import subprocess
import sys
from pathlib import Path

import pytest

import kafkalog
from kafkalog.errors import (
    CorruptCheckpoint,
    DirectoryLocked,
    IllegalArgument,
)
from kafkalog.manager.cluster_metadata import METADATA_DIRECTORY
from kafkalog.manager.log_dir import LogDir
from kafkalog.manager.topics import TOPICS_FILE, TopicStore
from kafkalog.storage.partition_metadata import new_topic_id, read_partition_metadata
from kafkalog.tools.handover.directories import HandoverOptions, handover, undo_handover
from kafkalog.tools.repair.directories import repair
from kafkalog.tools.verify.directories import verify
from kafkalog.util.fileio import OS
from tests.broker_directory import (
    write_meta_properties,
    write_metadata_log,
)
from tests.handover_cases import apply, content, existing, metadata_of, refusal, topic, write


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
        *(
            (f"node.id={text}", "node.id .* is not the number of a node")
            for text in ("x", "-1", "1.0", "2147483648", "\u0661")
        ),
        ("directory.id=short", "topic id"),
        ("cluster.idd=x", "cluster.id"),
    ],
)
def test_malformed_meta_properties(broker_dir: Path, line: str, what: str) -> None:
    path = broker_dir / "meta.properties"
    name = line.partition("=")[0].removesuffix("d") if "idd" in line else line.partition("=")[0]
    lines = [one for one in path.read_text().splitlines() if not one.startswith(name)]
    path.write_text("\n".join([*lines, line]))
    with pytest.raises(CorruptCheckpoint, match=what) as caught:
        handover([broker_dir])
    assert caught.value.path == str(path)
    assert str(caught.value.hint).startswith("copy the ids from another directory")  # a format refuses such a file


def test_a_running_broker(broker_dir: Path) -> None:
    with LogDir.acquire(broker_dir):
        assert any("in use" in note for note in handover([broker_dir]).plan.notes)
    held = "import fcntl,sys;f=open(sys.argv[1],'w');fcntl.lockf(f,fcntl.LOCK_EX);print('held',flush=True);input()"
    with subprocess.Popen(
        [sys.executable, "-c", held, str(broker_dir / ".lock")], stdin=subprocess.PIPE, stdout=subprocess.PIPE
    ) as other:
        assert other.stdout is not None and other.stdout.readline()
        before = content(broker_dir)
        with pytest.raises(DirectoryLocked):
            apply(broker_dir)
        with pytest.raises(DirectoryLocked):
            undo_handover([broker_dir])
        assert content(broker_dir) == before
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
    """By default no other topic is taken; on request, our partitions get its id and an epoch above both."""
    theirs = new_topic_id()
    data = existing(tmp_path, topic("t", theirs, epoch=6))
    ours = TopicStore(data).topics()["t"].topic_id
    assert "its own topic t" in refusal(data)
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


def test_partitions_of_two_topics_under_one_name(broker_dir: Path) -> None:
    path = broker_dir / "orders-1" / "partition.metadata"
    path.write_text(f"version: 0\ntopic_id: {new_topic_id()}")
    assert "belong to different topics" in refusal(broker_dir)


def test_a_damaged_epoch_file(broker_dir: Path) -> None:
    file = broker_dir / "orders-0" / "leader-epoch-checkpoint"
    content_before = file.read_text()
    file.write_text("nonsense")
    assert "leader-epoch-checkpoint" in refusal(broker_dir)
    (problem,) = handover([broker_dir]).plan.problems
    assert "repair --checkpoints --apply" in problem.hint  # without the file such a log has no epochs
    repair(broker_dir, checkpoints=True, apply=True)
    assert file.read_text() == content_before
    assert apply(broker_dir).applied


def test_reserved_space_that_no_close_cut_off(broker_dir: Path) -> None:
    """Kafka 4.4 takes a directory offline for that; after a repair it is handed over."""
    index, log = (max((broker_dir / "orders-0").glob(f"*{suffix}")) for suffix in (".index", ".log"))
    index.write_bytes(index.read_bytes() + bytes(800))
    content_before = log.read_bytes()
    log.write_bytes(content_before + bytes(5000))
    assert "reserved space follows the last batch" in refusal(broker_dir)
    repair(broker_dir, apply=True)
    assert log.read_bytes() == content_before
    assert apply(broker_dir).applied


@pytest.mark.parametrize("name", ["lost+found", "orders-0.old"])
def test_a_directory_that_is_no_partitions(broker_dir: Path, name: str) -> None:
    """A broker does not start beside it."""
    (broker_dir / name).mkdir()
    assert f"{name} is no partition directory" in refusal(broker_dir)


@pytest.mark.parametrize("name", ["a.log", ".x.timeindex", "copy.snapshot"])
def test_a_file_without_a_base_offset(broker_dir: Path, name: str) -> None:
    """A broker parses the number before the first dot, and does not start without one."""
    (broker_dir / "orders-0" / name).touch()
    assert f"{name} has no base offset" in refusal(broker_dir)
    assert [(note.kind, note.path) for note in verify(broker_dir / "orders-0").notes if note.kind == "foreign"] == [
        ("foreign", str(broker_dir / "orders-0" / name))
    ]


def test_a_partition_without_segments(broker_dir: Path) -> None:
    for file in (broker_dir / "orders-0").glob("0*"):
        file.unlink()
    assert "orders-0: the directory contains no segment files" in refusal(broker_dir)


def test_a_damaged_topic_id(broker_dir: Path) -> None:
    (broker_dir / "orders-0" / "partition.metadata").write_text("nonsense")
    assert "partition.metadata" in refusal(broker_dir)


def test_a_damaged_topics_file(broker_dir: Path) -> None:
    (broker_dir / TOPICS_FILE).write_text("{")
    with pytest.raises(CorruptCheckpoint):
        handover([broker_dir])


def test_a_missing_topic_id_is_written(broker_dir: Path) -> None:
    (broker_dir / "orders-0" / "partition.metadata").unlink()
    apply(broker_dir)
    assert read_partition_metadata(OS, broker_dir / "orders-0") == TopicStore(broker_dir).topics()["orders"].topic_id
    (broker_dir / "orders-0" / "partition.metadata").unlink()  # and again, of a topic that is known
    assert not handover([broker_dir]).ok
    apply(broker_dir)
    known = metadata_of(broker_dir).image.topics["orders"]
    assert read_partition_metadata(OS, broker_dir / "orders-0") == known.topic_id


def test_a_topic_that_no_file_knows(broker_dir: Path) -> None:
    """A directory that a broker made, its metadata lost: the id comes from the partition, the settings are unknown."""
    own = read_partition_metadata(OS, broker_dir / "orders-0")
    (broker_dir / TOPICS_FILE).unlink()
    report = apply(broker_dir)
    assert metadata_of(broker_dir).image.topics["orders"].topic_id == own
    assert any("no topics file has the settings of orders" in note for note in report.plan.notes)


def test_a_brokers_own_topics_get_its_settings_back(broker_dir: Path) -> None:
    write(broker_dir, "__consumer_offsets-0")
    apply(broker_dir)
    settings = metadata_of(broker_dir).image.topic_settings("__consumer_offsets")
    assert settings["cleanup.policy"] == "compact" and settings["segment.bytes"] == "104857600"


def test_a_directory_that_a_broker_set_aside_is_told(broker_dir: Path) -> None:
    """An operator who started the broker first finds the way back here."""
    (broker_dir / "orders-0").rename(broker_dir / f"orders-0.{'a' * 32}-stray")
    notes = handover([broker_dir]).plan.notes
    assert any(f"orders-0.{'a' * 32}-stray was set aside by a broker: " in note for note in notes)
    write(broker_dir, "orders-0")
    notes = handover([broker_dir], options=HandoverOptions(("orders",))).plan.notes
    assert any("a newer directory has its name" in note for note in notes)
    assert not any("set aside" in n for n in handover([broker_dir], options=HandoverOptions(("small.one",))).plan.notes)


def test_a_topic_whose_delete_was_interrupted(broker_dir: Path) -> None:
    TopicStore(broker_dir).mark_deleted(("orders",))
    assert refusal(broker_dir) == f"the delete of topic orders in {broker_dir} was interrupted"
    assert apply(broker_dir, topics=("small.one",)).ok


def test_a_missing_partition_is_left_to_the_broker(broker_dir: Path) -> None:
    shutil.rmtree(broker_dir / "orders-0")
    report = apply(broker_dir)
    assert any("orders-0 has no directory" in note for note in report.plan.notes)
    assert sorted(metadata_of(broker_dir).image.topics["orders"].partitions) == [0, 1]
