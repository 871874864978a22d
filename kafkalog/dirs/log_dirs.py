"""`LogDirs`: the topics of data directories as one Python object."""

from __future__ import annotations

import atexit
import os
import warnings
import weakref
from collections.abc import Iterable, Iterator, Mapping
from typing import TYPE_CHECKING, Any, Literal, Never, overload

from kafkalog.config.topic import key_for
from kafkalog.errors import IllegalArgument, IllegalState, KafkalogError, LogClosed, ReadOnlyLog, UnknownConfig
from kafkalog.types import TopicPartition
from kafkalog.util.guards import run_finalizer
from kafkalog.util.interrupts import deferred_interrupts
from kafkalog.util.keywords import unknown_keyword

if TYPE_CHECKING:
    from kafkalog.cleaner.stats import Clean, CleanerReport
    from kafkalog.config.broker import BrokerConfig
    from kafkalog.dirs.readonly import DirsView
    from kafkalog.dirs.scan import ArrowTopicScan, Order, TopicScan
    from kafkalog.dirs.topic import TopicLogs
    from kafkalog.dirs.types import Directory, Topic
    from kafkalog.dirs.writable import LogStore
    from kafkalog.log.log import Log
    from kafkalog.manager.job import Job
    from kafkalog.storage.damage import Skipped
    from kafkalog.util.times import Time

Path = str | os.PathLike[str]


def _unknown_topic_keyword(call: str, given: Mapping[str, object], known: tuple[str, ...]) -> TypeError:
    """Return the error for unknown keywords of a topic call; a topic setting is pointed to `settings`."""
    name = next(iter(given))
    try:
        key_for(name)
    except UnknownConfig:
        return unknown_keyword(call, given, known)
    return TypeError(f"{call}() takes no keyword {name!r}: topic settings go in settings={{{name!r}: ...}}")


def _checked_settings(call: str, settings: object) -> Mapping[str, object]:
    """Return the settings given to `call`, {} for None; IllegalArgument unless they are a mapping."""
    if settings is None:
        return {}
    if not isinstance(settings, Mapping):
        raise IllegalArgument(
            f"{call}(): settings is {settings!r}, and must be a dict of settings",
            hint='give {"retention.ms": 1000}, for example; there is one copy of a partition, so no replication factor',
        )
    return settings


class LogDirs:
    """The topics of data directories: `dirs["orders", 0]` is a `Log`, `dirs["orders"]` all partitions of a topic.

    Iteration yields the partitions.

    Threads: all methods may be called from any thread. A forked child cannot use it.

    >>> dirs.create_topic("orders", 2).partitions
    (0, 1)
    >>> dirs["orders", 1].append([(b"u-1", b"first")]).last_offset
    0
    >>> list(dirs)
    [TopicPartition(topic='orders', partition=0), TopicPartition(topic='orders', partition=1)]
    >>> dirs.topics["orders"].partitions, dirs.directories[0].partitions, dirs.mode
    ((0, 1), 2, 'a')
    >>> dirs.config.log_retention_hours, dirs.jobs[0].name, dirs.problems
    (168, 'kafka-log-retention', {})
    """

    def __init__(self, paths: list[str], store: LogStore | DirsView) -> None:
        self._paths = paths
        self._store = store
        self._pid = os.getpid()
        _opened.add(self)

    def _open(self) -> LogStore | DirsView:
        if self._pid != os.getpid():
            raise IllegalState(
                "the directories belong to the process that opened them",
                hint="open them in the child process instead of before the fork",
            )
        if self._store.closed:
            raise LogClosed(f"the directories {', '.join(self._paths)} are closed")
        return self._store

    def _open_for_writing(self) -> LogStore:
        store = self._open()
        if store.mode == "r":
            raise ReadOnlyLog(f"the directories {', '.join(self._paths)} were opened for reading")
        return store

    # Properties

    @property
    def mode(self) -> Literal["r", "a"]:
        """Mode in which the directories were opened."""
        return self._store.mode

    @property
    def topics(self) -> dict[str, Topic]:
        """Topics by name: id, partition numbers, own settings."""
        return self._open().topics()

    @property
    def directories(self) -> tuple[Directory, ...]:
        """The data directories; `offline_error` is the reason why one is offline."""
        return self._open().directories

    @property
    def problems(self) -> Mapping[TopicPartition, KafkalogError]:
        """Partitions that could not be opened, each with the error that its log raises; the others are in use.

        Empty in mode "r", which opens a partition at its first use.
        """
        return self._open().problems

    @property
    def jobs(self) -> tuple[Job, ...]:
        """Background jobs: name, delay, period, and time, duration and error of the last run. Empty in mode "r"."""
        return self._open().jobs

    @property
    def config(self) -> BrokerConfig:
        """Settings of the store."""
        return self._open().config

    # Partitions

    @overload
    def __getitem__(self, key: str) -> TopicLogs: ...
    @overload
    def __getitem__(self, key: tuple[str, int]) -> Log: ...
    def __getitem__(self, key: str | tuple[str, int]) -> TopicLogs | Log:
        """Return the log of a partition, the same object each time, or a topic; they are closed with the directories.

        Raises UnknownTopicOrPartition (a LookupError); StorageError if it may be in an offline directory; LogClosed.
        """
        if isinstance(key, str):
            from kafkalog.dirs.topic import TopicLogs

            self.logs(key)  # raises its errors here
            return TopicLogs(self, key)
        topic_partition = _key(key)
        store = self._open()
        log = store.log(topic_partition)
        if log is None:
            raise store.missing(topic_partition)
        return log

    def get(self, topic: str, partition: int = 0) -> Log | None:
        """Return the log of a partition; None if there is none.

        >>> dirs.get("orders") is None
        True
        """
        return self._open().log(_key((topic, partition)))

    def logs(self, topic: str) -> list[Log]:
        """Return the logs of a topic's partitions, by number; errors as for `dirs[topic, number]`.

        >>> topic = dirs.create_topic("orders", 2)
        >>> [one.name for one in dirs.logs("orders")]
        ['orders-0', 'orders-1']
        """
        store = self._open()
        numbers = [key.partition for key in store.partitions if key.topic == topic]
        if not numbers:
            raise store.missing(TopicPartition(topic, 0))
        return [self[topic, number] for number in numbers]

    @overload
    def scan(
        self, topic: str, columns: Iterable[str] | None = None, *, order: Literal["partition"] = ...,
        since: Time | None = ..., until: Time | None = ..., isolation: str | None = ..., on_damage: str = ...,
        skipped: list[Skipped] | None = ..., batch_rows: int = ..., batch_bytes: int = ..., cursor: str | None = ...,
        cursors: Path | None = ...,
    ) -> TopicScan: ...  # fmt: skip
    @overload
    def scan(
        self, topic: str, columns: Iterable[str] | None = None, *, order: Order = ..., **options: Any
    ) -> ArrowTopicScan: ...
    def scan(
        self,
        topic: str,
        columns: Iterable[str] | None = None,
        *,
        order: Order = "partition",
        cursor: str | None = None,
        cursors: Path | None = None,
        **options: Any,
    ) -> TopicScan | ArrowTopicScan:
        """Return the records of all partitions of `topic` in the directories as lazy columns.

        `order` is "partition" (a `TopicScan`: one partition after the other) or "time" (an `ArrowTopicScan`: all merged
        by timestamp, with pyarrow). `options` are the keywords of `Log.scan`, except `start` and `stop`. With `cursor`
        the scan has the records after the positions of the named cursor, which its `commit()` moves; `cursors` is the
        directory where it is stored, as `store` of `Log.cursor`.

        Errors are those of `Log.scan` and `Log.cursor`. Raises UnknownTopicOrPartition for an unknown topic, and
        StorageError while a directory is offline, since it may hold more partitions. `table()`, `to_pandas()` and
        `to_polars()` of the result read all records into memory.

        >>> topic = dirs.create_topic("orders")
        >>> info = dirs["orders", 0].append([b"first", b"second"])
        >>> dirs.scan("orders", ["value"]).to_pandas()["value"].tolist()
        [b'first', b'second']
        """
        from kafkalog.dirs.scan import scan_topic
        from kafkalog.dirs.window import window_of

        logs = self._all_logs(topic)
        with window_of(logs, cursor, cursors, options) as window:
            return scan_topic(topic, logs, columns, order, window, **options)

    def _all_logs(self, topic: str) -> list[Log]:
        """Return the logs of a topic; raise StorageError while a directory is offline: it may have more of them."""
        if (error := self._open().offline(f"topic {topic} may have partitions that are not available")) is not None:
            raise error
        return self.logs(topic)

    def __contains__(self, key: object) -> bool:
        store = self._open()
        return isinstance(key, tuple) and len(key) == 2 and store.contains(TopicPartition(*key))

    def __iter__(self) -> Iterator[TopicPartition]:
        return iter(self._open().partitions)

    def __len__(self) -> int:
        return len(self._open().partitions)

    def __bool__(self) -> bool:
        return True

    # Topics

    def create_topic(
        self,
        name: str,
        partitions: int | None = None,
        settings: Mapping[str, object] | None = None,
        *,
        directory: Path | None = None,
        **unknown: Never,
    ) -> Topic:
        """Create a topic with `partitions` partitions (None: num.partitions), each in the directory with the fewest.

        `settings` are topic settings by dotted or attribute name; `directory` is one directory for all its partitions
        instead. Raises TopicExists, InvalidTopic, InvalidPartitions, UnknownConfig, ConfigError, StorageError,
        ReadOnlyLog.

        >>> dirs.create_topic("users", 3, {"cleanup.policy": "compact"}).settings
        {'cleanup.policy': 'compact'}
        """
        if unknown:
            raise _unknown_topic_keyword("create_topic", unknown, ("name", "partitions", "settings", "directory"))
        given = _checked_settings("create_topic", settings)
        where = None if directory is None else os.fspath(directory)
        return self._open_for_writing().create_topic(name, partitions, given, where)

    def delete_topic(self, name: str) -> None:
        """Delete a topic: rename its directories at once, remove them after log.segment.delete.delay.ms.

        Raises UnknownTopicOrPartition, PolicyViolation (delete.topic.enable is false), StorageError, ReadOnlyLog.

        >>> topic = dirs.create_topic("orders")
        >>> dirs.delete_topic("orders")
        >>> dirs.topics
        {}
        """
        self._open_for_writing().delete_topic(name)

    def alter_topic(
        self,
        name: str,
        settings: Mapping[str, object] | None = None,
        *,
        partitions: int | None = None,
        **unknown: Never,
    ) -> Topic:
        """Change a topic's settings (None resets one to the store's), add partitions, and return the topic.

        Settings take effect at once, for open logs too, and are stored. Raises UnknownTopicOrPartition,
        InvalidPartitions (fewer than the topic has), UnknownConfig, ConfigError, StorageError, ReadOnlyLog.

        >>> topic = dirs.create_topic("orders")
        >>> dirs.alter_topic("orders", {"retention.ms": 3_600_000}, partitions=2)
        Topic(name='orders', topic_id='...', partitions=(0, 1), settings={'retention.ms': '3600000'})
        """
        if unknown:
            raise _unknown_topic_keyword("alter_topic", unknown, ("name", "settings", "partitions"))
        return self._open_for_writing().alter_topic(name, _checked_settings("alter_topic", settings), partitions)

    def alter(self, settings: Mapping[str, object]) -> None:
        """Change settings of the store itself, by broker names; topics that do not set them follow at once.

        They are not stored. Raises ConfigError for a setting that only a reopened store can change; ReadOnlyLog.

        >>> dirs.alter({"log.retention.ms": 3_600_000})
        >>> dirs.config.log_retention_ms
        3600000
        """
        self._open_for_writing().alter(_checked_settings("alter", settings))

    def clean(self, topic: str, partition: int = 0) -> Clean:
        """Clean a compacted partition now, in this thread, regardless of how dirty it is; return the result.

        The clean ends before the active segment (`Log.roll` starts a new one), the first open transaction, and records
        that `min.compaction.lag.ms` protects; `end_offset` is where it ended, `stats` are its counters. The call waits
        while the partition is being cleaned, and keeps to `log.cleaner.io.max.bytes.per.second`, which all cleans
        share. It uses as much memory as a cleaner thread, in addition to theirs.

        Raises UnknownTopicOrPartition; IllegalState if the topic is not compacted; CorruptRecord for damage, with the
        log unchanged from there on; CleaningAborted if the partition is deleted, truncated or moved, or the directories
        are being closed, meanwhile; IllegalState if one of these is in progress already; StorageError, ReadOnlyLog,
        LogClosed.

        >>> topic = dirs.create_topic("users", settings={"cleanup.policy": "compact"})
        >>> users = dirs["users", 0]
        >>> users.append([(b"u-1", b"old"), (b"u-1", b"new")]), users.roll()
        (..., 2)
        >>> dirs.clean("users").end_offset, [record.value for record in users]
        (2, [b'new'])
        """
        return self._open_for_writing().clean(_key((topic, partition)))

    @property
    def cleaner(self) -> CleanerReport:
        """Report on the background cleaner: current and past cleans, and partitions that it skips, with the reason.

        >>> dirs.cleaner.totals.cleans, dirs.cleaner.uncleanable
        (0, ())
        """
        return self._open().cleaner

    def flush(self) -> None:
        """Sync all logs to disk. A StorageError of one log is raised after the others were synced.

        >>> dirs.flush()
        """
        self._open_for_writing().flush()

    # The object

    @property
    def closed(self) -> bool:
        """True after `close()`."""
        return self._store.closed

    def close(self) -> None:
        """End the jobs, sync and close all logs, release the locks. A second call does nothing.

        A Ctrl-C takes effect after that.

        >>> dirs.close()
        >>> dirs.closed
        True
        """
        if self._pid == os.getpid() and not self._store.closed:
            with deferred_interrupts():
                self._store.close()
                _opened.discard(self)

    def __enter__(self) -> LogDirs:
        self._open()
        return self

    def __exit__(self, *exc: object) -> None:
        self.close()

    def __del__(self) -> None:
        if getattr(self, "_pid", -1) == os.getpid() and not self._store.closed:
            warnings.warn(f"{self!r} was never closed", ResourceWarning, stacklevel=2, source=self)
            run_finalizer(self.close)

    def _ipython_key_completions_(self) -> list[tuple[str, int]]:
        return [(key.topic, key.partition) for key in self]

    def __repr__(self) -> str:
        """Return one line, from memory: the state at the last refresh."""
        where = ", ".join(self._paths)
        if self._pid != os.getpid() or self._store.closed:
            return f"<LogDirs closed {where}>"
        keys = self._store.cached_partitions
        topics = len({key.topic for key in keys})
        counted = f"{topics} topic{'' if topics == 1 else 's'} {len(keys)} partition{'' if len(keys) == 1 else 's'}"
        return f"<LogDirs {counted} {self.mode} {where}>"


def _key(key: object) -> TopicPartition:
    if isinstance(key, tuple) and len(key) == 2 and isinstance(key[0], str) and isinstance(key[1], int):
        return TopicPartition(*key)
    hint = 'use dirs["orders", 0] for a partition, or dirs["orders"] for a topic'
    raise IllegalArgument(f"{key!r} is not a partition", hint=hint)


_opened: weakref.WeakSet[LogDirs] = weakref.WeakSet()


def _close_at_exit() -> None:
    for dirs in tuple(_opened):
        if dirs._pid == os.getpid() and not dirs.closed:
            if dirs.mode == "a":
                warnings.warn(f"{dirs!r} was still open when the interpreter ended", ResourceWarning, stacklevel=2)
            dirs.close()


atexit.register(_close_at_exit)
