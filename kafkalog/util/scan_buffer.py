"""The memory that a thread reads files into which it goes through once."""

from __future__ import annotations

import threading
from typing import Final

CHUNK_BYTES: Final = 256 << 10
"""A chunk stays in the second-level cache between the copy that pread makes and the checksum."""
_buffers: Final = threading.local()


def scan_buffer() -> bytearray:
    """CHUNK_BYTES, the same for all files of this thread, so that no page is touched for the first time twice."""
    held: bytearray | None = getattr(_buffers, "chunk", None)
    if held is None:
        held = _buffers.chunk = bytearray(CHUNK_BYTES)
    return held
