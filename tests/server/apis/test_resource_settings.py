"""Settings of groups, loggers and clients' metrics, and the least replicas in sync that a cluster keeps.

Names, values, codes and words are what a broker of 4.3.1 answered to these requests, and one of 4.4.0 for what is new
in it.
"""

import asyncio
import json
import logging
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from kafkalog.server.groups.effects import MEMBER_TIMER
from kafkalog.server.groups.timers import GroupTimers
from kafkalog.server.node.node import Node
from kafkalog.server.security.acls import Operation, ResourceType
from kafkalog.server.settings.dynamic import MAX_FILE_BYTES, SETTINGS_FILE
from kafkalog.server.settings.groups import GROUP_SETTINGS
from tests.server.apis.test_setting_calls import APPEND, BROKER, DELETE, SET, TOPIC, alter, describe
from tests.server.apis.test_topic_calls import allow, create, with_node
from tests.server.nodes import call, connection_for

LOGGER, CLIENT_METRICS, GROUP = 8, 16, 32
SESSION, BEAT = "consumer.session.timeout.ms", "consumer.heartbeat.interval.ms"
MALFORMED = "This most likely occurs because of a request being malformed by the client library"


async def set_all(node: Node, kind: int, name: str, settings: dict[str, str]) -> tuple[int, str | None]:
    configs = [{"name": key, "value": value} for key, value in settings.items()]
    tree = {
        "resources": [{"resource_type": kind, "resource_name": name, "configs": configs}], "validate_only": False,
    }  # fmt: skip
    (row,) = (await call(node, "alter_configs", 2, tree)).responses
    return row.error_code, row.error_message


def configs_by_name(row: Any) -> dict[str, tuple[str, int, list[tuple[str, str, int]]]]:
    return {
        one.name: (one.value, one.config_source, [(other.name, other.value, other.source) for other in one.synonyms])
        for one in row.configs
    }


def test_a_group_has_settings_whether_it_is_there_or_not(tmp_path: Path) -> None:
    async def use(node: Node) -> None:
        row = await describe(node, GROUP, "nope")
        assert (row.error_code, row.error_message) == (0, "") and len(row.configs) == 21
        found = configs_by_name(row)
        assert found[SESSION] == ("45000", 5, [(f"group.{SESSION}", "45000", 5)])
        assert found[BEAT] == ("6000", 4, [(f"group.{BEAT}", "6000", 4), (f"group.{BEAT}", "5000", 5)])
        assert found["share.auto.offset.reset"] == ("latest", 5, [("share.auto.offset.reset", "latest", 5)])
        assert found["streams.num.standby.replicas"] == ("0", 5, [("group.streams.num.standby.replicas", "0", 5)])
        assert found["streams.assignor.name"] == ("sticky", 5, [("group.streams.assignors", "sticky", 5)])
        tags = "streams.rack.aware.assignment.tags"
        assert found[tags] == ("", 5, [(f"group.{tags}", "", 5)])
        kinds = {one.name: one.config_type for one in row.configs}
        assert (kinds[SESSION], kinds["share.isolation.level"], kinds["share.renew.acknowledge.enable"]) == (3, 2, 1)
        row = await describe(node, GROUP, "nope", SESSION, "no.such", synonyms=False)
        assert configs_by_name(row) == {SESSION: ("45000", 5, [])}
        row = await describe(node, GROUP, "")
        assert (row.error_code, row.error_message) == (42, "Group name must not be empty")

    with_node(tmp_path, use, group_consumer_heartbeat_interval_ms=6000)


def test_settings_of_a_group_stay_and_can_be_taken_back(tmp_path: Path) -> None:
    async def first(node: Node) -> None:
        assert await alter(node, GROUP, "g", (SESSION, SET, " +50000 ")) == (0, None)
        assert await alter(node, GROUP, "other", (SESSION, SET, "50000"), validate_only=True) == (0, None)
        assert await alter(node, GROUP, "g", ("share.auto.offset.reset", SET, "by_duration:PT1H")) == (0, None)
        assert configs_by_name(await describe(node, GROUP, "other", SESSION))[SESSION][0] == "45000"
        listed = await call(node, "list_config_resources", 1, {"resource_types": [GROUP]})
        assert [(one.resource_name, one.resource_type) for one in listed.config_resources] == [("g", GROUP)]

    async def second(node: Node) -> None:
        found = configs_by_name(await describe(node, GROUP, "g", SESSION, "share.auto.offset.reset"))
        assert found[SESSION] == ("50000", 8, [(SESSION, "50000", 8), (f"group.{SESSION}", "45000", 5)])
        assert found["share.auto.offset.reset"][0] == "by_duration:PT1H"
        assert await set_all(node, GROUP, "g", {SESSION: "46000"}) == (0, None)
        found = configs_by_name(await describe(node, GROUP, "g", SESSION, "share.auto.offset.reset"))
        assert (found[SESSION][0], found["share.auto.offset.reset"][0]) == ("46000", "latest")
        assert await alter(node, GROUP, "g", (SESSION, DELETE, None), ("no.such", DELETE, None)) == (0, None)
        assert await alter(node, BROKER, "", ("log.retention.ms", SET, "5")) == (0, None)

    with_node(tmp_path, first)
    with_node(tmp_path, second)
    kept = json.loads((tmp_path / SETTINGS_FILE).read_text())
    assert kept == {"version": 1, "settings": {"": {"log.retention.ms": "5"}}}


@pytest.mark.parametrize(
    ("name", "how", "value", "code", "words"),
    [
        (SESSION, SET, "1", 40, f"{SESSION} must be greater than or equal to group.consumer.min.session.timeout.ms"),
        (SESSION, SET, "70000", 40, f"{SESSION} must be less than or equal to group.consumer.max.session.timeout.ms"),
        (SESSION, SET, "0", 40, f"Invalid value 0 for configuration {SESSION}: Value must be at least 1"),
        (SESSION, SET, "x", 40, f"Invalid value x for configuration {SESSION}: Not a number of type INT"),
        (BEAT, SET, "1", 40, f"{BEAT} must be greater than or equal to group.consumer.min.heartbeat.interval.ms"),
        (BEAT, SET, "20000", 40, f"{BEAT} must be less than or equal to group.consumer.max.heartbeat.interval.ms"),
        ("no.such", SET, "1", 40, "Unknown group config name: no.such"),
        (SESSION, APPEND, "1", 40, f"Can't APPEND to key {SESSION} because its type is not LIST."),
        (SESSION, SET, None, 42, f"Null value not supported for : {SESSION}"),
        ("streams.num.standby.replicas", SET, "3", 40,
         "streams.num.standby.replicas must be less than or equal to group.streams.max.standby.replicas"),
        ("share.delivery.count.limit", SET, "11", 40,
         "share.delivery.count.limit must be less than or equal to group.share.max.delivery.count.limit"),
        ("share.record.lock.duration.ms", SET, "1000", 40,
         "share.record.lock.duration.ms must be greater than or equal to group.share.min.record.lock.duration.ms"),
        ("share.isolation.level", SET, "x", 40, "Invalid value x for configuration share.isolation.level: String must "
         "be one of: read_committed, read_uncommitted"),
        ("share.renew.acknowledge.enable", SET, "1", 40, "Invalid value 1 for configuration "
         "share.renew.acknowledge.enable: Expected value to be either true or false"),
        ("errors.deadletterqueue.topic.name", SET, "__x", 40, "Invalid value __x for configuration"),
        ("errors.deadletterqueue.copy.record.enable", SET, "1", 40, "Invalid value 1 for configuration "
         "errors.deadletterqueue.copy.record.enable: Expected value to be either true or false"),
        ("streams.rack.aware.assignment.tags", SET, "a,,b", 40,
         "Configuration 'streams.rack.aware.assignment.tags' values must not be empty."),
        (BEAT, SET, "\x1f9 ", 40, f"{BEAT} must be greater than or equal to group.consumer.min.heartbeat.interval.ms"),
        (BEAT, SET, "-0", 40, f"Invalid value 0 for configuration {BEAT}: Value must be at least 1"),
        ("share.auto.offset.reset", SET, "by_duration:PT1.1234567890S", 40, "Invalid value by_duration:PT1."),
        ("streams.acceptable.recovery.lag", SET, "-1", 40, "Invalid value -1 for configuration "
         "streams.acceptable.recovery.lag: Value must be at least 0"),
        ("streams.num.warmup.replicas", SET, "21", 40,
         "streams.num.warmup.replicas must be less than or equal to group.streams.max.warmup.replicas"),
        ("streams.task.offset.interval.ms", SET, "14999", 40,
         "streams.task.offset.interval.ms must be greater than or equal to group.streams.min.task.offset.interval.ms"),
        ("streams.assignor.name", SET, "", 40, "Invalid value  for configuration streams.assignor.name"),
        ("share.auto.offset.reset", SET, "by_duration:P", 40, "Invalid value by_duration:P for configuration"),
    ],
)  # fmt: skip
def test_what_a_group_does_not_take(
    tmp_path: Path, name: str, how: int, value: str | None, code: int, words: str
) -> None:
    async def use(node: Node) -> None:
        got, said = await alter(node, GROUP, "g", (name, how, value))
        assert got == code and str(said).startswith(words)
        assert await alter(node, GROUP, "", (SESSION, SET, "50000")) == (42, "Default group resources are not allowed.")
        assert not node.dynamic.of_group("g")

    with_node(tmp_path, use)


OFFLOADING = {f"{kind}.assignor.offload.enable": "false" for kind in ("consumer", "share", "streams")}
OF_4_4 = {
    **OFFLOADING,
    "errors.deadletterqueue.copy.record.enable": "true", "errors.deadletterqueue.topic.name": "dlq.orders",
    "streams.acceptable.recovery.lag": "5", "streams.assignor.name": "ours", "streams.num.warmup.replicas": "20",
    "streams.rack.aware.assignment.tags": "zone,rack", "streams.task.offset.interval.ms": "15000",
}  # fmt: skip


def test_settings_that_groups_have_since_4_4_are_kept_and_shown(tmp_path: Path) -> None:
    async def first(node: Node) -> None:
        assert {name for name in GROUP_SETTINGS if name in OF_4_4} == OF_4_4.keys()
        shown = configs_by_name(await describe(node, GROUP, "g", *OF_4_4)).keys()
        assert OF_4_4.keys() - shown == {
            *OFFLOADING,
            "streams.acceptable.recovery.lag", "streams.num.warmup.replicas", "streams.task.offset.interval.ms",
        }, "a broker shows these only where they were set"  # fmt: skip
        assert await alter(node, GROUP, "g", *((name, SET, value) for name, value in OF_4_4.items())) == (0, None)

    async def second(node: Node) -> None:
        found = configs_by_name(await describe(node, GROUP, "g", *OF_4_4))
        assert {name: (value, source) for name, (value, source, _) in found.items()} == {
            name: (value, 8) for name, value in OF_4_4.items()
        }

    with_node(tmp_path, first)
    with_node(tmp_path, second)
    kept = json.loads((tmp_path / SETTINGS_FILE).read_text())
    assert kept["groups"] == {"g": OF_4_4}


@pytest.mark.parametrize("name", [name for name, one in GROUP_SETTINGS.items() if one.highest is not None])
def test_the_limits_are_taken_and_what_is_beyond_is_not(tmp_path: Path, name: str) -> None:
    one = GROUP_SETTINGS[name]
    assert one.highest is not None

    async def use(node: Node) -> None:
        for value in (one.highest, one.lowest if one.lowest is not None else 0):
            assert await alter(node, GROUP, "g", (name, SET, str(value))) == (0, None)
        assert (await alter(node, GROUP, "g", (name, SET, str(one.highest + 1))))[0] == 40

    with_node(tmp_path, use)


def test_members_are_told_and_timed_by_the_settings_of_their_group(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def beat(node: Node, group_id: str) -> int:
        tree = {
            "group_id": group_id, "member_id": "AAAAAAAAAAAAAAAAAAAAAA", "member_epoch": 0, "instance_id": None,
            "rack_id": None, "rebalance_timeout": 30_000, "subscribed_topic_names": ("t",),
            "subscribed_topic_regex": None, "server_assignor": None, "topic_partitions": (),
        }  # fmt: skip
        answer = await call(node, "consumer_group_heartbeat", 1, tree)
        assert answer.error_code == 0
        return int(answer.heartbeat_interval)

    async def use(node: Node) -> None:
        await create(node, {"name": "t"})
        await alter(node, GROUP, "g", (BEAT, SET, "7000"), (SESSION, SET, "60000"))
        sessions: dict[str, int] = {}
        keep = GroupTimers.set

        def watch(timers: GroupTimers, group_id: str, name: str, delay_ms: int | None) -> None:
            if name.startswith(MEMBER_TIMER) and delay_ms is not None:
                sessions.setdefault(group_id, delay_ms)
            keep(timers, group_id, name, delay_ms)

        monkeypatch.setattr(GroupTimers, "set", watch)
        assert [await beat(node, one) for one in ("g", "h")] == [7000, 5000]
        assert sessions == {"g": 60_000, "h": 45_000}

    with_node(tmp_path, use)


def test_settings_that_the_next_start_could_not_read_are_refused(tmp_path: Path) -> None:
    async def use(node: Node) -> None:
        node.dynamic._kept = {GROUP: {"x" * 250: {SESSION: "5" * MAX_FILE_BYTES}}, CLIENT_METRICS: {}}
        assert (await alter(node, GROUP, "g", (SESSION, SET, "50000")))[0] == 44
        assert (await alter(node, BROKER, "", ("log.retention.ms", SET, "5")))[0] == 44
        assert node.config["log.retention.ms"] is None and not node.dynamic.of_group("g")

    with_node(tmp_path, use)


def test_items_that_two_clients_append_to_a_list_at_once_are_both_in_it(tmp_path: Path) -> None:
    async def use(node: Node) -> None:
        await node.topics.create("t", 2)
        name, items = "leader.replication.throttled.replicas", ("0:1", "1:1")
        answers = await asyncio.gather(*(alter(node, TOPIC, "t", (name, APPEND, one)) for one in items))
        assert answers == [(0, None)] * 2
        assert node.topics.own_settings("t")[name].split(",") == list(items)

    with_node(tmp_path, use)


def test_an_item_that_is_appended_twice_is_in_the_list_once(tmp_path: Path) -> None:
    async def use(node: Node) -> None:
        assert await alter(node, BROKER, "", ("log.cleanup.policy", APPEND, "compact,compact,delete")) == (0, None)
        assert node.dynamic.of("")["log.cleanup.policy"] == "delete,compact"

    with_node(tmp_path, use)


def test_settings_of_a_group_are_for_those_who_may(tmp_path: Path) -> None:
    async def use(node: Node) -> None:
        user = connection_for("User:u")
        assert (await describe(node, GROUP, "g", connection=user)).error_code == 30
        assert (await alter(node, GROUP, "g", (SESSION, SET, "50000"), connection=user))[0] == 30
        for kind in (LOGGER, CLIENT_METRICS):
            assert (await describe(node, kind, "1", connection=user)).error_code == 31
        assert (await alter(node, LOGGER, "1", ("root", SET, "INFO"), connection=user))[0] == 31
        acls = tuple(
            allow("g", one, kind=ResourceType.GROUP) for one in (Operation.DESCRIBE_CONFIGS, Operation.ALTER_CONFIGS)
        )
        await node.credentials.file.change(node.run, lambda state: state._replace(acls=acls))
        assert (await describe(node, GROUP, "g", connection=user)).error_code == 0
        assert (await alter(node, GROUP, "g", (SESSION, SET, "50000"), connection=user))[0] == 0
        assert (await describe(node, GROUP, "h", connection=user)).error_code == 30

    with_node(tmp_path, use, authorizer_class_name="x", super_users="User:root")


@pytest.fixture
def logger() -> Iterator[logging.Logger]:
    one = logging.getLogger("kafkalog.for.this.test")
    before = logging.root.level
    yield one
    one.setLevel(logging.NOTSET)
    logging.root.setLevel(before)


def test_levels_of_loggers_are_shown_and_set(tmp_path: Path, logger: logging.Logger) -> None:
    """KIP-412."""

    async def use(node: Node) -> None:
        logging.root.setLevel(logging.WARNING)
        row = await describe(node, LOGGER, "1")
        assert row.error_code == 0 and len(row.configs) > 5
        assert configs_by_name(row)["root"] == configs_by_name(row)[logger.name] == ("WARN", 6, [])
        row = await describe(node, LOGGER, "1", logger.name, "no.such", "root")
        assert sorted(configs_by_name(row)) == [logger.name, "root"]
        assert {(one.config_type, one.read_only) for one in row.configs} == {(0, False)}
        for level, number in (("TRACE", 5), ("DEBUG", 10), ("FATAL", 50)):
            assert await alter(node, LOGGER, "1", (logger.name, SET, level)) == (0, None)
            assert configs_by_name(await describe(node, LOGGER, "1", logger.name))[logger.name][0] == level
            assert logger.level == number
        assert await alter(node, LOGGER, "1", (logger.name, SET, "INFO"), validate_only=True) == (0, None)
        assert logger.level == logging.CRITICAL
        assert await alter(node, LOGGER, "1", (logger.name, DELETE, None), ("root", SET, "ERROR")) == (0, None)
        assert logger.getEffectiveLevel() == logging.ERROR

    with_node(tmp_path, use)


@pytest.mark.parametrize(
    ("name", "how", "value", "code", "words"),
    [
        ("root", SET, "LOUD", 40, "Cannot set the log level of root to LOUD as it is not a supported log level. Valid "
         "log levels are DEBUG, ERROR, FATAL, INFO, TRACE, WARN"),
        ("no.such", SET, "INFO", 40, "Logger no.such does not exist!"),
        ("root", APPEND, "INFO", 42, "APPEND operation is not allowed for the BROKER_LOGGER resource"),
        ("root", DELETE, None, 42, "Removing the log level of the root logger is not allowed"),
        ("root", 9, "INFO", 42, "Unknown operation type 9"),
    ],
)  # fmt: skip
def test_what_a_logger_does_not_take(
    tmp_path: Path, logger: logging.Logger, name: str, how: int, value: str | None, code: int, words: str
) -> None:
    async def use(node: Node) -> None:
        changes = [(logger.name, SET, "DEBUG"), (name, how, value)]
        assert await alter(node, LOGGER, "1", *changes) == (code, words)
        assert logger.level == logging.NOTSET  # all or nothing

    with_node(tmp_path, use)


def test_loggers_are_those_of_this_node(tmp_path: Path) -> None:
    async def use(node: Node) -> None:
        for name, shown, altered in (
            ("", "Broker id must not be empty", "Node id must be an integer, but it is: "),
            ("2", "Unexpected broker id, expected 1 but received 2", "Unexpected node id. Expected 1, but received 2"),
            ("x", "Broker id must be an integer, but it is: x", "Node id must be an integer, but it is: x"),
        ):
            row = await describe(node, LOGGER, name)
            assert (row.error_code, row.error_message) == (42, shown)
            assert await alter(node, LOGGER, name, ("root", SET, "INFO")) == (42, altered)
        assert await set_all(node, LOGGER, "1", {"root": "INFO"}) == (42, "Unknown resource type 8")

    with_node(tmp_path, use)


def test_subscriptions_to_metrics_of_clients_are_kept(tmp_path: Path) -> None:
    """tests/interop/test_kafka44_interop.py compares the answers with a broker's."""

    async def first(node: Node) -> None:
        row = await describe(node, CLIENT_METRICS, "m")
        defaults = {"interval.ms": ("300000", 5, []), "match": ("", 5, []), "metrics": ("", 5, [])}
        assert row.error_code == 0 and configs_by_name(row) == defaults
        given = (("metrics", SET, " a, b,a"), ("interval.ms", SET, "\x1f1000 "))
        assert await alter(node, CLIENT_METRICS, "m", *given) == (0, None)
        assert await alter(node, CLIENT_METRICS, "other", ("metrics", SET, "a"), validate_only=True) == (0, None)
        for change, code in (
            (("interval.ms", SET, "99"), 42), (("interval.ms", SET, "x"), 40), (("nope", SET, "1"), 42),
            (("match", SET, "client_id=["), 40), (("match", SET, "client_id=="), 40), (("metrics", APPEND, "c"), 40),
            (("interval.ms", SET, "\x1f99 "), 42), (("interval.ms", SET, "\xa0200"), 40),
            (("metrics", SET, "a,,b"), 40),
        ):  # fmt: skip
            assert (await alter(node, CLIENT_METRICS, "m", change))[0] == code, change
        assert await alter(node, CLIENT_METRICS, "m", ("match", SET, r"client_id=\p{L}(?<x>a)*+=")) == (0, None)
        assert node.dynamic.names_of(CLIENT_METRICS) == ["m"] and not node.dynamic.names_of(GROUP)

    async def again(node: Node) -> None:
        found = configs_by_name(await describe(node, CLIENT_METRICS, "m"))
        assert found["metrics"] == ("a,b", 7, [("metrics", "a,b", 7)]) and found["interval.ms"][0] == "1000"
        assert [*configs_by_name(await describe(node, CLIENT_METRICS, "m", "match"))] == ["match"]
        for version, tree in ((0, {}), (1, {"resource_types": [CLIENT_METRICS]})):
            listed = await call(node, "list_config_resources", version, tree)
            assert [one.resource_name for one in listed.config_resources] == ["m"]
        gone = [(name, DELETE, None) for name in found]
        assert await alter(node, CLIENT_METRICS, "m", *gone) == (0, None)
        assert node.dynamic.names_of(CLIENT_METRICS) == []

    with_node(tmp_path, first)
    with_node(tmp_path, again)


@pytest.mark.parametrize("kind", [0, 1, 3, 64])
def test_kinds_of_resources_that_are_none(tmp_path: Path, kind: int) -> None:
    async def use(node: Node) -> None:
        row = await describe(node, kind, "x")
        assert row.error_code == 42 and row.error_message.startswith(MALFORMED)
        assert await alter(node, kind, "x", ("a", SET, "b")) == (42, f"Unknown resource type {kind}")

    with_node(tmp_path, use)


@pytest.mark.parametrize("given", [None, 2])
def test_the_least_replicas_in_sync_are_kept_for_the_cluster(tmp_path: Path, given: int | None) -> None:
    """KIP-966: a new cluster of the reference has a value for all nodes, which is never removed."""
    name, value = "min.insync.replicas", str(given or 1)

    async def use(node: Node) -> None:
        await create(node, {"name": "t"})
        static = [] if given is None else [(name, value, 4)]
        all_of = [(name, value, 3), *static, (name, "1", 5)]
        for kind, resource in ((TOPIC, "t"), (BROKER, "1")):
            assert configs_by_name(await describe(node, kind, resource, name))[name] == (value, 3, all_of)
        assert configs_by_name(await describe(node, BROKER, "")) == {name: (value, 3, [(name, value, 3)])}
        broker = (40, "Broker-level min.insync.replicas cannot be altered while ELR is enabled.")
        cluster = (40, "Cluster-level min.insync.replicas cannot be removed while ELR is enabled.")
        assert await alter(node, BROKER, "1", (name, SET, "2")) == broker
        assert await alter(node, BROKER, "1", (name, DELETE, None)) == broker
        assert await alter(node, BROKER, "", (name, DELETE, None)) == cluster
        assert await set_all(node, BROKER, "", {"log.cleaner.backoff.ms": "15001"}) == cluster
        assert await set_all(node, BROKER, "1", {"log.cleaner.backoff.ms": "15001"}) == (0, None)
        assert await alter(node, BROKER, "", (name, SET, "3")) == (0, None)
        assert configs_by_name(await describe(node, TOPIC, "t", name))[name][0] == "3"

    with_node(tmp_path, use, **({} if given is None else {"min_insync_replicas": given}))
