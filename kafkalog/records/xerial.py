"""Snappy in Kafka's framing: the stream format of xerial's snappy-java, and the bare blocks of very old clients.

format.md section 6: 8 bytes magic, i32 version, i32 oldest version that can read it, then blocks of i32 length and raw
snappy, of 32 KiB uncompressed data each, as the Java client writes them. `_core/batch/unpack` reads them.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from struct import Struct
from typing import TYPE_CHECKING, Final

from kafkalog._core.batch.unpack import Tool
from kafkalog._core.bytes.store import Store

if TYPE_CHECKING:
    from typing_extensions import Buffer

MAGIC: Final = b"\x82SNAPPY\x00"
BLOCK_BYTES: Final = 32 << 10
_VERSION: Final = 1
_HEADER: Final = Struct(">8sii")
_STREAM_START: Final = _HEADER.pack(MAGIC, _VERSION, _VERSION)


@functools.cache
def _block_encoder() -> Callable[[Buffer, Buffer], int]:
    """Return the function that compresses a block into a buffer, imported on first use."""
    from cramjam import snappy

    encoder: Callable[[Buffer, Buffer], int] = snappy.compress_raw_into
    return encoder


def tool() -> Tool:
    """Return the tool that decompresses blocks."""
    from cramjam import DecompressionError, snappy

    return Tool(snappy.decompress_raw_into, DecompressionError)


def compress_into(store: Store, data: memoryview) -> None:
    """Append the framed form of `data`."""
    compress_block = _block_encoder()
    store.append(_STREAM_START)
    for at in range(0, len(data), BLOCK_BYTES):
        block = data[at : at + BLOCK_BYTES]
        # room that the encoder requires for writing; the result is smaller
        store.fill_sized(compress_block, block, 32 + len(block) + len(block) // 6, big_endian=True)
