"""Settings of a whole store, by their broker names: defaults for its topics, and background jobs.

`BROKER_CONFIGS` has one row per supported name; types, defaults and ranges are those of Kafka 4.3.1. Settings of the
network, of replicas or of a controller are rejected by name, with the reason (`REFUSED`).
"""

from __future__ import annotations

import sys
from collections.abc import Mapping
from typing import Final

from kafkalog.config.keys import MAX_INT, MAX_LONG, Check, Key, Kind, Settings, Table, at_least, parse_value
from kafkalog.config.topic import LogConfig, key_for
from kafkalog.errors import ConfigError

_MIB: Final = 1 << 20
_MINUTE_MS: Final = 60_000
_HOUR_MS: Final = 3_600_000
_LOAD_FACTOR: Final = "log.cleaner.io.buffer.load.factor"
_SLOT_BYTES: Final = 24  # of an offset map; `_core.clean.offset_map` is above this layer
_RATE: Final = "log.cleaner.io.max.bytes.per.second"
_SAME_AS: Final[dict[str, str]] = {}  # topic setting -> the broker setting with the same type and rule
_ONE: Final = Check("1: there is one copy, on this machine", lambda value: value == 1)


def _topic_default(name: str, topic_name: str) -> Key:
    """Return the row of a broker setting that is the default of a topic setting; note the pair in `_SAME_AS`."""
    topic = key_for(topic_name)
    _SAME_AS[topic_name] = name
    return Key(name, topic.kind, topic.default, topic.check, f"default of {topic_name}")


def _at_open(name: str, kind: Kind, default: object, check: Check | None, doc: str) -> Key:
    """Return the row of a setting that is read only when the store is opened."""
    return Key(name, kind, default, check, doc, dynamic=False)


BROKER_CONFIGS: Final = (
    Key("background.threads", "int", 10, at_least(1), "threads that run the jobs"),
    _topic_default("compression.gzip.level", "compression.gzip.level"),
    _topic_default("compression.lz4.level", "compression.lz4.level"),
    _topic_default("compression.type", "compression.type"),
    _topic_default("compression.zstd.level", "compression.zstd.level"),
    Key("cordoned.log.dirs", "list", (), None, "directories that take no new partitions"),
    _at_open("default.replication.factor", "int", 1, _ONE, "copies of a new topic"),
    _at_open("delete.topic.enable", "bool", True, None, "allow topics to be deleted"),
    Key("log.cleaner.backoff.ms", "long", 15_000, at_least(0), "wait of a cleaner thread that found nothing to clean"),
    Key("log.cleaner.dedupe.buffer.size", "long", 1 << 27, None, "memory of the offset maps of all cleaner threads"),
    _topic_default("log.cleaner.delete.retention.ms", "delete.retention.ms"),
    _at_open("log.cleaner.enable", "bool", True, None, "clean compacted logs in the background"),
    Key(_LOAD_FACTOR, "double", 0.9, None, "largest fill ratio of an offset map"),
    Key("log.cleaner.io.buffer.size", "int", 1 << 19, at_least(0), "memory of the buffers of all cleaner threads"),
    Key(_RATE, "double", sys.float_info.max, None, "reads and writes of all cleaner threads; negative: no limit"),
    _topic_default("log.cleaner.max.compaction.lag.ms", "max.compaction.lag.ms"),
    _topic_default("log.cleaner.min.cleanable.ratio", "min.cleanable.dirty.ratio"),
    _topic_default("log.cleaner.min.compaction.lag.ms", "min.compaction.lag.ms"),
    Key("log.cleaner.threads", "int", 1, at_least(0), "cleaner threads; one change at most doubles or halves them"),
    _topic_default("log.cleanup.policy", "cleanup.policy"),
    _topic_default("log.flush.interval.messages", "flush.messages"),
    Key("log.flush.interval.ms", "long", None, None, "default of flush.ms; overrides the flusher's period"),
    _at_open("log.flush.offset.checkpoint.interval.ms", "int", 60_000, at_least(0), "period: recovery points to disk"),
    _at_open("log.flush.scheduler.interval.ms", "long", MAX_LONG, None, "period of the flusher; default of flush.ms"),
    _at_open("log.flush.start.offset.checkpoint.interval.ms", "int", 60_000, at_least(0), "period: log starts to disk"),
    _topic_default("log.index.interval.bytes", "index.interval.bytes"),
    _topic_default("log.index.size.max.bytes", "segment.index.bytes"),
    _at_open("log.initial.task.delay.ms", "long", 30_000, at_least(0), "delay of the first run of the jobs"),
    _topic_default("log.local.retention.bytes", "local.retention.bytes"),
    _topic_default("log.local.retention.ms", "local.retention.ms"),
    _topic_default("log.message.timestamp.after.max.ms", "message.timestamp.after.max.ms"),
    _topic_default("log.message.timestamp.before.max.ms", "message.timestamp.before.max.ms"),
    _topic_default("log.message.timestamp.type", "message.timestamp.type"),
    _topic_default("log.preallocate", "preallocate"),
    _topic_default("log.remote.copy.lag.bytes", "remote.copy.lag.bytes"),
    _topic_default("log.remote.copy.lag.ms", "remote.copy.lag.ms"),
    _topic_default("log.retention.bytes", "retention.bytes"),
    _at_open("log.retention.check.interval.ms", "long", 300_000, at_least(1), "period of retention"),
    _at_open("log.retention.hours", "int", 168, None, "default of retention.ms if minutes and ms are unset"),
    _at_open("log.retention.minutes", "int", None, None, "default of retention.ms if ms is unset"),
    Key("log.retention.ms", "long", None, None, "default of retention.ms; negative: no limit"),
    _at_open("log.roll.hours", "int", 168, at_least(1), "default of segment.ms if log.roll.ms is unset"),
    _at_open("log.roll.jitter.hours", "int", 0, at_least(0), "default of segment.jitter.ms if ms is unset"),
    Key("log.roll.jitter.ms", "long", None, None, "default of segment.jitter.ms"),
    Key("log.roll.ms", "long", None, None, "default of segment.ms"),
    Key("log.segment.bytes", "int", 1 << 30, at_least(1 << 20), "default of segment.bytes"),
    _topic_default("log.segment.delete.delay.ms", "file.delete.delay.ms"),
    _topic_default("max.decompressed.message.bytes", "max.decompressed.message.bytes"),
    _topic_default("message.max.bytes", "max.message.bytes"),
    _topic_default("min.insync.replicas", "min.insync.replicas"),
    _at_open("node.id", "int", None, at_least(0), "id of this node; directories of another node are rejected"),
    _at_open("num.partitions", "int", 1, at_least(1), "partitions of a new topic if no number is given"),
    Key("num.recovery.threads.per.data.dir", "int", 2, at_least(1), "threads that load and close a directory's logs"),
    _at_open("producer.id.expiration.check.interval.ms", "int", 600_000, at_least(1), "period: idle producers removed"),
    Key("producer.id.expiration.ms", "int", 86_400_000, at_least(1), "idle time after which a producer is removed"),
    _at_open("replica.high.watermark.checkpoint.interval.ms", "long", 5000, None, "period: high watermarks to disk"),
    _topic_default("unclean.leader.election.enable", "unclean.leader.election.enable"),
)  # fmt: skip

_SERVER: Final = "no server runs here"
_GROUPS: Final = "no group coordinator runs here"
_TRANSACTIONS: Final = "no transaction coordinator runs here"
_CONTROLLER: Final = "no controller runs here"
_REPLICATION: Final = "nothing is replicated here"
REFUSED: Final = {
    "auto.create.topics.enable": "only create_topic creates topics",
    "fetch.max.bytes": _SERVER,
    "fetch.purgatory.purge.interval.requests": _SERVER,
    "group.initial.rebalance.delay.ms": _GROUPS,
    "group.max.session.timeout.ms": _GROUPS,
    "group.min.session.timeout.ms": _GROUPS,
    "internal.metadata.delete.delay.millis": _CONTROLLER,
    "internal.metadata.log.segment.bytes": _CONTROLLER,
    "internal.metadata.max.batch.size.in.bytes": _CONTROLLER,
    "log.dir": "the directories are the first argument of open_dirs",
    "log.dir.failure.timeout.ms": _CONTROLLER,
    "log.dirs": "the directories are the first argument of open_dirs",
    "max.incremental.fetch.session.cache.slots": _SERVER,
    "metadata.log.segment.bytes": _CONTROLLER,
    "metadata.log.segment.ms": _CONTROLLER,
    "num.io.threads": _SERVER,
    "num.network.threads": _SERVER,
    "num.replica.alter.log.dirs.threads": "no thread copies partitions between directories here",
    "num.replica.fetchers": _REPLICATION,
    "offset.metadata.max.bytes": _GROUPS,
    "offsets.commit.timeout.ms": _GROUPS,
    "offsets.load.buffer.size": _GROUPS,
    "offsets.retention.check.interval.ms": _GROUPS,
    "offsets.retention.minutes": _GROUPS,
    "offsets.topic.compression.codec": _GROUPS,
    "offsets.topic.num.partitions": _GROUPS,
    "offsets.topic.replication.factor": _GROUPS,
    "offsets.topic.segment.bytes": _GROUPS,
    "queued.max.request.bytes": _SERVER,
    "queued.max.requests": _SERVER,
    "quota.window.num": _SERVER,
    "quota.window.size.seconds": _SERVER,
    "socket.request.max.bytes": _SERVER,
    "transaction.abort.timed.out.transaction.cleanup.interval.ms": _TRANSACTIONS,
    "transaction.max.timeout.ms": _TRANSACTIONS,
    "transaction.partition.verification.enable": _TRANSACTIONS,
    "transaction.remove.expired.transaction.cleanup.interval.ms": _TRANSACTIONS,
    "transaction.state.log.load.buffer.size": _TRANSACTIONS,
    "transaction.state.log.min.isr": _TRANSACTIONS,
    "transaction.state.log.num.partitions": _TRANSACTIONS,
    "transaction.state.log.replication.factor": _TRANSACTIONS,
    "transaction.state.log.segment.bytes": _TRANSACTIONS,
    "transaction.two.phase.commit.enable": _TRANSACTIONS,
    "transactional.id.expiration.ms": _TRANSACTIONS,
    "unclean.leader.election.interval.ms": _CONTROLLER,
    "unstable.api.versions.enable": _SERVER,
    "unstable.feature.versions.enable": _CONTROLLER,
}  # fmt: skip
"""Rejected name -> the reason."""

SYNONYMS: Final[dict[str, tuple[str, ...]]] = {topic_name: (name,) for topic_name, name in _SAME_AS.items()} | {
    "flush.ms": ("log.flush.interval.ms", "log.flush.scheduler.interval.ms"),
    "retention.ms": ("log.retention.ms", "log.retention.minutes", "log.retention.hours"),
    "segment.bytes": ("log.segment.bytes",),
    "segment.jitter.ms": ("log.roll.jitter.ms", "log.roll.jitter.hours"),
    "segment.ms": ("log.roll.ms", "log.roll.hours"),
}
"""Topic setting -> the broker settings that set its default; the first one that is set wins."""

_UNITS: Final = {"log.retention.minutes": _MINUTE_MS} | dict.fromkeys(
    ("log.retention.hours", "log.roll.hours", "log.roll.jitter.hours"), _HOUR_MS
)
BROKER_TABLE: Final = Table(BROKER_CONFIGS, REFUSED, "setting of a store", "kafkalog.config.broker.BROKER_CONFIGS")


class BrokerConfig(Settings):
    """The settings of a store: a value for each row, and the defaults of its topics.

    Immutable; `replace()` returns a copy with any settings changed, `changed()` one with settings that may change while
    the store is open. Raises ConfigError for a rejected value, and UnknownConfig for a rejected (with the reason) or
    unknown name.

    >>> config = BrokerConfig(log_retention_hours=24, num_partitions=3)
    >>> config.topic_defaults["retention.ms"], config.log_config({"retention.ms": -1}).retention_ms
    (86400000, -1)
    >>> config.replace(num_partitions=None).overrides()
    {'log.retention.hours': '24'}
    >>> config.changed({"log.retention.ms": 1000}).log_retention_ms
    1000
    >>> BrokerConfig.from_mapping({"num.partitions": "3"}) == config.replace(log_retention_hours=None)
    True
    >>> BrokerConfig.TABLE.find("log.roll.ms").doc
    'default of segment.ms'
    """

    TABLE = BROKER_TABLE

    background_threads: int
    cordoned_log_dirs: tuple[str, ...]
    delete_topic_enable: bool
    log_cleaner_backoff_ms: int
    log_cleaner_dedupe_buffer_size: int
    log_cleaner_enable: bool
    log_cleaner_io_buffer_load_factor: float
    log_cleaner_io_buffer_size: int
    log_cleaner_io_max_bytes_per_second: float
    log_cleaner_threads: int
    log_flush_offset_checkpoint_interval_ms: int
    log_flush_scheduler_interval_ms: int
    log_flush_start_offset_checkpoint_interval_ms: int
    log_initial_task_delay_ms: int
    log_retention_check_interval_ms: int
    log_segment_delete_delay_ms: int
    max_decompressed_message_bytes: int
    message_max_bytes: int
    node_id: int | None
    num_partitions: int
    num_recovery_threads_per_data_dir: int
    producer_id_expiration_check_interval_ms: int
    producer_id_expiration_ms: int
    replica_high_watermark_checkpoint_interval_ms: int

    topic_defaults: Mapping[str, object]
    """Topic setting (dotted) -> its value in a topic that does not set it."""

    __slots__ = (*(key.attribute for key in BROKER_CONFIGS), "_default_topic", "topic_defaults")
    _default_topic: LogConfig

    def _fill(self, values: dict[str, object]) -> None:
        super()._fill(values)
        object.__setattr__(self, "topic_defaults", {name: self._default_of(name) for name in SYNONYMS})
        created = LogConfig.from_stored({}, self.topic_defaults)  # this rejects inconsistent defaults
        object.__setattr__(self, "_default_topic", created)
        self._check_cleaner()

    def _check_cleaner(self) -> None:
        """Raise ConfigError for settings that are each in range but make cleaning impossible (CLN-43)."""
        threads, buffer = self.log_cleaner_threads, self.log_cleaner_dedupe_buffer_size
        if threads < 1:
            hint = "it takes at least 1; log.cleaner.enable=false disables cleaning"
            raise ConfigError(f"log.cleaner.threads={threads} is not accepted", hint=hint)
        if buffer // threads <= _MIB:
            raise ConfigError(
                f"log.cleaner.dedupe.buffer.size={buffer} is not accepted with log.cleaner.threads={threads}",
                hint=f"it takes more than {_MIB} for each thread",
            )
        slots = min(buffer // threads, MAX_INT) // _SLOT_BYTES
        if not slots * min(self.log_cleaner_io_buffer_load_factor, 1.0) > 1:  # nothing would ever be cleaned (CLN-5)
            raise ConfigError(
                f"{_LOAD_FACTOR}={self.log_cleaner_io_buffer_load_factor} is not accepted",
                hint="it takes the fill ratio of an offset map, such as 0.9; with this value not even one key fits",
            )
        rate = self.log_cleaner_io_max_bytes_per_second
        if not rate or rate != rate:
            hint = "it takes a rate, or a negative number for no limit"
            raise ConfigError(f"{_RATE}={rate} is not accepted", hint=hint)

    def _default_of(self, topic_name: str) -> object:
        """Return a topic setting's default, in its unit, from the first broker setting that is set."""
        for name in SYNONYMS[topic_name]:
            value = getattr(self, self.TABLE.find(name).attribute)
            if value is not None:
                break
        value = value * _UNITS[name] if name in _UNITS else value
        if topic_name == "retention.ms":
            if value == 0:
                raise ConfigError(f"{name}=0 is not accepted", hint="it takes a time, or -1 for no limit")
            return max(value, -1)
        try:
            return parse_value(key_for(topic_name), value)
        except ConfigError as error:
            raise ConfigError(f"{name}={value} is not accepted", hint=error.hint) from None

    def log_config(self, settings: Mapping[str, object] | None = None) -> LogConfig:
        """Return the configuration of a topic with these settings; the others come from this store."""
        return LogConfig.from_stored(settings, self.topic_defaults) if settings else self._default_topic

    def replace(self, **values: object) -> BrokerConfig:
        """Return a copy with some settings changed; None resets a setting to its default."""
        return BrokerConfig.from_mapping(self._merged(values))

    def changed(self, values: Mapping[str, object]) -> BrokerConfig:
        """Return a copy for an open store; raise ConfigError for a setting that only a reopened store can change."""
        fixed = sorted(key.name for key in map(self.TABLE.find, values) if not key.dynamic)
        if fixed:
            reason = f"{fixed[0]} cannot be changed while the store is open"
            raise ConfigError(reason, hint="close the store and open it with the new value")
        created = self.replace(**dict(values))
        self._check_step(created, {self.TABLE.find(name).name for name, value in values.items() if value is not None})
        return created

    def _check_step(self, new: BrokerConfig, given: set[str]) -> None:
        """Raise ConfigError for too large a step in cleaner threads, or a buffer below message.max.bytes (CLN-43)."""
        before, after = self.log_cleaner_threads, new.log_cleaner_threads
        if not before // 2 <= after <= before * 2:
            raise ConfigError(
                f"log.cleaner.threads cannot be changed from {before} to {after} in one step",
                hint=f"one step goes from {max(before // 2, 1)} to {before * 2}",
            )
        if "log.cleaner.io.buffer.size" in given and new.log_cleaner_io_buffer_size < new.message_max_bytes:
            raise ConfigError(
                f"log.cleaner.io.buffer.size={new.log_cleaner_io_buffer_size} is not accepted",
                hint=f"a change takes at least message.max.bytes, {new.message_max_bytes}",
            )
