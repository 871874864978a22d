"""The settings of a store: every broker setting of Kafka 4.3.1, row by row, and what topics get from them.

tests/data/broker_configs.tsv is what the definitions of 4.3.1 print: name, type, default, range, may it change.
"""

import csv
import pickle
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from kafkalog.config.broker import BROKER_CONFIGS, REFUSED, SYNONYMS, BrokerConfig
from kafkalog.config.keys import MAX_INT, MAX_LONG, Key
from kafkalog.config.topic import CONFIGS, LogConfig
from kafkalog.errors import ConfigError, UnknownConfig

MINUTE, HOUR = 60_000, 3_600_000
EASED = {"default.replication.factor"}
"""Rows that take less than the reference: one copy is all that one machine can have."""


class Row(NamedTuple):
    """A line of the table of facts."""

    name: str
    type: str
    default: str
    valid: str
    dynamic: str


ROWS = [
    Row(**line)
    for line in csv.DictReader(
        (Path(__file__).parent / "data" / "broker_configs.tsv").read_text().splitlines(), delimiter="\t"
    )
]
ACCEPTED = [row for row in ROWS if row.name not in REFUSED]


def key_of(name: str) -> Key:
    return next(key for key in BROKER_CONFIGS if key.name == name)


def value_of(text: str, kind: str) -> Any:
    """A default as the table prints it."""
    if text == "unset" or text == "none, required":
        return None
    if kind == "bool":
        return text == "true"
    if kind == "list":
        return () if text == "empty" else frozenset(text.split(", "))
    return text if kind == "string" else float(text) if kind == "double" else MAX_LONG if "^" in text else int(text)


def edge_values(row: Row) -> tuple[list[Any], list[Any]]:
    """Values at the edges of a row's range: those it takes, and those it refuses."""
    low, high = (-MAX_LONG - 1, MAX_LONG) if row.type == "long" else (-MAX_INT - 1, MAX_INT)
    outside: list[Any] = [low - 1, high + 1, "1.5", "", "ten"] if row.type in ("int", "long") else []
    if row.type == "bool":
        return [True, "false"], ["yes", 1]
    if row.type in ("string", "list") and row.valid != "any":
        return row.valid.split(", "), ["none", row.valid.split(", ")[0].swapcase()]
    if row.type == "list":
        return ["", "/a", "/a,/b"], ["/a,"]
    if row.valid == "any":
        return [low, 0, high], outside
    if row.valid.startswith(">= "):
        least = int(row.valid[3:])
        return [least, high], [*outside, least - 1]
    span, _, extra = row.valid.partition(" or ")
    least, most = (int(text) for text in span.split(".."))
    return [least, most, *([int(extra)] if extra else [])], [*outside, least - 1 if not extra else 0, most + 1]


def test_every_row_is_accepted_or_refused_with_a_reason() -> None:
    assert len(ROWS) == 104
    names = {key.name for key in BROKER_CONFIGS}
    assert not names & set(REFUSED)
    assert names | set(REFUSED) == {row.name for row in ROWS}
    assert all(key.doc for key in BROKER_CONFIGS)
    assert [key.name for key in BROKER_CONFIGS] == sorted(names)


@pytest.mark.parametrize("row", ACCEPTED, ids=lambda row: row.name)
def test_type_default_and_whether_it_may_change(row: Row) -> None:
    key = key_of(row.name)
    assert key.kind == row.type
    assert getattr(BrokerConfig(), key.attribute) == value_of(row.default, row.type)
    assert key.dynamic is (row.dynamic == "yes")


# what contradicts another row by itself is shown below, in the tests of the rules
TOGETHER: dict[str, set[Any]] = {
    "log.flush.interval.ms": {-MAX_LONG - 1},
    "log.flush.scheduler.interval.ms": {-MAX_LONG - 1},
    "log.retention.ms": {0},
    "log.retention.minutes": {0},
    "log.retention.hours": {0},
    "log.roll.ms": {-MAX_LONG - 1, 0},
    "log.roll.jitter.ms": {-MAX_LONG - 1},
    "log.cleaner.dedupe.buffer.size": {-MAX_LONG - 1, 0},
    "log.cleaner.io.buffer.load.factor": {-MAX_INT - 1, 0},
    "log.cleaner.io.max.bytes.per.second": {0},
    "log.cleaner.threads": {0, MAX_INT},
}


@pytest.mark.parametrize("row", [row for row in ACCEPTED if row.name not in EASED], ids=lambda row: row.name)
def test_range(row: Row) -> None:
    """Edges of the range work by dotted name, by attribute and as text; what lies outside names the setting."""
    taken, refused = edge_values(row)
    for value in [value for value in taken if value not in TOGETHER.get(row.name, ())]:
        more = {"log.cleaner.max.compaction.lag.ms": MAX_LONG} if row.name.endswith("min.compaction.lag.ms") else {}
        config = BrokerConfig.from_mapping({row.name: value, **more})
        key = key_of(row.name)
        if row.type in ("int", "long", "bool") and not isinstance(value, str):
            assert getattr(config, key.attribute) == value
        assert BrokerConfig.from_mapping({key.attribute: config.overrides()[row.name], **more}) == config
    for value in [*refused, *TOGETHER.get(row.name, ())]:
        with pytest.raises(ConfigError, match=row.name.replace(".", r"\.")):
            BrokerConfig.from_mapping({row.name: value})


@pytest.mark.parametrize("name", REFUSED)
def test_what_has_no_meaning_here_is_refused_by_name(name: str) -> None:
    for given in (name, name.replace(".", "_")):
        with pytest.raises(UnknownConfig) as caught:
            BrokerConfig.from_mapping({given: "1"})
        assert name in str(caught.value)
        assert REFUSED[name] in str(caught.value)
    assert not hasattr(BrokerConfig(), name.replace(".", "_"))


def test_one_copy_is_all_there_can_be() -> None:
    assert BrokerConfig(default_replication_factor=1) == BrokerConfig()
    with pytest.raises(ConfigError, match="one copy"):
        BrokerConfig(default_replication_factor=3)


def test_an_unknown_name_lists_the_near_ones() -> None:
    with pytest.raises(UnknownConfig, match=r"did you mean log\.retention\.ms"):
        BrokerConfig(log_retention_mss=1)
    with pytest.raises(UnknownConfig, match="BROKER_CONFIGS"):
        BrokerConfig.from_mapping({"zzz": "1"})


# What topics get


def test_each_topic_setting_with_a_synonym_has_the_default_of_the_reference() -> None:
    """The 31 defaults that follow the broker are those of the topic table."""
    config = BrokerConfig().log_config()
    assert config == LogConfig()
    assert set(SYNONYMS) == {key.name for key in CONFIGS} - {
        "follower.replication.throttled.replicas", "internal.segment.bytes", "leader.replication.throttled.replicas",
        "errors.deadletterqueue.group.enable", "remote.log.copy.disable", "remote.log.delete.on.disable",
        "remote.storage.enable",
    }  # fmt: skip
    assert config.overrides() == {}


@pytest.mark.parametrize("name", sorted(name for name in SYNONYMS if name not in ("cleanup.policy",)))
def test_a_topic_follows_each_synonym(name: str) -> None:
    """The first synonym that is set decides; the topic's own setting wins over all."""
    topic = next(key for key in CONFIGS if key.name == name)
    first = key_of(SYNONYMS[name][0])
    own, other = {
        "compression.type": ("zstd", "lz4"),
        "message.timestamp.type": ("LogAppendTime", "CreateTime"),
        "min.cleanable.dirty.ratio": (0.25, 0.75),
        "preallocate": (True, False),
        "unclean.leader.election.enable": (True, False),
    }.get(name, (7, 8) if name != "segment.bytes" else (1 << 21, 1 << 22))
    broker = BrokerConfig.from_mapping({first.name: own})
    assert getattr(broker.log_config(), topic.attribute) == own
    assert getattr(broker.log_config({name: other}), topic.attribute) == other
    assert broker.log_config({name: other}).overrides() == {
        name: str(other).lower() if other in (True, False) else str(other)
    }


def test_policy_follows_the_broker() -> None:
    assert BrokerConfig(log_cleanup_policy="compact").log_config().compact
    assert BrokerConfig(log_cleanup_policy="compact").log_config({"cleanup.policy": "delete"}).delete


@pytest.mark.parametrize(
    ("settings", "expected"),
    [
        ({}, 168 * HOUR),
        ({"log.retention.minutes": 30}, 30 * MINUTE),
        ({"log.retention.hours": 1, "log.retention.minutes": 30}, 30 * MINUTE),
        ({"log.retention.hours": 1, "log.retention.minutes": 30, "log.retention.ms": 5}, 5),
        ({"log.retention.ms": -1}, -1),
        ({"log.retention.ms": -5}, -1),
        ({"log.retention.ms": -5, "log.retention.minutes": 30}, -1),
        ({"log.retention.minutes": -3}, -1),
        ({"log.retention.hours": -1}, -1),
        ({"log.retention.hours": MAX_INT}, MAX_INT * HOUR),
    ],
)
def test_retention_time_ms_over_minutes_over_hours(settings: dict[str, int], expected: int) -> None:
    assert BrokerConfig.from_mapping(settings).log_config().retention_ms == expected


def test_no_retention_at_all_is_refused_for_the_store_but_not_for_a_topic() -> None:
    for name in ("log.retention.ms", "log.retention.minutes", "log.retention.hours"):
        with pytest.raises(ConfigError, match=f"{name}=0"):
            BrokerConfig.from_mapping({name: 0})
    assert BrokerConfig().log_config({"retention.ms": 0}).retention_ms == 0


@pytest.mark.parametrize(
    ("settings", "segment_ms", "jitter_ms"),
    [
        ({}, 168 * HOUR, 0),
        ({"log.roll.hours": 2, "log.roll.jitter.hours": 1}, 2 * HOUR, HOUR),
        ({"log.roll.hours": 2, "log.roll.ms": 5, "log.roll.jitter.hours": 1, "log.roll.jitter.ms": 3}, 5, 3),
    ],
)
def test_rolling_ms_over_hours(settings: dict[str, int], segment_ms: int, jitter_ms: int) -> None:
    config = BrokerConfig.from_mapping(settings).log_config()
    assert (config.segment_ms, config.segment_jitter_ms) == (segment_ms, jitter_ms)


def test_flush_interval_over_the_flushers_period() -> None:
    assert BrokerConfig(log_flush_scheduler_interval_ms=9).log_config().flush_ms == 9
    config = BrokerConfig(log_flush_scheduler_interval_ms=9, log_flush_interval_ms=7)
    assert config.log_config().flush_ms == 7
    assert BrokerConfig(log_flush_scheduler_interval_ms=-1, log_flush_interval_ms=7).log_config().flush_ms == 7


def test_lags_are_checked_against_each_other_over_both_levels() -> None:
    with pytest.raises(ConfigError, match=r"min\.compaction\.lag\.ms \(11\)"):
        BrokerConfig(log_cleaner_min_compaction_lag_ms=11, log_cleaner_max_compaction_lag_ms=10)
    broker = BrokerConfig(log_cleaner_max_compaction_lag_ms=10)
    with pytest.raises(ConfigError, match=r"min\.compaction\.lag\.ms \(11\)"):
        broker.log_config({"min.compaction.lag.ms": 11})


# The cleaner


def test_each_cleaner_thread_has_more_than_a_mebibyte() -> None:
    """CLN-43: and there is at least one thread."""
    assert BrokerConfig(log_cleaner_threads=2, log_cleaner_dedupe_buffer_size=(2 << 20) + 2).log_cleaner_threads == 2
    with pytest.raises(ConfigError, match=r"dedupe\.buffer\.size=2097152 .*threads=2"):
        BrokerConfig(log_cleaner_threads=2, log_cleaner_dedupe_buffer_size=2 << 20)
    with pytest.raises(ConfigError, match=r"log\.cleaner\.threads=0"):
        BrokerConfig(log_cleaner_threads=0)


def test_cleaner_threads_change_by_half_or_double() -> None:
    """CLN-43: more or less at once is refused, and so is none."""
    five = BrokerConfig(log_cleaner_threads=5)
    for count in (2, 4, 5, 10):
        assert five.changed({"log.cleaner.threads": count}).log_cleaner_threads == count
    for count in (1, 11):
        with pytest.raises(ConfigError, match=f"from 5 to {count} in one step"):
            five.changed({"log.cleaner.threads": count})
    with pytest.raises(ConfigError, match=r"threads=0"):
        BrokerConfig().changed({"log.cleaner.threads": 0})


def test_a_new_io_buffer_takes_the_largest_batch() -> None:
    """CLN-43: the default does not, as in the reference; a change has to."""
    assert BrokerConfig().log_cleaner_io_buffer_size < BrokerConfig().message_max_bytes
    with pytest.raises(ConfigError, match=r"io\.buffer\.size=1048587"):
        BrokerConfig().changed({"log_cleaner_io_buffer_size": 1048587})
    assert BrokerConfig().changed({"log_cleaner_io_buffer_size": 1048588}).log_cleaner_io_buffer_size == 1048588
    assert BrokerConfig().changed({"log.cleaner.backoff.ms": 1}).log_cleaner_backoff_ms == 1


# Changing


def test_a_topic_follows_a_changed_default() -> None:
    """LOG-76: what the topic sets itself stays, the rest follows."""
    before = BrokerConfig(log_retention_ms=5, log_segment_bytes=1 << 20)
    after = before.changed({"log.retention.ms": 6, "log_segment_bytes": None})
    topic = {"segment.bytes": str(1 << 21)}
    assert before.log_config().retention_ms == 5
    assert after.log_config().retention_ms == 6
    assert after.log_config().segment_bytes == 1 << 30
    assert after.log_config(topic).segment_bytes == before.log_config(topic).segment_bytes == 1 << 21


@pytest.mark.parametrize("key", BROKER_CONFIGS, ids=lambda key: key.name)
def test_only_what_is_dynamic_changes_in_an_open_store(key: Key) -> None:
    if key.dynamic:
        assert BrokerConfig().changed({key.name: None}) == BrokerConfig()
    else:
        with pytest.raises(ConfigError, match=f"{key.name} cannot be changed while the store is open"):
            BrokerConfig().changed({key.attribute: None})


def test_a_configuration_of_a_topic_keeps_its_broker_when_copied() -> None:
    config = BrokerConfig(log_retention_ms=5).log_config({"segment.ms": "7"})
    assert config.replace(segment_ms=None).retention_ms == 5
    assert config.replace(retention_ms=9).replace(retention_ms=None) == config
    assert pickle.loads(pickle.dumps(config)) == config
    assert config != LogConfig(segment_ms=7)


def test_it_is_a_value() -> None:
    config = BrokerConfig(log_retention_minutes=30)
    assert config == BrokerConfig.from_mapping({"log.retention.minutes": " 30 "})
    assert hash(config) == hash(pickle.loads(pickle.dumps(config)))
    assert repr(config) == "BrokerConfig(log_retention_minutes='30')"
    assert config != BrokerConfig()
    with pytest.raises(AttributeError, match="replace"):
        config.num_partitions = 2
