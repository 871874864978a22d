"""Shared by the benchmark classes: data of the usual shapes, and a scratch directory for each class."""

import shutil
import tempfile
import zlib
from collections.abc import Callable
from pathlib import Path

import cramjam

from kafkalog._core.batch.encode import encode_batch

RECORD_BYTES = 100
NOW = 1_700_000_000_000
VALUE = bytes(range(65, 90)) * 4


def values(count: int) -> list[bytes]:
    """Return `count` different values of 100 bytes."""
    return [b"%012d" % i + VALUE[:88] for i in range(count)]


def batch(count: int) -> bytes:
    """Return a ready v2 batch of `count` records of 100 bytes."""
    return bytes(encode_batch(values(count), timestamp=NOW))


def batches(count: int, total_bytes: int) -> bytes:
    """Return batches of `count` records back to back, consecutive offsets, about `total_bytes` in all."""
    from kafkalog._core.batch.scan import scan
    from kafkalog._core.log.assign import assign

    one = batch(count)
    data = bytearray(one * max(1, total_bytes // len(one)))
    assign(data, scan(data, check_crc=False), 0, 0)
    return bytes(data)


def fill_log(path: Path, records_per_batch: int, total_bytes: int) -> None:
    """Create a log of about that size in the partition directory `path`, and close it; it is in the page cache."""
    import kafkalog

    ready = batches(records_per_batch, 1 << 20)
    with kafkalog.open(path, "a") as log:
        for _ in range(max(1, total_bytes // len(ready))):
            log.append_bytes(bytearray(ready))


def codecs() -> dict[str, Callable[[memoryview], object]]:
    """Return each codec's own compression of one block, into existing memory if the package can do that."""
    room = memoryview(bytearray(1 << 17))
    try:
        import deflate

        def gzip(block: memoryview) -> object:
            return deflate.gzip_compress(block, 6)
    except ImportError:

        def gzip(block: memoryview) -> object:
            return zlib.compress(block, 6, 31)

    try:
        import zstandard

        zstd: Callable[[memoryview], object] = zstandard.ZstdCompressor(level=3).compress
    except ImportError:

        def zstd(block: memoryview) -> object:
            return cramjam.zstd.compress_into(block, room, level=3)

    return {
        "gzip": gzip,
        "snappy": lambda block: cramjam.snappy.compress_raw_into(block, room),
        "lz4": lambda block: cramjam.lz4.compress_block_into(block, room, store_size=False),
        "zstd": zstd,
    }


class Scratch:
    """Base of classes that need a directory; it goes with them."""

    directory: Path

    def make_directory(self) -> Path:
        """Return a new empty directory."""
        self.directory = Path(tempfile.mkdtemp(prefix="kafkalog-asv-"))
        return self.directory

    def teardown(self, *_: object) -> None:
        shutil.rmtree(self.directory, ignore_errors=True)
