"""Batches in memory: made, walked over, decoded, validated, given their offsets."""

from collections.abc import Iterator

from asv_benchmarks.benchmarks.common import NOW, batches, values
from asv_benchmarks.hot_paths.path import Place, Work, hot_path
from kafkalog._core.batch.decode import decode
from kafkalog._core.batch.encode import BatchBuilder, encode_batch
from kafkalog._core.batch.record import RecordIterator
from kafkalog._core.batch.scan import scan
from kafkalog._core.log.admit import check_rows
from kafkalog._core.log.assign import assign
from kafkalog._core.text.ingest import LineEncoder
from kafkalog.records.legacy import LegacyBuilder
from kafkalog.records.tables import record_tables


def _data(place: Place, count: int) -> bytes:
    return batches(count, place.size(64 << 10, 4 << 20))


@hot_path("batches", "encode a list of values", item="record")
def encode(place: Place) -> Iterator[Work]:
    some = values(1000)

    def once() -> int:
        encode_batch(some, timestamp=NOW)
        return len(some)

    yield Work(once)


@hot_path("batches", "build a batch with keys and headers", item="record")
def build(place: Place) -> Iterator[Work]:
    records = [(value, value[:16]) for value in values(100)]
    headers = [("trace", b"0123456789abcdef")]

    def once() -> int:
        builder = BatchBuilder(1 << 16)
        for value, key in records:
            builder.append(value, key, NOW, headers)
        builder.build()
        return len(records)

    yield Work(once)


@hot_path("batches", "lines to batches", item="line")
def lines(place: Place) -> Iterator[Work]:
    text = b"".join(b"hello lagou %d\n" % i for i in range(place.size(5_000, 200_000)))
    count = text.count(b"\n")

    def once() -> int:
        encoder = LineEncoder()
        encoder.feed(text, len(text), NOW, final=True)
        encoder.seal()
        encoder.take()
        return count

    yield Work(once)


@hot_path("batches", "scan batches of 1", item="batch")
def scan_1(place: Place) -> Iterator[Work]:
    data = _data(place, 1)
    yield Work(lambda: len(scan(data)))


@hot_path("batches", "scan batches of 100, no checksum", item="batch")
def scan_unchecked(place: Place) -> Iterator[Work]:
    data = _data(place, 100) * 16
    yield Work(lambda: sum(len(scan(data, check_crc=False)) for _ in range(20)))


@hot_path("batches", "decode batches of 100", item="record")
def decode_100(place: Place) -> Iterator[Work]:
    data = _data(place, 100)
    table = scan(data)
    yield Work(lambda: len(decode(data, table)))


@hot_path("batches", "records of a decoded table", item="record")
def records(place: Place) -> Iterator[Work]:
    data = _data(place, 100)
    table = decode(data, scan(data))

    def once() -> int:
        for record in RecordIterator([table]):
            record.value  # noqa: B018
        return len(table)

    yield Work(once)


@hot_path("batches", "messages of version 1", item="record")
def legacy(place: Place) -> Iterator[Work]:
    builder = LegacyBuilder()
    count = place.size(500, 50_000)
    for value in values(count):
        builder.append(NOW, None, value)
    data = bytes(builder.build())
    yield Work(lambda: sum(map(len, record_tables(data, scan(data)))))


@hot_path("batches", "validate records", item="record")
def validate(place: Place) -> Iterator[Work]:
    data = _data(place, 100)
    table = scan(data)
    yield Work(lambda: check_rows(data, table).count)


@hot_path("batches", "assign offsets", item="batch")
def assign_offsets(place: Place) -> Iterator[Work]:
    data = bytearray(_data(place, 1))
    table = scan(data)

    def once() -> int:
        for first in range(10):
            assign(data, table, first, 5)
        return 10 * len(table)

    yield Work(once)
