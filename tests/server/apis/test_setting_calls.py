"""Calls about settings: what they show, and where a change reaches (MGR-24, KIP-133, KIP-226, KIP-339)."""

import json
from pathlib import Path
from typing import Any

import pytest

from kafkalog.errors import CorruptCheckpoint
from kafkalog.manager.log_manager import LogManager
from kafkalog.manager.topics import TOPICS_FILE
from kafkalog.server.node.node import Node
from kafkalog.server.node.topics import id_text
from kafkalog.server.security.acls import Operation
from kafkalog.server.settings.dynamic import SETTINGS_FILE
from kafkalog.types import TopicPartition
from tests.manager.metadata_files import ID, topic_values, write_metadata
from tests.server.apis.test_topic_calls import allow, create, with_node
from tests.server.nodes import call, connection_for

TOPIC, BROKER = 2, 4
SET, DELETE, APPEND, SUBTRACT = range(4)


async def describe(
    node: Node, kind: int, name: str, *names: str, version: int = 4, synonyms: bool = True, **more: Any
) -> Any:
    tree = {
        "resources": [{"resource_type": kind, "resource_name": name, "configuration_keys": names or None}],
        "include_synonyms": synonyms,
        "include_documentation": True,
    }
    (row,) = (await call(node, "describe_configs", version, tree, **more)).results
    return row


async def alter(
    node: Node, kind: int, name: str, *changes: tuple[str, int, str | None], validate_only: bool = False, **more: Any
) -> tuple[int, str | None]:
    configs = [{"name": key, "config_operation": how, "value": value} for key, how, value in changes]
    resource = {"resource_type": kind, "resource_name": name, "configs": configs}
    tree = {"resources": [resource], "validate_only": validate_only}
    (row,) = (await call(node, "incremental_alter_configs", 1, tree, **more)).responses
    return row.error_code, row.error_message


@pytest.mark.parametrize("version", range(1, 5))
def test_settings_of_a_topic_are_told_with_where_they_come_from(tmp_path: Path, version: int) -> None:
    async def use(node: Node) -> None:
        await create(node, {"name": "t", "configs": [{"name": "retention.ms", "value": "5"}]})
        row = await describe(node, TOPIC, "t", version=version)
        assert (row.error_code, row.error_message) == (0, "") and len(row.configs) == 37
        by_name = {one.name: one for one in row.configs}
        assert (by_name["retention.ms"].value, by_name["retention.ms"].config_source) == ("5", 1)
        assert (by_name["max.message.bytes"].value, by_name["max.message.bytes"].config_source) == ("777777", 4)
        assert by_name["cleanup.policy"].config_source == 5

        def listed(name: str) -> list[tuple[str, str, int]]:
            return [(one.name, one.value, one.source) for one in by_name[name].synonyms]

        assert listed("retention.ms") == [("retention.ms", "5", 1)]  # the node has hours, which come only after its ms
        assert listed("max.message.bytes") == [("message.max.bytes", "777777", 4), ("message.max.bytes", "1048588", 5)]
        assert listed("segment.ms") == [] and listed("preallocate") == [("log.preallocate", "false", 5)]
        if version >= 3:
            kinds = {"preallocate": 1, "compression.type": 2, "segment.bytes": 3, "retention.ms": 5,
                     "min.cleanable.dirty.ratio": 6, "cleanup.policy": 7}  # fmt: skip
            assert {name: by_name[name].config_type for name in kinds} == kinds
            assert by_name["retention.ms"].documentation
        row = await describe(node, TOPIC, "t", "retention.ms", "no.such", version=version, synonyms=False)
        assert [(one.name, one.synonyms) for one in row.configs] == [("retention.ms", ())]

    with_node(tmp_path, use, log_retention_hours=3, message_max_bytes=777_777)


def test_settings_that_topics_have_since_4_4(tmp_path: Path) -> None:
    """All rows of `LogConfig.nonInternalValues` of 4.4, with its defaults."""

    async def use(node: Node) -> None:
        await create(node, {"name": "t"})
        defaults = {"errors.deadletterqueue.group.enable": "false", "max.decompressed.message.bytes": "2147483639",
                    "remote.copy.lag.bytes": "-1", "remote.copy.lag.ms": "0"}  # fmt: skip
        row = await describe(node, TOPIC, "t", version=4)
        found = {one.name: (one.value, one.config_source) for one in row.configs}
        assert len(found) == 37
        assert {name: found[name] for name in defaults} == {name: (value, 5) for name, value in defaults.items()}
        names = {one.name: [synonym.name for synonym in one.synonyms] for one in row.configs}
        assert {name: names[name] for name in defaults} == {
            "errors.deadletterqueue.group.enable": [],
            "max.decompressed.message.bytes": ["max.decompressed.message.bytes"],
            "remote.copy.lag.bytes": ["log.remote.copy.lag.bytes"], "remote.copy.lag.ms": ["log.remote.copy.lag.ms"],
        }  # fmt: skip
        assert await alter(node, BROKER, "", ("max.decompressed.message.bytes", SET, "1000")) == (0, None)
        row = await describe(node, TOPIC, "t", "max.decompressed.message.bytes", version=4)
        assert [(one.value, one.config_source) for one in row.configs] == [("1000", 3)]
        assert await alter(node, BROKER, "", ("max.decompressed.message.bytes", DELETE, None)) == (0, None)
        own = {"remote.copy.lag.ms": "5", "max.decompressed.message.bytes": "100", "internal.segment.bytes": "9999"}
        await create(node, {"name": "own", "configs": [{"name": name, "value": value} for name, value in own.items()]})
        row = await describe(node, TOPIC, "own", version=4)
        found = {one.name: (one.value, one.config_source) for one in row.configs}
        assert len(found) == 38 and {name: found[name] for name in own} == {name: (own[name], 1) for name in own}

    with_node(tmp_path, use)


def test_directories_that_take_no_new_partitions_are_those_of_the_node(tmp_path: Path) -> None:
    words = "All entries in cordoned.log.dirs must be present in log.dirs or log.dir. Missing entries : /nope"

    async def use(node: Node) -> None:
        for value in ("/nope", f"{tmp_path},/nope"):
            assert await alter(node, BROKER, "1", ("cordoned.log.dirs", SET, value)) == (
                42, f"requirement failed: {words}"
            )  # fmt: skip
        code, said = await alter(node, BROKER, "1", ("cordoned.log.dirs", SET, "/nope, a\0b"))
        assert (code, said) == (42, f"requirement failed: {words}, a\0b")
        assert not node.store.config.cordoned_log_dirs
        for value in ("*", str(tmp_path)):
            assert await alter(node, BROKER, "1", ("cordoned.log.dirs", SET, value)) == (0, None)
            assert node.store.config.cordoned_log_dirs == (value,)
            assert (await create(node, {"name": "t"}))[0].error_code == 56

    with_node(tmp_path, use)


@pytest.mark.parametrize("resource", ["01", " 1", "+1", "0_1", "\u0661"])
def test_a_node_has_one_number(tmp_path: Path, resource: str) -> None:
    async def use(node: Node) -> None:
        assert (await alter(node, BROKER, resource, ("log.retention.ms", SET, "5")))[0] == 42
        assert (await describe(node, BROKER, resource)).error_code == 42

    with_node(tmp_path, use)


@pytest.mark.parametrize(
    ("kind", "name", "code"),
    [
        (TOPIC, "nope", 3), (TOPIC, "a b", 17), (BROKER, "9", 42), (BROKER, "x", 42), (BROKER, "01", 42),
        (BROKER, "+1", 42),
    ],  # fmt: skip
)
def test_resources_that_are_none(tmp_path: Path, kind: int, name: str, code: int) -> None:
    async def use(node: Node) -> None:
        row = await describe(node, kind, name)
        assert row.error_code == code and row.configs == ()
        assert (await alter(node, kind, name, ("retention.ms", SET, "5")))[0] == code

    with_node(tmp_path, use)


def test_the_node_tells_no_secret(tmp_path: Path) -> None:
    async def use(node: Node) -> None:
        row = await describe(node, BROKER, "1")
        by_name = {one.name: one for one in row.configs}
        secret = by_name["ssl.key.password"]
        assert (secret.value, secret.is_sensitive, secret.config_type) == (None, True, 9)
        assert [one.value for one in secret.synonyms] == [None] and "hidden" not in repr(row)
        assert by_name["num.partitions"].read_only and not by_name["log.retention.ms"].read_only
        assert (by_name["log.retention.ms"].value, by_name["log.retention.ms"].config_source) == (None, 5)
        assert by_name["num.partitions"].config_source == 4

    with_node(tmp_path, use, ssl_key_password="hidden", num_partitions=2)


def test_a_change_reaches_the_open_log_and_the_file(tmp_path: Path) -> None:
    """MGR-24."""

    async def use(node: Node) -> None:
        await create(node, {"name": "t"})
        log = node.store.logs[TopicPartition("t", 0)]
        changes = ("retention.ms", SET, "70000"), ("cleanup.policy", APPEND, "compact")
        assert await alter(node, TOPIC, "t", *changes) == (0, None)
        assert log.config.retention_ms == 70_000 and log.config.cleanup_policy == {"compact", "delete"}
        assert await alter(node, TOPIC, "t", ("cleanup.policy", SUBTRACT, "delete")) == (0, None)
        assert log.config.cleanup_policy == {"compact"}
        gone = ("retention.ms", DELETE, None), ("cleanup.policy", DELETE, "")
        assert await alter(node, TOPIC, "t", *gone) == (0, None)
        assert log.config.retention_ms == 604_800_000 and node.topics.own_settings("t") == {}
        for name in ("retention.ms", "no.such", "leader.replication.throttled.replicas"):
            assert await alter(node, TOPIC, "t", (name, DELETE, None)) == (0, None)
        assert await alter(node, TOPIC, "t", ("retention.ms", SET, "1"), validate_only=True) == (0, None)
        assert node.topics.own_settings("t") == {}

    with_node(tmp_path, use)


@pytest.mark.parametrize(
    ("changes", "code", "words"),
    [
        ([("no.such", SET, "x")], 40, "Unknown topic config name: no.such"),
        ([("no.such", APPEND, "x")], 40, "Can't APPEND to key no.such because its type is not LIST."),
        ([("no.such", SUBTRACT, "x")], 40, "Can't SUBTRACT to key no.such because its type is not LIST."),
        ([("retention.ms", SET, "x")], 40, "Invalid value x for configuration retention.ms: Not a number of type LONG"),
        ([("retention.ms", SET, "-2")], 40, "Value must be at least -1"),
        ([("retention.ms", SET, "x"), ("no.such", SET, "x")], 40, "Unknown topic config name: no.such"),
        ([("segment.bytes", SET, "+0")], 40, "Invalid value 0 for configuration segment.bytes: Value must be at least "
         "1048576"),
        ([("compression.gzip.level", SET, "010")], 40, "Invalid value 10 for configuration compression.gzip.level: "
         "Value must be between 1 and 9 or equal to -1"),
        ([("cleanup.policy", SET, "delete, x,y")], 40, "Invalid value x for configuration cleanup.policy: String must"),
        ([("cleanup.policy", SET, "delete,")], 40, "Configuration 'cleanup.policy' values must not be empty."),
        ([("leader.replication.throttled.replicas", SET, "a,b ")], 40, "Invalid value [a, b] for configuration"),
        ([("preallocate", SET, "maybe")], 40, "Expected value to be either true or false"),
        ([("compression.type", SET, "none")], 40, "one of: uncompressed, zstd, lz4, snappy, gzip, producer"),
        ([("cleanup.policy", SET, "Delete")], 40, "String must be one of: compact, delete"),
        ([("min.cleanable.dirty.ratio", SET, "1.5")], 40, "Value must be no more than 1"),
        ([("retention.ms", APPEND, "5")], 40, "Can't APPEND to key retention.ms because its type is not LIST."),
        ([("retention.ms", SET, None)], 42, "Null value not supported for : retention.ms"),
        ([("retention.ms", SET, "1"), ("retention.ms", DELETE, None)], 42, "Error due to duplicate config keys"),
        ([("retention.ms", 7, "1")], 42, "Unknown operation type 7"),
        ([("min.compaction.lag.ms", SET, "5"), ("max.compaction.lag.ms", SET, "4")], 40, "conflict topic config"),
    ],
)
def test_changes_that_are_refused_change_nothing(
    tmp_path: Path, changes: list[tuple[str, int, str | None]], code: int, words: str
) -> None:
    async def use(node: Node) -> None:
        await create(node, {"name": "t"})
        found = await alter(node, TOPIC, "t", ("flush.ms", SET, "9"), *changes)
        assert found[0] == code and words in str(found[1])
        assert node.topics.own_settings("t") == {}

    with_node(tmp_path, use)


@pytest.mark.parametrize("version", range(3))
def test_the_older_call_sets_all_of_them(tmp_path: Path, version: int) -> None:
    async def use(node: Node) -> None:
        await create(node, {"name": "t", "configs": [{"name": "flush.ms", "value": "5"}]})
        configs = [{"name": "retention.ms", "value": "80000"}]
        resource = {"resource_type": TOPIC, "resource_name": "t", "configs": configs}
        tree = {"resources": [resource], "validate_only": False}
        answer = await call(node, "alter_configs", version, tree)
        assert [row.error_code for row in answer.responses] == [0]
        assert node.topics.own_settings("t") == {"retention.ms": "80000"}
        answer = await call(node, "alter_configs", version, {**tree, "resources": [resource, resource]})
        assert [row.error_code for row in answer.responses] == [42, 42]
        for given, words in (
            ([*configs, {"name": "retention.ms", "value": "90000"}], "Error due to duplicate config keys"),
            ([{"name": "a", "value": None}, {"name": "b", "value": None}], "Null value not supported for : a, b"),
        ):
            answer = await call(node, "alter_configs", version, {**tree, "resources": [{**resource, "configs": given}]})
            assert [(row.error_code, row.error_message) for row in answer.responses] == [(42, words)]
        assert node.topics.own_settings("t") == {"retention.ms": "80000"}

    with_node(tmp_path, use)


def test_settings_of_the_node_change_while_it_runs_and_are_there_at_the_next_start(tmp_path: Path) -> None:
    """KIP-226: a node's own setting comes before that of all nodes, and both before what it was started with."""

    async def first(node: Node) -> None:
        await create(node, {"name": "t"})
        log = node.store.logs[TopicPartition("t", 0)]
        assert await alter(node, BROKER, "", ("log.retention.ms", SET, "5000")) == (0, None)
        assert log.config.retention_ms == 5000
        assert await alter(node, BROKER, "1", ("log.retention.ms", SET, "6000")) == (0, None)
        assert log.config.retention_ms == 6000
        row = await describe(node, TOPIC, "t", "retention.ms")
        assert [(one.value, one.source) for one in row.configs[0].synonyms] == [("6000", 2), ("5000", 3), ("168", 5)]
        row = await describe(node, BROKER, "")
        changed = [("log.retention.ms", "5000"), ("min.insync.replicas", "1")]
        assert [(one.name, one.value) for one in row.configs] == changed
        code, words = await alter(node, BROKER, "1", ("num.partitions", SET, "5"))
        assert code == 42 and "num.partitions" in str(words)
        assert (await alter(node, BROKER, "1", ("log.retention.ms", SET, "x")))[0] == 42
        assert (await alter(node, BROKER, "1", ("log.retention.ms", SET, "7"), validate_only=True))[0] == 0
        assert log.config.retention_ms == 6000

    async def second(node: Node) -> None:
        log = node.store.logs[TopicPartition("t", 0)]
        assert log.config.retention_ms == 6000
        assert await alter(node, BROKER, "1", ("log.retention.ms", DELETE, None)) == (0, None)
        assert log.config.retention_ms == 5000
        assert await alter(node, BROKER, "", ("log.retention.ms", DELETE, None)) == (0, None)
        assert log.config.retention_ms == 604_800_000

    with_node(tmp_path, first)
    assert (tmp_path / SETTINGS_FILE).exists()
    with_node(tmp_path, second)


def test_a_setting_that_went_up_in_steps_is_where_it_was_at_the_next_start(tmp_path: Path) -> None:
    """CLN-43: threads of the cleaner double at most."""

    async def first(node: Node) -> None:
        for count in (2, 4, 5):
            assert await alter(node, BROKER, "", ("log.cleaner.threads", SET, str(count))) == (0, None)
        assert (await alter(node, BROKER, "", ("log.cleaner.threads", SET, "11")))[0] == 42

    async def second(node: Node) -> None:
        assert node.store.config.log_cleaner_threads == node.config["log.cleaner.threads"] == 5

    with_node(tmp_path, first, log_cleaner_dedupe_buffer_size=32 << 20)
    with_node(tmp_path, second, log_cleaner_dedupe_buffer_size=32 << 20)


@pytest.mark.parametrize("content", ["", "[]", '{"version": 9}', '{"version": 1, "settings": {"": {"a": 1}}}'])
def test_changed_settings_that_are_damaged_end_the_start(tmp_path: Path, content: str) -> None:
    async def never(node: Node) -> None:
        raise AssertionError

    (tmp_path / SETTINGS_FILE).write_text(content)
    with pytest.raises(CorruptCheckpoint, match="move it away"):
        with_node(tmp_path, never)


def test_a_changed_setting_that_is_none_any_more_is_told_and_the_others_count(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    kept = {"log.retention.ms": "7000", "no.such": "1", "num.partitions": "3"}
    (tmp_path / SETTINGS_FILE).write_text(json.dumps({"version": 1, "settings": {"": kept}}))

    async def use(node: Node) -> None:
        assert node.config["log.retention.ms"] == 7000 and node.config["num.partitions"] == 1

    with_node(tmp_path, use)
    assert "num.partitions" in caplog.text and "no.such" not in caplog.text


def test_settings_are_shown_and_changed_by_whoever_may(tmp_path: Path) -> None:
    async def use(node: Node) -> None:
        root, user = connection_for("User:root"), connection_for("User:u")
        await create(node, {"name": "t"}, connection=root)
        assert (await describe(node, TOPIC, "t", connection=user)).error_code == 29
        assert (await describe(node, BROKER, "1", connection=user)).error_code == 31
        assert (await alter(node, TOPIC, "t", ("flush.ms", SET, "1"), connection=user))[0] == 29
        assert (await alter(node, BROKER, "1", ("log.retention.ms", SET, "1"), connection=user))[0] == 31
        acls = (allow("t", Operation.ALTER_CONFIGS),)
        await node.credentials.file.change(node.run, lambda state: state._replace(acls=acls))
        assert (await describe(node, TOPIC, "t", connection=user)).error_code == 0
        assert (await alter(node, TOPIC, "t", ("flush.ms", SET, "1"), connection=user))[0] == 0

    with_node(tmp_path, use, authorizer_class_name="StandardAuthorizer", super_users="User:root")


def test_topics_of_a_broker_keep_their_ids_and_settings(tmp_path: Path) -> None:
    """The metadata's settings apply until a client changes one; from then on the topics file has all of them."""
    write_metadata(tmp_path, topic_values("t", {"retention.ms": "5"}))
    with LogManager.open([tmp_path]) as manager:
        manager.get_or_create(TopicPartition("t", 0), topic_id=ID)
    (tmp_path / TOPICS_FILE).unlink()

    async def first(node: Node) -> None:
        topic = node.topics.get("t")
        assert topic is not None and id_text(topic.id) == ID and topic.partitions == 1
        assert node.topics.own_settings("t") == {"retention.ms": "5"}
        assert await alter(node, TOPIC, "t", ("flush.ms", SET, "9")) == (0, None)

    async def second(node: Node) -> None:
        topic = node.topics.get("t")
        assert topic is not None and id_text(topic.id) == ID
        assert node.topics.own_settings("t") == {"flush.ms": "9", "retention.ms": "5"}

    with_node(tmp_path, first)
    with_node(tmp_path, second)


def test_threads_that_need_a_larger_buffer_are_there_at_the_next_start(tmp_path: Path) -> None:
    """The number may have blanks and a sign, as a client wrote it."""
    buffer, threads = "log.cleaner.dedupe.buffer.size", "log.cleaner.threads"

    async def more(node: Node) -> None:
        for name, value in ((buffer, str(16 << 20)), (threads, "2"), (threads, " +4 ")):
            assert await alter(node, BROKER, "", (name, SET, value)) == (0, None)

    async def fewer(node: Node) -> None:
        assert (node.config[threads], node.config[buffer]) == (4, 16 << 20)
        for name, value in ((threads, "2"), (threads, "1"), (buffer, str(2 << 20))):
            assert await alter(node, BROKER, "", (name, SET, value)) == (0, None)

    async def last(node: Node) -> None:
        assert (node.config[threads], node.config[buffer]) == (1, 2 << 20)

    with_node(tmp_path, more, log_cleaner_dedupe_buffer_size=3 << 20)
    with_node(tmp_path, fewer, log_cleaner_dedupe_buffer_size=3 << 20)
    with_node(tmp_path, last, log_cleaner_threads=4, log_cleaner_dedupe_buffer_size=16 << 20)


def test_a_number_of_threads_that_no_client_wrote_is_ignored_with_a_warning(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    tree = {"version": 1, "settings": {"": {"log.cleaner.threads": "x"}}}
    (tmp_path / SETTINGS_FILE).write_text(json.dumps(tree))

    async def use(node: Node) -> None:
        assert node.config["log.cleaner.threads"] == 1

    with_node(tmp_path, use)
    assert "log.cleaner.threads is ignored: log.cleaner.threads='x' is not an int" in caplog.text


def test_the_file_of_changed_settings_is_in_order_whatever_was_changed_first(tmp_path: Path) -> None:
    """Two files of the same settings have no difference."""
    async def use(node: Node) -> None:
        for name, value in (("log.retention.ms", "5"), ("background.threads", "5"), ("log.retention.bytes", "7")):
            assert await alter(node, BROKER, "", (name, SET, value)) == (0, None)
            text = (tmp_path / SETTINGS_FILE).read_text()
            assert text == json.dumps(json.loads(text), indent=1, sort_keys=True) + "\n"

    with_node(tmp_path, use)


def test_threads_that_nobody_changed_are_those_of_the_start(tmp_path: Path) -> None:
    async def use(node: Node) -> None:
        assert await alter(node, BROKER, "", ("log.retention.ms", SET, "5000")) == (0, None)

    async def again(node: Node) -> None:
        assert (node.config["log.cleaner.threads"], node.config["log.retention.ms"]) == (4, 5000)
        assert await alter(node, BROKER, "", ("log.cleaner.threads", SET, "8")) == (0, None)

    async def last(node: Node) -> None:
        assert node.config["log.cleaner.threads"] == 8

    for work in (use, again, last):
        with_node(tmp_path, work, log_cleaner_threads=4, log_cleaner_dedupe_buffer_size=64 << 20)
