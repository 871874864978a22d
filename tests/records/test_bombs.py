"""Small batches that say, or hold, far more than they are: refused, in memory that the limit bounds."""

import gzip
import os
import struct
import subprocess
import sys
import tracemalloc
from collections.abc import Callable
from functools import cache
from pathlib import Path

import pytest
import zstandard

from kafkalog._core.batch.legacy import wrapper
from kafkalog._core.batch.repack import with_payload
from kafkalog._core.batch.scan import scan
from kafkalog.errors import InvalidRecord
from kafkalog.records import lz4_frame, xerial
from kafkalog.records.compression import compress
from kafkalog.records.plain_runs import plain_row
from kafkalog.records.tables import batch_table, record_tables
from tests.builder import R, batch

GZIP, SNAPPY, LZ4, ZSTD = 1, 2, 3, 4
MIB = 1 << 20
LIMIT_BYTES = MIB
# what a store may have more than its content, and a codec's largest block
ROOM_BYTES = 2 * LIMIT_BYTES + 9 * MIB
ZEROS = bytes(64 * MIB)
RLE_BLOCK = struct.pack("<I", (128 << 10) << 3 | 1 << 1)[:3] + b"\0"  # 128 KiB of one byte in four
LAST_RLE_BLOCK = struct.pack("<I", (128 << 10) << 3 | 1 << 1 | 1)[:3] + b"\0"
COMPRESSED_BLOCK = struct.pack("<I", 1 << 3 | 2 << 1)[:3] + b"\0"
ZSTD_MAGIC = b"\x28\xb5\x2f\xfd"


def varint(n: int) -> bytes:
    out = b""
    while n > 0x7F:
        out, n = out + bytes((n & 0x7F | 0x80,)), n >> 7
    return out + bytes((n,))


def lz4_header(content_size: int) -> bytes:
    from kafkalog._core.bytes.xxhash import xxh32

    fields = b"\x68\x70" + struct.pack("<Q", content_size)
    return lz4_frame.MAGIC + fields + bytes(((xxh32(fields) >> 8) & 0xFF,))


@cache
def zipped() -> bytes:
    return gzip.compress(ZEROS, mtime=0)


# codec and payload by name: those that hold much, and those that only say so; made where they are read
BOMBS: dict[str, tuple[int, Callable[[], bytes]]] = {
    "gzip of zeros": (GZIP, zipped),
    "gzip of many members": (GZIP, lambda: gzip.compress(bytes(MIB // 2), mtime=0) * 200),
    "gzip in gzip": (GZIP, lambda: gzip.compress(zipped(), mtime=0) + zipped()),
    "snappy of zeros": (SNAPPY, lambda: bytes(compress(SNAPPY, ZEROS))),
    "snappy that declares 4 GiB": (SNAPPY, lambda: varint(0xFFFFFFFF) + b"\0" * 20),
    "snappy that declares 600 MB, framed": (
        SNAPPY, lambda: xerial.MAGIC + struct.pack(">iii", 1, 1, 25) + varint(600_000_000) + b"\0" * 20,
    ),
    "lz4 of zeros": (LZ4, lambda: bytes(compress(LZ4, ZEROS))),
    "lz4 with a content size of 2^63": (LZ4, lambda: lz4_header(2**63) + struct.pack("<I", 3) + b"abc"),
    "lz4 with 4 MiB blocks of nothing": (LZ4, lambda: lz4_header(0) + (struct.pack("<I", 5) + b"\0\0\0\0\0") * 1000),
    "zstd of zeros": (ZSTD, lambda: zstandard.compress(ZEROS)),
    "zstd without a content size": (ZSTD, lambda: zstandard.ZstdCompressor(write_content_size=False).compress(ZEROS)),
    "zstd of many frames": (ZSTD, lambda: zstandard.compress(bytes(MIB // 2)) * 300),
    "zstd that declares 2^62": (ZSTD, lambda: ZSTD_MAGIC + b"\xe0" + struct.pack("<Q", 1 << 62) + LAST_RLE_BLOCK),
    "zstd of repeated bytes": (ZSTD, lambda: ZSTD_MAGIC + b"\x00\x70" + RLE_BLOCK * 5000 + LAST_RLE_BLOCK),
    "zstd of blocks that hold nothing": (ZSTD, lambda: ZSTD_MAGIC + b"\x00\x70" + COMPRESSED_BLOCK * 5000),
    "zstd with a window of 2 GiB": (ZSTD, lambda: ZSTD_MAGIC + b"\x00\xa8" + RLE_BLOCK * 100 + LAST_RLE_BLOCK),
}  # fmt: skip


def wrap_in_batch(name: str, magic: int) -> bytes:
    codec, make_payload = BOMBS[name]
    payload = make_payload()
    if magic == 2:
        return bytes(with_payload(batch([R(b"a")], base_offset=7), payload, codec))
    return bytes(wrapper(payload, magic=magic, codec=codec, offset=7, timestamp=5))


@pytest.mark.parametrize(
    ("name", "magic"), [(name, magic) for name in BOMBS for magic in (0, 1, 2) if magic == 2 or BOMBS[name][0] != ZSTD]
)
def test_refused_in_bounded_memory(name: str, magic: int) -> None:
    """REC-22: memory follows the limit and the bytes that are there, not what they say of themselves."""
    data = wrap_in_batch(name, magic)
    table = scan(data)
    for call in (
        lambda: list(record_tables(data, table, path="f.log", limit_bytes=LIMIT_BYTES)),
        lambda: batch_table(data, table, 0, path="f.log", limit_bytes=LIMIT_BYTES),
        lambda: plain_row(data, table, 0, path="f.log", limit_bytes=LIMIT_BYTES),
    ):
        tracemalloc.start()
        try:
            with pytest.raises(InvalidRecord) as caught:
                call()
            is_large = "larger than the limit" in caught.value.message
            assert ("raise the limit" if is_large else "the bytes were damaged") in str(caught.value.hint)
            assert tracemalloc.get_traced_memory()[1] < ROOM_BYTES + 4 * len(data)
        finally:
            tracemalloc.stop()
        assert (caught.value.path, caught.value.offset) == ("f.log", 7)
        assert caught.value.position is not None and 0 <= caught.value.position <= len(data)


READ = """
import sys, kafkalog
try:
    for record in kafkalog.open(sys.argv[1]).records():
        pass
except kafkalog.errors.KafkalogError as error:
    print(type(error).__name__)
"""
# a process that asks for more gets none, and one that goes round and round ends
LIMITED = """
import os, resource, sys
resource.setrlimit(resource.RLIMIT_AS, (1200 << 20, 1200 << 20))
resource.setrlimit(resource.RLIMIT_CPU, (60, 60))
os.execv(sys.executable, [sys.executable, *sys.argv[1:]])
"""


@pytest.mark.parametrize(
    "name",
    [
        "snappy that declares 4 GiB", "lz4 with 4 MiB blocks of nothing", "zstd of repeated bytes",
        "zstd that declares 2^62", "zstd with a window of 2 GiB", "gzip of zeros",
    ],
)  # fmt: skip
@pytest.mark.parametrize("way", ["api", "dump", "verify"])
@pytest.mark.skipif("asan" in os.environ.get("LD_PRELOAD", ""), reason="the sanitizer maps more than any limit")
def test_a_whole_process_stays_small(tmp_path: Path, name: str, way: str) -> None:
    """The usual limit holds 256 MiB; a process with little more than that reads a file of bombs to its end."""
    folder = tmp_path / "t-0"
    folder.mkdir()
    path = folder / f"{7:020d}.log"
    path.write_bytes(wrap_in_batch(name, 2))
    command = {
        "api": ["-c", READ, str(folder)],
        "dump": ["-m", "kafkalog.cli.main", "dump", "--files", str(path), "--print-data-log"],
        "verify": ["-m", "kafkalog.cli.main", "verify", "--deep", str(folder)],
    }[way]
    done = subprocess.run([sys.executable, "-c", LIMITED, *command], capture_output=True, text=True)
    assert "MemoryError" not in done.stderr and "Traceback" not in done.stderr, done.stderr
    assert done.returncode == (0 if way == "api" else 1), done.stderr
    if way == "api":
        assert done.stdout.strip() == "InvalidRecord"
