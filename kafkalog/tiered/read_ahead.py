"""Runs of chunks that are read in order: several by one request, and the next ones while these are decoded.

The first chunk of a segment, and one that does not follow the last, is fetched alone. While chunks follow each other,
runs grow up to `RUN_BYTES`, and a thread fetches the next run. A store keeps at most `MOST_AHEAD` runs that were not
asked for yet, so memory stays bounded however many segments are read.
"""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Callable
from typing import Final, NamedTuple

from kafkalog.tiered.manifest import Chunk, ChunkIndex

RUN_BYTES: Final = 16 << 20
"""Most bytes of a run of several chunks, in the store and in the segment."""
MOST_AHEAD: Final = 4
_NAME: Final = "kafkalog-tiered-read-ahead"
Fetch = Callable[[int, int], bytes]
"""Function that returns so many bytes of an object from a position, by one request."""


class Run(NamedTuple):
    """Chunks that follow each other in a segment and in its object."""

    chunks: tuple[Chunk, ...]

    @property
    def start(self) -> int:
        """Position in the object."""
        return self.chunks[0].stored_position

    @property
    def size(self) -> int:
        """Bytes in the object."""
        return sum(one.stored_size for one in self.chunks)

    @property
    def end(self) -> int:
        """Position in the segment behind the last chunk."""
        return self.chunks[-1].position + self.chunks[-1].size

    def split(self, stored: bytes) -> list[bytes]:
        """Return the stored bytes of each chunk."""
        parts, at = [], 0
        for one in self.chunks:
            parts.append(stored[at : at + one.stored_size])
            at += one.stored_size
        return parts


def run_of(index: ChunkIndex, position: int, most: int, run_bytes: int = RUN_BYTES) -> Run:
    """Return the chunk with the segment's byte `position`, and those behind it: up to `most`, and to `run_bytes`."""
    chunks = [index.chunk_at(position)]
    stored, plain = chunks[0].stored_size, chunks[0].size
    while len(chunks) < most and (end := chunks[-1].position + chunks[-1].size) < index.segment_bytes:
        chunk = index.chunk_at(end)
        stored, plain = stored + chunk.stored_size, plain + chunk.size
        if max(stored, plain) > run_bytes:
            break
        chunks.append(chunk)
    return Run(tuple(chunks))


class RunReader:
    """Reads the chunks of one object; returns all of a run that was fetched for one of them. Threads: safe."""

    def __init__(self, path: str, index: ChunkIndex, fetch: Fetch, ahead: ReadAhead) -> None:
        self._path = path
        self._index = index
        self._fetch = fetch
        self._ahead = ahead
        self._lock = threading.Lock()
        self._expected = -1  # position behind the last run; guarded by self._lock
        self._most = 1  # chunks that the last run might have had; guarded by self._lock

    def read(self, position: int) -> list[tuple[Chunk, bytes]]:
        """Return the chunk at `position` and perhaps some behind it, as they are stored.

        The errors of `fetch` are those for the first chunk: others are left out if they cannot be fetched with it.
        """
        with self._lock:
            in_order = position == self._expected
            self._most = self._most * 2 if in_order else 1
            run = run_of(self._index, position, self._most, RUN_BYTES)
            self._expected, following = run.end, self._most * 2
        stored = self._ahead.take(self._path, run)
        if in_order and run.end < self._index.segment_bytes:
            self._ahead.start(self._path, run_of(self._index, run.end, following, RUN_BYTES), self._fetch)
        if stored is None and len(run.chunks) > 1:
            stored = _fetched(run, self._fetch)
        if stored is None:
            first = run.chunks[0]
            return [(first, self._fetch(first.stored_position, first.stored_size))]
        return [*zip(run.chunks, run.split(stored), strict=True)]


def _fetched(run: Run, fetch: Fetch) -> bytes | None:
    """Return the bytes of a run; None for any error: the chunk that is asked for is then fetched alone."""
    try:
        return fetch(run.start, run.size)
    except Exception:
        return None


class ReadAhead:
    """Runs that threads fetch before they are asked for, for one store. Threads: safe."""

    def __init__(self, most: int = MOST_AHEAD) -> None:
        self._most = most
        self._lock = threading.Lock()
        self._pending: OrderedDict[tuple[str, Run], _Pending] = OrderedDict()  # guarded by self._lock

    def start(self, path: str, run: Run, fetch: Fetch) -> None:
        """Begin to fetch a run; the oldest of too many is forgotten."""
        pending = _Pending(run, fetch)
        try:
            pending.thread.start()
        except RuntimeError:  # no thread can be started: the run is fetched when it is asked for
            return
        with self._lock:
            self._pending[path, run] = pending
            while len(self._pending) > self._most:
                self._pending.popitem(last=False)

    def take(self, path: str, run: Run) -> bytes | None:
        """Return the bytes of a run once they are there; None if it was not begun, or failed."""
        with self._lock:
            pending = self._pending.pop((path, run), None)
        if pending is None:
            return None
        pending.thread.join()
        return pending.stored


class _Pending:
    """One fetch by a separate thread, which ends with the answer."""

    def __init__(self, run: Run, fetch: Fetch) -> None:
        self.stored: bytes | None = None
        self._run = run
        self._fetch = fetch
        self.thread = threading.Thread(target=self._work, name=_NAME, daemon=True)

    def _work(self) -> None:
        self.stored = _fetched(self._run, self._fetch)
