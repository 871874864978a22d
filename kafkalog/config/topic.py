"""The 34 topic configurations of Kafka 4.3.1, and 4 of 4.4: names, types, defaults, ranges, derived values.

`CONFIGS` has one row per name; `LogConfig` holds a value for each as a plain attribute (dots become underscores).
Names, defaults and ranges are those of Kafka 4.3.1, with one exception: segment.bytes may be as low as 14, with a
warning below 1 MiB.
"""

from __future__ import annotations

import re
import warnings
from collections.abc import Mapping
from types import MappingProxyType
from typing import Final

from kafkalog.config.keys import MAX_LONG, Check, Key, Settings, Table, at_least, between, one_of, parse_value
from kafkalog.errors import ConfigError

SEGMENT_FLOOR: Final = 14
"""Smallest segment.bytes accepted: the size of the smallest message."""
SEGMENT_REFERENCE_FLOOR: Final = 1 << 20
"""Smallest segment.bytes that a broker accepts; below it a broker needs internal.segment.bytes."""


def _replicas(value: tuple[str, ...]) -> bool:
    """Return True for what a broker accepts, also with empty items."""
    return "".join(value) == "*" or all(re.fullmatch(r"([0-9]+:[0-9]+)?", item) for item in value)


_GZIP_LEVEL = Check("between 1 and 9 or equal to -1", lambda value: value == -1 or 1 <= value <= 9)
_POLICIES = Check("compact, delete", lambda value: value <= {"compact", "delete"})
_REPLICAS = Check("*, or partition:broker,partition:broker,...", _replicas)
_CODECS = one_of("uncompressed", "zstd", "lz4", "snappy", "gzip", "producer")
_TIMES = one_of("CreateTime", "LogAppendTime")
_NO_TIERS = Check("false: there is no remote storage", lambda value: not value)
_MAX_ARRAY: Final = 2**31 - 9
_DAY_MS = 86_400_000

CONFIGS: Final = (
    Key("cleanup.policy", "list", frozenset({"delete"}), _POLICIES, "delete by age and size, compact by key"),
    Key("compression.gzip.level", "int", -1, _GZIP_LEVEL, "gzip level if the log recompresses"),
    Key("compression.lz4.level", "int", 9, between(1, 17), "lz4 level if the log recompresses"),
    Key("compression.type", "string", "producer", _CODECS, "codec on disk; producer: the codec of the producer"),
    Key("compression.zstd.level", "int", 3, between(-131072, 22), "zstd level if the log recompresses"),
    Key("delete.retention.ms", "long", _DAY_MS, at_least(0), "time that a tombstone is kept after a clean"),
    Key("errors.deadletterqueue.group.enable", "bool", False, None,
        "share groups may write dead letters to this topic"),
    Key("file.delete.delay.ms", "long", 60_000, at_least(0), "time from renaming a file to .deleted to deleting it"),
    Key("flush.messages", "long", MAX_LONG, at_least(1), "records after which the log is flushed"),
    Key("flush.ms", "long", MAX_LONG, at_least(0), "time after which the log is flushed"),
    Key("follower.replication.throttled.replicas", "list", (), _REPLICAS, "replicas throttled as followers"),
    Key("index.interval.bytes", "int", 4096, at_least(0), "bytes of data between two index entries"),
    Key("internal.segment.bytes", "int", None, None, "replaces segment.bytes, without its lower bound"),
    Key("leader.replication.throttled.replicas", "list", (), _REPLICAS, "replicas throttled as leaders"),
    Key("local.retention.bytes", "long", -2, at_least(-2), "tiering: local part; -2 is retention.bytes"),
    Key("local.retention.ms", "long", -2, at_least(-2), "tiering: local part; -2 is retention.ms"),
    Key("max.compaction.lag.ms", "long", MAX_LONG, at_least(1), "longest time until a record is compacted"),
    Key("max.decompressed.message.bytes", "int", _MAX_ARRAY, between(1, _MAX_ARRAY),
        "largest record, decompressed: at an append, a clean, a look-up by time"),
    Key("max.message.bytes", "int", 1_048_588, at_least(0), "largest batch that a leader accepts"),
    Key("message.timestamp.after.max.ms", "long", 3_600_000, at_least(0), "largest lead of CreateTime over the clock"),
    Key("message.timestamp.before.max.ms", "long", MAX_LONG, at_least(0), "largest lag of CreateTime behind the clock"),
    Key("message.timestamp.type", "string", "CreateTime", _TIMES, "clock that sets a record's timestamp"),
    Key("min.cleanable.dirty.ratio", "double", 0.5, between(0, 1), "share of uncleaned data that starts a clean"),
    Key("min.compaction.lag.ms", "long", 0, at_least(0), "age below which a record is not compacted"),
    Key("min.insync.replicas", "int", 1, at_least(1), "replicas that must have an acks=all write"),
    Key("preallocate", "bool", False, None, "create a segment's file at full size"),
    Key("remote.copy.lag.bytes", "long", -1, at_least(-1),
        "tiering: distance from the end at which a segment is copied"),
    Key("remote.copy.lag.ms", "long", 0, at_least(-1),
        "tiering: time after its last record at which a segment is copied"),
    Key("remote.log.copy.disable", "bool", False, None, "tiering: stop copying"),
    Key("remote.log.delete.on.disable", "bool", False, None, "tiering: delete remote data when disabled"),
    Key("remote.storage.enable", "bool", False, _NO_TIERS, "tiering: not supported here"),
    Key("retention.bytes", "long", -1, None, "data kept per partition; negative: no limit"),
    Key("retention.ms", "long", 7 * _DAY_MS, at_least(-1), "time that data is kept; -1: no limit"),
    Key("segment.bytes", "int", 1 << 30, at_least(SEGMENT_FLOOR), "largest segment, and largest append"),
    Key("segment.index.bytes", "int", 10_485_760, at_least(4), "largest .index and .timeindex file"),
    Key("segment.jitter.ms", "long", 0, at_least(0), "largest random reduction of segment.ms"),
    Key("segment.ms", "long", 7 * _DAY_MS, at_least(1), "age at which a segment is rolled"),
    Key("unclean.leader.election.enable", "bool", False, None, "not used by a single node"),
)  # fmt: skip

TOPIC_TABLE: Final = Table(
    CONFIGS,
    dict.fromkeys(
        ("message.format.version", "message.timestamp.difference.max.ms", "message.downconversion.enable"),
        "it was removed in Kafka 4.0",
    ),
    "topic configuration",
    "kafkalog.config.topic.CONFIGS",
)


class LogConfig(Settings):
    """The configuration of one log: a value for each topic configuration, and derived values.

    Immutable; `replace()` returns a changed copy. Keywords are attribute names; `from_mapping` accepts dotted names and
    text as well. ConfigError names the value and what is accepted; UnknownConfig lists similar names. A setting that is
    not set has the default of the table, or of the broker whose `log_config` made it.
    """

    TABLE = TOPIC_TABLE

    cleanup_policy: frozenset[str]
    compression_gzip_level: int
    compression_lz4_level: int
    compression_type: str
    compression_zstd_level: int
    delete_retention_ms: int
    errors_deadletterqueue_group_enable: bool
    file_delete_delay_ms: int
    flush_messages: int
    flush_ms: int
    follower_replication_throttled_replicas: tuple[str, ...]
    index_interval_bytes: int
    internal_segment_bytes: int | None
    leader_replication_throttled_replicas: tuple[str, ...]
    local_retention_bytes: int
    local_retention_ms: int
    max_compaction_lag_ms: int
    max_decompressed_message_bytes: int
    max_message_bytes: int
    message_timestamp_after_max_ms: int
    message_timestamp_before_max_ms: int
    message_timestamp_type: str
    min_cleanable_dirty_ratio: float
    min_compaction_lag_ms: int
    min_insync_replicas: int
    preallocate: bool
    remote_copy_lag_bytes: int
    remote_copy_lag_ms: int
    remote_log_copy_disable: bool
    remote_log_delete_on_disable: bool
    remote_storage_enable: bool
    retention_bytes: int
    retention_ms: int
    segment_bytes: int
    segment_index_bytes: int
    segment_jitter_ms: int
    segment_ms: int
    unclean_leader_election_enable: bool

    _defaults: Mapping[str, object]
    segment_size: int
    """internal.segment.bytes if set, else segment.bytes: the size in effect."""
    max_segment_age_ms: int
    """segment.ms, or max.compaction.lag.ms if that is less and compaction is on."""
    init_file_size: int
    """Initial length of a new segment's file: `segment_size` if preallocating, else 0."""
    compact: bool
    delete: bool

    __slots__ = (
        *(key.attribute for key in CONFIGS),
        "_defaults", "compact", "delete", "init_file_size", "max_segment_age_ms", "segment_size",
    )  # fmt: skip

    def __init__(self, **values: object) -> None:
        super().__init__(**values)
        self.warn_if_small(3)

    @classmethod
    def from_mapping(cls, values: Mapping[str, object] | None = None, **more: object) -> LogConfig:
        """Return a configuration with these settings, by dotted or attribute name, as text or as values."""
        config = cls.from_stored({**(values or {}), **more})
        config.warn_if_small(3)
        return config

    @classmethod
    def from_stored(cls, values: Mapping[str, object], defaults: Mapping[str, object] | None = None) -> LogConfig:
        """Return a configuration without a warning, for stored settings: the warning came when they were set.

        `defaults` (dotted name to value) replace the table's, as a broker's settings do; they are checked the same way.
        """
        config = cls.__new__(cls)
        config._fill(cls._named(values), defaults or {})
        return config

    def replace(self, **values: object) -> LogConfig:
        """Return a copy with some settings changed; None resets a setting to its default."""
        config = LogConfig.from_stored(self._merged(values), self._defaults)
        if config.segment_bytes != self.segment_bytes:
            config.warn_if_small(3)
        return config

    def _fill(self, values: dict[str, object], defaults: Mapping[str, object] = MappingProxyType({})) -> None:
        super()._fill(values)
        put = object.__setattr__
        put(self, "_defaults", defaults)
        for name, value in defaults.items():
            if name not in self._set:
                key = key_for(name)
                put(self, key.attribute, parse_value(key, value))
        self._check_consistency()
        size = self.segment_bytes if self.internal_segment_bytes is None else self.internal_segment_bytes
        compact = "compact" in self.cleanup_policy
        put(self, "segment_size", size)
        put(self, "compact", compact)
        put(self, "delete", "delete" in self.cleanup_policy)
        age = min(self.segment_ms, self.max_compaction_lag_ms) if compact else self.segment_ms
        put(self, "max_segment_age_ms", age)
        put(self, "init_file_size", size if self.preallocate else 0)

    def _check_consistency(self) -> None:
        if self.min_compaction_lag_ms > self.max_compaction_lag_ms:
            raise ConfigError(
                f"min.compaction.lag.ms ({self.min_compaction_lag_ms}) is greater than "
                f"max.compaction.lag.ms ({self.max_compaction_lag_ms})",
                hint="lower the first or raise the second",
            )

    def warn_if_small(self, stacklevel: int) -> None:
        """Warn of a segment.bytes that a broker would reject; `stacklevel` as for `warnings.warn`, from here."""
        if self.segment_bytes < SEGMENT_REFERENCE_FLOOR:
            warnings.warn(
                f"segment.bytes={self.segment_bytes} is below 1 MiB: a broker rejects it "
                "(internal.segment.bytes is its name for small segments)",
                stacklevel=stacklevel,
            )

    def random_jitter_ms(self) -> int:
        """Return ms to subtract from `max_segment_age_ms`: random, 0 to min(segment.jitter.ms, segment.ms) - 1."""
        bound = min(self.segment_jitter_ms, self.segment_ms)
        if bound <= 0:
            return 0
        from random import randrange

        return randrange(bound)

    def __reduce__(self) -> tuple[object, ...]:
        return LogConfig.from_stored, (self.overrides(), dict(self._defaults))


def key_for(name: str) -> Key:
    """Return the row for a dotted or attribute name; raise UnknownConfig with similar names."""
    return TOPIC_TABLE.find(name)
