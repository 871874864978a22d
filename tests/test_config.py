"""The topic configurations: every row's type, default and range edges, and the derived values."""

import pickle
import warnings
from typing import Any

import pytest

from kafkalog.config.keys import MAX_INT, Key, parse_value, value_text
from kafkalog.config.topic import CONFIGS, LogConfig, key_for
from kafkalog.errors import ConfigError, UnknownConfig

INT, LONG = 2**31 - 1, 2**63 - 1
DAY = 86_400_000

# name: (default, accepted, refused); ranges as the 4.3.1 definitions print them
TABLE: dict[str, tuple[Any, tuple[Any, ...], tuple[Any, ...]]] = {
    "cleanup.policy": (
        frozenset({"delete"}),
        ("", "delete", "compact", "compact,delete", "delete, compact", "delete,delete", ["compact"]),
        ("Delete", "none", "delete,", ",", "compact,delete,x", 5),
    ),
    "compression.gzip.level": (-1, (-1, 1, 9), (-2, 0, 10)),
    "compression.lz4.level": (9, (1, 17), (0, 18, -1)),
    "compression.type": (
        "producer",
        ("uncompressed", "zstd", "lz4", "snappy", "gzip", "producer"),
        ("none", "GZIP", "", "brotli", 1),
    ),
    "compression.zstd.level": (3, (-131072, 22, 0), (-131073, 23)),
    "delete.retention.ms": (DAY, (0, LONG), (-1, LONG + 1)),
    "errors.deadletterqueue.group.enable": (False, (True, "false"), ("no", 0)),
    "file.delete.delay.ms": (60_000, (0, LONG), (-1, LONG + 1)),
    "flush.messages": (LONG, (1, LONG), (0, -1)),
    "flush.ms": (LONG, (0, LONG), (-1,)),
    "follower.replication.throttled.replicas": ((), ("", "*", "0:1", "0:1,1:12", "0:1,", "*,"), ("a:1", "1", "*,0:1")),
    "index.interval.bytes": (4096, (0, INT), (-1, INT + 1)),
    "internal.segment.bytes": (None, (-1, 0, 1, INT, -INT - 1), (INT + 1, -INT - 2)),
    "leader.replication.throttled.replicas": ((), ("", "*", "0:1", "0:1,1:12", "0:1,", "*,"), ("a:1", "1", "*,0:1")),
    "local.retention.bytes": (-2, (-2, LONG), (-3,)),
    "local.retention.ms": (-2, (-2, LONG), (-3,)),
    "max.compaction.lag.ms": (LONG, (1, LONG), (0,)),
    "max.decompressed.message.bytes": (INT - 8, (1, INT - 8), (0, INT - 7)),
    "max.message.bytes": (1_048_588, (0, INT), (-1, INT + 1)),
    "message.timestamp.after.max.ms": (3_600_000, (0, LONG), (-1,)),
    "message.timestamp.before.max.ms": (LONG, (0, LONG), (-1,)),
    "message.timestamp.type": ("CreateTime", ("CreateTime", "LogAppendTime"), ("createtime", "", "none")),
    "min.cleanable.dirty.ratio": (0.5, (0, 1, 0.0, 1.0, "0.25"), (-0.1, 1.1, "nan", "half", True)),
    "min.compaction.lag.ms": (0, (0, LONG), (-1,)),
    "min.insync.replicas": (1, (1, INT), (0,)),
    "preallocate": (False, (True, False, "true", "False"), ("yes", 1, "")),
    "remote.copy.lag.bytes": (-1, (-1, 0, LONG), (-2,)),
    "remote.copy.lag.ms": (0, (-1, 0, LONG), (-2,)),
    "remote.log.copy.disable": (False, (True, "false"), ("no", 0)),
    "remote.log.delete.on.disable": (False, (True, "false"), ("no", 0)),
    "remote.storage.enable": (False, (False, "false"), (True, "no", 0)),
    "retention.bytes": (-1, (-1, -5, 0, LONG, -LONG - 1), (LONG + 1, -LONG - 2)),
    "retention.ms": (7 * DAY, (-1, 0, LONG), (-2,)),
    "segment.bytes": (1 << 30, (1 << 20, INT), (13, 0, -1, INT + 1)),
    "segment.index.bytes": (10_485_760, (4, INT), (3, 0, INT + 1)),
    "segment.jitter.ms": (0, (0, LONG), (-1,)),
    "segment.ms": (7 * DAY, (1, LONG), (0, -1)),
    "unclean.leader.election.enable": (False, (True, "false"), ("no", 0)),
}


def find_row(name: str) -> Key:
    return next(key for key in CONFIGS if key.name == name)


def test_the_table_has_exactly_the_38_topic_configurations() -> None:
    assert [key.name for key in CONFIGS] == sorted(TABLE)
    assert len(CONFIGS) == 38
    assert all(key.doc for key in CONFIGS)


@pytest.mark.parametrize("name", TABLE)
def test_default(name: str) -> None:
    assert getattr(LogConfig(), find_row(name).attribute) == TABLE[name][0]


@pytest.mark.parametrize(("name", "value"), [(name, value) for name in TABLE for value in TABLE[name][1]])
def test_accepted(name: str, value: Any) -> None:
    """Each accepted value works as given and as text, by dotted name and by attribute, and comes back."""
    other = {"max.compaction.lag.ms": {"min.compaction.lag.ms": 0}}.get(name, {})
    if name == "min.compaction.lag.ms":
        other = {"max.compaction.lag.ms": LONG}
    config = LogConfig.from_mapping({name: value, **other})
    got = getattr(config, find_row(name).attribute)
    if not isinstance(value, str | list):
        assert got == value
    text = config.overrides()[name]
    assert LogConfig.from_mapping({name: f" {text} ", **other}) == config
    assert LogConfig.from_mapping({find_row(name).attribute: value}, **other) == config


@pytest.mark.parametrize(("name", "value"), [(name, value) for name in TABLE for value in TABLE[name][2]])
def test_refused(name: str, value: Any) -> None:
    for given in (value, str(value)) if not isinstance(value, str | list) and value != 1 else (value,):
        if isinstance(value, bool) and given is not value:
            continue
        with pytest.raises(ConfigError) as caught:
            LogConfig.from_mapping({name: given})
        assert name in str(caught.value)


@pytest.mark.parametrize("key", [key for key in CONFIGS if key.kind in ("int", "long")], ids=lambda key: key.name)
@pytest.mark.parametrize("value", ["", "1.5", "0x10", "ten", "1 0", "٣", 1.5, True, b"5", [1]])
def test_whole_numbers_only(key: Key, value: Any) -> None:
    with pytest.raises(ConfigError, match=key.name):
        LogConfig.from_mapping({key.name: value})


@pytest.mark.parametrize("size", [14, (1 << 20) - 1])
def test_a_small_segment_is_accepted_with_a_warning(size: int) -> None:
    with pytest.warns(UserWarning, match="below 1 MiB"):
        assert LogConfig(segment_bytes=size).segment_size == size


@pytest.mark.parametrize(("text", "value"), [
    ("5\x00", 5), ("\x1f 5\v", 5), ("0" * 40 + "5", 5), ("+5", 5), ("\xa05", None), ("5\u3000", None),
    ("5\x85", None),
])
def test_what_a_broker_removes_around_a_value_is_removed(text: str, value: int | None) -> None:
    """Up to the space, control characters too; Python's other blanks are part of the value."""
    if value is not None:
        assert LogConfig.from_mapping({"segment.ms": text}).segment_ms == value
        return
    with pytest.raises(ConfigError, match="give a whole number"):
        LogConfig.from_mapping({"segment.ms": text})


@pytest.mark.parametrize(("text", "value"), [
    (".5", 0.5), ("1.", 1.0), ("5e-1", 0.5), ("0.5f", 0.5), ("1D", 1.0), ("+0.5", 0.5), ("1e-400", 0.0),
    *((text, None) for text in ("0_1", "inf", "nan", "infinity", "1e", "1e-1_0", ".", "1 0", "0,5", "0.5ff")),
])
def test_numbers_with_a_point_are_written_as_in_java(text: str, value: float | None) -> None:
    if value is not None:
        assert LogConfig.from_mapping({"min.cleanable.dirty.ratio": text}).min_cleanable_dirty_ratio == value
        return
    with pytest.raises(ConfigError, match="give a number"):
        LogConfig.from_mapping({"min.cleanable.dirty.ratio": text})


def test_a_long_text_that_is_no_number_is_refused_in_one_pass() -> None:
    for text in ("1" * 300_000 + "x", "0" * 300_000 + "x", "." + "1" * 300_000 + "e"):
        for name in ("min.cleanable.dirty.ratio", "segment.ms"):
            with pytest.raises(ConfigError, match=name):
                LogConfig.from_mapping({name: text})


@pytest.mark.parametrize(("value", "text"), [
    (0.5, "0.5"), (0.001, "0.001"), (0.0001, "1.0E-4"), (9999999.0, "9999999.0"), (1e7, "1.0E7"), (-0.0, "-0.0"),
    (123456789.125, "1.23456789125E8"), (-1.5e300, "-1.5E300"), (float("inf"), "Infinity"),
    (float("-inf"), "-Infinity"),
    (5e-324, "5.0E-324"), (1.7976931348623157e308, "1.7976931348623157E308"), (float("nan"), "NaN"),
])
def test_text_of_numbers_with_a_point_is_that_of_java_and_is_read_again(value: float, text: str) -> None:
    key = Key("a", "double", 0.5, None, "")
    assert value_text(value) == text
    assert value_text(parse_value(key, text)) == text


def test_internal_segment_bytes_replaces_segment_bytes_without_a_warning() -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert LogConfig(internal_segment_bytes=1, segment_bytes=1 << 20).segment_size == 1
        assert LogConfig(segment_bytes=1 << 20).segment_size == 1 << 20


def test_max_segment_age() -> None:
    assert LogConfig(segment_ms=100, max_compaction_lag_ms=10).max_segment_age_ms == 100
    assert LogConfig(segment_ms=100, max_compaction_lag_ms=10, cleanup_policy="compact").max_segment_age_ms == 10
    assert LogConfig(segment_ms=5, max_compaction_lag_ms=10, cleanup_policy="compact").max_segment_age_ms == 5


@pytest.mark.parametrize(
    ("policy", "compact", "delete"),
    [("compact", True, False), ("delete", False, True), ("compact,delete", True, True), ("", False, False)],
)
def test_policy_flags(policy: str, compact: bool, delete: bool) -> None:
    config = LogConfig(cleanup_policy=policy)
    assert (config.compact, config.delete) == (compact, delete)


def test_init_file_size() -> None:
    assert LogConfig(segment_bytes=1 << 20).init_file_size == 0
    assert LogConfig(segment_bytes=1 << 20, preallocate=True).init_file_size == 1 << 20


def test_random_jitter_stays_below_the_smaller_of_jitter_and_age() -> None:
    config = LogConfig(segment_jitter_ms=1000, segment_ms=10)
    assert {config.random_jitter_ms() for _ in range(500)} == set(range(10))
    assert LogConfig(segment_jitter_ms=0).random_jitter_ms() == 0
    assert LogConfig(segment_jitter_ms=1, segment_ms=10).random_jitter_ms() == 0


def test_lags_are_checked_against_each_other() -> None:
    with pytest.raises(ConfigError, match=r"min\.compaction\.lag\.ms \(11\).*max\.compaction\.lag\.ms \(10\)"):
        LogConfig(min_compaction_lag_ms=11, max_compaction_lag_ms=10)
    LogConfig(min_compaction_lag_ms=10, max_compaction_lag_ms=10)


def test_retention_bytes_may_be_smaller_than_a_segment() -> None:
    assert LogConfig(retention_bytes=1).retention_bytes == 1


def test_an_unknown_name_lists_the_near_ones() -> None:
    for call in (lambda: LogConfig(segment_byte=1), lambda: LogConfig.from_mapping({"segment.byte": "1"})):
        with pytest.raises(UnknownConfig, match=r"did you mean segment\.bytes") as caught:
            call()
        assert isinstance(caught.value, TypeError)
    with pytest.raises(UnknownConfig, match="CONFIGS"):
        LogConfig(zzz=1)


def test_a_name_that_is_no_text_is_refused() -> None:
    for name in (5, None, b"segment.bytes"):
        with pytest.raises(UnknownConfig, match=r"unknown configuration (5|None|b'segment\.bytes')"):
            LogConfig.from_mapping({name: 1})  # type: ignore[dict-item]
        with pytest.raises(UnknownConfig):
            key_for(name)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    "name", ["message.format.version", "message.timestamp.difference.max.ms", "message.downconversion.enable"]
)
def test_what_went_with_4_0_is_refused(name: str) -> None:
    with pytest.raises(UnknownConfig, match=r"Kafka 4\.0"):
        LogConfig.from_mapping({name: "1"})


def test_replace_changes_a_copy_and_none_goes_back_to_the_default() -> None:
    old = LogConfig(segment_ms=5, retention_ms=6)
    new = old.replace(segment_ms=7)
    assert (old.segment_ms, new.segment_ms, new.retention_ms) == (5, 7, 6)
    assert new.replace(segment_ms=None).overrides() == {"retention.ms": "6"}


def test_overrides_round_trip() -> None:
    config = LogConfig(cleanup_policy=["delete", "compact"], preallocate=True, min_cleanable_dirty_ratio=0.25)
    assert config.overrides() == {
        "cleanup.policy": "delete,compact", "min.cleanable.dirty.ratio": "0.25", "preallocate": "true",
    }  # fmt: skip
    assert LogConfig.from_mapping(config.overrides()) == config
    assert pickle.loads(pickle.dumps(config)) == config
    assert repr(config).startswith("LogConfig(cleanup_policy=")
    assert hash(config) == hash(LogConfig.from_mapping(config.overrides()))
    assert config != LogConfig()


def test_it_does_not_change() -> None:
    config = LogConfig()
    with pytest.raises(AttributeError, match="replace"):
        config.segment_ms = 1
    with pytest.raises(AttributeError):
        del config.segment_ms


def test_attributes_are_declared_for_every_row() -> None:
    declared = LogConfig.__annotations__
    assert {key.attribute for key in CONFIGS} <= set(declared)
    assert MAX_INT == INT
