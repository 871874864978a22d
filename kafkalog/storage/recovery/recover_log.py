"""Recovery of one log: scans its segments in parallel and applies the results in order."""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable, Generator, Sequence
from typing import Final, NamedTuple

from kafkalog.storage.recovery.recover_segment import FoundSegment, scan_segment
from kafkalog.storage.segment import LogSegment
from kafkalog.util.readahead import map_ahead

_LOG: Final = logging.getLogger(__name__)
_REPORT_BYTES: Final = 8 << 20


class RecoveryProgress(NamedTuple):
    """Progress of the recovery of one log: finished segments, and bytes read of all segments."""

    segments_done: int
    segments: int
    bytes_done: int
    bytes: int


Progress = Callable[[RecoveryProgress], object]


class RecoveryRun:
    """The segments that a log has to recover, oldest first, and the progress.

    `progress` is called at the beginning, after every 8 MiB, after each segment and at the end, by the thread that
    made the progress, one call at a time. `threads` None means one for each usable core.
    """

    def __init__(
        self, directory: str, segments: Sequence[LogSegment], progress: Progress | None, threads: int | None
    ) -> None:
        self._directory = directory
        self._segments = segments
        self._progress = progress
        self._threads = threads
        self._bytes = sum(segment.size for segment in segments)
        self._done = 0  # guarded by self._progress_lock
        self._reported = 0  # guarded by self._progress_lock
        self._progress_lock = threading.Lock()
        self._began = time.monotonic()
        self._recovered = 0
        self._cut = 0
        self._end = 0
        if segments:
            _LOG.info(
                "%s was not closed cleanly: recovering %d segment%s from offset %d on, %d bytes",
                directory, len(segments), "" if len(segments) == 1 else "s", segments[0].base_offset, self._bytes,
            )  # fmt: skip

    def scanned(self) -> Generator[FoundSegment]:
        """Yield the scan of each segment, in order; later ones are read ahead. Close it before changing other files."""
        self._report(self._bytes if not self._segments else 0)
        yield from map_ahead(lambda one: scan_segment(one, self._add_bytes), self._segments, threads=self._threads)

    def segment_recovered(self, scanned: FoundSegment, cut: int) -> None:
        """Record that a segment is recovered, and that `cut` bytes of it were cut."""
        self._cut = cut
        self._end = scanned.end_offset
        with self._progress_lock:
            self._recovered += 1
            self._report(self._done)

    def report_end(self) -> None:
        """Report the result: one log line, and a last call of `progress`."""
        count = len(self._segments)
        removed = count - self._recovered
        if removed and self._progress is not None:
            self._progress(RecoveryProgress(count, count, self._bytes, self._bytes))
        if not count:
            return
        _LOG.log(
            logging.WARNING if self._cut or removed else logging.INFO,
            "recovered %s in %.1f s: it ends at offset %d, %d bytes were cut off there, %d later segments removed",
            self._directory, time.monotonic() - self._began, self._end, self._cut, removed,
        )  # fmt: skip

    def _add_bytes(self, count: int) -> None:
        """Record that `count` more bytes were read."""
        if self._progress is not None:
            with self._progress_lock:
                self._done += count
                if self._done - self._reported >= _REPORT_BYTES:
                    self._report(self._done)

    def _report(self, done: int) -> None:
        if self._progress is not None:
            self._reported = done
            self._progress(RecoveryProgress(self._recovered, len(self._segments), done, self._bytes))
