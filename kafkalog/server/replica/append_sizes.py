"""Sizes up to which appends run on the event loop; larger ones run in the pool."""

from __future__ import annotations

from functools import lru_cache
from typing import Final

from kafkalog.config.keys import MAX_LONG

PLAIN_BYTES: Final = 1 << 20
COMPRESSED_BYTES: Final = 2 << 10
"""Compressed data may grow ten-thousandfold when it is decompressed."""
_STORED_UNCOMPRESSED: Final = frozenset({"producer", "uncompressed"})
"""Values of `compression.type` that store an uncompressed batch as it is; others compress it."""


@lru_cache(maxsize=256)
def most_at_once(flush_messages: int, compression_type: str, codec: int) -> int:
    """Return the size limit in bytes for an append on the loop.

    It is -1 if the append may wait for the disk (`flush.messages` is set), and lower if there is data to compress or
    decompress.
    """
    if flush_messages != MAX_LONG:
        return -1
    return PLAIN_BYTES if not codec and compression_type in _STORED_UNCOMPRESSED else COMPRESSED_BYTES
