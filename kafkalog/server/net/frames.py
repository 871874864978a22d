"""Frames: 4 bytes of a length, then as many bytes. Memory is taken as bytes come, not as a length promises."""

from __future__ import annotations

from typing import Final

from kafkalog.errors import MalformedRequest

LENGTH_BYTES: Final = 4
MIN_FRAME_BYTES: Final = 8
"""Call, version and correlation id."""
FIRST_BYTES: Final = 4096
GROWTH: Final = 8
"""A frame's memory grows by this, and to its full size at the end,"""
GROWTH_BYTES: Final = 16 << 20
"""but by no more than this at once, which takes the loop some milliseconds."""
_NOTHING: Final = memoryview(b"")


class FrameReader:
    """Puts frames together out of what a socket gives, one at a time.

    Bytes after a frame stay in `rest` until the next one is asked for: they are of one read at most.
    """

    __slots__ = ("_filled", "_frame", "_head", "_rest", "_size", "least", "limit")

    def __init__(self, limit: int) -> None:
        self.limit = limit  # of the next frame; `least` likewise
        self.least = MIN_FRAME_BYTES
        self._head = b""  # the first bytes of a length
        self._size = -1  # of the frame that is being read
        self._frame: bytearray | None = None
        self._filled = 0
        self._rest = _NOTHING

    @property
    def is_inside(self) -> bool:
        """True when a frame, or its length, has begun and is not whole."""
        return self._size >= 0 or bool(self._head)

    @property
    def claimed_bytes(self) -> int:
        """The size of the frame that is being read; -1 as long as its length has not come."""
        return self._size

    @property
    def come_bytes(self) -> int:
        """How much of that has come."""
        return self._filled

    @property
    def has_rest(self) -> bool:
        """True when `next` has to be asked before more is read."""
        return bool(self._rest)

    @property
    def held_bytes(self) -> int:
        """Memory that it holds."""
        return len(self._rest) + (0 if self._frame is None else len(self._frame))

    def room(self) -> memoryview | None:
        """Where the next bytes of a large frame belong; None where they may be read anywhere and given to `take`."""
        frame = self._frame
        if frame is None:
            return None
        if self._filled == len(frame):
            grown = min(self._size, len(frame) * GROWTH, len(frame) + GROWTH_BYTES)
            frame += bytes(grown - len(frame))
        return memoryview(frame)[self._filled :]

    def filled(self, count: int) -> bytearray | None:
        """So many bytes were put into `room`; the frame if it is whole now. The view must be released before."""
        self._filled += count
        return self._whole() if self._filled == self._size else None

    def take(self, data: memoryview) -> bytearray | None:
        """The first whole frame that `data` ends or has in it, if there is one; what comes after it is kept.

        Called when `next` has nothing more. MalformedRequest for a length that no request has.
        """
        return self._first(data, is_kept=False)

    def next(self) -> bytearray | None:
        """A frame that has come already, if there is one. MalformedRequest as `take`."""
        rest = self._rest
        if not rest:
            return None
        self._rest = _NOTHING
        return self._first(rest, is_kept=True)

    def _first(self, data: memoryview, *, is_kept: bool) -> bytearray | None:
        position = 0
        if self._size < 0:
            if self._head or len(data) < LENGTH_BYTES:
                missing = LENGTH_BYTES - len(self._head)
                self._head += bytes(data[:missing])
                if len(self._head) < LENGTH_BYTES:
                    return None
                self._begin(self._head)
                self._head = b""
                position = missing
            else:
                self._begin(data[:LENGTH_BYTES])
                position = LENGTH_BYTES
        if position == len(data) and self._size:
            return None  # a length alone takes no memory
        end = position + self._size
        if self._frame is None and len(data) >= end:  # whole in one read, as most are
            frame = bytearray(data[position:end])
            self._size = -1
        else:
            found = self._collect(data[position:])
            if found is None:
                return None
            frame, end = found
            end += position
        if len(data) > end:
            self._rest = data[end:] if is_kept else memoryview(bytes(data[end:]))
        return frame

    def _begin(self, head: bytes | memoryview) -> None:
        size = int.from_bytes(head, "big", signed=True)
        if not self.least <= size <= self.limit:
            limits = f"{self.least} to {self.limit}"
            raise MalformedRequest(f"a length of {size} bytes; {limits} are taken", position=0)
        self._size = size

    def _collect(self, data: memoryview) -> tuple[bytearray, int] | None:
        """The frame, if `data` ends it, and how much of `data` that took."""
        frame = self._frame
        if frame is None:
            frame = self._frame = bytearray(min(self._size, max(FIRST_BYTES, len(data) * GROWTH)))
        count = min(len(data), self._size - self._filled)
        needed = self._filled + count
        if needed > len(frame):
            frame += bytes(min(self._size, needed * GROWTH) - len(frame))
        frame[self._filled : needed] = data[:count]
        self._filled = needed
        return (self._whole(), count) if needed == self._size else None

    def _whole(self) -> bytearray:
        frame = self._frame
        assert frame is not None
        self._frame, self._filled, self._size = None, 0, -1
        return frame
