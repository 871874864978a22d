"""Deleting a topic in directories without a server, with a crash at each call."""

import errno
import shutil
from pathlib import Path

import pytest

import kafkalog
from kafkalog.errors import IllegalState, KafkalogError, StorageError, UnknownTopicOrPartition
from kafkalog.manager.topics import TopicStore
from kafkalog.server.node.stored_topics import StoredTopics
from kafkalog.storage.names import future_dir_name
from kafkalog.tools.topic_changes import delete_topic
from kafkalog.types import TopicPartition
from kafkalog.util.checkpoint import RECOVERY_POINT_FILE, OffsetCheckpoint
from tests.faults import WRITING_CALLS, FaultFS, each_failure
from tests.handover_cases import write
from tests.manager.managers import OpenManager, list_names

pytestmark = pytest.mark.in_memory


def topic_of_three(data: Path, *, is_brokers: bool = False) -> Path:
    for number in range(3):
        write(data, f"t-{number}", 2)
    write(data, "other-0", 2)
    if is_brokers:
        TopicStore(data).remove(("t",))
    return data


def delete_and_crash(data: Path, at: int) -> bool:
    """Delete the topic; return False if the system refused the `at`-th call that writes, and all that follow."""
    fs = FaultFS()
    rule = fs.fail(*WRITING_CALLS, nth=at, code=errno.EIO)
    try:
        delete_topic([str(data)], "t", fs=fs)
    except KafkalogError:
        pass
    return not rule.fired


@pytest.mark.parametrize("is_brokers", [False, True])
def test_a_delete_that_a_crash_interrupts_is_undone_or_completed(tmp_path: Path, is_brokers: bool) -> None:
    """At the next start of a server. Never are some partitions lost, or all there again, empty."""
    data = topic_of_three(tmp_path / "data", is_brokers=is_brokers)
    whole = {str(TopicPartition("t", number)): 2 for number in range(3)}
    for at in each_failure():
        copy = tmp_path / f"copy{at}"
        shutil.copytree(data, copy)
        is_done = delete_and_crash(copy, at)
        with OpenManager(copy) as held:
            topics = [topic.name for topic in StoredTopics(held.manager, None).load()]
            ends = {str(key): log.log_end_offset for key, log in held.manager.logs.items()}
        assert ends.pop("other-0") == 2
        assert (topics, ends) in ((["other"], {}), (["other", "t"], whole)), at
        if is_done:
            break


def test_a_second_delete_completes_the_first(tmp_path: Path) -> None:
    data = topic_of_three(tmp_path / "data")
    for at in each_failure():
        copy = tmp_path / f"copy{at}"
        shutil.copytree(data, copy)
        if delete_and_crash(copy, at):
            break
        try:
            delete_topic([str(copy)], "t")
        except UnknownTopicOrPartition:
            assert "t" not in TopicStore(copy).topics(), at
        assert TopicStore(copy).names() == ["other"]
        assert {one.topic for one in OffsetCheckpoint(copy / RECOVERY_POINT_FILE).read()} == {"other"}, at
        assert not [name for name in list_names(copy) if name.startswith("t-") and not name.endswith("-delete")]


@pytest.fixture
def interrupted(tmp_path: Path) -> Path:
    """A topic of which a crash left some partitions, and the record that its delete has begun."""
    data = topic_of_three(tmp_path / "data")
    fs = FaultFS()
    fs.fail("rename", path="t-1", code=errno.EIO)
    with pytest.raises(StorageError):
        delete_topic([str(data)], "t", fs=fs)
    assert {"t-1", "t-2"} <= list_names(data) and "t-0" not in list_names(data)
    return data


@pytest.mark.parametrize("name", ["t-0", "t-1"])
def test_a_topic_whose_delete_was_interrupted_takes_no_records(interrupted: Path, name: str) -> None:
    """The next start of a server would delete them."""
    with pytest.raises(IllegalState, match="the delete of topic t was interrupted") as refused:
        kafkalog.open(interrupted / name, "a")
    assert "`kafkalog topics delete --apply`" in str(refused.value.hint)
    with kafkalog.open(interrupted / "t-1") as log:
        assert log.end_offset == 2
    delete_topic([str(interrupted)], "t")
    with kafkalog.open(interrupted / name, "a") as log:
        assert log.append(b"new").first_offset == 0
    with OpenManager(interrupted) as held:
        assert [topic.name for topic in StoredTopics(held.manager, None).load()] == ["other", "t"]
        assert held.manager.logs[TopicPartition("t", int(name[-1]))].log_end_offset == 1


def test_a_store_completes_an_interrupted_delete(interrupted: Path) -> None:
    with kafkalog.open_dirs(interrupted, "a") as dirs:
        assert list(dirs.topics) == ["other"]
    assert TopicStore(interrupted).names() == ["other"]


def test_a_delete_that_fails_before_the_first_partition_changes_nothing(tmp_path: Path) -> None:
    data = topic_of_three(tmp_path / "data")
    before = TopicStore(data).topics()
    fs = FaultFS()
    fs.fail("rename", path="t-0", code=errno.EACCES)
    with pytest.raises(StorageError):
        delete_topic([str(data)], "t", fs=fs)
    assert TopicStore(data).topics() == before
    with kafkalog.open(data / "t-0", "a") as log:
        assert log.append(b"next").first_offset == 2


def test_a_copy_that_is_being_moved_goes_with_its_topic(tmp_path: Path) -> None:
    data = topic_of_three(tmp_path / "data")
    shutil.copytree(data / "t-0", data / future_dir_name(TopicPartition("t", 0)))
    delete_topic([str(data)], "t")
    assert not [name for name in list_names(data) if name.startswith("t-")]


@pytest.mark.parametrize("spelled", ["{}", "{}/", "{}/../data"])
def test_a_directory_is_locked_once_however_its_path_is_spelled(tmp_path: Path, spelled: str) -> None:
    data = topic_of_three(tmp_path / "data")
    assert len(delete_topic([spelled.format(data), str(data)], "t")) == 3
    assert TopicStore(data).names() == ["other"] and list_names(data) >= {"other-0"}
