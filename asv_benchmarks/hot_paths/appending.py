"""Appends to one log, in every shape, and commits that wait for the disk."""

import threading
from collections.abc import Callable, Iterator

import kafkalog
from asv_benchmarks.benchmarks.common import NOW, batch, batches, values
from asv_benchmarks.hot_paths.path import Place, Work, hot_path
from kafkalog._core.batch.stamp import stamp_producer

SEGMENT_BYTES = 1 << 29
VALUE = b"x" * 100


def repeated(log: kafkalog.Log, times: int, append: Callable[[], object], items: int = 1) -> Work:
    """Return the work of so many appends; `prepare` truncates the log, so each round begins in an empty segment."""

    def once() -> int:
        for _ in range(times):
            append()
        return times * items

    return Work(once, lambda: log.truncate_to(0))


def opened(place: Place, **settings: object) -> kafkalog.Log:
    """Return a new log that does not roll during the measurement."""
    given: dict[str, object] = {"segment_bytes": SEGMENT_BYTES, **settings}
    return kafkalog.open(place.directory / "hot-0", "a", **given)  # type: ignore[arg-type]


def ready(place: Place, count: int, times: int) -> Iterator[Work]:
    """Ready batches of `count` records, one for each call."""
    with opened(place) as log:
        data = bytearray(batch(count))
        yield repeated(log, times, lambda: log.append_bytes(data), count)


@hot_path("appending", "append one record", item="record")
def one(place: Place) -> Iterator[Work]:
    with opened(place) as log:
        yield repeated(log, place.size(60, 2000), lambda: log.append(VALUE))


@hot_path("appending", "append a list of 1000 values", item="record")
def many(place: Place) -> Iterator[Work]:
    with opened(place) as log:
        some = values(1000)
        yield repeated(log, 3, lambda: log.append(some), len(some))


@hot_path("appending", "append a ready batch of 1", item="batch")
def ready_1(place: Place) -> Iterator[Work]:
    yield from ready(place, 1, place.size(100, 2000))


@hot_path("appending", "append a ready batch of 100", item="record")
def ready_100(place: Place) -> Iterator[Work]:
    yield from ready(place, 100, 30)


@hot_path("appending", "append many batches in one call", item="batch")
def ready_many(place: Place) -> Iterator[Work]:
    with opened(place) as log:
        data = bytearray(batches(1, 8 << 10))
        count = len(data) // len(batch(1))
        yield repeated(log, 4, lambda: log.append_bytes(data), count)


@hot_path("appending", "append of an idempotent producer", item="batch")
def idempotent(place: Place) -> Iterator[Work]:
    with opened(place) as log:
        count = place.size(60, 1000)
        made = [bytearray(batch(1)) for _ in range(count)]

        def number() -> None:
            log.truncate_fully_and_start_at(0)
            for sequence, one in enumerate(made):
                stamp_producer(one, 7, 0, sequence)

        def once() -> int:
            for one in made:
                log.append_bytes(one)
            return count

        yield Work(once, number)


@hot_path("appending", "replicate batches", item="batch")
def replicate(place: Place) -> Iterator[Work]:
    with opened(place) as log:
        data = bytearray(batches(10, 64 << 10))
        count = len(data) // len(batch(10))
        yield repeated(log, 1, lambda: log.replicate(data), count)


@hot_path("appending", "append compressed, lz4", item="record")
def compressed(place: Place) -> Iterator[Work]:
    with opened(place, compression_type="lz4") as log:
        some = values(100)
        yield repeated(log, 5, lambda: log.append(some), len(some))


@hot_path("appending", "append an Arrow table", item="record")
def arrow(place: Place) -> Iterator[Work]:
    import pyarrow as pa

    count = place.size(2_000, 200_000)
    table = pa.table({"value": pa.array(values(count), pa.binary()), "timestamp": pa.array([NOW] * count)})
    with opened(place) as log:
        yield repeated(log, 1, lambda: log.append_arrow(table), count)


@hot_path("commits", "append one record, sync=True", item="record")
def durable(place: Place) -> Iterator[Work]:
    with opened(place, sync=True) as log:
        yield repeated(log, place.size(30, 400), lambda: log.append(VALUE))


@hot_path("commits", "append one record, flush.messages=1", item="record")
def flushed(place: Place) -> Iterator[Work]:
    with opened(place, flush_messages=1) as log:
        yield repeated(log, place.size(30, 400), lambda: log.append(VALUE))


@hot_path("commits", "put records into a writer", item="record")
def writer(place: Place) -> Iterator[Work]:
    count = place.size(300, 10_000)
    with opened(place) as log, log.writer(linger_ms=60_000) as writer:

        def once() -> int:
            for _ in range(count):
                writer.append(VALUE)
            return count

        yield Work(once, writer.flush)


@hot_path("commits", "group commit of 4 threads", item="commit")
def group_commit(place: Place) -> Iterator[Work]:
    count = place.size(20, 200)
    with opened(place) as log, log.writer(sync=True) as writer:

        def commit() -> None:
            for _ in range(count):
                writer.append(VALUE).result()

        def once() -> int:
            running = [threading.Thread(target=commit) for _ in range(4)]
            for thread in running:
                thread.start()
            for thread in running:
                thread.join()
            return 4 * count

        yield Work(once)
