"""Zstandard: how much a row of frames can decompress to, read from their headers, and the package that does it.

`zstandard` is used where it is installed, since it is faster on small batches; cramjam otherwise. Java's frames do
not say how large their content is, so the block headers are walked: each block holds at most 128 KiB.
"""

from __future__ import annotations

import functools
import threading
from typing import Any, Final, NamedTuple

from kafkalog._core.store import Store
from kafkalog.records.codec_errors import damaged, too_large

__all__ = ["DEFAULT_LEVEL", "compress", "compress_into", "decompress_into"]

DEFAULT_LEVEL: Final = 3
_MAGIC: Final = 0xFD2FB528
_SKIPPABLE: Final = 0x184D2A50
_LARGEST_BLOCK: Final = 128 << 10
_NAME: Final = "zstd"


class Frame(NamedTuple):
    """A frame in a buffer: its bytes, the most that it can decompress to, and whether it says that itself.

    A skippable frame has the bound -1: it holds nothing.
    """

    start: int
    end: int
    bound: int
    is_exact: bool


class _Contexts(threading.local):
    """The contexts of one thread: making one costs more than a small batch."""

    def __init__(self) -> None:
        import zstandard

        self.package = zstandard
        self.reader = zstandard.ZstdDecompressor()
        self.writers: dict[int, Any] = {}

    def writer(self, level: int) -> Any:
        """The compressor of a level."""
        found = self.writers.get(level)
        if found is None:
            found = self.writers[level] = self.package.ZstdCompressor(level=level)
        return found


@functools.cache
def _contexts() -> _Contexts | None:
    """The contexts of `zstandard`, or None where it is not installed."""
    try:
        return _Contexts()
    except ImportError:
        return None


@functools.cache
def _cramjam() -> tuple[Any, type[Exception]]:
    from cramjam import DecompressionError, zstd

    return zstd, DecompressionError


def compress_into(store: Store, data: memoryview, level: int | None = None) -> None:
    """Appends one frame with `data`."""
    contexts = _contexts()
    chosen = DEFAULT_LEVEL if level is None else level
    if contexts is not None:
        store.append(contexts.writer(chosen).compress(data))
        return
    squeeze = _cramjam()[0].compress_into
    # ZSTD_COMPRESSBOUND, and the frame's own fields
    most = len(data) + (len(data) >> 8) + 128
    store.fill(lambda raw, room: int(squeeze(raw, room, level=chosen)), data, most)


def compress(data: memoryview, level: int | None = None) -> bytes:
    """One frame with `data`."""
    store = Store()
    compress_into(store, data, level)
    return bytes(store.take())


def decompress_into(store: Store, data: memoryview, limit_bytes: int) -> None:
    """Appends what the frames in `data` decompress to; InvalidRecord for damage, and for more than `limit_bytes`."""
    most = store.size + limit_bytes
    at, end = 0, len(data)
    if not end:
        raise damaged(_NAME, "there is no frame", 0)
    while at < end:
        frame = next_frame(data, at)
        if frame.bound >= 0:
            _expand(store, data[frame.start : frame.end], frame, most - store.size, limit_bytes)
        at = frame.end


def _expand(store: Store, data: memoryview, frame: Frame, room: int, limit_bytes: int) -> None:
    """Decompresses one frame. One that may pass the limit gets room for the limit and one byte more, to be sure."""
    if frame.is_exact and frame.bound > room:
        raise too_large(_NAME, limit_bytes, frame.start)
    contexts = _contexts()
    largest = min(frame.bound, room + 1)
    before = store.size
    if contexts is not None:
        try:
            store.append(contexts.reader.decompress(data, max_output_size=largest))
        except contexts.package.ZstdError as error:
            raise _failure(str(error), frame, room, limit_bytes) from None
    else:
        package, failure = _cramjam()
        try:
            store.fill(package.decompress_into, data, largest)
        except failure as error:
            raise _failure(str(error), frame, room, limit_bytes) from None
    if store.size - before > room:
        raise too_large(_NAME, limit_bytes, frame.start)


def _failure(said: str, frame: Frame, room: int, limit_bytes: int) -> Exception:
    """Damage, unless the frame could only fail for want of room."""
    if frame.bound > room and ("whole buffer" in said or "full frame" in said):
        return too_large(_NAME, limit_bytes, frame.start)
    return damaged(_NAME, said, frame.start)


def next_frame(data: memoryview, start: int) -> Frame:
    """The frame that begins at `start` (RFC 8878, 3.1); InvalidRecord where it is cut off or has unsound headers."""
    end = len(data)
    magic = _little(data, start, 4)
    if magic & 0xFFFFFFF0 == _SKIPPABLE:
        at = start + 8 + _little(data, start + 4, 4)
        if at > end:
            raise damaged(_NAME, "a skippable frame runs past the end", start)
        return Frame(start, at, -1, True)
    if magic != _MAGIC:
        raise damaged(_NAME, "these are no zstd frames: the frame magic is wrong", start)
    descriptor = _little(data, start + 4, 1)
    single = descriptor & 0x20
    content_bytes = (1 if single else 0, 2, 4, 8)[descriptor >> 6]
    at = start + 5
    if not single:
        window = _little(data, at, 1)
        largest = (1 << (10 + (window >> 3))) // 8 * (8 + (window & 7))
        at += 1
    at += (0, 1, 2, 4)[descriptor & 3]
    declared: int | None = None
    if content_bytes:
        declared = _little(data, at, content_bytes) + (256 if content_bytes == 2 else 0)
        at += content_bytes
    if single:
        largest = declared or 0
    bound, at = _walk_blocks(data, at, min(largest, _LARGEST_BLOCK))
    at += 4 if descriptor & 4 else 0
    if at > end:
        raise damaged(_NAME, "the frame is cut off", end)
    if declared is not None and declared > bound:
        raise damaged(_NAME, f"the frame declares {declared} bytes, its blocks can hold {bound}", start)
    return Frame(start, at, bound if declared is None else declared, declared is not None)


def _walk_blocks(data: memoryview, at: int, largest: int) -> tuple[int, int]:
    """(most that the blocks decompress to, byte behind the last one); raw and repeated blocks say their size."""
    bound = 0
    while True:
        start = at
        header = _little(data, at, 3)
        kind, size = (header >> 1) & 3, header >> 3
        if kind == 3:
            raise damaged(_NAME, "a block has the reserved kind", start)
        bound += min(largest, size) if kind < 2 else largest
        at += 3 + (1 if kind == 1 else size)
        if at > len(data):
            raise damaged(_NAME, "a block runs past the end", start)
        if header & 1:
            return bound, at


def _little(data: memoryview, at: int, size: int) -> int:
    """A little-endian number that must lie in the data."""
    if at + size > len(data):
        raise damaged(_NAME, "the frame is cut off", len(data))
    return int.from_bytes(data[at : at + size], "little")
