"""Compression and decompression for every codec id, in the framings that Kafka uses (format.md section 6).

The packages run with the GIL released: zlib or deflate write gzip, isal or zlib read it, cramjam does snappy and lz4
blocks, zstandard or cramjam do zstd. The decompressed size of a piece is known, or bounded, before memory is allocated
(`_core/batch/unpack`).
"""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING, Final

from kafkalog._core.batch.unpack import GZIP_WHOLE, Tool, Unpacker
from kafkalog._core.bytes.store import MOST_BYTES, Store
from kafkalog.errors import IllegalArgument
from kafkalog.records import gzip_member, lz4_frame, xerial, zstd_frame
from kafkalog.records.codec_errors import unpack_error
from kafkalog.records.format import CompressionType, codec_name

if TYPE_CHECKING:
    from typing_extensions import Buffer

DECODED_LIMIT_BYTES: Final = 256 << 20
"""Default limit on the decompressed bytes of one batch."""

LEVELS: Final = {
    CompressionType.GZIP: (-1, 9),
    CompressionType.LZ4: (1, 17),
    CompressionType.ZSTD: (-131072, 22),
}
"""Lowest and highest level of each codec that has levels, as `compression.<codec>.level` accepts them."""

_CODECS: Final = tuple(CompressionType)


def check_codec(codec: int) -> CompressionType:
    """Return the codec with this id; raise IllegalArgument for the undefined ids 5 to 7 (REC-23)."""
    if not 0 <= codec < len(_CODECS):
        raise IllegalArgument(
            f"unknown compression id {codec}",
            hint="ids 0 to 4 are none, gzip, snappy, lz4 and zstd; the attributes of this batch are damaged or newer",
        )
    return _CODECS[codec]


def check_level(codec: CompressionType, level: int | None) -> None:
    """Raise IllegalArgument for a level that the codec does not have."""
    if level is None:
        return
    if codec not in LEVELS:
        raise IllegalArgument(f"{codec_name(codec)} has no levels")
    low, high = LEVELS[codec]
    if not low <= level <= high or (codec == CompressionType.GZIP and level == 0):
        levels = "1 to 9, or -1" if codec == CompressionType.GZIP else f"{low} to {high}"
        raise IllegalArgument(f"{codec_name(codec)} has no level {level}", hint=f"levels are {levels}")


def compress_into(store: Store, codec: int, data: memoryview, *, level: int | None = None, magic: int = 2) -> None:
    """Append `data`, compressed as the records of a batch of format `magic`; NONE appends `data` itself.

    Raises IllegalArgument for an unknown codec, a level that it does not have, or zstd in format v0 or v1. Any thread
    may call it: each has its own contexts.
    """
    if level is not None:
        check_level(check_codec(codec), level)
    if codec == CompressionType.LZ4:
        lz4_frame.compress_into(store, data, level, magic)
    elif codec == CompressionType.SNAPPY:
        xerial.compress_into(store, data)
    elif codec == CompressionType.ZSTD:
        if magic < 2:
            raise IllegalArgument(f"format v{magic} has no zstd")
        zstd_frame.compress_into(store, data, level)
    elif codec == CompressionType.GZIP:
        gzip_member.compress_into(store, data, level)
    else:
        check_codec(codec)
        store.append(data)


def compress(codec: int, data: Buffer, *, level: int | None = None, magic: int = 2) -> Buffer:
    """Return `data` compressed; NONE returns `data` itself. Errors as for `compress_into`."""
    if check_codec(codec) == CompressionType.NONE:
        check_level(CompressionType.NONE, level)
        return data
    store = Store()
    compress_into(store, codec, memoryview(data).cast("B"), level=level, magic=magic)
    return memoryview(store.take())


def decompress_into(
    store: Store, codec: int, data: Buffer, *, magic: int = 2, limit_bytes: int = DECODED_LIMIT_BYTES
) -> None:
    """Decompress `data`, the compressed records of a batch of format `magic`, and append the result to `store`.

    Raises InvalidRecord for damage and for more than `limit_bytes`; it names the codec and the byte in `data`, and what
    was appended until then is meaningless. Raises IllegalArgument for an unknown codec. Any thread may call it: each
    has its own contexts.
    """
    check_codec(codec)
    own = unpacker()
    status = own.unpack(store, codec, data, magic=magic, limit_bytes=min(limit_bytes, MOST_BYTES))
    if status:
        raise unpack_error(own, status)


def decompress(codec: int, data: Buffer, *, magic: int = 2, limit_bytes: int = DECODED_LIMIT_BYTES) -> memoryview:
    """Return `data` decompressed, read-only; errors as for `decompress_into`."""
    store = Store()
    decompress_into(store, codec, data, magic=magic, limit_bytes=limit_bytes)
    return memoryview(store.take())


def _tool(codec: int) -> Tool | None:
    """Return the package's tool for a codec id, or for GZIP_FASTER or GZIP_WHOLE; None if it is not installed."""
    if codec == CompressionType.LZ4:
        return lz4_frame.tool()
    if codec == CompressionType.SNAPPY:
        return xerial.tool()
    if codec == CompressionType.ZSTD:
        return zstd_frame.tool()
    if codec == GZIP_WHOLE:
        return gzip_member.whole_tool()
    return gzip_member.tool() if codec == CompressionType.GZIP else gzip_member.faster_tool()


class _ThreadUnpacker(threading.local):
    """The unpacker of one thread."""

    def __init__(self) -> None:
        self.unpacker = new_unpacker()


def new_unpacker() -> Unpacker:
    """Return a new unpacker with its own contexts, for one thread at a time."""
    return Unpacker(_tool)


_local: Final = _ThreadUnpacker()


def unpacker() -> Unpacker:
    """Return this thread's unpacker, or a new one if the caller interrupted that one at work."""
    own = _local.unpacker
    return new_unpacker() if own.busy else own
