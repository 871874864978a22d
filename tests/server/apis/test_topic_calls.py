"""Calls about topics: Metadata, CreateTopics, DeleteTopics, CreatePartitions and what shows them (FLOW-25)."""

import asyncio
from collections.abc import Callable, Coroutine
from pathlib import Path
from typing import Any
from uuid import UUID

import pytest

from kafkalog.server.error_codes import ErrorCode
from kafkalog.server.node.node import Node
from kafkalog.server.security.acls import Acl, Operation, PatternType, Permission, ResourceType
from tests.server.nodes import call, connection_for, node_for
from tests.server.replica.copies import until

NOT_ASKED = -(2**31)


def with_node(path: Path, use: Callable[[Node], Coroutine[Any, Any, None]], **settings: Any) -> None:
    async def run() -> None:
        async with node_for(path, **settings) as node:
            await use(node)

    asyncio.run(run())


def create_tree(*topics: dict[str, Any], validate_only: bool = False) -> dict[str, Any]:
    rows = [
        {"num_partitions": 1, "replication_factor": 1, "assignments": (), "configs": (), **topic} for topic in topics
    ]
    return {"topics": rows, "timeout": 5000, "validate_only": validate_only}


async def create(node: Node, *topics: dict[str, Any], version: int = 7, **more: Any) -> list[Any]:
    tree = create_tree(*topics, validate_only=more.pop("validate_only", False))
    return list((await call(node, "create_topics", version, tree, **more)).topics)


def metadata_tree(*names: str | None, ids: tuple[UUID, ...] = (), auto: bool = False, **more: Any) -> dict[str, Any]:
    topics = [{"name": name, "topic_id": None} for name in names] + [{"name": None, "topic_id": one} for one in ids]
    return {
        "topics": topics,
        "allow_auto_topic_creation": auto,
        "include_topic_authorized_operations": False,
        "include_cluster_authorized_operations": False,
        **more,
    }


@pytest.mark.parametrize("version", range(14))
def test_metadata_in_all_versions(tmp_path: Path, version: int) -> None:
    async def use(node: Node) -> None:
        (made,) = await create(node, {"name": "t", "num_partitions": 2})
        answer = await call(node, "metadata", version, metadata_tree("t"))
        (broker,) = answer.brokers
        assert (broker.node_id, broker.host, broker.port) == (node.node_id, "localhost", 9092)
        (topic,) = answer.topics
        assert (topic.error_code, topic.name) == (0, "t")
        assert [(one.partition_index, one.leader_id) for one in topic.partitions] == [(0, 1), (1, 1)]
        assert all(tuple(one.replica_nodes) == tuple(one.isr_nodes) == (1,) for one in topic.partitions)
        if version >= 1:
            assert answer.controller_id == node.node_id and not topic.is_internal
        if version >= 2:
            assert answer.cluster_id == node.cluster_id
        if version >= 7:
            assert [one.leader_epoch for one in topic.partitions] == [0, 0]
        if version >= 10:
            assert topic.topic_id == made.topic_id
        if version >= 13:
            assert answer.error_code == 0

    with_node(tmp_path, use)


def test_all_topics_none_and_unknown_ones(tmp_path: Path) -> None:
    async def use(node: Node) -> None:
        await create(node, {"name": "b"}, {"name": "a"})
        for version, topics in ((0, ()), (1, None), (13, None)):
            answer = await call(node, "metadata", version, metadata_tree() | {"topics": topics})
            assert [topic.name for topic in answer.topics] == ["a", "b"]
        assert (await call(node, "metadata", 12, metadata_tree())).topics == ()
        answer = await call(node, "metadata", 12, metadata_tree("nope", "a b", "a", "a"))
        assert {topic.name: topic.error_code for topic in answer.topics} == {"nope": 3, "a b": 17, "a": 0}
        assert len(answer.topics) == 3 and node.topics.get("nope") is None

    with_node(tmp_path, use)


@pytest.mark.parametrize("is_made", [False, True])
def test_topics_of_the_node_itself_are_told_as_such_whether_they_are_there_or_not(
    tmp_path: Path, is_made: bool
) -> None:
    internal = ("__consumer_offsets", "__transaction_state")
    names = (*internal, "__mine", "a b")

    async def use(node: Node) -> None:
        await create(node, {"name": "__mine"})
        for name in internal if is_made else ():
            await node.topics.ensure_internal(name)
        codes = {name: 17 if name == "a b" else 0 if is_made or name == "__mine" else 3 for name in names}
        tree = {"topics": [{"name": name} for name in names], "response_partition_limit": 9, "cursor": None}
        for topics in (
            (await call(node, "metadata", 13, metadata_tree(*names))).topics,
            (await call(node, "describe_topic_partitions", 0, tree)).topics,
        ):
            assert {one.name: one.error_code for one in topics} == codes
            assert {one.name: one.is_internal for one in topics} == {name: name in internal for name in names}

    with_node(tmp_path, use)


def test_topics_by_id_and_where_ids_are_not_known(tmp_path: Path) -> None:
    async def use(node: Node) -> None:
        (made,) = await create(node, {"name": "t"})
        other = UUID(int=5)
        for version in (12, 13):
            answer = await call(node, "metadata", version, metadata_tree(ids=(made.topic_id, other)))
            assert [(one.name, one.error_code) for one in answer.topics] == [("t", 0), (None, 100)]
        asked = metadata_tree() | {"topics": [{"name": "t", "topic_id": made.topic_id}]}
        assert (await call(node, "metadata", 11, asked)).topics[0].error_code == 42

    with_node(tmp_path, use)


@pytest.mark.parametrize("version", [0, 3, 4, 13])
def test_a_topic_that_is_asked_for_is_made(tmp_path: Path, version: int) -> None:
    """It is unknown as long as it is being made, as at a broker; before version 4 a client cannot but want that."""

    async def use(node: Node) -> None:
        async with node.topics._changing:  # it takes so long to make it
            for _ in range(3):
                answer = await call(node, "metadata", version, metadata_tree("t", auto=True))
                assert (answer.topics[0].error_code, answer.topics[0].partitions) == (3, ())
        await until(lambda: "t" not in node.creations)
        answer = await call(node, "metadata", version, metadata_tree("t", auto=True))
        assert answer.topics[0].error_code == 0 and len(answer.topics[0].partitions) == 3
        answer = await call(node, "metadata", version, metadata_tree("__consumer_offsets", auto=True))
        internal = node.topics.get("__consumer_offsets")
        assert internal is not None and internal.partitions == 2 and answer.topics[0].error_code == 3

    with_node(tmp_path, use, num_partitions=3)


def test_no_topic_is_made_where_the_settings_say_so(tmp_path: Path) -> None:
    async def use(node: Node) -> None:
        for _ in range(2):
            answer = await call(node, "metadata", 1, metadata_tree("t"))
            assert answer.topics[0].error_code == 3

    with_node(tmp_path, use, auto_create_topics_enable=False)


def test_what_a_client_may_do_comes_where_it_asks(tmp_path: Path) -> None:
    async def use(node: Node) -> None:
        await create(node, {"name": "t"})
        asked = {"include_topic_authorized_operations": True, "include_cluster_authorized_operations": True}
        answer = await call(node, "metadata", 10, metadata_tree("t", **asked))
        assert answer.topics[0].topic_authorized_operations == 3576
        assert answer.cluster_authorized_operations == 8096
        answer = await call(node, "metadata", 10, metadata_tree("t"))
        assert answer.topics[0].topic_authorized_operations == answer.cluster_authorized_operations == NOT_ASKED

    with_node(tmp_path, use)


@pytest.mark.parametrize(
    ("topic", "code", "words"),
    [
        ({"name": "t"}, 36, "Topic 't' already exists."),
        ({"name": "bad/name"}, 17, "Topic name is invalid: 'bad/name' contains one or more characters other than"),
        ({"name": "n", "num_partitions": 0}, 37, "Number of partitions was set to an invalid non-positive value."),
        ({"name": "n", "replication_factor": 5}, 38, "Unable to replicate the partition 5 time(s): The target"),
        ({"name": "n", "replication_factor": 0}, 38, "Replication factor must be larger than 0, or -1 to use"),
        ({"name": "n", "configs": [{"name": "no.such", "value": "1"}]}, 40, "Unknown topic config name: no.such"),
        ({"name": "n", "configs": [{"name": "retention.ms", "value": "abc"}]}, 40,
         "Invalid value abc for configuration retention.ms: Not a number of type LONG"),
        ({"name": "n", "configs": [{"name": "segment.bytes", "value": "14"}]}, 40, "Value must be at least 1048576"),
        ({"name": "n", "configs": [{"name": "retention.ms", "value": None}]}, 40,
         "Null value not supported for topic configs: retention.ms"),
        ({"name": "n", "configs": [{"name": "min.compaction.lag.ms", "value": "9"},
                                   {"name": "max.compaction.lag.ms", "value": "8"}]}, 40,
         "conflict topic config setting min.compaction.lag.ms (9) > max.compaction.lag.ms (8)"),
        ({"name": "n", "assignments": [{"partition_index": 0, "broker_ids": [1]}]}, 42, "replication factor was not"),
        ({"name": "n", "num_partitions": -1, "replication_factor": -1,
          "assignments": [{"partition_index": 1, "broker_ids": [1]}]}, 39, "consecutive 0-based"),
        ({"name": "n", "num_partitions": -1, "replication_factor": -1,
          "assignments": [{"partition_index": 0, "broker_ids": [7]}]}, 39, "broker 7, but no such broker"),
        ({"name": "n", "num_partitions": -1, "replication_factor": -1,
          "assignments": [{"partition_index": one, "broker_ids": [1]} for one in (0, 1, 1, 0)]}, 39,
         "Found multiple manual partition assignments for partition 1"),
        ({"name": "__cluster_metadata"}, 42, "Creation of internal topic __cluster_metadata is prohibited."),
        ({"name": "n", "num_partitions": 10_001}, 44, "Excessively large number of partitions per request."),
    ],
)  # fmt: skip
def test_what_no_topic_is_made_of(tmp_path: Path, topic: dict[str, Any], code: int, words: str) -> None:
    async def use(node: Node) -> None:
        await create(node, {"name": "t"})
        (row,) = await create(node, topic)
        assert row.error_code == code and words in row.error_message
        assert (row.num_partitions, row.replication_factor, row.configs, row.topic_id) == (-1, -1, (), None)
        assert node.topics.names() == ["t"]

    with_node(tmp_path, use)


def test_topics_are_made_with_defaults_assignments_and_settings(tmp_path: Path) -> None:
    async def use(node: Node) -> None:
        (row,) = await create(node, {"name": "v", "num_partitions": -1, "replication_factor": -1}, validate_only=True)
        assert (row.error_code, row.num_partitions, row.replication_factor) == (0, 2, 1) and not node.topics.names()
        given = [{"partition_index": number, "broker_ids": [1]} for number in range(3)]
        settings = [{"name": "retention.ms", "value": "60000"}]
        (row,) = await create(
            node,
            {"name": "t", "num_partitions": -1, "replication_factor": -1, "assignments": given, "configs": settings},
        )
        assert row.num_partitions == 3 and row.topic_id == node.topics.get("t").id
        assert [config.name for config in row.configs] == sorted(config.name for config in row.configs)
        sources = {config.name: (config.value, config.config_source) for config in row.configs}
        assert len(sources) == 37 and sources["retention.ms"] == ("60000", 1)
        assert sources["cleanup.policy"] == ("delete", 5) and sources["segment.bytes"] == ("1073741824", 5)
        twice = await create(node, {"name": "d"}, {"name": "d"}, {"name": "e"}, version=4)
        assert [(one.name, one.error_code) for one in twice] == [("d", 42), ("e", 0)]

    with_node(tmp_path, use, num_partitions=2)


@pytest.mark.parametrize("version", range(1, 7))
def test_topics_are_deleted(tmp_path: Path, version: int) -> None:
    async def use(node: Node) -> None:
        (made, _) = await create(node, {"name": "t"}, {"name": "u"})
        names = ["t", "nope", "u", "u"]
        tree: dict[str, Any] = {"topic_names": names, "timeout": 1000}
        if version >= 6:
            tree["topics"] = [{"name": name, "topic_id": None} for name in names]
        answer = await call(node, "delete_topics", version, tree)
        assert {row.name: row.error_code for row in answer.responses} == {"t": 0, "nope": 3, "u": 42}
        assert node.topics.names() == ["u"]
        if version >= 5:
            words = {row.name: row.error_message for row in answer.responses}
            assert words["nope"] == "This server does not host this topic-partition." and words["t"] is None
        if version >= 6:
            assert {row.name: row.topic_id for row in answer.responses}["t"] == made.topic_id

    with_node(tmp_path, use)


def test_topics_are_deleted_by_id(tmp_path: Path) -> None:
    async def use(node: Node) -> None:
        (made,) = await create(node, {"name": "t"})
        tree = {
            "topics": [
                {"name": None, "topic_id": made.topic_id},
                {"name": None, "topic_id": UUID(int=9)},
                {"name": "x", "topic_id": UUID(int=8)},
                {"name": None, "topic_id": None},
            ],
            "timeout": 1000,
        }
        answer = await call(node, "delete_topics", 6, tree)
        assert [row.error_code for row in answer.responses] == [0, 100, 42, 42]
        assert answer.responses[0].name == "t" and not node.topics.names()

    with_node(tmp_path, use)


def test_a_delete_by_id_leaves_a_topic_that_was_created_again_meanwhile(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def use(node: Node) -> None:
        (made,) = await create(node, {"name": "t"})
        delete_all = node.topics.delete_all

        async def after_others(*arguments: Any) -> Any:
            await delete_all(["t"])
            await node.topics.create("t", 1)
            return await delete_all(*arguments)

        monkeypatch.setattr(node.topics, "delete_all", after_others)
        tree = {"topics": [{"name": None, "topic_id": made.topic_id}], "timeout": 1000}
        answer = await call(node, "delete_topics", 6, tree)
        assert [(row.name, row.error_code) for row in answer.responses] == [(None, ErrorCode.UNKNOWN_TOPIC_ID)]
        assert node.topics.names() == ["t"]

    with_node(tmp_path, use)


@pytest.mark.parametrize(("version", "code"), [(1, 42), (4, 73)])
def test_nothing_is_deleted_where_the_settings_say_so(tmp_path: Path, version: int, code: int) -> None:
    async def use(node: Node) -> None:
        await create(node, {"name": "t"})
        answer = await call(node, "delete_topics", version, {"topic_names": ["t"], "timeout": 1})
        assert answer.responses[0].error_code == code and node.topics.names() == ["t"]

    with_node(tmp_path, use, delete_topic_enable=False)


@pytest.mark.parametrize("version", range(4))
def test_topics_grow(tmp_path: Path, version: int) -> None:
    async def use(node: Node) -> None:
        await create(node, {"name": "t", "num_partitions": 2})

        async def grown(name: str, count: int, replicas: Any = None, *, validate_only: bool = False) -> tuple[int, Any]:
            rows = None if replicas is None else [{"broker_ids": one} for one in replicas]
            tree = {"topics": [{"name": name, "count": count, "assignments": rows}], "timeout": 1}
            answer = await call(node, "create_partitions", version, {**tree, "validate_only": validate_only})
            (row,) = answer.results
            return row.error_code, row.error_message

        assert await grown("t", 1) == (37, "The topic t currently has 2 partition(s); 1 would not be an increase.")
        assert await grown("t", 2) == (37, "Topic already has 2 partition(s).")
        assert await grown("nope", 3) == (3, None)
        assert (await grown("t", 4, [[1]]))[0] == 39 and (await grown("t", 3, [[2]]))[0] == 39
        assert await grown("t", 4, validate_only=True) == (0, None) and node.topics.get("t").partitions == 2
        assert await grown("t", 4, [[1], [1]]) == (0, None) and node.topics.get("t").partitions == 4
        answer = await call(node, "metadata", 9, metadata_tree("t"))
        assert len(answer.topics[0].partitions) == 4

    with_node(tmp_path, use)


@pytest.mark.parametrize("version", range(3))
def test_the_cluster_is_one_node(tmp_path: Path, version: int) -> None:
    async def use(node: Node) -> None:
        tree = {"include_cluster_authorized_operations": True, "endpoint_type": 1, "include_fenced_brokers": False}
        answer = await call(node, "describe_cluster", version, tree)
        assert (answer.error_code, answer.cluster_id, answer.controller_id) == (0, node.cluster_id, 1)
        assert answer.cluster_authorized_operations == 8096 and answer.brokers[0].port == 9092
        if version >= 1:
            assert (await call(node, "describe_cluster", version, {**tree, "endpoint_type": 2})).error_code == 114
            assert (await call(node, "describe_cluster", version, {**tree, "endpoint_type": 3})).error_code == 115

    with_node(tmp_path, use)


@pytest.mark.parametrize("version", range(1, 6))
def test_directories_tell_what_lies_in_them(tmp_path: Path, version: int) -> None:
    """FLOW-21."""

    async def use(node: Node) -> None:
        await create(node, {"name": "t", "num_partitions": 2}, {"name": "u"})
        answer = await call(node, "describe_log_dirs", version, {"topics": None})
        (row,) = answer.results
        assert row.error_code == 0 and row.log_dir == str(tmp_path)
        found = {(topic.name, one.partition_index): one for topic in row.topics for one in topic.partitions}
        assert sorted(found) == [("t", 0), ("t", 1), ("u", 0)]
        assert all((one.partition_size, one.offset_lag, one.is_future_key) == (0, 0, False) for one in found.values())
        if version >= 4:
            assert row.total_bytes > row.usable_bytes > 0
        answer = await call(node, "describe_log_dirs", version, {"topics": [{"topic": "t", "partitions": [1, 9]}]})
        assert [(topic.name, len(topic.partitions)) for topic in answer.results[0].topics] == [("t", 1)]

    with_node(tmp_path, use)


def test_partitions_come_page_by_page(tmp_path: Path) -> None:
    """KIP-966: the cursor names the first partition that the answer omits."""

    async def use(node: Node) -> None:
        await create(node, {"name": "a", "num_partitions": 3}, {"name": "b", "num_partitions": 2}, {"name": "c"})
        reported: list[tuple[str, int]] = []
        cursor, calls = None, 0
        while calls == 0 or cursor is not None:
            tree = {"topics": (), "response_partition_limit": 2, "cursor": cursor}
            answer = await call(node, "describe_topic_partitions", 0, tree)
            reported += [(topic.name, one.partition_index) for topic in answer.topics for one in topic.partitions]
            following = answer.next_cursor
            cursor = following and {"topic_name": following.topic_name, "partition_index": following.partition_index}
            calls += 1
        assert reported == [("a", 0), ("a", 1), ("a", 2), ("b", 0), ("b", 1), ("c", 0)] and calls == 3
        named = [{"name": "zz"}, {"name": "a b"}, {"name": "c"}]
        tree = {"topics": named, "response_partition_limit": 2000, "cursor": None}
        answer = await call(node, "describe_topic_partitions", 0, tree)
        assert {topic.name: topic.error_code for topic in answer.topics} == {"a b": 17, "c": 0, "zz": 3}
        tree["cursor"] = {"topic_name": "a", "partition_index": -1}
        assert (await call(node, "describe_topic_partitions", 0, tree)).topics[0].error_code == 42

    with_node(tmp_path, use)


def allow(name: str, operation: Operation, *, kind: ResourceType = ResourceType.TOPIC) -> Acl:
    return Acl(kind, name, PatternType.LITERAL, "User:u", "*", operation, Permission.ALLOW)


def test_a_node_of_the_cluster_asks_about_epochs_of_any_topic(tmp_path: Path) -> None:
    async def use(node: Node) -> None:
        await create(node, {"name": "t"}, connection=connection_for("User:root"))
        rows = [{"partition": 0, "current_leader_epoch": -1, "leader_epoch": 0}]
        tree = {"replica_id": -1, "topics": [{"topic": "t", "partitions": rows}]}
        acts = allow("kafka-cluster", Operation.CLUSTER_ACTION, kind=ResourceType.CLUSTER)
        for acls, code in (((), 29), ((acts,), 0), ((allow("t", Operation.DESCRIBE),), 0)):
            await node.credentials.file.change(node.run, lambda state, acls=acls: state._replace(acls=acls))
            answer = await call(node, "offset_for_leader_epoch", 4, tree, connection=connection_for("User:u"))
            assert answer.topics[0].partitions[0].error_code == code

    with_node(tmp_path, use, authorizer_class_name="StandardAuthorizer", super_users="User:root")


def test_each_call_asks_whether_it_may(tmp_path: Path) -> None:
    async def use(node: Node) -> None:
        root, user = connection_for("User:root"), connection_for("User:u")
        await create(node, {"name": "mine"}, {"name": "theirs"}, connection=root)
        acls = (allow("mine", Operation.DESCRIBE), allow("new", Operation.CREATE))
        await node.credentials.file.change(node.run, lambda state: state._replace(acls=acls))
        answer = await call(node, "metadata", 13, metadata_tree() | {"topics": None}, connection=user)
        assert [topic.name for topic in answer.topics] == ["mine"]
        answer = await call(node, "metadata", 12, metadata_tree("mine", "theirs", "new", auto=True), connection=user)
        assert {topic.name: topic.error_code for topic in answer.topics} == {"mine": 0, "theirs": 29, "new": 29}
        rows = await create(node, {"name": "new"}, {"name": "other"}, connection=user)
        assert [(row.error_code, row.error_message) for row in rows] == [(0, None), (29, "Authorization failed.")]
        assert rows[0].num_partitions == -1 and rows[0].topic_config_error_code == 29
        tree = {"topic_names": ["mine", "theirs"], "timeout": 1}
        answer = await call(node, "delete_topics", 4, tree, connection=user)
        assert [row.error_code for row in answer.responses] == [29, 29]
        tree = {"validate_only": False, "topics": [{"name": "mine", "count": 9, "assignments": None}], "timeout": 1}
        answer = await call(node, "create_partitions", 3, tree, connection=user)
        assert answer.results[0].error_code == 29
        answer = await call(node, "describe_log_dirs", 3, {"topics": None}, connection=user)
        assert (answer.error_code, answer.results) == (31, ())
        tree = {"topics": [{"name": "theirs"}, {"name": "mine"}], "response_partition_limit": 10, "cursor": None}
        answer = await call(node, "describe_topic_partitions", 0, tree, connection=user)
        assert {topic.name: topic.error_code for topic in answer.topics} == {"mine": 0, "theirs": 29}

    with_node(tmp_path, use, authorizer_class_name="StandardAuthorizer", super_users="User:root")
