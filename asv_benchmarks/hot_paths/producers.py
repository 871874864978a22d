"""The state of producers and transactions: staged, committed, written as a snapshot and read again."""

from collections.abc import Iterator

from asv_benchmarks.benchmarks.common import NOW, batch
from asv_benchmarks.hot_paths.path import Place, Work, hot_path
from kafkalog._core.batch.scan import scan
from kafkalog._core.batch.stamp import stamp_producer
from kafkalog._core.log.assign import assign
from kafkalog._core.log.producer_checks import Producers
from kafkalog._core.log.txns import AbortedRanges, visible_rows
from kafkalog.records.control import ControlType
from kafkalog.records.control_batch import marker_batch
from kafkalog.storage.producer_snapshot import format_snapshot, parse_snapshot

PRODUCERS = 50


def _numbered(count: int, producers: int) -> bytearray:
    """Return batches of one record of several producers in turn, offsets and sequences in order."""
    one, made = batch(1), bytearray()
    for number in range(count):
        numbered = bytearray(one)
        stamp_producer(numbered, 1 + number % producers, 0, number // producers)
        made += numbered
    assign(made, scan(made, check_crc=False), 0, 0)
    return made


@hot_path("producers", "stage and commit batches", item="batch")
def stage(place: Place) -> Iterator[Work]:
    data = _numbered(place.size(300, 10_000), PRODUCERS)
    table = scan(data)

    def once() -> int:
        known = Producers()
        staged = known.stage(table, 0, len(table), data)
        assert staged is not None
        known.commit(staged, 0)
        return len(table)

    yield Work(once)


@hot_path("producers", "snapshot, written and read", item="producer")
def snapshot(place: Place) -> Iterator[Work]:
    count = place.size(200, 5_000)
    entries = [(1 + i, 0, i, 10 * i, 0, NOW + i, -1, -1) for i in range(count)]
    yield Work(lambda: len(parse_snapshot(format_snapshot(entries))))


@hot_path("producers", "leave out what was aborted", item="batch")
def visible(place: Place) -> Iterator[Work]:
    count = place.size(1000, 20_000)
    data = _numbered(count, PRODUCERS)
    table = scan(data)
    aborted = AbortedRanges((1 + i % PRODUCERS, 10 * i, 10 * i + 9) for i in range(count // 20))

    def once() -> int:
        visible_rows(table, 0, len(table), aborted)
        return len(table)

    yield Work(once)


@hot_path("producers", "write a marker", item="marker")
def marker(place: Place) -> Iterator[Work]:
    def once() -> int:
        for offset in range(30):
            marker_batch(ControlType.COMMIT, 7, 0, 0, timestamp=NOW, base_offset=offset)
        return 30

    yield Work(once)
