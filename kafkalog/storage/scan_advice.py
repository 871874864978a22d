"""Kernel advice for a file that is read once, so that the page cache keeps pages that others need."""

from __future__ import annotations

from typing import Final

from kafkalog._core.bytes.residency import absent_runs
from kafkalog.util.fileio import File, FileSystem
from kafkalog.util.system_calls import SYSTEM

DROP_BYTES: Final = 8 << 20
"""Number of bytes that a scan may leave in the page cache before they are dropped."""
_WHOLE_PAGES: Final = -(64 << 10)  # a mask: ends are rounded down, so that half a page is never dropped


class ScanAdvice:
    """Advice for one scan of an open file: read ahead, and drop pages behind it that were not in memory before.

    Pages that were resident when the scan began are used by others (a broker's readers, the tail it just wrote), and
    stay. Pages that the scan loaded are dropped as it passes. Advice that the system rejects is skipped. Threads:
    one scan, one thread.
    """

    def __init__(self, file: File, length: int, fs: FileSystem) -> None:
        self._file = file
        self._fs = fs
        self._absent = _absent_runs(file, length)  # ranges that the scan loads, by rising position
        self._next = 0
        self._dropped = 0
        if self._absent:
            self._advise(0, 0, SYSTEM.advice_sequential)

    def passed(self, position: int) -> None:
        """Record that the scan has finished with the bytes before `position`."""
        if position - self._dropped >= DROP_BYTES:
            self.done(position & _WHOLE_PAGES)

    def done(self, position: int) -> None:
        """Drop the pages before `position`; at the end of the file, including its last page."""
        while self._next < len(self._absent):
            start, length = self._absent[self._next]
            begin, end = max(start, self._dropped), min(start + length, position)
            if begin < end:
                self._advise(begin, end - begin, SYSTEM.advice_dont_need)
            if start + length > position:
                break
            self._next += 1
        self._dropped = position

    def _advise(self, position: int, length: int, advice: int) -> None:
        try:
            self._fs.advise(self._file.fileno(), position, length, advice)
        except OSError:
            pass


def _absent_runs(file: File, length: int) -> list[tuple[int, int]]:
    """Return (position, bytes) of the ranges that are not in memory; none if the system does not report them."""
    try:
        return absent_runs(file.fileno(), length)
    except OSError:
        return []
