"""A log as columns of Arrow: streamed and in memory, plain, and compressed beside the codec on the same blocks."""

import shutil
import statistics
import struct
from collections.abc import Callable
from pathlib import Path

import kafkalog
from asv_benchmarks.benchmarks.common import NOW, batches
from asv_benchmarks.measure import Peers, Row, cpu_seconds, per_item, scaled
from asv_benchmarks.peers import python_peers
from kafkalog._core.batch.encode import encode_batch
from kafkalog._core.batch.scan import scan
from kafkalog._core.bytes.crc import crc32c
from kafkalog.records.column_reader import ColumnReader, kinds_of
from kafkalog.records.compression import compress, decompress
from kafkalog.records.format import CompressionType

MILLION = 1e6
RECORDS_A_BATCH = 1000
HEADER_BYTES = 61
STORED = ["key", "value", "offset", "timestamp"]
CODECS = (CompressionType.LZ4, CompressionType.SNAPPY, CompressionType.ZSTD, CompressionType.GZIP)


def rows(directory: Path) -> list[Row]:
    """Return the rows for records of 100 bytes in batches of 1000; a stream keeps one record batch at a time."""
    path = directory / "columns-0"
    with kafkalog.open(path, "a") as log:
        log.append_bytes(batches(RECORDS_A_BATCH, 100 << 20))
    found = []
    with kafkalog.open(path) as log:

        def stream(columns: list[str] | None = None) -> int:
            return sum(map(len, log.scan(columns)))

        def memory() -> int:
            return len(log.table())

        def rate(work: Callable[[], int]) -> float:
            return 1 / per_item(work) / MILLION

        peers = python_peers.aiokafka_to_arrow(batches(RECORDS_A_BATCH, 1 << 20))
        found.append(Row("decode to Arrow, all columns", rate(stream), 25, "M/s", False, scaled(peers, MILLION)))
        found.append(Row("decode to Arrow, stored columns", rate(lambda: stream(STORED)), 25, "M/s", False))
        found.append(Row("decode to Arrow, offset alone", rate(lambda: stream(["offset"])), 30, "M/s", False))
        found.append(Row("decode to a table in memory", rate(memory), 8, "M/s", False))
    shutil.rmtree(path)
    return found + [_compressed(codec) for codec in CODECS]


def _compressed(codec: CompressionType) -> Row:
    """Return the speed of decoding in one thread as a share of the codec's: both in turns, the median of the ratios."""
    data = _log_of(codec, 20)
    table = scan(data)
    count, kinds = table.record_count, kinds_of(STORED)
    blocks = [memoryview(data)[one.position + HEADER_BYTES : one.position + one.size] for one in table]

    def alone() -> None:
        for block in blocks:
            decompress(codec, block)

    def columns() -> None:
        reader = ColumnReader(kinds, 0, count)
        made = [*reader.read(data, scan(data)), *reader.rest()]
        assert sum(map(len, made)) == count

    pairs = [(cpu_seconds(alone, 4), cpu_seconds(columns, 4)) for _ in range(15)][1:]
    share = statistics.median(a / c for a, c in pairs)
    peers: Peers = {"codec M/s": count / statistics.median(a for a, _ in pairs) / MILLION}
    return Row(f"decode to Arrow, {codec.name.lower()}, share of the codec's speed", 100 * share, 80, "%", False, peers)


def _log_of(codec: CompressionType, count: int) -> bytes:
    """Return batches of 1000 records of 100 bytes of JSON, about half of which is new in each."""
    parts = []
    for number in range(count):
        values = [
            b'{"id":%d,"user":"u-%d","price":%d.%d,"tags":["%x"],"note":"paid by card"}' %
            (i, i * 7919 % 10007, i % 97, i % 10, i * 2654435761 % 2**32)
            for i in range(number * RECORDS_A_BATCH, (number + 1) * RECORDS_A_BATCH)
        ]  # fmt: skip
        plain = bytes(encode_batch([value.ljust(100) for value in values], timestamp=NOW))
        body = struct.pack(">h", codec) + plain[23:HEADER_BYTES] + bytes(compress(codec, plain[HEADER_BYTES:]))
        parts.append(struct.pack(">qiibI", number * RECORDS_A_BATCH, len(body) + 9, 0, 2, crc32c(body)) + body)
    return b"".join(parts)
