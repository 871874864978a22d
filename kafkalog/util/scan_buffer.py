"""Buffer of a thread for files that it reads once from start to end."""

from __future__ import annotations

import threading
from mmap import mmap
from typing import Final

CHUNK_BYTES: Final = 256 << 10
"""Small enough to stay in the second-level cache between the copy by pread and the checksum."""
_LINE_BYTES: Final = 64
_buffers: Final = threading.local()


def scan_buffer(position: int) -> memoryview:
    """Return a buffer of CHUNK_BYTES for a file's bytes from `position` on; each thread has one for all files.

    So each page faults only once. The buffer has the same offset within a cache line as `position`: some processors
    (AMD's Zen 3) take five times as long for a copy to an address less than 32 bytes above the source's, within a page.
    """
    first = position % _LINE_BYTES
    return scan_room()[first : first + CHUNK_BYTES]


def scan_room() -> memoryview:
    """Return the memory that `scan_buffer` returns parts of: CHUNK_BYTES, and a line of the cache."""
    held: memoryview | None = getattr(_buffers, "chunk", None)
    if held is None:
        held = _buffers.chunk = memoryview(mmap(-1, CHUNK_BYTES + _LINE_BYTES))
    return held
