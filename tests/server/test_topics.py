"""The topics of a node: made, grown, changed, deleted, and whole again after a crash (MGR-4, MGR-10, MGR-24)."""

import asyncio
import json
from collections.abc import Callable, Coroutine
from pathlib import Path
from typing import Any

import pytest

from kafkalog.errors import (
    InvalidPartitions,
    InvalidRequest,
    InvalidTopic,
    PolicyViolation,
    StorageError,
    TopicExists,
    UnknownTopicOrPartition,
)
from kafkalog.manager.data_directory import DataDirectory
from kafkalog.manager.deletion import rename_for_delete
from kafkalog.manager.log_manager import LogManager
from kafkalog.manager.topics import TOPICS_FILE, TopicStore
from kafkalog.server.node.topics import CONSUMER_OFFSETS, TRANSACTION_STATE, Topics, id_text
from kafkalog.storage.log import UnifiedLog
from kafkalog.storage.partition_metadata import new_topic_id, read_partition_metadata, replace_topic_id
from kafkalog.types import TopicPartition
from kafkalog.util.fileio import OS
from tests.storage.logs import run

NUMBERS = {
    "num.partitions": 3,
    "offsets.topic.num.partitions": 4,
    "offsets.topic.segment.bytes": 104_857_600,
    "transaction.state.log.num.partitions": 2,
    "transaction.state.log.segment.bytes": 104_857_600,
    "transaction.state.log.min.isr": 2,
}


async def _at_once(function: Callable[..., Any], *args: Any) -> Any:
    await asyncio.sleep(0)
    return function(*args)


def with_topics(path: Path | list[Path], use: Callable[[Topics, LogManager], Coroutine[Any, Any, Any]]) -> None:
    """Call `use` with the topics of a manager of `path`."""

    async def run() -> None:
        with LogManager.open(path if isinstance(path, list) else [path]) as manager:
            topics = Topics(manager, _at_once, NUMBERS)
            await topics.start()
            await use(topics, manager)
            await topics.stop()

    asyncio.run(run())


def test_a_topic_is_there_with_all_its_partitions_and_after_a_start(tmp_path: Path) -> None:
    """MGR-4: its id is on disk, in the topics file and in each partition."""
    made = []

    async def first(topics: Topics, manager: LogManager) -> None:
        seen: list[Any] = []
        topics.on_change(lambda before, after: seen.append((before, after)))
        topic = await topics.create("t", settings={"retention.ms": "5"})
        assert (topic.partitions, topic.is_internal) == (3, False)
        assert seen == [(None, topic)] and topics.get("t") is topic and topics.by_id(topic.id) is topic
        assert topics.settings("t").retention_ms == 5 and topics.own_settings("t") == {"retention.ms": "5"}
        for number in range(3):
            log = manager.get(TopicPartition("t", number))
            assert log is not None and read_partition_metadata(OS, log.path) == id_text(topic.id)
            assert log.leader_epochs == ((0, 0),)  # in its file: a first append on the loop syncs nothing
            assert (tmp_path / f"t-{number}" / "leader-epoch-checkpoint").read_text() == "0\n1\n0 0\n"
        made.append(topic)

    async def second(topics: Topics, manager: LogManager) -> None:
        assert topics.names() == ["t"] and topics.get("t") == made[0]
        assert topics.settings("t").retention_ms == 5

    with_topics(tmp_path, first)
    with_topics(tmp_path, second)


@pytest.mark.parametrize(
    ("name", "partitions", "kind", "words"),
    [
        ("", 1, InvalidTopic, "Topic name is invalid: the empty string is not allowed"),
        ("..", 1, InvalidTopic, "Topic name is invalid: '..' is not allowed"),
        ("a/b", 1, InvalidTopic, "Topic name is invalid: 'a/b' contains one or more characters other than ASCII"),
        ("x" * 250, 1, InvalidTopic, "is longer than the max allowed length 249"),
        ("a.b", 1, InvalidTopic, "Topic 'a.b' collides with existing topic: a_b"),
        ("a_b", 1, TopicExists, "Topic 'a_b' already exists."),
        ("n", 0, InvalidPartitions, "Number of partitions was set to an invalid non-positive value."),
        ("n", 10_001, PolicyViolation, "Excessively large number of partitions per request."),
        ("__cluster_metadata", 1, InvalidRequest, "Creation of internal topic __cluster_metadata is prohibited."),
    ],
)
def test_what_is_refused_and_in_which_words(
    tmp_path: Path, name: str, partitions: int, kind: type[Exception], words: str
) -> None:
    async def use(topics: Topics, manager: LogManager) -> None:
        await topics.create("a_b", 1)
        with pytest.raises(kind) as caught:
            await topics.create(name, partitions)
        assert words in str(caught.value)
        assert len(manager.logs) == 1

    with_topics(tmp_path, use)


def test_two_calls_for_one_topic_make_it_once(tmp_path: Path) -> None:
    async def use(topics: Topics, manager: LogManager) -> None:
        got = await asyncio.gather(topics.create("t", 2), topics.create("t", 2), return_exceptions=True)
        assert [type(one).__name__ for one in got] == ["Topic", "TopicExists"]
        both = await asyncio.gather(*(topics.ensure_internal(CONSUMER_OFFSETS) for _ in range(2)))
        assert both[0] == both[1] and both[0].is_internal

    with_topics(tmp_path, use)


def test_a_plan_creates_nothing(tmp_path: Path) -> None:
    async def use(topics: Topics, manager: LogManager) -> None:
        assert topics.plan("t").topic.partitions == 3
        assert topics.names() == [] and not manager.logs

    with_topics(tmp_path, use)


def test_the_topics_of_the_node_have_the_settings_of_the_reference(tmp_path: Path) -> None:
    async def use(topics: Topics, manager: LogManager) -> None:
        assert (await topics.ensure_internal(CONSUMER_OFFSETS)).partitions == 4
        assert (await topics.ensure_internal(TRANSACTION_STATE)).partitions == 2
        assert topics.own_settings(CONSUMER_OFFSETS) == {
            "cleanup.policy": "compact", "compression.type": "producer", "segment.bytes": "104857600",
        }  # fmt: skip
        assert topics.own_settings(TRANSACTION_STATE) == {
            "cleanup.policy": "compact", "compression.type": "uncompressed", "min.insync.replicas": "2",
            "segment.bytes": "104857600", "unclean.leader.election.enable": "false",
        }  # fmt: skip

    with_topics(tmp_path, use)


def test_it_grows_and_never_shrinks(tmp_path: Path) -> None:
    async def use(topics: Topics, manager: LogManager) -> None:
        before = await topics.create("t", 2)
        after = await topics.add_partitions("t", 4)
        assert after == before._replace(partitions=4) and len(manager.logs) == 4
        with pytest.raises(InvalidPartitions, match=r"Topic already has 4 partition\(s\)\."):
            await topics.add_partitions("t", 4)
        with pytest.raises(InvalidPartitions, match=r"currently has 4 partition\(s\); 1 would not be an increase"):
            await topics.add_partitions("t", 1)
        with pytest.raises(UnknownTopicOrPartition):
            await topics.add_partitions("u", 1)
        assert topics.check_growth("t", 10_004) == after
        with pytest.raises(PolicyViolation, match="Excessively large number of partitions per request"):
            topics.check_growth("t", 10_005)

    with_topics(tmp_path, use)


def test_a_setting_that_changes_reaches_the_open_logs(tmp_path: Path) -> None:
    """MGR-24."""

    async def use(topics: Topics, manager: LogManager) -> None:
        await topics.create("t", 1)
        await topics.alter("t", {"cleanup.policy": "compact", "retention.ms": "7"})
        log = manager.logs[TopicPartition("t", 0)]
        assert log.config.compact and log.config.retention_ms == 7
        await topics.alter("t", {"cleanup.policy": None})
        assert not log.config.compact and topics.own_settings("t") == {"retention.ms": "7"}

    with_topics(tmp_path, use)


def test_a_deleted_topic_is_gone_at_once_and_comes_back_as_another(tmp_path: Path) -> None:
    """MGR-10."""

    async def use(topics: Topics, manager: LogManager) -> None:
        first = await topics.create("t", 2)
        seen: list[Any] = []
        topics.on_change(lambda before, after: seen.append((before, after)))
        await topics.delete("t")
        assert seen == [(first, None)] and topics.get("t") is None and topics.by_id(first.id) is None
        assert not manager.logs and TopicStore(tmp_path).names() == []
        with pytest.raises(UnknownTopicOrPartition):
            await topics.delete("t")
        second = await topics.create("t", 1)
        assert second.id != first.id and len(manager.logs) == 1

    with_topics(tmp_path, use)


def test_a_delete_that_a_crash_ended_goes_on(tmp_path: Path) -> None:
    """MGR-10: once it is written down that it has begun, no part of the topic comes back."""

    async def make(topics: Topics, manager: LogManager) -> None:
        await topics.create("t", 3)
        await topics.create("u", 1)
        TopicStore(tmp_path).mark_deleted(["t"])
        manager.delete(TopicPartition("t", 1))

    async def look(topics: Topics, manager: LogManager) -> None:
        assert topics.names() == ["u"] and [key.topic for key in manager.logs] == ["u"]

    with_topics(tmp_path, make)
    assert json.loads((tmp_path / TOPICS_FILE).read_text())["topics"]["t"]["deleted"] is True
    with_topics(tmp_path, look)
    assert TopicStore(tmp_path).names() == ["u"]


def test_a_topic_that_a_crash_left_half_made_is_whole(tmp_path: Path) -> None:
    """MGR-4: the topics file has had all partitions from the first on."""

    async def make(topics: Topics, manager: LogManager) -> None:
        await topics.create("t", 3)
        for number in (0, 1):
            manager.delete(TopicPartition("t", number))

    async def look(topics: Topics, manager: LogManager) -> None:
        topic = topics.get("t")
        assert topic is not None and topic.partitions == 3 and len(manager.logs) == 3

    with_topics(tmp_path, make)
    with_topics(tmp_path, look)


def test_a_delete_that_the_disk_refuses_leaves_the_topic(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    async def use(topics: Topics, manager: LogManager) -> None:
        topic = await topics.create("t", 2)

        def refuse(*_: object, **__: object) -> None:
            raise StorageError("the disk is gone")

        monkeypatch.setattr("kafkalog.manager.log_remover.rename_for_delete", refuse)
        with pytest.raises(StorageError):
            await topics.delete("t")
        assert topics.get("t") == topic

    with_topics(tmp_path, use)


@pytest.mark.parametrize("order", [("a", "b"), ("b", "a")])
def test_a_delete_that_waits_in_a_directory_that_was_away_does_not_reach_the_next_topic_of_that_name(
    tmp_path: Path, order: tuple[str, str]
) -> None:
    paths = {name: tmp_path / name for name in ("a", "b")}
    for path in paths.values():
        path.mkdir()
    with LogManager.open([*paths.values()]) as manager:
        for number, name in ((0, "b"), (1, "a")):
            manager.get_or_create(TopicPartition("t", number), directory=paths[name])
    TopicStore(paths["a"]).mark_deleted(["t"])  # a crash, and then the disk was absent
    away = paths["a"].rename(tmp_path / "away")

    async def make_anew(topics: Topics, manager: LogManager) -> None:
        await topics.delete("t")
        await topics.create("t", 1)
        manager.logs[TopicPartition("t", 0)].append_as_leader(bytearray(run(0, 1)))

    async def look(topics: Topics, manager: LogManager) -> None:
        assert topics.names() == ["t"] and [*manager.logs] == [TopicPartition("t", 0)]
        assert manager.logs[TopicPartition("t", 0)].log_end_offset == 1

    with_topics([paths["b"]], make_anew)
    away.rename(paths["a"])
    for _ in range(2):
        with_topics([paths[name] for name in order], look)
    assert len(strays_in(paths["a"])) == 1


def strays_in(path: Path) -> list[Path]:
    return [one for one in path.iterdir() if one.name.endswith("-stray")]


def fill(manager: LogManager, number: int, records: int) -> None:
    """Records into a partition of `t`."""
    for _ in range(records):
        manager.logs[TopicPartition("t", number)].append_as_leader(bytearray(run(0, 1)))


@pytest.mark.parametrize("order", [("a", "b"), ("b", "a")])
@pytest.mark.parametrize("is_made_again", [True, False])
def test_a_topic_that_was_deleted_while_its_disk_was_away_does_not_come_back_with_it(
    tmp_path: Path, order: tuple[str, str], is_made_again: bool, caplog: pytest.LogCaptureFixture
) -> None:
    """MGR-26: what is left of it is set aside, whole, whichever directory is given first; a topic of its name stays."""
    paths = {name: tmp_path / name for name in ("a", "b")}
    with LogManager.open([*paths.values()]) as manager:
        for number, name in ((0, "a"), (1, "b")):
            manager.get_or_create(TopicPartition("t", number), directory=paths[name])
            fill(manager, number, 3)
    ids = [TopicStore(paths["a"]).topics()["t"].topic_id]
    away = paths["b"].rename(tmp_path / "away")

    async def delete(topics: Topics, manager: LogManager) -> None:
        await topics.delete("t")
        if is_made_again:
            await topics.create("t", 2)
            fill(manager, 1, 1)

    async def look(topics: Topics, manager: LogManager) -> None:
        assert topics.names() == (["t"] if is_made_again else [])
        assert [log.log_end_offset for _, log in sorted(manager.logs.items())] == ([0, 1] if is_made_again else [])

    with_topics([paths["a"]], delete)
    away.rename(paths["b"])
    for _ in range(2):
        with_topics([paths[name] for name in order], look)
    (stray,) = strays_in(paths["b"])
    assert f"t was deleted while {paths['b']} was absent" in caplog.text and str(stray) in caplog.text
    assert read_partition_metadata(OS, stray) == ids[0]
    assert (stray / "00000000000000000000.log").stat().st_size == len(run(0, 3))
    assert not strays_in(paths["a"])


def test_what_is_set_aside_is_that_of_the_deleted_topic_alone(tmp_path: Path) -> None:
    """MGR-26: a partition whose own file has another id than its directory's topics file is no proof of a delete."""
    with LogManager.open([tmp_path / "a", tmp_path / "b"]) as manager:
        for number, name in ((0, "a"), (1, "b")):
            manager.get_or_create(TopicPartition("t", number), directory=tmp_path / name)
    replace_topic_id(OS, tmp_path / "b" / "t-1", new_topic_id())  # a broker has made it again meanwhile
    with LogManager.open([tmp_path / "a", tmp_path / "b"]) as manager:
        assert len(manager.logs) == 2


def test_a_topic_that_is_made_again_under_its_old_id_stays(tmp_path: Path) -> None:
    """MGR-26: a broker whose metadata has a topic makes it again after it was deleted here."""
    paths = [tmp_path / "a", tmp_path / "b"]
    key = TopicPartition("t", 0)
    with LogManager.open(paths) as manager:
        topic_id = manager.get_or_create(key, directory=paths[0]) and TopicStore(paths[0]).topics()["t"].topic_id
        manager.delete_topic("t")
        manager.get_or_create(key, directory=paths[1], topic_id=topic_id)
        fill(manager, 0, 2)
    for order in (paths, paths[::-1], paths):
        with LogManager.open(order) as manager:
            assert manager.logs[key].log_end_offset == 2
            topic = manager.topics.get("t")
            assert topic is not None and topic.topic_id == topic_id
    assert not strays_in(paths[1])


def test_a_disk_that_cannot_note_a_delete_does_not_keep_the_topic(tmp_path: Path) -> None:
    """Its file says that the delete has begun, and the next start ends it."""

    async def use(topics: Topics, manager: LogManager) -> None:
        await topics.create("t", 1)
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(TopicStore, "remove", refuse)
            await topics.delete("t")
        assert topics.names() == [] and not manager.logs

    async def look(topics: Topics, manager: LogManager) -> None:
        assert topics.names() == [] and not manager.logs

    def refuse(*_: object) -> object:
        raise StorageError("the disk is full")

    with_topics(tmp_path, use)
    assert TopicStore(tmp_path).topics()["t"].is_deleted
    with_topics(tmp_path, look)
    assert TopicStore(tmp_path).names() == []


def test_what_is_left_of_a_delete_that_failed_is_there_after_a_start(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """MGR-10: its client gets the error, and others continue to write to it."""

    async def use(topics: Topics, manager: LogManager) -> None:
        await topics.create("t", 3)

        def refuse_the_last(directory: DataDirectory, log: UnifiedLog, *, sync: bool) -> object:
            if log.topic_partition.partition == 2:
                raise StorageError("the disk is gone")
            return rename_for_delete(directory, log, sync=sync)

        with monkeypatch.context() as patch:
            patch.setattr("kafkalog.manager.log_remover.rename_for_delete", refuse_the_last)
            with pytest.raises(StorageError):
                await topics.delete("t")
        manager.logs[TopicPartition("t", 2)].append_as_leader(bytearray(run(0, 1)))

    async def look(topics: Topics, manager: LogManager) -> None:
        assert topics.names() == ["t"]
        assert manager.logs[TopicPartition("t", 2)].log_end_offset == 1
        await topics.delete("t")
        assert not manager.logs

    with_topics(tmp_path, use)
    with_topics(tmp_path, look)


def test_a_name_is_free_again_once_those_like_it_are_gone(tmp_path: Path) -> None:
    """A broker of old may have left several that are alike."""
    with LogManager.open([tmp_path]) as manager:
        for name in ("a.b_c", "a_b_c"):
            manager.get_or_create(TopicPartition(name, 0))

    async def use(topics: Topics, manager: LogManager) -> None:
        for name in ("a.b_c", "a_b_c"):
            with pytest.raises(InvalidTopic, match=f"'a.b.c' collides with existing topic: {name}"):
                topics.check_new("a.b.c")
            await topics.delete(name)
        await topics.create("a.b.c", 1)
        with pytest.raises(InvalidTopic, match="'a_b_c' collides with existing topic: a.b.c"):
            topics.check_new("a_b_c")

    with_topics(tmp_path, use)
