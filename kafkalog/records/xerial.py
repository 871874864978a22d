"""Snappy as Kafka frames it: the stream format of xerial's snappy-java, and the bare blocks of very old clients.

format.md section 6: 8 bytes magic, i32 version, i32 oldest version that can read it, then blocks of i32 length and raw
snappy; 32 KiB uncompressed each, as the Java client writes them.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from struct import Struct
from typing import TYPE_CHECKING, Final

from kafkalog._core.store import Store
from kafkalog.records.codec_errors import damaged, too_large

if TYPE_CHECKING:
    from typing_extensions import Buffer

__all__ = ["compress", "compress_into", "decompress_into"]

MAGIC: Final = b"\x82SNAPPY\x00"
BLOCK_BYTES: Final = 32 << 10
_VERSION: Final = 1
_HEADER: Final = Struct(">8sii")
_SIZE: Final = Struct(">i")
_STREAM_START: Final = _HEADER.pack(MAGIC, _VERSION, _VERSION)
_MAGIC_AS_SIZE: Final = _SIZE.unpack_from(MAGIC)[0]
# a copy of at most 64 bytes takes three, so no block can grow more than this
_GROWTH: Final = 22
_SLACK: Final = 64
_NAME: Final = "snappy"


@functools.cache
def _codec() -> tuple[Callable[[Buffer], int], Callable[..., int], Callable[..., int], type[Exception]]:
    """(length, decompress into, compress into, error), imported on first use."""
    from cramjam import DecompressionError, snappy

    return snappy.decompress_raw_len, snappy.decompress_raw_into, snappy.compress_raw_into, DecompressionError


def compress_into(store: Store, data: memoryview) -> None:
    """Appends the framed form of `data`."""
    squeeze = _codec()[2]
    store.append(_STREAM_START)
    for at in range(0, len(data), BLOCK_BYTES):
        block = data[at : at + BLOCK_BYTES]
        # the encoder asks for this much room: what it may write to, not what it needs
        store.fill_sized(squeeze, block, 32 + len(block) + len(block) // 6, big_endian=True)


def compress(data: memoryview) -> bytes:
    """The framed form of `data`."""
    store = Store()
    compress_into(store, data)
    return bytes(store.take())


def decompress_into(store: Store, data: memoryview, limit_bytes: int) -> None:
    """Appends what `data` decompresses to; without the magic it is taken as one raw block.

    InvalidRecord for damage, and for more than `limit_bytes`.
    """
    end = len(data)
    if end < _HEADER.size or bytes(data[:8]) != MAGIC:
        _block(store, data, 0, limit_bytes, limit_bytes)
        return
    most = store.size + limit_bytes
    at = 0
    while at < end:
        size = _SIZE.unpack_from(data, at)[0] if end - at >= _SIZE.size else -1
        if size == _MAGIC_AS_SIZE:
            at = _after_header(data, at)
            continue
        at += _SIZE.size
        if not 0 <= size <= end - at:
            raise damaged(_NAME, "a block's length is negative or runs past the end", at - _SIZE.size)
        _block(store, data[at : at + size], at, most - store.size, limit_bytes)
        at += size


def _after_header(data: memoryview, at: int) -> int:
    """The byte behind a stream header; one may follow another stream's last block.

    As in xerial's reader the version counts in a header that follows, and never the oldest version that can read it.
    """
    if len(data) - at < _HEADER.size or bytes(data[at : at + 8]) != MAGIC:
        raise damaged(_NAME, "a stream header is cut off or damaged", at)
    version = _HEADER.unpack_from(data, at)[1]
    if at and version < _VERSION:
        raise damaged(_NAME, f"the stream has version {version}, at least {_VERSION} is needed", at)
    return at + _HEADER.size


def _block(store: Store, block: memoryview, position: int, room: int, limit_bytes: int) -> None:
    measure, expand, _, failure = _codec()
    try:
        length = measure(block)
        if length > room:
            raise too_large(_NAME, limit_bytes, position)
        if length > _GROWTH * len(block) + _SLACK:
            raise damaged(_NAME, f"a block of {len(block)} bytes declares {length}, more than it can hold", position)
        store.fill(expand, block, length)
    except failure as error:
        raise damaged(_NAME, str(error).removeprefix("snappy: "), position) from None
