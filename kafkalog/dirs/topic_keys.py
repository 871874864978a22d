"""Look-ups by key in all partitions of a topic.

Every partition is asked: which one has a key depends on who wrote it, on its partitioner, and on how many partitions
there were then.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from heapq import merge
from itertools import islice
from typing import TYPE_CHECKING, Any

from kafkalog._core.batch.record import Record
from kafkalog.keys.latest import CHUNK_KEYS, LATEST_BYTES, LatestRecords, RecordsByKey
from kafkalog.log.keyed import check_latest_memory

if TYPE_CHECKING:
    from kafkalog.log.log import Log


def last_record(logs: Iterable[Log], key: bytes, options: dict[str, Any]) -> Record | None:
    """Return the last record of a key: of those of the partitions the newest, of equal times that of the first."""
    return newest(log.get(key, **options) for log in logs)


def newest(records: Iterable[Record | None]) -> Record | None:
    """Return the record with the largest timestamp, the first of equal ones; None if there is none."""
    return max((one for one in records if one is not None), key=_time, default=None)


def merged_history(logs: Iterable[Log], key: bytes, options: dict[str, Any]) -> Iterator[Record]:
    """Return an iterator of the records of a key by time; the order of each partition is kept."""
    return merge(*(log.history(key, **options) for log in logs), key=_time)


def _time(record: Record) -> int:
    return record.timestamp


class LatestOfTopic(RecordsByKey):
    """The latest state of a topic by key, as of its partitions' `Log.latest`: read-only, and it follows the logs.

    A key that several partitions have has the newest of their records, of equal times that of the first partition. A
    tombstone removes a key from its own partition. Iteration goes over one partition after the other, and `len` counts
    in the same way, but for keys in memory. The partitions are those of the creation. Threads: safe; an iterator
    belongs to one thread.

    >>> topic = dirs.create_topic("orders", 2)
    >>> info = dirs["orders", 1].append([(b"u-1", b"first"), (b"u-2", b"second")])
    >>> latest = dirs["orders"].latest()
    >>> latest, latest[b"u-1"].value, b"nobody" in latest, list(latest), latest.is_in_memory
    (<LatestOfTopic of orders>, b'first', False, [b'u-1', b'u-2'], False)
    >>> {key: record.offset for key, record in latest.items()}, [record.value for record in latest.values()]
    ({b'u-1': 0, b'u-2': 1}, [b'first', b'second'])
    """

    __slots__ = ("_name", "_parts")

    def __init__(
        self, name: str, logs: Iterable[Log], *, in_memory: bool, memory_bytes: int | None, options: dict[str, Any]
    ) -> None:
        found = [*logs]
        if memory_bytes is not None or in_memory:
            check_latest_memory(memory_bytes, in_memory=in_memory)
            share = (LATEST_BYTES if memory_bytes is None else memory_bytes) // len(found)
            options = {**options, "in_memory": in_memory, "memory_bytes": share}
        self._name = name
        self._parts: list[LatestRecords] = [log.latest(**options) for log in found]

    @property
    def is_in_memory(self) -> bool:
        """True while the keys of all partitions are held in memory."""
        return all(one.is_in_memory for one in self._parts)

    def _find(self, key: bytes) -> Record | None:
        return newest(one.get(key) for one in self._parts)

    def _records(self) -> Iterator[Record]:
        for number, part in enumerate(self._parts):
            items = iter(part.items())
            while chunk := [*islice(items, CHUNK_KEYS)]:
                others = [one.find_many([key for key, _ in chunk]) for one in self._parts if one is not part]
                for at, (_, record) in enumerate(chunk):
                    before, after = others[:number], others[number:]
                    if newest([*(one[at] for one in before), record, *(one[at] for one in after)]) is record:
                        yield record

    def __len__(self) -> int:
        if self.is_in_memory:
            return len(set[bytes]().union(*self._parts))
        return sum(1 for _ in self._records())

    def __repr__(self) -> str:
        return f"<LatestOfTopic of {self._name}>"
