"""Each codec: batches compressed as they are produced, and made plain as they are read."""

import zlib
from collections.abc import Iterator
from functools import partial

from asv_benchmarks.benchmarks.common import NOW
from asv_benchmarks.hot_paths.path import Place, Work, hot_path
from kafkalog._core.batch.encode import encode_batch
from kafkalog._core.batch.repack import with_payload
from kafkalog._core.batch.scan import BatchTable, scan
from kafkalog.records.compression import compress
from kafkalog.records.format import CompressionType
from kafkalog.records.packing import pack, parse_compression
from kafkalog.records.plain_runs import plain_runs

HEADER_BYTES = 61
LIMIT_BYTES = 1 << 28
WORDS = b"every message of this log says something of its own, now and then the same once more"


def text_values(count: int) -> list[bytes]:
    """Return lines of text of 100 bytes that a codec shrinks to a third."""
    return [
        b'{"id": %07d, "user": "%08x", "text": "%s"}' % (i, zlib.crc32(b"%d" % i), WORDS[i % 41 :][:49])
        for i in range(count)
    ]


def made_plain(data: bytes, table: BatchTable) -> int:
    """Decompress all rows of a table; return the bytes of their records."""
    size = 0
    for run in plain_runs(data, table, limit_bytes=LIMIT_BYTES):
        assert not run.failed
        size += memoryview(run.data).nbytes - HEADER_BYTES * len(run.table)
    return size


def _plain(place: Place) -> bytes:
    return bytes(encode_batch(text_values(place.size(100, 1000)), timestamp=NOW))


def written(place: Place, codec: str) -> Iterator[Work]:
    """Compress a few batches as `produce -z` does."""
    batches = bytearray(_plain(place) * 5)
    compression = parse_compression(codec)

    def once() -> int:
        pack(batches, compression, limit_bytes=1 << 20)
        return 5

    yield Work(once)


def read(place: Place, codec: str) -> Iterator[Work]:
    """Decompress a few batches."""
    plain, kind = _plain(place), CompressionType[codec.upper()]
    one = with_payload(plain[:HEADER_BYTES], memoryview(bytes(compress(kind, plain[HEADER_BYTES:]))), kind)
    data = bytes(one) * 20
    table = scan(data)

    def once() -> int:
        made_plain(data, table)
        return len(table)

    yield Work(once)


for _codec in ("gzip", "snappy", "lz4", "zstd"):
    hot_path("codecs", f"{_codec}, written", item="batch")(partial(written, codec=_codec))
for _codec in ("gzip", "snappy", "lz4", "zstd"):
    hot_path("codecs", f"{_codec}, read", item="batch")(partial(read, codec=_codec))
