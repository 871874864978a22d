"""TopicScan: all partitions of a topic as columns, read on use."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from itertools import chain
from typing import TYPE_CHECKING, Any

from kafkalog.log.scan import ColumnScan, LogScan
from kafkalog.records.column_reader import kinds_of

if TYPE_CHECKING:
    from kafkalog._core.arrow.columns import Columns
    from kafkalog.log.log import Log

__all__ = ["TopicScan"]


class TopicScan(ColumnScan):
    """The records of a topic's partitions as columns, read on use: partition after partition, each by offset.

    Like a `LogScan`, it has the Arrow C stream interface, so DuckDB, Polars and pyarrow read it in bounded memory, and
    iteration yields the same record batches. `scans` are those of the partitions, with their bounds; errors are theirs.

    >>> topic = dirs.create_topic("orders", 2)
    >>> for number in (0, 1):
    ...     info = dirs["orders", number].append([b"first", b"second"])
    >>> scan = dirs.scan("orders", ["partition", "offset", "value"])
    >>> scan, scan.topic, len(scan.scans), scan.columns
    (<TopicScan orders, 2 partitions: partition, offset, value>, 'orders', 2, ('partition', 'offset', 'value'))
    >>> scan.table().offsets.tolist(), len(scan.to_pandas()), len(scan.to_polars())
    ([0, 1, 0, 1], 4, 4)
    """

    __slots__ = ("_kinds", "scans", "topic")

    def __init__(self, topic: str, logs: Iterable[Log], columns: Iterable[str] | None, **options: Any) -> None:
        names = None if columns is None else [*columns]
        self.topic = topic
        self.scans: tuple[LogScan, ...] = tuple(log.scan(names, **options) for log in logs)
        self._kinds = kinds_of(names)

    def _pieces(self) -> Iterator[Columns]:
        return chain.from_iterable(scan._pieces() for scan in self.scans)

    def __repr__(self) -> str:
        count = len(self.scans)
        return f"<TopicScan {self.topic}, {count} partition{'' if count == 1 else 's'}: {', '.join(self.columns)}>"
