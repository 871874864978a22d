"""Frames: a 4-byte length, then that many bytes. Memory grows with received bytes, not with the announced length."""

from __future__ import annotations

from typing import Final

from kafkalog.errors import MalformedRequest

LENGTH_BYTES: Final = 4
MIN_FRAME_BYTES: Final = 8
"""Size of API key, version and correlation id."""
FIRST_BYTES: Final = 4096
GROWTH: Final = 8
"""Factor by which a frame's buffer grows, up to the frame's size."""
GROWTH_BYTES: Final = 16 << 20
"""Maximum growth in one step, which takes the loop some milliseconds."""
_NOTHING: Final = memoryview(b"")


class FrameReader:
    """Assembles frames from the bytes of a socket, one at a time.

    Bytes after a frame, from at most one read, stay in `rest` until the next call of `next`.
    """

    __slots__ = ("_filled", "_frame", "_head", "_size", "is_collecting", "max_bytes", "min_bytes", "rest")

    def __init__(self, max_bytes: int) -> None:
        self.max_bytes = max_bytes  # maximum size of the next frame; `min_bytes` is the minimum
        self.min_bytes = MIN_FRAME_BYTES
        self._head = b""  # the first bytes of an incomplete length
        self._size = -1  # of the current frame
        self._frame: bytearray | None = None
        self.is_collecting = False  # a frame has a buffer and is incomplete
        self._filled = 0
        self.rest = _NOTHING  # while not empty, call `next` before reading more

    @property
    def is_inside(self) -> bool:
        """True while a frame or its length is partly received."""
        return self._size >= 0 or bool(self._head)

    @property
    def claimed_bytes(self) -> int:
        """Size of the current frame; -1 until its length is received."""
        return self._size

    @property
    def received_bytes(self) -> int:
        """Number of its bytes received so far."""
        return self._filled

    @property
    def held_bytes(self) -> int:
        """Bytes of memory in use."""
        return len(self.rest) + (0 if self._frame is None else len(self._frame))

    def room(self) -> memoryview | None:
        """Return the buffer for a large frame's next bytes, or None if the caller may read anywhere and call `take`."""
        frame = self._frame
        if frame is None:
            return None
        if self._filled == len(frame):
            grown = min(self._size, len(frame) * GROWTH, len(frame) + GROWTH_BYTES)
            frame += bytes(grown - len(frame))
        return memoryview(frame)[self._filled :]

    def filled(self, count: int) -> bytearray | None:
        """Record `count` bytes read into `room` and return the frame if it is complete. Release the view first."""
        self._filled += count
        return self._complete_frame() if self._filled == self._size else None

    def take(self, data: memoryview) -> bytearray | None:
        """Return the first frame that `data` completes or contains, if any, and keep the bytes after it.

        Call it once `next` returns None. Raises MalformedRequest for a length outside of the limits.
        """
        if self._size < 0 and not self._head:
            size = int.from_bytes(data[:LENGTH_BYTES], "big", signed=True)
            if len(data) == size + LENGTH_BYTES and self.min_bytes <= size <= self.max_bytes:  # the usual case
                return bytearray(data[LENGTH_BYTES:])
        return self._next_frame(data, may_keep_view=False)

    def next(self) -> bytearray | None:
        """Return a frame already received, if any. Raise MalformedRequest as `take` does."""
        rest = self.rest
        if not rest:
            return None
        self.rest = _NOTHING
        return self._next_frame(rest, may_keep_view=True)

    def _next_frame(self, data: memoryview, *, may_keep_view: bool) -> bytearray | None:
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
            return None  # no buffer for a length alone
        end = position + self._size
        if self._frame is None and len(data) >= end:  # complete in one read, as usual
            frame = bytearray(data[position:end])
            self._size = -1
        else:
            found = self._collect(data[position:])
            if found is None:
                return None
            frame, end = found
            end += position
        if len(data) > end:
            self.rest = data[end:] if may_keep_view else memoryview(bytes(data[end:]))
        return frame

    def _begin(self, head: bytes | memoryview) -> None:
        size = int.from_bytes(head, "big", signed=True)
        if not self.min_bytes <= size <= self.max_bytes:
            limits = f"{self.min_bytes} to {self.max_bytes}"
            raise MalformedRequest(f"a length of {size} bytes; must be {limits}", position=0)
        self._size = size

    def _collect(self, data: memoryview) -> tuple[bytearray, int] | None:
        """Return the frame and the number of bytes used, if `data` completes it, else None."""
        frame = self._frame
        if frame is None:
            frame = self._frame = bytearray(min(self._size, max(FIRST_BYTES, len(data) * GROWTH)))
            self.is_collecting = True
        count = min(len(data), self._size - self._filled)
        needed = self._filled + count
        if needed > len(frame):
            frame += bytes(min(self._size, needed * GROWTH) - len(frame))
        frame[self._filled : needed] = data[:count]
        self._filled = needed
        return (self._complete_frame(), count) if needed == self._size else None

    def _complete_frame(self) -> bytearray:
        frame = self._frame
        assert frame is not None
        self._frame, self._filled, self._size, self.is_collecting = None, 0, -1, False
        return frame
