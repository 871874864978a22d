"""Reads of one log: by offset and time, records, batches, bytes of a range, columns, text, a cursor."""

import io
import random
from collections.abc import Iterator
from pathlib import Path

import kafkalog
from asv_benchmarks.benchmarks.common import NOW, fill_log, values
from asv_benchmarks.hot_paths.path import Place, Work, hot_path
from kafkalog.config.topic import LogConfig
from kafkalog.reading.chunks import batch_chunks
from kafkalog.storage.log import UnifiedLog
from kafkalog.tools.consume.templates import formatted
from kafkalog.tools.consume.text import write_records

PER_BATCH = 100


def timed_log(path: Path, batches: int, per_batch: int = PER_BATCH) -> None:
    """Create a log of so many batches, one per millisecond."""
    some = values(per_batch)
    with kafkalog.open(path, "a", segment_bytes=1 << 28) as log:
        for i in range(batches):
            log.append([(None, value, NOW + i) for value in some])


def each(work: object, asked: list[int]) -> Work:
    """Return the work of one call for each number."""

    def once() -> int:
        for what in asked:
            work(what)  # type: ignore[operator]
        return len(asked)

    return Work(once)


def _path(place: Place) -> Path:
    return place.directory / "hot-0"


def _filled(place: Place, per_batch: int = PER_BATCH) -> Path:
    path = _path(place)
    fill_log(path, per_batch, place.size(1 << 20, 32 << 20))
    return path


@hot_path("reading", "read by offset", item="record")
def by_offset(place: Place) -> Iterator[Work]:
    count = place.size(60, 20_000)
    timed_log(_path(place), count)
    rng = random.Random(5)
    with kafkalog.open(_path(place)) as log:
        yield each(log.__getitem__, [rng.randrange(count * PER_BATCH) for _ in range(place.size(60, 2000))])


@hot_path("reading", "look-up by time", item="look-up")
def by_time(place: Place) -> Iterator[Work]:
    count = place.size(60, 20_000)
    timed_log(_path(place), count)
    rng = random.Random(5)
    with kafkalog.open(_path(place)) as log:
        yield each(log.offset_for_time, [NOW + rng.randrange(count) for _ in range(place.size(60, 2000))])


@hot_path("reading", "iterate records", item="record")
def records(place: Place) -> Iterator[Work]:
    with kafkalog.open(_filled(place)) as log:

        def once() -> int:
            seen = 0
            for record in log.records():
                record.value  # noqa: B018
                seen += 1
            return seen

        yield Work(once)


@hot_path("reading", "iterate batches", item="batch")
def batches(place: Place) -> Iterator[Work]:
    with kafkalog.open(_filled(place, 10)) as log:
        yield Work(lambda: sum(1 for _ in log.batches()))


def ranges(place: Place, *how: int | str) -> Iterator[Work]:
    """Yield the work of reading ranges of a log at random offsets; `how` is what `UnifiedLog.read` takes besides."""
    log = UnifiedLog.open(_filled(place), LogConfig())
    rng = random.Random(6)
    offsets = [rng.randrange(log.log_end_offset) for _ in range(place.size(60, 2000))]
    yield each(lambda offset: log.read(offset, *how).records.read(), offsets)  # type: ignore[arg-type]
    log.close()


@hot_path("reading", "read a range as a fetch does", item="read")
def fetch(place: Place) -> Iterator[Work]:
    yield from ranges(place, 65536)


@hot_path("reading", "read what is committed", item="read")
def committed(place: Place) -> Iterator[Work]:
    yield from ranges(place, 1024, "committed")


@hot_path("reading", "text of records", item="record")
def text(place: Place) -> Iterator[Work]:
    template = formatted(r"%o %T %s\n", topic="hot", partition=0)
    with kafkalog.open(_filled(place)) as log:

        def once() -> int:
            return write_records(batch_chunks(log._source, 0, log.end_offset), io.BytesIO(), template).records

        yield Work(once)


@hot_path("reading", "poll with a cursor", item="record")
def cursor(place: Place) -> Iterator[Work]:
    path = place.directory / "data" / "hot-0"
    fill_log(path, PER_BATCH, place.size(1 << 20, 32 << 20))
    with (
        kafkalog.open(path) as log,
        log.cursor("hot", store=place.directory / "cursors", auto_commit_ms=None, sync=False) as cursor,
    ):

        def once() -> int:
            seen = 0
            for _ in range(5):
                seen += len(cursor.poll(200))
                cursor.commit()
            return seen

        yield Work(once, lambda: cursor.seek(0))
