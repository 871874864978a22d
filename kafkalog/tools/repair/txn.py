"""Aborted transactions of a log, found by reading it from its start: the correct content of transaction indexes."""

from __future__ import annotations

import os
from collections import OrderedDict

from kafkalog.errors import CorruptSnapshot
from kafkalog.storage.file_slice import FileSlice
from kafkalog.storage.index.aborted_txns import VERSION, AbortedTxn
from kafkalog.storage.names import snapshot_file_name
from kafkalog.storage.producer_snapshot import read_snapshot
from kafkalog.tools.verify.segment import SegmentFacts
from kafkalog.util.fileio import FileSystem
from kafkalog.util.os_errors import os_errors


class TxnReplay:
    """Replays the transactions of a log, segment by segment in order, and keeps the entries of each (format.md 7).

    Transactions that were open before the first segment come from the producer snapshot of its base offset.
    """

    def __init__(self, fs: FileSystem) -> None:
        self._fs = fs
        self._open: OrderedDict[int, int] = OrderedDict()  # producer -> first offset, by rising first offset
        self._entries: dict[str, bytes] = {}
        self._is_started = False

    def add(self, facts: SegmentFacts) -> None:
        """Read the next segment; StorageError."""
        if not self._is_started:
            self._is_started = True
            self._open = self._load_open(facts)
        aborted = {(producer, offset) for producer, offset, _ in facts.aborts}
        found = bytearray()
        with os_errors("read", facts.path), self._fs.open_file(facts.path, "r") as file:
            for start, end in facts.good:
                for batch in FileSlice(file, start, end - start).batches():
                    if not batch.is_transactional or batch.producer_id < 0:
                        continue
                    producer = batch.producer_id
                    if not batch.is_control:
                        self._open.setdefault(producer, batch.base_offset)
                        continue
                    first = self._open.pop(producer, None)
                    if first is not None and (producer, batch.last_offset) in aborted:
                        stable = next(iter(self._open.values()), batch.last_offset + 1)
                        found += AbortedTxn(VERSION, producer, first, batch.last_offset, stable).packed()
        self._entries[facts.path] = bytes(found)

    def entries_of(self, path: str) -> bytes:
        """Return the correct content of the transaction index of the segment at `path`."""
        return self._entries[path]

    def _load_open(self, facts: SegmentFacts) -> OrderedDict[int, int]:
        path = os.path.join(os.path.dirname(facts.path), snapshot_file_name(facts.base_offset))
        if not self._fs.exists(path):
            return OrderedDict()
        try:
            producers = read_snapshot(path, fs=self._fs)
        except CorruptSnapshot:
            return OrderedDict()
        open_before = [(one.current_txn_first_offset, one.producer_id) for one in producers]
        return OrderedDict((producer, first) for first, producer in sorted(open_before) if first >= 0)
