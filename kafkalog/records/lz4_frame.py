"""LZ4 frames as the Java client writes them: independent blocks of 64 KiB, no checksum but the header's.

format.md section 6. The frame is made here, and read by `_core/unpack`, because the frames of the packages have blocks
that depend on each other, which the Java reader refuses; the package compresses and decompresses single blocks.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from struct import Struct
from typing import Final

from kafkalog._core.store import Store
from kafkalog._core.unpack import Tool
from kafkalog._core.xxhash import xxh32

__all__ = ["DEFAULT_LEVEL", "compress", "compress_into", "tool"]

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


@functools.cache
def _block_encoder() -> Callable[..., int]:
    """What compresses a block into a buffer, imported on first use."""
    from cramjam import lz4

    return functools.partial(lz4.compress_block_into, store_size=False)


def tool() -> Tool:
    """What decompresses blocks."""
    from cramjam import DecompressionError, lz4

    # 0 bounds nothing; without it four bytes of size are looked for before the block, and some blocks read so
    return Tool(lz4.decompress_block_into, DecompressionError, last=0)


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
    squeeze = _block_encoder()
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
