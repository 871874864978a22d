"""Settings of a node as a broker shows, keeps and refuses them.

`broker-settings.tsv` has the rows that a broker of 4.4.0 describes, those that one of 4.3.1 has not yet marked; codes
and words are what both answered to these requests.
"""

import asyncio
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from kafkalog.server.node.node import Node
from kafkalog.server.node.pool import CallPool
from kafkalog.types import TopicPartition
from tests.server.apis.test_setting_calls import APPEND, BROKER, DELETE, SET, SUBTRACT, TOPIC, alter, describe
from tests.server.apis.test_topic_calls import create, with_node
from tests.server.nodes import call

CAPTURED = Path(__file__).parents[2] / "data" / "broker-settings.tsv"
TYPES = ("", "bool", "string", "int", "short", "long", "double", "list", "class", "password")
# what `docs/server.md` and `kafkalog/server/settings/table.py` say is another here
OTHER_DEFAULTS = {
    "controller.listener.names", "group.coordinator.rebalance.protocols", "listeners", "queued.max.request.bytes",
    "replica.socket.receive.buffer.bytes", "sasl.enabled.mechanisms", "sasl.mechanism.inter.broker.protocol",
    "socket.listen.backlog.size", "socket.receive.buffer.bytes", "socket.send.buffer.bytes", "ssl.keystore.type",
    "ssl.truststore.type",
}  # fmt: skip
LIVE_HERE = {"connections.max.idle.ms"}  # a broker reads it only at the start
DYNAMIC = "Cannot update these configs dynamically"
ONE_LISTENER = "These security configs can be dynamically updated only per-listener using the listener prefix"
RELOGIN = "sasl.kerberos.min.time.before.relogin"
ONE_BROKER = "Cannot update these configs at default cluster level, broker id must be specified"
STEP = (
    "Invalid value org.apache.kafka.common.config.ConfigException: Dynamic thread count update validation failed for "
    "{}, value should {} the current value {} for configuration Invalid dynamic configuration"
)


def captured_rows() -> Iterator[dict[str, str]]:
    head, *lines = CAPTURED.read_text().splitlines()
    for line in lines:
        yield dict(zip(head.split("\t"), line.split("\t"), strict=True))


def by_name(row: Any) -> dict[str, Any]:
    assert (row.error_code, row.error_message) == (0, "")
    return {one.name: one for one in row.configs}


def test_all_rows_of_a_broker_are_shown_with_its_types_and_marks(tmp_path: Path) -> None:
    async def use(node: Node) -> None:
        found = by_name(await describe(node, BROKER, "1"))
        wrong = []
        for row in captured_rows():
            own = found.pop(row["name"])
            marks = [TYPES[own.config_type], own.read_only, own.is_sensitive]
            if row["name"] in LIVE_HERE:
                marks[1] = True
            defaults = [one.value for one in own.synonyms if one.source == 5]
            default = defaults[0] if defaults and not own.is_sensitive else "null"
            expected: list[Any] = [row["type"], row["read-only"] == "yes", row["sensitive"] == "yes"]
            if marks != expected or (default != row["default"] and row["name"] not in OTHER_DEFAULTS):
                wrong.append((row["name"], marks, default, expected, row["default"]))
        assert not wrong
        assert {name for name in found if not name.startswith("kafkalog.")} <= {"max.decompressed.message.bytes"}

    with_node(tmp_path, use, log_cleaner_dedupe_buffer_size=134217728, offsets_topic_num_partitions=50,
              transaction_state_log_num_partitions=50, group_initial_rebalance_delay_ms=3000)  # fmt: skip


def test_rows_of_how_the_node_was_started(tmp_path: Path) -> None:
    given = {"super_users": "User:a;User:b", "controller_quorum_voters": "1@c:9", "no_such": "x", "node_id": "1"}

    async def use(node: Node) -> None:
        node.endpoints["SIX"] = ("::1", 9)
        found = by_name(await describe(node, BROKER, "1"))

        def row_of(name: str) -> tuple[Any, ...]:
            one = found[name]
            return one.value, one.read_only, one.config_source, one.is_sensitive, one.config_type

        assert row_of("super.users") == row_of("no.such") == (None, True, 4, True, 0)
        assert row_of("advertised.listeners") == ("PLAINTEXT://localhost:9092,SIX://[::1]:9", True, 4, False, 7)
        assert row_of("node.id") == row_of("broker.id") == ("1", True, 4, False, 3)
        assert row_of("log.dirs") == (str(tmp_path), True, 4, False, 7)
        assert row_of("process.roles") == ("broker,controller", True, 4, False, 7)
        assert row_of("controller.quorum.voters") == ("1@c:9", True, 4, False, 7)
        assert [(one.value, one.source) for one in found["broker.id"].synonyms] == [("1", 4), ("-1", 5)]
        assert "follower.replication.throttled.rate" not in found and "unstable.api.versions.enable" not in found
        row = await describe(node, BROKER, "1", "no.such", "other", "broker.id")
        assert set(by_name(row)) == {"no.such", "broker.id"}
        assert await alter(node, BROKER, "", ("leader.replication.throttled.rate", SET, "5")) == (0, None)
        assert by_name(await describe(node, BROKER, "1"))["leader.replication.throttled.rate"].value == "5"

    with_node(tmp_path, use, **given)


@pytest.mark.parametrize("name", [
    "no.such", "node.id", "log.dirs", "num.io.threads", "super.users", "log.retention.ms", "queued.max.requests",
    "ssl.key.password", "metric.reporters", "listeners", "listener.name.plaintext.ssl.keystore.type",
    "listener.name.plaintext.foo", "leader.replication.throttled.rate", "cordoned.log.dirs", "broker.id",
])  # fmt: skip
def test_to_remove_what_is_not_set_or_not_known_does_nothing(tmp_path: Path, name: str) -> None:
    async def use(node: Node) -> None:
        for resource in ("1", ""):
            assert await alter(node, BROKER, resource, (name, DELETE, None)) == (0, None)
            assert node.dynamic._changed == {}

    with_node(tmp_path, use)


@pytest.mark.parametrize("name", ["no.such", "super.users"])
def test_an_unknown_name_is_kept_and_its_value_hidden(tmp_path: Path, name: str) -> None:
    async def first(node: Node) -> None:
        for resource in ("1", ""):
            assert await alter(node, BROKER, resource, (name, SET, "User:me")) == (0, None)
        assert await alter(node, BROKER, "", (name, APPEND, "x")) == (40, f"Unknown config name: {name}")
        configs = [{"name": name, "value": "all"}]
        tree = {"resources": [{"resource_type": BROKER, "resource_name": "1", "configs": configs}],
                "validate_only": False}  # fmt: skip
        assert [one.error_code for one in (await call(node, "alter_configs", 2, tree)).responses] == [0]

    async def second(node: Node) -> None:
        one = by_name(await describe(node, BROKER, "1"))[name]
        assert (one.value, one.read_only, one.is_sensitive, one.config_type) == (None, True, True, 0)
        assert [(other.value, other.source) for other in one.synonyms] == [(None, 2), (None, 3)]
        assert set(by_name(await describe(node, BROKER, ""))) == {name, "min.insync.replicas"}
        for resource in ("1", ""):
            assert await alter(node, BROKER, resource, (name, DELETE, None)) == (0, None)
        assert node.dynamic._changed == {}

    with_node(tmp_path, first)
    with_node(tmp_path, second)


@pytest.mark.parametrize(
    ("resource", "changes", "words"),
    [
        ("1", [("node.id", "3"), ("no.such", "3"), ("queued.max.requests", "3")],
         f"{DYNAMIC}: [node.id, queued.max.requests]"),
        ("", [("broker.rack", "r")], f"{DYNAMIC}: [broker.rack]"),
        ("1", [("request.timeout.ms", "9")], f"{DYNAMIC}: [request.timeout.ms]"),
        ("1", [("advertised.listeners", "PLAINTEXT://a:1")], f"{DYNAMIC}: [advertised.listeners]"),
        ("1", [("ssl.keystore.location", "/x")], f"{ONE_LISTENER}: [ssl.keystore.location]"),
        ("1", [("sasl.login.class", "a.B")], f"{DYNAMIC}: [sasl.login.class]"),
        ("1", [("sasl.enabled.mechanisms", "PLAIN")], f"{DYNAMIC}: [sasl.enabled.mechanisms]"),
        ("", [(RELOGIN, "58000")], f"{ONE_BROKER}: [{RELOGIN}]"),
        ("", [("listener.name.plaintext.foo", "bar")], f"{ONE_BROKER}: [listener.name.plaintext.foo]"),
        ("1", [("num.io.threads", "x")], "Invalid value x for configuration num.io.threads: Not a number of type INT"),
        ("1", [("background.threads", "-1")],
         "Invalid value -1 for configuration background.threads: Value must be at least 1"),
        ("", [("log.retention.ms", "abc")],
         "Invalid value abc for configuration log.retention.ms: Not a number of type LONG"),
        ("1", [("message.max.bytes", "-2")],
         "Invalid value -2 for configuration message.max.bytes: Value must be at least 0"),
        ("1", [("max.connections", "abc")],
         "Invalid value abc for configuration max.connections: Not a number of type INT"),
        ("1", [("max.connections", "0")], "Invalid value org.apache.kafka.common.config.ConfigException: Invalid "
         "max.connections 0 for configuration Invalid dynamic configuration"),
        ("", [("max.connections.per.ip", "0")], "requirement failed: max.connections.per.ip can be set to zero only if "
         "max.connections.per.ip.overrides property is set."),
        ("1", [("unclean.leader.election.enable", "maybe")], "Invalid value maybe for configuration "
         "unclean.leader.election.enable: Expected value to be either true or false"),
        ("1", [("compression.type", "foo")], "Invalid value foo for configuration compression.type: String must be "
         "one of: uncompressed, zstd, lz4, snappy, gzip, producer"),
        ("1", [("log.message.timestamp.type", "Foo")], "Invalid value Foo for configuration log.message.timestamp.type"
         ": String must be one of: CreateTime, LogAppendTime"),
        ("1", [("log.cleaner.io.max.bytes.per.second", "x")],
         "Invalid value x for configuration log.cleaner.io.max.bytes.per.second: Not a number of type DOUBLE"),
        ("1", [("log.cleanup.policy", "foo")],
         "Invalid value foo for configuration log.cleanup.policy: String must be one of: compact, delete"),
        ("1", [("log.segment.bytes", "1")],
         "Invalid value 1 for configuration log.segment.bytes: Value must be at least 1048576"),
        ("1", [("remote.log.reader.threads", "x")],
         "Invalid value x for configuration remote.log.reader.threads: Not a number of type INT"),
        ("1", [("num.io.threads", "99")], STEP.format("num.io.threads=99", "not be greater than double", 8)),
        ("1", [("num.io.threads", "3")], STEP.format("num.io.threads=3", "be at least half", 8)),
        ("1", [("num.replica.fetchers", "5")], STEP.format("num.replica.fetchers=5", "not be greater than double", 1)),
    ],
)  # fmt: skip
def test_what_is_not_dynamic_or_malformed_is_an_invalid_request(
    tmp_path: Path, resource: str, changes: list[tuple[str, str]], words: str
) -> None:
    async def use(node: Node) -> None:
        listed = [(name, SET, value) for name, value in (("flush.x", "1"), *changes)]
        assert await alter(node, BROKER, resource, *listed) == (42, words)
        assert node.dynamic._changed == {}

    with_node(tmp_path, use)


@pytest.mark.parametrize("name", ["listeners", "listener.name.plaintext.ssl.keystore.location", "metric.reporters"])
def test_what_only_a_running_broker_can_change_is_refused_as_not_dynamic(tmp_path: Path, name: str) -> None:
    async def use(node: Node) -> None:
        assert await alter(node, BROKER, "1", (name, SET, "x")) == (42, f"{DYNAMIC}: [{name}]")

    with_node(tmp_path, use)


def test_settings_of_threads_are_accepted_and_those_of_calls_take_effect(tmp_path: Path) -> None:
    accepted = {
        "num.io.threads": "16", "num.network.threads": "2", "num.replica.fetchers": "2", "background.threads": "5",
        "num.recovery.threads.per.data.dir": "3", "transaction.partition.verification.enable": "true",
        "remote.log.manager.copy.max.bytes.per.second": "100", "max.connections.per.ip.overrides": "127.0.0.1:7",
        RELOGIN: "58000", "errors.deadletterqueue.auto.create.topics.enable": "true",
        "errors.deadletterqueue.topic.name.prefix": "dead.", "log.cleaner.io.buffer.load.factor": "1.0E-4",
    }  # fmt: skip
    written = {"num.io.threads": " +16 ", "log.cleaner.io.buffer.load.factor": "0.0001", RELOGIN: "058000"}

    async def first(node: Node) -> None:
        words = STEP.format("num.io.threads=99", "not be greater than double", 8)
        assert await alter(node, BROKER, "", ("num.io.threads", SET, "99")) == (42, words)
        for name, value in (accepted | written).items():
            assert await alter(node, BROKER, "1", (name, SET, value)) == (0, None)
        assert await alter(node, BROKER, "", ("num.io.threads", SET, "99")) == (0, None)  # as the node's own is first
        words = "Config value append is not allowed for config key: num.io.threads"
        assert await alter(node, BROKER, "1", ("num.io.threads", APPEND, "1")) == (40, words)
        assert node.pool.threads == 16 and await node.run(lambda: 5) == 5
        assert await alter(node, BROKER, "1", ("max.connections.per.ip", SET, "0")) == (0, None)
        for value in ("x", "127.0.0.1:2147483648", f"127.0.0.1:{'1' * 5000}"):
            assert (await alter(node, BROKER, "1", ("max.connections.per.ip.overrides", SET, value)))[0] == 42
        assert (await alter(node, BROKER, "1", ("max.connections.per.ip.overrides", APPEND, "127.0.0.2:8")))[0] == 40

    async def second(node: Node) -> None:
        found = by_name(await describe(node, BROKER, "1"))
        assert {name: found[name].value for name in accepted} == accepted
        assert {name: found[name].synonyms[0].value for name in accepted} == accepted | written
        assert node.pool.threads == node.config["num.io.threads"] == 16

    with_node(tmp_path, first)
    with_node(tmp_path, second)


def test_calls_that_wait_for_a_thread_finish_when_the_number_changes() -> None:
    async def run() -> None:
        pool = CallPool(1)
        calls = [pool.run(pow, number, 2) for number in range(5)]
        pool.resize(3)
        calls.append(pool.run(pow, 5, 2))
        assert await asyncio.gather(*calls) == [0, 1, 4, 9, 16, 25]
        pool.close()

    asyncio.run(run())


def test_the_policies_keep_the_order_in_which_they_were_given(tmp_path: Path) -> None:
    async def first(node: Node) -> None:
        await create(node, {"name": "t", "configs": [{"name": "cleanup.policy", "value": "delete,compact"}]})
        assert await row_of(node) == "delete,compact"
        for how, value, after in (
            (SET, "compact, delete", "compact,delete"), (SUBTRACT, "compact", "delete"),
            (APPEND, "compact", "delete,compact"), (SET, "delete,compact,delete", "delete,compact"),
        ):  # fmt: skip
            assert await alter(node, TOPIC, "t", ("cleanup.policy", how, value)) == (0, None)
            assert await row_of(node) == after
        assert node.store.logs[TopicPartition("t", 0)].config.cleanup_policy == {"compact", "delete"}
        assert await alter(node, BROKER, "", ("log.cleanup.policy", SET, "delete,compact")) == (0, None)

    async def row_of(node: Node) -> str:
        value: str = by_name(await describe(node, TOPIC, "t"))["cleanup.policy"].value
        return value

    async def second(node: Node) -> None:
        assert await row_of(node) == "delete,compact"
        assert by_name(await describe(node, BROKER, "1"))["log.cleanup.policy"].value == "delete,compact"

    with_node(tmp_path, first)
    with_node(tmp_path, second)
