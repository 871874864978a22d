"""TopicLogs: the partitions of one topic as one Python object."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import TYPE_CHECKING, Any

from kafkalog.keys.lookup import checked_key
from kafkalog.log.writable import StoreLog
from kafkalog.queue.opening import open_queue

if TYPE_CHECKING:
    import pandas
    import polars
    import pyarrow
    from typing_extensions import Buffer

    from kafkalog._core.batch.record import Record
    from kafkalog.dirs.log_dirs import LogDirs
    from kafkalog.dirs.scan import ArrowTopicScan, Order, TopicScan
    from kafkalog.dirs.topic_keys import LatestOfTopic
    from kafkalog.inspect.counts import PathCounts
    from kafkalog.log.log import Log
    from kafkalog.queue.queue import WorkQueue
    from kafkalog.records.table import Table
    from kafkalog.where import Expression


class TopicLogs:
    """A topic of open data directories: `topic[0]` is the `Log` of a partition, iteration yields all of them.

    Each call looks at the directories again, as the calls of `LogDirs` do, whose errors it has.

    >>> topic = dirs.create_topic("orders", 2)
    >>> orders = dirs["orders"]
    >>> orders, orders.name, orders.partitions, len(orders)
    (<TopicLogs orders, 2 partitions>, 'orders', (0, 1), 2)
    >>> orders[1].append([b"first", b"second"]).last_offset
    1
    >>> [log.end_offset for log in orders]
    [0, 2]
    """

    __slots__ = ("_dirs", "name")

    def __init__(self, dirs: LogDirs, name: str) -> None:
        self._dirs = dirs
        self.name = name

    @property
    def partitions(self) -> tuple[int, ...]:
        """Numbers of the partitions."""
        return tuple(log.partition for log in self)

    def queue(
        self, name: str, *, start: str | None = "earliest", settings: Mapping[str, object] | None = None
    ) -> WorkQueue:
        """Open the queue called `name` on all partitions: a share group of this process, whose state is kept.

        The directories are open in mode "a". Each record goes to one of the queues of this name, until it is
        acknowledged. `start` is where a new queue begins, "earliest", "latest" or "by_duration:..."; None leaves it to
        the settings. `settings` are settings of the group by Kafka's names (docs/queues.md); they are kept.

        Raises ReadOnlyLog, ConfigError, MissingPackage without the extra `server`, IllegalState for a group of another
        kind, and for directories without some partitions of the topic.

        >>> topic = dirs.create_topic("tasks", 2)
        >>> info = dirs["tasks", 1].append([b"resize 1", b"resize 2"])
        >>> with dirs["tasks"].queue("workers") as queue:
        ...     for item in queue.acquire(max_records=10):
        ...         print(item.topic_partition, item.value)
        ...         item.ack()
        tasks-1 b'resize 1'
        tasks-1 b'resize 2'
        """
        opened = self[self.partitions[0]].opened_for_append()
        assert isinstance(opened, StoreLog)
        return open_queue(opened.manager, self.name, name, start=start, settings=settings)

    def scan(
        self, columns: Iterable[str] | None = None, *, order: Order = "partition", **options: Any
    ) -> TopicScan | ArrowTopicScan:
        """Return the records of all partitions as lazy columns; arguments and errors as for `LogDirs.scan`.

        >>> topic = dirs.create_topic("orders", 2)
        >>> dirs["orders"].scan(["value"])
        <TopicScan orders, 2 partitions: value>
        """
        scan: TopicScan | ArrowTopicScan = self._dirs.scan(self.name, columns, order=order, **options)
        return scan

    def table(
        self, columns: Iterable[str] | None = None, *, order: Order = "partition", **options: Any
    ) -> Table | pyarrow.Table:
        """Return the records of all partitions as columns in memory; arguments as for `scan`.

        By partition it is a `Table`, by time or with typed columns a pyarrow Table.

        >>> topic = dirs.create_topic("orders", 2)
        >>> info = dirs["orders", 1].append([b"first", b"second"])
        >>> dirs["orders"].table(["offset"]), dirs["orders"].table(["offset"], order="time").num_rows
        (<Table of 2 records: offset>, 2)
        """
        return self.scan(columns, order=order, **options).table()

    def to_pandas(
        self, columns: Iterable[str] | None = None, *, order: Order = "partition", **options: Any
    ) -> pandas.DataFrame:
        """Return the records of all partitions as a pandas DataFrame; arguments as for `scan`.

        >>> topic = dirs.create_topic("orders", 2)
        >>> info = dirs["orders", 1].append([b"first", b"second"])
        >>> dirs["orders"].to_pandas(["value"])["value"].tolist()
        [b'first', b'second']
        """
        return self.scan(columns, order=order, **options).to_pandas()

    def to_polars(
        self, columns: Iterable[str] | None = None, *, order: Order = "partition", **options: Any
    ) -> polars.DataFrame:
        """Return the records of all partitions as a Polars DataFrame; arguments as for `scan`.

        >>> topic = dirs.create_topic("orders", 2)
        >>> info = dirs["orders", 1].append([b"first", b"second"])
        >>> dirs["orders"].to_polars(["offset"])["offset"].to_list()
        [0, 1]
        """
        return self.scan(columns, order=order, **options).to_polars()

    def count_by(
        self,
        path: str,
        *,
        where: str | Expression | None = None,
        top: int = 20,
        progress: Callable[[float], object] | None = None,
        **typed: Any,
    ) -> PathCounts:
        """Return the numbers of records of all partitions by a field; arguments and errors as for `Log.count_by`.

        >>> topic = dirs.create_topic("orders", 2)
        >>> info = dirs["orders", 1].append([b"first", b"second"])
        >>> [(one.value, one.records) for one in dirs["orders"].count_by("partition").top]
        [(1, 2)]
        """
        from kafkalog.log.counting import count_logs_by

        return count_logs_by(self._dirs.logs(self.name), path, where, top, progress, typed)

    def get(self, key: Buffer, **options: Any) -> Record | None:
        """Return the last record with this key in the topic, None if there is none; options and errors as `Log.get`.

        All partitions are asked, since a key may be in any of them; of their last records, tombstones too, it is the
        one with the largest timestamp, of equal ones that of the first partition. With key indexes that takes
        microseconds for each partition; in a topic that one partitioner has filled, `dirs[topic, number].get(key)`
        asks only the one.

        >>> topic = dirs.create_topic("orders", 2)
        >>> info = dirs["orders", 1].append([(b"u-1", b"first"), (b"u-1", b"second")])
        >>> dirs["orders"].get(b"u-1").value, dirs["orders"].get(b"nobody")
        (b'second', None)
        """
        from kafkalog.dirs.topic_keys import last_record

        return last_record(self._all(), checked_key(key), options)

    def history(self, key: Buffer, **options: Any) -> Iterator[Record]:
        """Return an iterator of all records with this key, by time; options and errors as for `Log.history`.

        Always the oldest of the partitions' next records follows, so that the order of each partition is kept.

        >>> topic = dirs.create_topic("orders", 2)
        >>> for number, time in ((0, 2000), (1, 1000)):
        ...     info = dirs["orders", number].append([(b"u-1", b"at %d" % time, time)])
        >>> [record.value for record in dirs["orders"].history(b"u-1")]
        [b'at 1000', b'at 2000']
        """
        from kafkalog.dirs.topic_keys import merged_history

        return merged_history(self._all(), checked_key(key), options)

    def latest(
        self, *, in_memory: bool = False, memory_bytes: int | None = None, **options: Any
    ) -> LatestOfTopic:
        """Return the latest state of the topic: a read-only mapping from key to last record over all partitions.

        Arguments are as for `Log.latest`; `memory_bytes` is for all partitions, an equal share for each.

        >>> topic = dirs.create_topic("orders", 2)
        >>> info = dirs["orders", 0].append([(b"u-1", b"first"), (b"u-2", b"second")])
        >>> latest = dirs["orders"].latest(in_memory=True)
        >>> info = dirs["orders", 0].append([(b"u-1", None)])
        >>> latest[b"u-2"].value, len(latest), b"u-1" in latest
        (b'second', 1, False)
        """
        from kafkalog.dirs.topic_keys import LatestOfTopic

        return LatestOfTopic(self.name, self._all(), in_memory=in_memory, memory_bytes=memory_bytes, options=options)

    def build_time_ranges(self) -> int:
        """Note the times of all partitions' closed segments as `Log.build_time_ranges`; return the number read.

        >>> topic = dirs.create_topic("orders", 2)
        >>> dirs["orders"].build_time_ranges()
        0
        """
        return sum(log.build_time_ranges() for log in self._all())

    def _all(self) -> list[Log]:
        """Return the logs; raise StorageError while a directory is offline, since it may hold more of them."""
        return self._dirs._all_logs(self.name)

    def __contains__(self, key: object) -> bool:
        """Return True if a partition has a record with this key, a tombstone too, or is this very log."""
        from kafkalog.log.log import Log

        if isinstance(key, Log):
            return any(one is key for one in self)
        return any(log.get(checked_key(key)) is not None for log in self._all())

    def __getitem__(self, partition: int) -> Log:
        return self._dirs[self.name, partition]

    def __iter__(self) -> Iterator[Log]:
        return iter(self._dirs.logs(self.name))

    def __len__(self) -> int:
        return len(self._dirs.logs(self.name))

    def __bool__(self) -> bool:
        return True

    def __repr__(self) -> str:
        count = len(self)
        return f"<TopicLogs {self.name}, {count} partition{'' if count == 1 else 's'}>"
