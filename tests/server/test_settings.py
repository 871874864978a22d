"""The settings of a server and of groups beside those of Kafka 4.3.1, row by row.

tests/data/server_configs.tsv is what the definitions of 4.3.1 print: name, type, default, range.
"""

from __future__ import annotations

import csv
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from kafkalog.config.keys import MAX_LONG, Key, parse_value
from kafkalog.errors import ConfigError
from kafkalog.server.settings.config import ServerConfig
from kafkalog.server.settings.groups import GROUP_SETTINGS
from kafkalog.server.settings.table import SERVER_CONFIGS


class Row(NamedTuple):
    """A line of the table of facts."""

    name: str
    type: str
    default: str
    valid: str


TABLE = Path(__file__).parent.parent / "data" / "server_configs.tsv"
ROWS = [Row(**line) for line in csv.DictReader(TABLE.read_text(encoding="utf-8").splitlines(), delimiter="\t")]
KEYS = {key.name: key for key in (*SERVER_CONFIGS, *(one.key for one in GROUP_SETTINGS.values()))}
OTHER_DEFAULTS = {
    "group.coordinator.rebalance.protocols": ("classic", "consumer"),
    "listeners": ("PLAINTEXT://localhost:9092",),
    "queued.max.request.bytes": 256 << 20,
    "replica.socket.receive.buffer.bytes": -1,
    "sasl.enabled.mechanisms": ("PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512"),
    "sasl.mechanism.inter.broker.protocol": None,
    "socket.listen.backlog.size": 1024,
    "socket.receive.buffer.bytes": -1,
    "socket.send.buffer.bytes": -1,
    "ssl.keystore.type": "PEM",
    "ssl.truststore.type": "PEM",
}
"""The module's docstring says why."""
OWN = {
    "allow.everyone.if.no.acl.found": (False, None),
    "follower.replication.throttled.rate": (MAX_LONG, 0),
    "kafkalog.groups.members.max.bytes": (64 << 20, 0),
    "kafkalog.handover.timeout.ms": (10_000, 1),
    "kafkalog.http.listener": (None, None),
    "kafkalog.on.damage": ("recover", None),
    "kafkalog.workers": (1, 1),
    "kafkalog.queued.max.response.bytes": (64 << 20, -1),
    "kafkalog.replicas": ((), None),
    "kafkalog.replicas.jaas.config": (None, None),
    "leader.replication.throttled.rate": (MAX_LONG, 0),
    "super.users": ("", None),
    # since 4.4
    "errors.deadletterqueue.auto.create.topics.enable": (False, None),
    "errors.deadletterqueue.copy.record.enable": (False, None),
    "errors.deadletterqueue.topic.name": ("", None),
    "errors.deadletterqueue.topic.name.prefix": ("dlq.", None),
    "streams.acceptable.recovery.lag": (10_000, 0),
    "streams.assignor.name": ("sticky", None),
    "streams.num.warmup.replicas": (2, 0),
    "streams.rack.aware.assignment.tags": ((), None),
    "streams.task.offset.interval.ms": (60_000, 1),
    **{f"{kind}.assignor.offload.enable": (True, None) for kind in ("consumer", "share", "streams")},
    # of a broker (tests/data/broker-settings.tsv), but not among its definitions in tests/data/server_configs.tsv
    "controlled.shutdown.enable": (True, None),
}
"""(Default, lowest value) of those that no definition of a broker of 4.3.1 has."""


def default_of(row: Row) -> Any:
    match row.type:
        case "bool":
            return row.default == "true"
        case "list":
            return tuple(row.default.split(", ")) if row.default not in ("", "REQUIRED") else ()
        case "int" | "long":
            return int(row.default)
    if row.name in ("listener.security.protocol.map", "max.connections.per.ip.overrides"):  # of parts here
        return tuple(filter(None, row.default.split(",")))
    return None if row.default == "null" else row.default


def test_every_setting_is_one_of_the_reference_or_our_own() -> None:
    assert {row.name for row in ROWS} | OWN.keys() == KEYS.keys()
    assert len(ROWS) == 138
    assert all(key.doc for key in KEYS.values())


@pytest.mark.parametrize("row", ROWS, ids=lambda row: row.name)
def test_types_and_defaults_are_those_of_the_reference(row: Row) -> None:
    key = KEYS[row.name]
    assert key.kind == row.type or key.kind == "list"
    assert key.default == OTHER_DEFAULTS.get(row.name, default_of(row))


@pytest.mark.parametrize("name", OWN)
def test_defaults_of_our_own_settings(name: str) -> None:
    assert KEYS[name].default == OWN[name][0]


def accepts_value(key: Key, value: int) -> bool:
    try:
        assert parse_value(key, str(value)) == value
    except ConfigError as error:
        assert str(error).startswith(f"{key.name}='{value}' ")
        return False
    return True


RANGES = {row.name: tuple(map(int, row.valid.split(" to "))) for row in ROWS if " to " in row.valid}
LOWEST = {row.name: int(row.valid[3:]) for row in ROWS if row.valid.startswith(">= ")} | {
    "socket.receive.buffer.bytes": -1,
    "socket.send.buffer.bytes": -1,
    "replica.socket.receive.buffer.bytes": -1,
    "sasl.server.max.receive.size": 1,
    **{name: lowest for name, (_, lowest) in OWN.items() if lowest is not None},
    **{name: limits[0] for name, limits in RANGES.items()},
}  # fmt: skip


@pytest.mark.parametrize("name", LOWEST)
def test_the_lowest_value_is_taken_and_none_below_it(name: str) -> None:
    assert [accepts_value(KEYS[name], LOWEST[name] + more) for more in (-1, 0)] == [False, True]


@pytest.mark.parametrize(
    ("name", "highest"),
    [
        ("offsets.topic.compression.codec", 4), ("kafkalog.handover.timeout.ms", 20_000),
        *((name, limits[1]) for name, limits in RANGES.items()),
    ],
)  # fmt: skip
def test_the_highest_value_is_taken_and_none_above_it(name: str, highest: int) -> None:
    assert [accepts_value(KEYS[name], value) for value in (highest, highest + 1)] == [True, False]


@pytest.mark.parametrize(
    ("name", "taken"),
    [
        ("ssl.client.auth", ["none", "requested", "required"]),
        ("security.inter.broker.protocol", ["PLAINTEXT", "SSL", "SASL_PLAINTEXT", "SASL_SSL"]),
        ("sasl.mechanism.inter.broker.protocol", ["PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512"]),
        ("sasl.enabled.mechanisms", ["PLAIN", "SCRAM-SHA-256, SCRAM-SHA-512"]),
        ("kafkalog.on.damage", ["recover", "refuse"]),
        ("share.isolation.level", ["read_committed", "read_uncommitted"]),
        ("share.auto.offset.reset", ["earliest", "latest", "by_duration:P1DT2H3M4.5S", "by_duration:pt1s",
                                     "by_duration:PT1.S"]),
        ("ssl.keystore.type", ["PEM"]),
        ("ssl.truststore.type", ["PEM"]),
    ],
)
def test_of_names_those_that_are_known_are_taken(name: str, taken: list[str]) -> None:
    for value in taken:
        parse_value(KEYS[name], value)
    for value in ("other", "by_duration:P", "by_duration:PT"):
        with pytest.raises(ConfigError, match=name):
            parse_value(KEYS[name], value)


@pytest.mark.parametrize("name", ["replica.socket.timeout.ms", "replica.lag.time.max.ms"])
def test_a_follower_may_not_wait_at_its_leader_for_longer_than_it_may_be_late(name: str) -> None:
    assert ServerConfig({"replica.fetch.wait.max.ms": 400, name: 400})[name] == 400
    with pytest.raises(ConfigError, match=f"replica.fetch.wait.max.ms=401 is above {name}=400"):
        ServerConfig({"replica.fetch.wait.max.ms": 401, name: 400})


def test_the_shortest_session_may_be_as_long_as_the_longest_and_no_longer() -> None:
    names = ("group.min.session.timeout.ms", "group.max.session.timeout.ms")
    assert ServerConfig(dict.fromkeys(names, 9000))[names[0]] == 9000
    with pytest.raises(ConfigError, match=f"{names[0]}=9001 is above {names[1]}"):
        ServerConfig({names[0]: 9001, names[1]: 9000})


SHORTEST_SESSION = {"group.consumer.min.session.timeout.ms": 1, "group.share.min.session.timeout.ms": 1}


@pytest.mark.parametrize(("given", "words"), [
    ({"group.consumer.session.timeout.ms": 44_999}, "group.consumer.min.session.timeout.ms=45000 is above"),
    ({"group.consumer.session.timeout.ms": 60_001}, "is above group.consumer.max.session.timeout.ms=60000"),
    ({"group.consumer.min.heartbeat.interval.ms": 15_001}, "15001 is above group.consumer.heartbeat.interval.ms=5000"),
    ({"group.share.max.heartbeat.interval.ms": 4999}, "5000 is above group.share.max.heartbeat.interval.ms=4999"),
    ({"group.share.delivery.count.limit": 9, "group.share.max.delivery.count.limit": 8}, "=9 is above"),
    ({"group.share.partition.max.record.locks": 4001}, "4001 is above"),
    ({"group.share.record.lock.duration.ms": 14_999}, "=15000 is above group.share.record.lock.duration.ms=14999"),
    ({"group.consumer.session.timeout.ms": 5000, **SHORTEST_SESSION}, "interval.ms=5000 is not below"),
    ({"group.share.session.timeout.ms": 5000, **SHORTEST_SESSION}, "interval.ms=5000 is not below"),
])
def test_settings_of_groups_that_contradict_each_other_are_refused(given: dict[str, int], words: str) -> None:
    """As by a broker, which does not start with them."""
    with pytest.raises(ConfigError, match=words):
        ServerConfig(given)


@pytest.mark.parametrize(("name", "taken", "refused"), [
    ("group.consumer.assignors", ("uniform", "range", "range,uniform", "range, range"), ("", "sticky", "uniform,x")),
    ("group.coordinator.rebalance.protocols", ("classic", "share,classic"), ("", "consumer", "classic,Consumer")),
])
def test_names_of_assignors_and_protocols_are_those_that_there_are(
    name: str, taken: tuple[str, ...], refused: tuple[str, ...]
) -> None:
    for value in taken:
        ServerConfig({name: value})
    for value in refused:
        with pytest.raises(ConfigError, match=name):
            ServerConfig({name: value})
