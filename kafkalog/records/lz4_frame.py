"""LZ4 frames as the Java client writes and reads them: independent blocks of 64 KiB, no checksum but the header's.

format.md section 6. The frame is made and read here, because the frames of the packages have blocks that depend on
each other, which the Java reader refuses; the package compresses and decompresses single blocks.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from struct import Struct
from typing import TYPE_CHECKING, Final

from kafkalog._core.store import Store
from kafkalog._core.xxhash import xxh32
from kafkalog.records.codec_errors import damaged, too_large

if TYPE_CHECKING:
    from typing_extensions import Buffer

__all__ = ["DEFAULT_LEVEL", "compress", "compress_into", "decompress_into"]

DEFAULT_LEVEL: Final = 9
"""The level that means the fast encoder, as in `compression.lz4.level`; every other is a level of the slow one."""
BLOCK_BYTES: Final = 64 << 10
MAGIC: Final = b"\x04\x22\x4d\x18"
_FLG: Final = 0x60  # version 01, independent blocks
_BD: Final = 0x40  # blocks of 64 KiB
_HIGHEST: Final = 12  # what lz4 itself has; it takes a higher level as this one
_WORD: Final = Struct("<I")
_RAW_BLOCK: Final = 0x80000000
_SHORTEST: Final = 7
# each byte that lengthens a match stands for at most 255, so no block can grow more than this
_GROWTH: Final = 255
_SLACK: Final = 64
_NAME: Final = "lz4"


@functools.cache
def _codec() -> tuple[Callable[..., int], Callable[[Buffer, Buffer], int], type[Exception]]:
    """(compress a block into, decompress a block into, error), imported on first use."""
    from cramjam import DecompressionError, lz4

    return functools.partial(lz4.compress_block_into, store_size=False), lz4.decompress_block_into, DecompressionError


def _header(magic: int) -> bytes:
    """The seven bytes before the first block.

    Format v0 has the wrong header checksum that the first Java encoder wrote: over the frame's magic too (REC-45).
    """
    fields = bytes((_FLG, _BD))
    checked = MAGIC + fields if magic == 0 else fields
    return MAGIC + fields + bytes(((xxh32(checked) >> 8) & 0xFF,))


_HEADERS: Final = tuple(_header(magic) for magic in range(3))
_END_MARK: Final = _WORD.pack(0)


def compress_into(store: Store, data: memoryview, level: int | None = None, magic: int = 2) -> None:
    """Appends one frame with `data`; a block that would not shrink is stored raw (REC-46)."""
    squeeze = _codec()[0]
    store.append(_HEADERS[magic])
    for at in range(0, len(data), BLOCK_BYTES):
        block = data[at : at + BLOCK_BYTES]
        if level is None or level == DEFAULT_LEVEL:
            # the encoder asks for this much room
            most = 16 + len(block) + len(block) // 255
            store.fill_sized(squeeze, block, most, big_endian=False, raw_flag=_RAW_BLOCK)
        else:
            store.append(_slow_block(block, min(level, _HIGHEST)))
    store.append(_END_MARK)


def compress(data: memoryview, level: int | None = None, magic: int = 2) -> bytes:
    """One frame with `data`."""
    store = Store()
    compress_into(store, data, level, magic)
    return bytes(store.take())


def _slow_block(raw: memoryview, level: int) -> memoryview:
    """Size field and bytes of a block; the package takes a level for frames only, so they are cut out of one."""
    from cramjam import lz4

    packer = lz4.Compressor(level=level, content_checksum=False, block_linked=False)
    packer.compress(bytes(raw))
    frame = memoryview(packer.finish())
    size = _WORD.unpack_from(frame, _SHORTEST)[0] & ~_RAW_BLOCK
    return frame[_SHORTEST : _SHORTEST + _WORD.size + size]


@functools.lru_cache(maxsize=64)
def _descriptor(head: bytes, magic: int) -> tuple[int, int, int]:
    """(header length, largest block, bytes behind each block) of a frame that begins with `head` (REC-45)."""
    if head[:4] != MAGIC:
        raise damaged(_NAME, "these are no lz4 frames: the frame magic is wrong", 0)
    if len(head) < _SHORTEST:
        raise damaged(_NAME, "the frame header is cut off", len(head))
    flags, sizes = head[4], head[5]
    if flags >> 6 != 1:
        raise damaged(_NAME, f"the frame has version {flags >> 6}, only 1 is known", 4)
    if flags & 3:
        raise damaged(_NAME, "reserved bits of the frame header are set", 4)
    if not flags & 0x20:
        raise damaged(_NAME, "the blocks depend on each other, which Kafka does not allow", 4)
    if sizes & 0x8F:
        raise damaged(_NAME, "reserved bits of the frame header are set", 5)
    if not 4 <= sizes >> 4 <= 7:
        raise damaged(_NAME, f"the frame header names block size {sizes >> 4}, 4 to 7 are known", 5)
    end = 14 if flags & 8 else 6
    if len(head) <= end:
        raise damaged(_NAME, "the frame header is cut off", len(head))
    if magic > 0 and head[end] != (xxh32(head[4:end]) >> 8) & 0xFF:
        raise damaged(_NAME, "the frame header's checksum is wrong", end)
    return end + 1, 1 << (8 + 2 * (sizes >> 4)), 4 if flags & 0x10 else 0


def decompress_into(store: Store, data: memoryview, limit_bytes: int, magic: int = 2) -> None:
    """Appends what the frame in `data` decompresses to. Format v0 does not look at the header's checksum.

    InvalidRecord for damage, and for more than `limit_bytes`. The checksum of the content is not looked at, as in
    the reference; nor are bytes behind the end mark.
    """
    expand, failure = _codec()[1:]
    # a content size is eight more bytes of header, which differ from frame to frame
    has_size = len(data) > _SHORTEST and data[4] & 8
    at, largest, tail = _descriptor(bytes(data[: 15 if has_size else _SHORTEST]), magic)
    end = len(data)
    most = store.size + limit_bytes
    while True:
        start = at
        if end - at < _WORD.size:
            raise damaged(_NAME, "the frame has no end mark", at)
        size = _WORD.unpack_from(data, at)[0]
        at += _WORD.size
        if not size:
            return
        stored = size & _RAW_BLOCK
        size ^= stored
        if size > largest:
            raise damaged(_NAME, f"a block of {size} bytes in a frame whose blocks have at most {largest}", start)
        block = data[at : at + size]
        at += size + tail
        if at > end:
            raise damaged(_NAME, "a block runs past the end", start)
        if tail and _WORD.unpack_from(data, at - tail)[0] != xxh32(block):
            raise damaged(_NAME, "a block does not match its checksum", start)
        try:
            if stored:
                store.append(block)
            else:
                growth = _GROWTH * size + _SLACK
                store.fill(expand, block, largest if largest < growth else growth)
        except failure:
            raise damaged(_NAME, "a block is damaged", start) from None
        if store.size > most:
            raise too_large(_NAME, limit_bytes, start)
