"""Output of the dump tool, separate from its checks: one method for each kind of item, as text or as JSON lines."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, BinaryIO

from kafkalog._core.text.listing import list_entries
from kafkalog._core.text.text_buffer import TextBuffer
from kafkalog.records.format import MAX_SEQUENCE
from kafkalog.storage.index.aborted_txns import AbortedTxn
from kafkalog.storage.producer_snapshot import ProducerEntry
from kafkalog.tools.dump.complaints import Complaints, Pair
from kafkalog.tools.dump.log_text import LogText
from kafkalog.tools.dump.options import DumpOptions
from kafkalog.tools.dump.window import FileWindow

if TYPE_CHECKING:
    from kafkalog.tools.dump.record_readers import RecordReader


class TextPrinter:
    """Prints the text of the reference's tool (format.md sections 12 and 13), one file after the other."""

    def __init__(self, out: BinaryIO, err: BinaryIO) -> None:
        self._out = out
        self._err = err
        self._text = TextBuffer()

    def _line(self, text: str) -> None:
        self._out.write(os.fsencode(f"{text}\n"))

    def begin(self, path: str) -> None:
        """Print `Dumping F`."""
        self._line(f"Dumping {path}")

    def title(self, path: str, title: str) -> None:
        """Print `Log starting offset: 0`."""
        self._line(title)

    def log(
        self, path: str, window: FileWindow, options: DumpOptions, reader: RecordReader | None
    ) -> list[Pair]:
        """Print batch lines and record lines."""
        return LogText(path, window, self._out, options, reader).write()

    def left_over(self, path: str, position: int, count: int) -> None:
        """Print `Found N invalid bytes at the end of F`."""
        self._line(f"Found {count} invalid bytes at the end of {os.path.basename(path)}")

    def entries(self, path: str, base_offset: int, data: bytes, *, times: bool, first: bool) -> None:
        """Print `offset: 2 position: 87` or `timestamp: 1002 offset: 2`."""
        list_entries(self._text, data, base_offset, times=times, first=first)
        self._out.write(self._text)
        self._text.clear()

    def empty(self, path: str) -> None:
        """Print `F is empty.`"""
        self._line(f"{path} is empty.")

    def passed(self, path: str) -> None:
        """Print `F passed sanity check.`"""
        self._line(f"{path} passed sanity check.")

    def aborted(self, path: str, entry: AbortedTxn) -> None:
        """Print `version: 0 producerId: 9 ...`"""
        self._line(
            f"version: {entry.version} producerId: {entry.producer_id} firstOffset: {entry.first_offset} "
            f"lastOffset: {entry.last_offset} lastStableOffset: {entry.last_stable_offset}"
        )

    def producer(self, path: str, entry: ProducerEntry) -> None:
        """Print `producerId: 9 ...`; without batch data the line ends after lastTimestamp (A9)."""
        first = entry.current_txn_first_offset
        text = (
            f"producerId: {entry.producer_id} producerEpoch: {entry.producer_epoch} "
            f"coordinatorEpoch: {entry.coordinator_epoch} "
            f"currentTxnFirstOffset: {'OptionalLong.empty' if first < 0 else f'OptionalLong[{first}]'} "
            f"lastTimestamp: {entry.timestamp}"
        )
        if entry.last_offset >= 0:
            text += (
                f" firstSequence: {first_sequence(entry)} lastSequence: {entry.last_sequence} "
                f"lastOffset: {entry.last_offset} offsetDelta: {entry.offset_delta} timestamp: {entry.timestamp}"
            )
        self._line(text)

    def complain(self, complaints: Complaints) -> None:
        """Print the complaints on stderr."""
        complaints.write(self._err)


def first_sequence(entry: ProducerEntry) -> int:
    """Return the sequence number of the first record of a producer's newest batch.

    2147483647 precedes 0; numbers that no broker writes wrap as 32 bits do in the reference.
    """
    sequence, delta = entry.last_sequence, entry.offset_delta
    first = sequence - delta if sequence >= delta else MAX_SEQUENCE - (delta - sequence) + 1
    return (first + 2**31) % 2**32 - 2**31
