"""The 34 topic configurations: names, types, defaults, ranges and what follows from them.

One row of `CONFIGS` per name; `LogConfig` holds a value for each as a plain attribute (dots become
underscores). Names, defaults and ranges are those of Kafka 4.3.1, with one ease: segment.bytes is taken
from 14 on, with a warning below 1 MiB.
"""

from __future__ import annotations

import re
import warnings
from collections.abc import Callable, Iterable, Mapping
from typing import Any, Final, Literal, NamedTuple

from kafkalog.errors import ConfigError, UnknownConfig

MAX_INT: Final = 2**31 - 1
MAX_LONG: Final = 2**63 - 1
SEGMENT_FLOOR: Final = 14
"""The smallest segment.bytes taken: the smallest message there is."""
SEGMENT_REFERENCE_FLOOR: Final = 1 << 20
"""The smallest segment.bytes a broker takes; below it only internal.segment.bytes works there."""

Kind = Literal["bool", "int", "long", "double", "string", "list"]


class Check(NamedTuple):
    """A rule for one value: what it says and the test."""

    text: str
    passes: Callable[[Any], bool]


class Key(NamedTuple):
    """One row: dotted name, type, default, rule (None: any value of the type) and what it is for."""

    name: str
    kind: Kind
    default: Any
    check: Check | None
    doc: str

    @property
    def attribute(self) -> str:
        """The name as an attribute of LogConfig."""
        return self.name.replace(".", "_")


def _at_least(low: float) -> Check:
    return Check(f"at least {low}", lambda value: bool(value >= low))


def _between(low: float, high: float) -> Check:
    return Check(f"{low} to {high}", lambda value: bool(low <= value <= high))


def _one_of(*names: str) -> Check:
    return Check("one of " + ", ".join(names), lambda value: value in names)


def _replicas(value: tuple[str, ...]) -> bool:
    return value == ("*",) or all(re.fullmatch(r"[0-9]+:[0-9]+", item) for item in value)


_GZIP_LEVEL = Check("1 to 9, or -1", lambda value: value == -1 or 1 <= value <= 9)
_POLICIES = Check("compact, delete", lambda value: value <= {"compact", "delete"})
_REPLICAS = Check("*, or partition:broker,partition:broker,...", _replicas)
_CODECS = _one_of("uncompressed", "zstd", "lz4", "snappy", "gzip", "producer")
_TIMES = _one_of("CreateTime", "LogAppendTime")
_DAY_MS = 86_400_000

CONFIGS: Final = (
    Key("cleanup.policy", "list", frozenset({"delete"}), _POLICIES, "delete by age and size, compact by key"),
    Key("compression.gzip.level", "int", -1, _GZIP_LEVEL, "gzip level where the log recompresses"),
    Key("compression.lz4.level", "int", 9, _between(1, 17), "lz4 level where the log recompresses"),
    Key("compression.type", "string", "producer", _CODECS, "codec on disk; producer: as it came in"),
    Key("compression.zstd.level", "int", 3, _between(-131072, 22), "zstd level where the log recompresses"),
    Key("delete.retention.ms", "long", _DAY_MS, _at_least(0), "a tombstone stays so long once cleaned"),
    Key("file.delete.delay.ms", "long", 60_000, _at_least(0), "from the rename to .deleted to the unlink"),
    Key("flush.messages", "long", MAX_LONG, _at_least(1), "fsync after so many unflushed records"),
    Key("flush.ms", "long", MAX_LONG, _at_least(0), "fsync after so much time"),
    Key("follower.replication.throttled.replicas", "list", (), _REPLICAS, "replicas throttled as followers"),
    Key("index.interval.bytes", "int", 4096, _at_least(0), "bytes of data between two index entries"),
    Key("internal.segment.bytes", "int", None, None, "replaces segment.bytes, without its lower bound"),
    Key("leader.replication.throttled.replicas", "list", (), _REPLICAS, "replicas throttled as leaders"),
    Key("local.retention.bytes", "long", -2, _at_least(-2), "tiering: local part; -2 is retention.bytes"),
    Key("local.retention.ms", "long", -2, _at_least(-2), "tiering: local part; -2 is retention.ms"),
    Key("max.compaction.lag.ms", "long", MAX_LONG, _at_least(1), "no record waits longer for compaction"),
    Key("max.message.bytes", "int", 1_048_588, _at_least(0), "largest batch a leader takes"),
    Key("message.timestamp.after.max.ms", "long", 3_600_000, _at_least(0), "CreateTime may lie so far ahead"),
    Key("message.timestamp.before.max.ms", "long", MAX_LONG, _at_least(0), "CreateTime may lie so far back"),
    Key("message.timestamp.type", "string", "CreateTime", _TIMES, "whose clock a record's time is"),
    Key("min.cleanable.dirty.ratio", "double", 0.5, _between(0, 1), "uncleaned part that starts a pass"),
    Key("min.compaction.lag.ms", "long", 0, _at_least(0), "a younger record is not compacted"),
    Key("min.insync.replicas", "int", 1, _at_least(1), "replicas that must have an acks=all write"),
    Key("preallocate", "bool", False, None, "create a segment's file at full size"),
    Key("remote.log.copy.disable", "bool", False, None, "tiering: copy nothing more"),
    Key("remote.log.delete.on.disable", "bool", False, None, "tiering: delete remote data when disabled"),
    Key("remote.storage.enable", "bool", False, None, "tiering on"),
    Key("retention.bytes", "long", -1, None, "data kept per partition; negative: no limit"),
    Key("retention.ms", "long", 7 * _DAY_MS, _at_least(-1), "how long data is kept; -1: no limit"),
    Key("segment.bytes", "int", 1 << 30, _at_least(SEGMENT_FLOOR), "bound of a segment and of one append"),
    Key("segment.index.bytes", "int", 10_485_760, _at_least(4), "largest .index and .timeindex file"),
    Key("segment.jitter.ms", "long", 0, _at_least(0), "at random up to so much off segment.ms"),
    Key("segment.ms", "long", 7 * _DAY_MS, _at_least(1), "a segment rolls after so long"),
    Key("unclean.leader.election.enable", "bool", False, None, "not used by a single node"),
)  # fmt: skip

_BY_NAME: Final = {key.name: key for key in CONFIGS} | {key.attribute: key for key in CONFIGS}
_GONE: Final = frozenset(
    {"message.format.version", "message.timestamp.difference.max.ms", "message.downconversion.enable"}
)
_LIMITS: Final = {"int": MAX_INT, "long": MAX_LONG}


class LogConfig:
    """The configuration of one log: a value for each topic configuration, and the values that follow.

    Immutable; `replace()` gives a changed copy. Keywords are attribute names, and `from_mapping` takes
    dotted names and text as well. ConfigError names the value and what is accepted; UnknownConfig lists
    near names.
    """

    cleanup_policy: frozenset[str]
    compression_gzip_level: int
    compression_lz4_level: int
    compression_type: str
    compression_zstd_level: int
    delete_retention_ms: int
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
    max_message_bytes: int
    message_timestamp_after_max_ms: int
    message_timestamp_before_max_ms: int
    message_timestamp_type: str
    min_cleanable_dirty_ratio: float
    min_compaction_lag_ms: int
    min_insync_replicas: int
    preallocate: bool
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

    _set: dict[str, Any]
    segment_size: int
    """internal.segment.bytes if set, else segment.bytes: the size that counts everywhere."""
    max_segment_age_ms: int
    """segment.ms, or max.compaction.lag.ms where that is less and compaction is on."""
    init_file_size: int
    """Length a new segment's file is created with: `segment_size` when preallocating, else 0."""
    compact: bool
    delete: bool

    __slots__ = (
        *(key.attribute for key in CONFIGS),
        "_set", "compact", "delete", "init_file_size", "max_segment_age_ms", "segment_size",
    )  # fmt: skip

    def __init__(self, **values: Any) -> None:
        self._fill({key_for(name).name: value for name, value in values.items()})
        self.warn_if_small(3)

    @classmethod
    def from_mapping(cls, values: Mapping[str, Any] | None = None, **more: Any) -> LogConfig:
        """The configuration with these settings, by dotted or attribute name, as text or as values."""
        config = cls.from_stored({**(values or {}), **more})
        config.warn_if_small(3)
        return config

    @classmethod
    def from_stored(cls, values: Mapping[str, Any]) -> LogConfig:
        """The same without a warning: for settings that somebody was warned about when they were given."""
        config = cls.__new__(cls)
        config._fill({key_for(name).name: value for name, value in values.items()})
        return config

    def replace(self, **values: Any) -> LogConfig:
        """A copy with some settings changed; None takes a setting back to its default."""
        changed = {key_for(name).name: value for name, value in values.items()}
        kept = {name: value for name, value in self._set.items() if name not in changed}
        return LogConfig.from_mapping({**kept, **changed})

    def _fill(self, values: dict[str, Any]) -> None:
        given = {name: parse_value(_BY_NAME[name], value) for name, value in values.items() if value is not None}
        put = object.__setattr__
        for key in CONFIGS:
            put(self, key.attribute, given.get(key.name, key.default))
        put(self, "_set", given)
        self._check_together()
        size = self.segment_bytes if self.internal_segment_bytes is None else self.internal_segment_bytes
        compact = "compact" in self.cleanup_policy
        put(self, "segment_size", size)
        put(self, "compact", compact)
        put(self, "delete", "delete" in self.cleanup_policy)
        age = min(self.segment_ms, self.max_compaction_lag_ms) if compact else self.segment_ms
        put(self, "max_segment_age_ms", age)
        put(self, "init_file_size", size if self.preallocate else 0)

    def _check_together(self) -> None:
        if self.min_compaction_lag_ms > self.max_compaction_lag_ms:
            raise ConfigError(
                f"min.compaction.lag.ms ({self.min_compaction_lag_ms}) is greater than "
                f"max.compaction.lag.ms ({self.max_compaction_lag_ms})",
                hint="lower the first or raise the second",
            )

    def warn_if_small(self, stacklevel: int) -> None:
        """Warns of a segment.bytes that a broker would refuse; `stacklevel` as for `warnings.warn`, from here."""
        if self.segment_bytes < SEGMENT_REFERENCE_FLOOR:
            warnings.warn(
                f"segment.bytes={self.segment_bytes} is below 1 MiB: a broker refuses it "
                "(internal.segment.bytes is its name for small segments)",
                stacklevel=stacklevel,
            )

    def overrides(self) -> dict[str, str]:
        """What was set explicitly: dotted name to text, sorted by name; `from_mapping` takes it back."""
        return {name: value_text(value) for name, value in sorted(self._set.items())}

    def random_jitter_ms(self) -> int:
        """What this segment takes off `max_segment_age_ms`: 0 ... min(segment.jitter.ms, segment.ms) - 1."""
        bound = min(self.segment_jitter_ms, self.segment_ms)
        if bound <= 0:
            return 0
        from random import randrange

        return randrange(bound)

    def __setattr__(self, name: str, value: Any) -> None:
        raise AttributeError(f"a LogConfig does not change: use replace({name}=...)")

    def __delattr__(self, name: str) -> None:
        raise AttributeError("a LogConfig does not change")

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, LogConfig):
            return NotImplemented
        return all(getattr(self, key.attribute) == getattr(other, key.attribute) for key in CONFIGS)

    def __hash__(self) -> int:
        return hash(tuple(getattr(self, key.attribute) for key in CONFIGS))

    def __reduce__(self) -> tuple[Any, ...]:
        return LogConfig.from_mapping, (self.overrides(),)

    def __repr__(self) -> str:
        shown = ", ".join(f"{_BY_NAME[name].attribute}={value!r}" for name, value in self.overrides().items())
        return f"LogConfig({shown})"


def key_for(name: str) -> Key:
    """The row for a dotted or attribute name; UnknownConfig lists the near names."""
    key = _BY_NAME.get(name)
    if key is not None:
        return key
    if name.replace("_", ".") in _GONE:
        raise UnknownConfig(f"{name} is no topic configuration any more", hint="it went with Kafka 4.0")
    from difflib import get_close_matches

    dotted = name.replace("_", ".")
    near = get_close_matches(dotted, [key.name for key in CONFIGS], n=3, cutoff=0.6)
    hint = f"did you mean {', '.join(near)}?" if near else "`kafkalog.config.CONFIGS` lists them all"
    raise UnknownConfig(f"unknown configuration {ascii(name)}", hint=hint)


def parse_value(key: Key, value: Any) -> Any:
    """The value, read from text where it is text, and checked against its type, range and rule.

    ConfigError otherwise.
    """
    try:
        parsed = _PARSERS[key.kind](value.strip() if isinstance(value, str) else value)
    except (ValueError, TypeError) as error:
        raise ConfigError(f"{key.name}={value!r} is not {_A[key.kind]}: {error}") from None
    if key.name == "cleanup.policy":
        parsed = frozenset(parsed)
    limit = _LIMITS.get(key.kind)
    if limit is not None and not -limit - 1 <= parsed <= limit:
        raise ConfigError(f"{key.name}={value!r} does not fit the type {key.kind}")
    if key.check is not None and not key.check.passes(parsed):
        raise ConfigError(f"{key.name}={value!r} is not accepted", hint=f"it takes {key.check.text}")
    return parsed


def value_text(value: Any) -> str:
    """A value as a properties file has it: true/false, items joined by commas, no value as empty text."""
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, frozenset):
        return ",".join(sorted(value))
    if isinstance(value, tuple):
        return ",".join(value)
    return "" if value is None else str(value)


def _parse_bool(value: Any) -> bool:
    if isinstance(value, str):
        value = {"true": True, "false": False}.get(value.lower(), value)
    if not isinstance(value, bool):
        raise ValueError("true or false is meant")
    return value


def _parse_int(value: Any) -> int:
    if isinstance(value, str):
        if not re.fullmatch(r"[+-]?[0-9]{1,30}", value):
            raise ValueError("a whole number is meant")
        return int(value)
    if isinstance(value, bool) or not hasattr(value, "__index__"):
        raise ValueError("a whole number is meant")
    return int(value)


def _parse_double(value: Any) -> float:
    if isinstance(value, bool):
        raise ValueError("a number is meant")
    return float(value)


def _parse_string(value: Any) -> str:
    if not isinstance(value, str):
        raise ValueError("text is meant")
    return value


def _parse_list(value: Any) -> tuple[str, ...]:
    items: Iterable[Any] = value
    if isinstance(value, str):
        items = [item.strip() for item in value.split(",")] if value else []
    listed = tuple(dict.fromkeys(items))
    if not all(isinstance(item, str) for item in listed):
        raise ValueError("a list of text is meant")
    if "" in listed:
        raise ValueError("an item of the list is empty")
    return listed


_PARSERS: Final[dict[str, Callable[[Any], Any]]] = {
    "bool": _parse_bool,
    "int": _parse_int,
    "long": _parse_int,
    "double": _parse_double,
    "string": _parse_string,
    "list": _parse_list,
}
_A: Final = {
    "bool": "a bool", "int": "an int", "long": "a long",
    "double": "a number", "string": "text", "list": "a list",
}  # fmt: skip
