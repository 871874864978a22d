"""LZ4 frames as the Java client writes them: independent blocks of 64 KiB, with a header checksum only.

See format.md section 6. This module builds the frames and `_core/batch/unpack` reads them: frames of the packages have
blocks that depend on each other, which the Java reader rejects. The package compresses and decompresses single blocks.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from struct import Struct
from typing import Final

from kafkalog._core.batch.unpack import Tool
from kafkalog._core.bytes.store import Store
from kafkalog._core.bytes.xxhash import xxh32

DEFAULT_LEVEL: Final = 9
"""Level that selects the fast encoder, as in `compression.lz4.level`; all others are levels of the slow encoder."""
BLOCK_BYTES: Final = 64 << 10
MAGIC: Final = b"\x04\x22\x4d\x18"
_FLG: Final = 0x60  # version 01, independent blocks
_BD: Final = 0x40  # blocks of 64 KiB
_HIGHEST: Final = 12  # the highest level of lz4 itself, which treats any higher one as this
_WORD: Final = Struct("<I")
_RAW_BLOCK: Final = 0x80000000
_SHORTEST: Final = 7


@functools.cache
def _block_encoder() -> Callable[..., int]:
    """Return the function that compresses a block into a buffer, imported on first use."""
    from cramjam import lz4

    return functools.partial(lz4.compress_block_into, store_size=False)


def tool() -> Tool:
    """Return the tool that decompresses blocks."""
    from cramjam import DecompressionError, lz4

    # 0 sets no bound; without it the function expects a 4-byte size before the block, and would misread some blocks
    return Tool(lz4.decompress_block_into, DecompressionError, last=0)


def _header(magic: int) -> bytes:
    """Return the seven bytes before the first block.

    Format v0 keeps the wrong header checksum of the first Java encoder, which also covers the frame's magic (REC-45).
    """
    fields = bytes((_FLG, _BD))
    checked = MAGIC + fields if magic == 0 else fields
    return MAGIC + fields + bytes(((xxh32(checked) >> 8) & 0xFF,))


_HEADERS: Final = tuple(_header(magic) for magic in range(3))
_END_MARK: Final = _WORD.pack(0)


def compress_into(store: Store, data: memoryview, level: int | None = None, magic: int = 2) -> None:
    """Append one frame with `data`; a block that would not shrink is stored raw (REC-46)."""
    compress_block = _block_encoder()
    store.append(_HEADERS[magic])
    for at in range(0, len(data), BLOCK_BYTES):
        block = data[at : at + BLOCK_BYTES]
        if level is None or level == DEFAULT_LEVEL:
            # room that the encoder requires
            most = 16 + len(block) + len(block) // 255
            store.fill_sized(compress_block, block, most, big_endian=False, raw_flag=_RAW_BLOCK)
        else:
            store.append(_slow_block(block, min(level, _HIGHEST)))
    store.append(_END_MARK)


def _slow_block(raw: memoryview, level: int) -> memoryview:
    """Return size field and bytes of a block, cut out of a frame: the package accepts a level for frames only."""
    from cramjam import lz4

    packer = lz4.Compressor(level=level, content_checksum=False, block_linked=False)
    packer.compress(bytes(raw))
    frame = memoryview(packer.finish())
    size = _WORD.unpack_from(frame, _SHORTEST)[0] & ~_RAW_BLOCK
    return frame[_SHORTEST : _SHORTEST + _WORD.size + size]
