"""Check of a `.txnindex`: its entries against each other, and against the ABORT markers of its segment."""

from __future__ import annotations

from contextlib import suppress
from typing import Final

from kafkalog.errors import FormatError
from kafkalog.storage.index.aborted_txns import ENTRY_BYTES, AbortedTxn, parse_aborted_txns
from kafkalog.tools.verify.chain import placed_batches
from kafkalog.tools.verify.index import REBUILD
from kafkalog.tools.verify.report import Findings, Severity
from kafkalog.tools.verify.segment import SegmentFacts
from kafkalog.util.fileio import FileSystem
from kafkalog.util.os_errors import os_errors

_MIN_MARKER_BYTES: Final = 61


class TxnCheck:
    """Compares the transaction index at `path` with the results of the pass over its segment."""

    def __init__(
        self,
        path: str,
        facts: SegmentFacts,
        findings: Findings,
        fs: FileSystem,
        next_base_offset: int | None = None,
    ) -> None:
        self._next_base = next_base_offset
        self._path = path
        self._facts = facts
        self._findings = findings
        self._fs = fs

    def run(self, *, is_live: bool) -> bool:
        """Report faults; return True if the file exists. StorageError if the system fails.

        `is_live`: the segment is written to, so its index may have more or less than the log that was read. Of a
        transaction that began below the log start only the part above it counts: an opening rebuilds producers from
        there on, and a delete that a crash interrupted may leave no entry for the part below.
        """
        data, exists = self._content()
        if data is None:
            return exists
        whole = len(data) - len(data) % ENTRY_BYTES
        if whole != len(data) and not is_live:
            self._add("txn-size", f"{len(data) - whole} bytes after the last complete entry", whole)
        try:
            entries = parse_aborted_txns(data, self._path, strict=True)
        except FormatError as error:
            self._add("txn-version", error.message, error.position)
            return exists
        self._check_order(entries)
        self._check_markers(entries, is_live)
        return exists

    def _content(self) -> tuple[bytes | None, bool]:
        """Return (the file's bytes, True if it exists); the bytes are None if it is far too long for its log."""
        most = (self._facts.size // _MIN_MARKER_BYTES + 1) * ENTRY_BYTES + ENTRY_BYTES
        with os_errors("read the transaction index", self._path), suppress(FileNotFoundError):
            with self._fs.open_file(self._path, "r") as file:
                size = file.size()
                if size > most:
                    what = f"{size} bytes are too many for the markers of a log of {self._facts.size} bytes"
                    self._add("txn-size", what)
                    return None, True
                return file.pread(size, 0), True
        return b"", False

    def _check_order(self, entries: list[AbortedTxn]) -> None:
        last = self._facts.base_offset - 1
        for number, entry in enumerate(entries):
            what = ""
            if entry.last_offset <= last:
                what = f"last offset {entry.last_offset} is not above {last}"
            elif not 0 <= entry.first_offset <= entry.last_offset:
                what = f"first offset {entry.first_offset} is not at or before its last, {entry.last_offset}"
            elif entry.last_stable_offset > entry.last_offset + 1:
                what = f"last stable offset {entry.last_stable_offset} is above its marker at {entry.last_offset}"
            elif entry.producer_id < 0:
                what = f"producer id {entry.producer_id} is negative"
            if what:
                self._add("txn-entry", f"entry {number}: {what}", number * ENTRY_BYTES, entry.last_offset)
            last = max(last, entry.last_offset)

    def _check_markers(self, entries: list[AbortedTxn], is_live: bool) -> None:
        """Check that each entry has its ABORT marker in the log, and each aborted transaction its entry."""
        facts = self._facts
        markers = {(producer, offset): first for producer, offset, first in facts.aborts}
        for number, entry in enumerate(entries):
            first = markers.pop((entry.producer_id, entry.last_offset), None)
            if first is None:
                if facts.damaged or facts.tail is not None or (is_live and entry.last_offset >= facts.next_offset):
                    continue
                if self._is_missing_offset(entry.last_offset):
                    continue  # a segment rewritten without damaged bytes keeps the entries of their markers
                what = f"entry {number}: the log has no ABORT marker of producer {entry.producer_id} at that offset"
                self._add("txn-entry", what, number * ENTRY_BYTES, entry.last_offset)
            elif 0 <= first < entry.first_offset:
                what = (
                    f"entry {number}: the transaction of producer {entry.producer_id} begins at offset {first}, "
                    f"not {entry.first_offset}"
                )
                self._add("txn-entry", what, number * ENTRY_BYTES, entry.last_offset)
        known = entries[-1].last_offset if entries else -1
        for (producer, offset), first in markers.items():
            # without data in this segment the transaction may have been empty, or compacted away
            if first >= 0 and not facts.damaged and not (is_live and offset > known):
                self._add(
                    "txn-missing",
                    f"producer {producer} aborted offsets {first} to {offset}, but no entry says so: "
                    "read_committed readers would get them",
                    None,
                    offset,
                )

    def _is_missing_offset(self, offset: int) -> bool:
        """Return True if the offset is in the segment's range and no batch has it."""
        facts = self._facts
        if offset >= facts.next_offset:
            return self._next_base is not None and offset < self._next_base
        if facts.first_offset <= facts.base_offset and not facts.gaps:
            return False
        with self._fs.open_file(facts.path, "r") as file:
            batches = placed_batches(file, facts.kept, ())
        return not any(one.base_offset <= offset <= one.last_offset for one in batches)

    def _add(self, kind: str, what: str, position: int | None = None, offset: int | None = None) -> None:
        self._findings.add(
            Severity.REPAIRABLE, kind, what, position=position, offset=offset, path=self._path, hint=REBUILD
        )
