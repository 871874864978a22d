"""Zstandard, by one of two packages.

`zstandard` is used if installed, since it is faster on small batches; otherwise cramjam, which creates a context for
each call.
"""

from __future__ import annotations

import functools
import threading
from typing import TYPE_CHECKING, Final

from kafkalog._core.batch.unpack import Tool
from kafkalog._core.bytes.store import Store

if TYPE_CHECKING:
    import zstandard

DEFAULT_LEVEL: Final = 3


class _Contexts(threading.local):
    """The compressors of one thread: creating one costs more than compressing a small batch."""

    def __init__(self) -> None:
        import zstandard

        self.package = zstandard
        self.writers: dict[int, zstandard.ZstdCompressor] = {}

    def writer(self, level: int) -> zstandard.ZstdCompressor:
        """Return the compressor for a level."""
        found = self.writers.get(level)
        if found is None:
            found = self.writers[level] = self.package.ZstdCompressor(level=level)
        return found


@functools.cache
def _contexts() -> _Contexts | None:
    """Return the compressors of `zstandard`, or None if it is not installed."""
    try:
        return _Contexts()
    except ImportError:
        return None


def tool() -> Tool:
    """Return the tool that decompresses frames, with its own context."""
    try:
        import zstandard
    except ImportError:
        from cramjam import DecompressionError, zstd

        return Tool(zstd.decompress_into, DecompressionError)
    return Tool(zstandard.ZstdDecompressor().decompress, zstandard.ZstdError, gives=True)


def compress_into(store: Store, data: memoryview, level: int | None = None) -> None:
    """Append one frame with `data`."""
    contexts = _contexts()
    chosen = DEFAULT_LEVEL if level is None else level
    if contexts is not None:
        store.append(contexts.writer(chosen).compress(data))
        return
    from cramjam import zstd

    compress_frame = zstd.compress_into
    # ZSTD_COMPRESSBOUND plus the frame's own fields
    most = len(data) + (len(data) >> 8) + 128
    store.fill(lambda raw, room: int(compress_frame(raw, room, level=chosen)), data, most)
