"""Many topics in one request: one write of the topics file, few syncs, and what becomes of those that fail."""

import asyncio
import errno
import os
from collections.abc import Callable, Coroutine
from pathlib import Path
from typing import Any

from kafkalog.errors import ApiError, KafkalogError, StorageError
from kafkalog.manager.log_manager import LogManager
from kafkalog.manager.topics import TOPICS_FILE, TopicStore
from kafkalog.server.node.topics import Topic, TopicPlan, Topics, id_text
from kafkalog.storage.partition_metadata import read_partition_metadata
from kafkalog.types import TopicPartition
from kafkalog.util.fileio import OS
from tests.faults import FaultFS
from tests.server.nodes import call, node_for
from tests.server.test_topics import NUMBERS, _at_once
from tests.storage.logs import run

TOPICS, PARTITIONS = 12, 4


def with_topics(
    fs: FaultFS, use: Callable[[Topics, LogManager], Coroutine[Any, Any, Any]], *paths: Path
) -> None:
    """Call `use` with the topics of a manager of the directories."""

    async def opened() -> None:
        with LogManager.open(paths, fs=fs) as manager:
            topics = Topics(manager, _at_once, NUMBERS)
            await topics.start()
            await use(topics, manager)
            await topics.stop()

    asyncio.run(opened())


def make_plans(topics: Topics, count: int = TOPICS, first: int = 0, partitions: int = PARTITIONS) -> list[TopicPlan]:
    return [topics.plan(f"t{number}", partitions) for number in range(first, first + count)]


def topic_names(made: list[Topic | KafkalogError]) -> list[str]:
    return [one.name if isinstance(one, Topic) else type(one).__name__ for one in made]


def test_a_request_writes_the_topics_file_once_and_syncs_no_partition(tmp_path: Path) -> None:
    fs = FaultFS()

    async def use(topics: Topics, manager: LogManager) -> None:
        for first in (0, TOPICS):  # what is there already costs nothing
            fs.calls.clear()
            made = await topics.create_all(make_plans(topics, first=first))
            assert all(isinstance(one, Topic) for one in made)
            assert sum(one.path.endswith(TOPICS_FILE + ".tmp") for one in fs.named("open")) == 1
            assert not any(one.path.endswith(TOPICS_FILE) for one in fs.named("open")), "it is parsed again"
            syncs = [os.path.basename(one.path) for one in fs.named("fsync", "fdatasync")]
            assert len(syncs) <= TOPICS + 5, syncs  # an id for each topic, the epochs, the file, the directory
        assert len(manager.logs) == 2 * TOPICS * PARTITIONS

    with_topics(fs, use, tmp_path)


def test_a_delete_of_many_writes_and_syncs_as_for_one(tmp_path: Path) -> None:
    fs = FaultFS()

    async def use(topics: Topics, manager: LogManager) -> None:
        await topics.create_all(make_plans(topics))
        manager.logs[TopicPartition("t1", 0)].append_as_leader(bytearray(run(0, 1)))
        fs.calls.clear()
        assert await topics.delete_all([f"t{number}" for number in range(TOPICS - 1)]) == {}
        assert [key.topic for key in manager.logs] == [f"t{TOPICS - 1}"] * PARTITIONS
        assert sum(one.path.endswith(TOPICS_FILE + ".tmp") for one in fs.named("open")) == 2  # begun, and done
        assert len(fs.named("fsync", "fdatasync")) == 5
        assert sum(name.endswith("-delete") for name in os.listdir(tmp_path)) == (TOPICS - 1) * PARTITIONS

    with_topics(fs, use, tmp_path)


def test_each_partition_has_files_of_its_own_once_they_differ(tmp_path: Path) -> None:
    async def use(topics: Topics, manager: LogManager) -> None:
        (topic,) = await topics.create_all(make_plans(topics, 1))
        assert isinstance(topic, Topic)
        first, second = (manager.logs[TopicPartition("t0", number)] for number in (0, 1))
        first.append_as_leader(bytearray(run(0, 1)))
        first.begin_epoch(7)
        assert first.leader_epochs == ((0, 0), (7, 1)) and second.leader_epochs == ((0, 0),)
        assert (tmp_path / "t0-0" / "leader-epoch-checkpoint").read_text() == "0\n2\n0 0\n7 1\n"
        assert (tmp_path / "t0-1" / "leader-epoch-checkpoint").read_text() == "0\n1\n0 0\n"
        for log in manager.logs.values():
            assert read_partition_metadata(OS, log.path) == id_text(topic.id)

    with_topics(FaultFS(), use, tmp_path)


def test_without_links_each_partition_gets_files(tmp_path: Path) -> None:
    fs = FaultFS()
    fs.fail("link", code=errno.EPERM)

    async def use(topics: Topics, manager: LogManager) -> None:
        assert topic_names(await topics.create_all(make_plans(topics, 2))) == ["t0", "t1"]
        assert {log.leader_epochs for log in manager.logs.values()} == {((0, 0),)}

    with_topics(fs, use, tmp_path)
    with_topics(FaultFS(), use_again, tmp_path)


async def use_again(topics: Topics, manager: LogManager) -> None:
    """Check after a restart that all topics exist, and that new partitions without a record have their files."""
    assert topics.names() == ["t0", "t1"]
    for log in manager.logs.values():
        assert log.append_as_leader(bytearray(run(0, 1))).last_offset == 0


def test_a_topic_that_the_disk_refuses_is_gone_and_the_others_are_made(tmp_path: Path) -> None:
    fs = FaultFS()
    fs.fail("mkdir", path="t1-2")

    async def use(topics: Topics, manager: LogManager) -> None:
        made = await topics.create_all(make_plans(topics, 3))
        assert topic_names(made) == ["t0", "StorageError", "t2"]
        assert topics.names() == ["t0", "t2"] and {key.topic for key in manager.logs} == {"t0", "t2"}
        assert TopicStore(tmp_path).names() == ["t0", "t2"]
        fs.heal()
        assert (await topics.create("t1", 3)).partitions == 3

    with_topics(fs, use, tmp_path)


def test_partitions_that_one_disk_refuses_are_made_on_another(tmp_path: Path) -> None:
    fs = FaultFS()
    fs.fail("mkdir", "open", path=str(tmp_path / "a" / "t"))

    async def use(topics: Topics, manager: LogManager) -> None:
        assert topic_names(await topics.create_all(make_plans(topics, 2))) == ["t0", "t1"]
        assert {os.path.dirname(log.path) for log in manager.logs.values()} == {str(tmp_path / "b")}

    with_topics(fs, use, tmp_path / "a", tmp_path / "b")


def test_partitions_are_spread_over_the_directories(tmp_path: Path) -> None:
    async def use(topics: Topics, manager: LogManager) -> None:
        await topics.create_all(make_plans(topics, 3, partitions=3))
        assert [len(one.logs) for one in manager.directories] == [5, 4]

    with_topics(FaultFS(), use, tmp_path / "a", tmp_path / "b")


def test_names_that_are_alike_in_one_request_are_refused(tmp_path: Path) -> None:
    async def use(topics: Topics, manager: LogManager) -> None:
        made = await topics.create_all([topics.plan(name, 1) for name in ("a.b", "a_b", "c")])
        assert topic_names(made) == ["a.b", "InvalidTopic", "c"]

    with_topics(FaultFS(), use, tmp_path)


def test_a_stop_ends_a_long_change_and_the_next_start_undoes_it(tmp_path: Path) -> None:
    """The topic whose creation was interrupted is missing; the delete that had begun is complete."""

    async def stopped(topics: Topics, manager: LogManager) -> None:
        await topics.create("old", 2)
        parts: list[int] = []

        async def stops(function: Callable[..., Any], *args: Any) -> Any:
            await topics_stop()
            return function(*args)

        async def topics_stop() -> None:
            go_on = topics._check_continue

            def noted() -> None:
                parts.append(len(manager.logs))
                topics._is_stopping = len(parts) >= 2
                go_on()

            topics._check_continue = noted  # type: ignore[method-assign]

        topics._run = stops
        made = await topics.create_all([topics.plan("new", 1000)])
        assert [type(one) for one in made] == [_not_controller()] and len(manager.logs) < 500
        assert list(await topics.delete_all(["old"])) == ["old"]

    async def look(topics: Topics, manager: LogManager) -> None:
        assert topics.names() == [] and not manager.logs

    with_topics(FaultFS(), stopped, tmp_path)
    with_topics(FaultFS(), look, tmp_path)


def _not_controller() -> type[ApiError]:
    from kafkalog.server.quorum.errors import NotController

    return NotController


def test_a_request_answers_for_each_topic(tmp_path: Path) -> None:
    def wanted(name: str, partitions: int = 2) -> dict[str, Any]:
        return {
            "name": name, "num_partitions": partitions, "replication_factor": -1, "assignments": [], "configs": [],
        }  # fmt: skip

    async def use() -> None:
        async with node_for(tmp_path) as node:
            asked = [wanted("a"), wanted("b", 0), wanted("c.d"), wanted("c_d"), wanted("e"), wanted("e")]
            answer = await call(node, "create_topics", 7, {"topics": asked, "timeout": 1000, "validate_only": False})
            assert [(one.name, one.error_code) for one in answer.topics] == [
                ("a", 0), ("b", 37), ("c.d", 0), ("c_d", 17), ("e", 42),
            ]  # fmt: skip
            gone = [{"name": name, "topic_id": None} for name in ("a", "nobody", "c.d")]
            answer = await call(node, "delete_topics", 6, {"topics": gone, "timeout": 1000})
            assert [(one.name, one.error_code) for one in answer.responses] == [("a", 0), ("nobody", 3), ("c.d", 0)]
            assert node.topics.names() == []

    asyncio.run(use())


def test_a_disk_that_refuses_the_topics_file_makes_nothing(tmp_path: Path) -> None:
    fs = FaultFS()

    async def use(topics: Topics, manager: LogManager) -> None:
        fs.fail("pwrite", path=TOPICS_FILE)
        made = await topics.create_all(make_plans(topics, 2))
        assert [type(one) for one in made] == [StorageError, StorageError] and not manager.logs
        fs.heal()
        assert topic_names(await topics.create_all(make_plans(topics, 2))) == ["t0", "t1"]

    with_topics(fs, use, tmp_path)
