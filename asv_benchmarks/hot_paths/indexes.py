"""The three indexes of a segment: entries written, found by offset and time, files opened and mapped."""

import random
from array import array
from collections.abc import Iterator
from pathlib import Path

from asv_benchmarks.hot_paths.path import Place, Work, hot_path
from kafkalog.storage.index.aborted_txns import AbortedTxn
from kafkalog.storage.index.offset_index import OffsetIndex
from kafkalog.storage.index.time_index import TimeIndex
from kafkalog.storage.index.transaction_index import TransactionIndex

INDEX_BYTES = 10 << 20
ENTRIES = 100
T0 = 1_700_000_000_000


def offset_index(directory: Path, count: int) -> OffsetIndex:
    """Return an index of `count` entries, three offsets and a hundred bytes apart."""
    index = OffsetIndex(directory / "00000000000000000000.index", 0, INDEX_BYTES)
    for first in range(0, count, 1000):
        index.extend([(3 * i + 1, 100 * i, 0, 0) for i in range(first, min(first + 1000, count))])
    return index


def targets(count: int, asked: int) -> list[int]:
    """Return random offsets in such an index."""
    rng = random.Random(3)
    return [rng.randrange(3 * count) for _ in range(asked)]


def _count(place: Place) -> int:
    return place.size(20_000, INDEX_BYTES // 8)


def looked_up(index: OffsetIndex | TimeIndex, some: list[int]) -> Iterator[Work]:
    """Look up targets one by one in an index, and close it."""

    def once() -> int:
        lookup = index.lookup
        for target in some:
            lookup(target)
        return len(some)

    yield Work(once)
    index.close()


@hot_path("indexes", "offset index, append", item="entry")
def append_offsets(place: Place) -> Iterator[Work]:
    index = OffsetIndex(place.directory / "00000000000000000000.index", 0, INDEX_BYTES)

    def once() -> int:
        for i in range(ENTRIES):
            index.append(3 * i + 1, 100 * i)
        return ENTRIES

    yield Work(once, index.truncate)
    index.close()


@hot_path("indexes", "time index, append", item="entry")
def append_times(place: Place) -> Iterator[Work]:
    index = TimeIndex(place.directory / "00000000000000000000.timeindex", 0, INDEX_BYTES)

    def once() -> int:
        for i in range(ENTRIES):
            index.maybe_append(T0 + i, 3 * i + 1)
        return ENTRIES

    yield Work(once, index.truncate)
    index.close()


@hot_path("indexes", "entries of one write", item="entry")
def extend(place: Place) -> Iterator[Work]:
    offsets = OffsetIndex(place.directory / "00000000000000000000.index", 0, INDEX_BYTES)
    times = TimeIndex(place.directory / "00000000000000000000.timeindex", 0, INDEX_BYTES)
    brought = [(3 * i + 1, 100 * i, T0 + i, 3 * i + 1) for i in range(ENTRIES)]

    def once() -> int:
        offsets.extend(brought)
        times.extend(brought)
        return ENTRIES

    def prepare() -> None:
        offsets.truncate()
        times.truncate()

    yield Work(once, prepare)
    offsets.close()
    times.close()


@hot_path("indexes", "offset index, look-up", item="look-up")
def lookup(place: Place) -> Iterator[Work]:
    count = _count(place)
    index = offset_index(place.directory, count)
    some = targets(count, place.size(300, 50_000))

    yield from looked_up(index, some)


@hot_path("indexes", "offset index, look-up at the end", item="look-up")
def lookup_warm(place: Place) -> Iterator[Work]:
    count = _count(place)
    index = offset_index(place.directory, count)

    def once() -> int:
        lookup, last = index.lookup, 3 * count - 50
        for _ in range(300):
            lookup(last)
        return 300

    yield Work(once)
    index.close()


@hot_path("indexes", "offset index, look-ups in one call", item="look-up")
def lookup_many(place: Place) -> Iterator[Work]:
    count = _count(place)
    index = offset_index(place.directory, count)
    some = array("q", targets(count, place.size(2_000, 200_000)))

    def once() -> int:
        index.lookup_many(some)
        return len(some)

    yield Work(once)
    index.close()


@hot_path("indexes", "time index, look-up", item="look-up")
def lookup_time(place: Place) -> Iterator[Work]:
    count = place.size(10_000, INDEX_BYTES // 12 - 1)
    index = TimeIndex(place.directory / "00000000000000000000.timeindex", 0, INDEX_BYTES)
    for first in range(0, count, 1000):
        index.extend([(i, i, T0 + 3 * i, i) for i in range(first, min(first + 1000, count))])
    some = [T0 + target for target in targets(count, place.size(300, 50_000))]

    yield from looked_up(index, some)


@hot_path("indexes", "transaction index, collect", item="look-up")
def collect(place: Place) -> Iterator[Work]:
    index = TransactionIndex(place.directory / "00000000000000000000.txnindex", 0)
    count = place.size(100, 20_000)
    index.extend([AbortedTxn(0, 7, 10 * i, 10 * i + 5, 10 * i) for i in range(count)])
    some = [10 * target // 3 for target in targets(count - 20, 20)]

    def once() -> int:
        for first in some:
            index.collect(first, first + 100)
        return len(some)

    yield Work(once)
    index.close()


@hot_path("indexes", "open and map an index", item="index")
def open_mapped(place: Place) -> Iterator[Work]:
    index = offset_index(place.directory, 2000)
    index.close()
    path = index.path

    def once() -> int:
        for _ in range(20):
            opened = OffsetIndex(path, 0, INDEX_BYTES)
            opened.lookup(3000)
            opened.close_handler()
        return 20

    yield Work(once)
