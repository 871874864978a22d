"""What the system is told about a file that is read once, so that the page cache keeps what others need."""

from __future__ import annotations

from typing import Final

from kafkalog._core.residency import absent_runs
from kafkalog.util.fileio import File, FileSystem
from kafkalog.util.system_calls import SYSTEM

DROP_BYTES: Final = 8 << 20
"""How much of a file may lie in the page cache for the scan's sake before it is given up again."""
_WHOLE_PAGES: Final = -(64 << 10)  # a mask: half a page is never dropped, so ends are rounded down


class ScanAdvice:
    """Advice for one scan of an open file: read ahead, and drop behind it what was not in memory before.

    Pages that were resident when the scan began belong to somebody (a broker's readers, the tail it just wrote): they
    stay. Those that the scan brought in go as it passes. Advice that the system does not take is left out: it is no
    reason to stop. Threads: one scan, one thread.
    """

    def __init__(self, file: File, length: int, fs: FileSystem) -> None:
        self._file = file
        self._fs = fs
        self._absent = _absent_runs(file, length)  # what the scan brings in, by rising position
        self._next = 0
        self._dropped = 0
        if self._absent:
            self._tell(0, 0, SYSTEM.advice_sequential)

    def passed(self, position: int) -> None:
        """The scan is done with the bytes before `position`."""
        if position - self._dropped >= DROP_BYTES:
            self.done(position & _WHOLE_PAGES)

    def done(self, position: int) -> None:
        """The scan is done with the bytes before `position`; at the end of the file, with its last page too."""
        while self._next < len(self._absent):
            start, length = self._absent[self._next]
            begin, end = max(start, self._dropped), min(start + length, position)
            if begin < end:
                self._tell(begin, end - begin, SYSTEM.advice_dont_need)
            if start + length > position:
                break
            self._next += 1
        self._dropped = position

    def _tell(self, position: int, length: int, advice: int) -> None:
        try:
            self._fs.advise(self._file.fileno(), position, length, advice)
        except OSError:
            pass


def _absent_runs(file: File, length: int) -> list[tuple[int, int]]:
    """(position, bytes) of what is not in memory; none where the system does not tell."""
    try:
        return absent_runs(file.fileno(), length)
    except OSError:
        return []
