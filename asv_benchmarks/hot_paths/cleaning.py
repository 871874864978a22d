"""Cleaning a compacted log: its map, what of a chunk stays, a whole clean; and the plan of retention."""

import shutil
from collections.abc import Iterator

import kafkalog
from asv_benchmarks.benchmarks.common import NOW, values
from asv_benchmarks.cleaning import SETTINGS, key, make_log
from asv_benchmarks.hot_paths.path import Place, Work, hot_path
from kafkalog._core.batch.scan import scan
from kafkalog._core.clean.last_records import LastRecords
from kafkalog._core.clean.map_filler import MapFiller
from kafkalog._core.clean.offset_map import SkimpyOffsetMap
from kafkalog._core.log.txns import AbortedRanges
from kafkalog.cleaner.retain import Retainer
from kafkalog.cleaner.transactions import CleanedTransactions
from kafkalog.config.topic import LogConfig
from kafkalog.records.builder import RecordsBuilder
from kafkalog.storage.log import UnifiedLog
from kafkalog.storage.retention import plan_retention

MAP_BYTES = 1 << 20


def keyed_batches(count: int, total: int) -> bytes:
    """Return batches of `count` records of 100 bytes back to back, `total` records in all, each key twice."""
    made = []
    for base in range(0, total, count):
        builder = RecordsBuilder(base)
        for offset, value in enumerate(values(count), base):
            builder.append(NOW, key(offset % (total // 2)), value[:84], offset=offset)
        made.append(builder.build())
    return b"".join(made)


def filled(data: bytes, offset_map: SkimpyOffsetMap, total: int) -> int:
    """Clear a map and put the keys of batches into it; return their number."""
    offset_map.clear(expected=total)
    table = scan(data, check_crc=False)
    filler = MapFiller(offset_map, AbortedRanges(), start_offset=0, end_offset=2**62, most=offset_map.slots)
    assert filler.take(data, table, 0, len(table))
    return filler.messages_read


@hot_path("cleaning", "offset map, put", item="key")
def map_put(place: Place) -> Iterator[Work]:
    offset_map = SkimpyOffsetMap(place.size(256 << 10, 32 << 20))
    count = int(offset_map.slots * 0.75)
    keys = b"".join(map(key, range(count)))

    def once() -> int:
        offset_map.clear()
        offset_map.put_run(keys, 16, 0)
        return count

    yield Work(once)


@hot_path("cleaning", "map of a log's keys", item="record")
def map_build(place: Place) -> Iterator[Work]:
    total = place.size(5_000, 200_000)
    data, offset_map = keyed_batches(50, total), SkimpyOffsetMap(place.size(MAP_BYTES, 32 * MAP_BYTES))
    yield Work(lambda: filled(data, offset_map, total))


@hot_path("cleaning", "what of a chunk stays", item="record")
def retain(place: Place) -> Iterator[Work]:
    total = place.size(5_000, 200_000)
    data, offset_map = keyed_batches(50, total), SkimpyOffsetMap(place.size(MAP_BYTES, 32 * MAP_BYTES))
    filled(data, offset_map, total)
    offset_map.update_latest_offset(total - 1)

    def once() -> int:
        retainer = Retainer(
            offset_map, CleanedTransactions(), now_ms=NOW, delete_retention_ms=1000, upper_bound_offset=total
        )
        retainer.begin_segment("hot.log", retain_legacy_deletes=True, last_records=LastRecords(()))
        return retainer.filter(data).messages_read

    yield Work(once)


@hot_path("cleaning", "clean a log", item="byte")
def clean(place: Place) -> Iterator[Work]:
    made, copy = place.directory / "made" / "hot-0", place.directory / "copy" / "hot-0"
    make_log(made, 100, place.size(500_000, 50_000_000))
    held: list[kafkalog.Log] = []

    def prepare() -> None:
        while held:
            held.pop().close()
        shutil.rmtree(copy.parent, ignore_errors=True)
        shutil.copytree(made.parent, copy.parent)
        held.append(kafkalog.open(copy, "a", **SETTINGS))  # type: ignore[arg-type]

    def once() -> int:
        before = held[0].size
        held[0].compact(offset_map_bytes=MAP_BYTES * place.size(1, 64))
        return before

    yield Work(once, prepare)
    while held:
        held.pop().close()


@hot_path("cleaning", "plan what retention takes", item="plan")
def retention(place: Place) -> Iterator[Work]:
    path = place.directory / "hot-0"
    with kafkalog.open(path, "a") as made:
        for _ in range(place.size(20, 200)):
            made.append((b"k", b"v", NOW))
            made.roll()
    config = LogConfig(retention_ms=1000, retention_bytes=100)
    log = UnifiedLog.open(path, config)

    def once() -> int:
        plan_retention(log.state, config, 2 * NOW)
        return 1

    yield Work(once)
    log.close()
