"""Producers of a read-only log, determined as an opening does, with nothing changed."""

from __future__ import annotations

from errno import ENOENT

from kafkalog._core.log.producer_state import ProducerState
from kafkalog.errors import CorruptSnapshot, StorageError
from kafkalog.storage.log_walk import log_chunks
from kafkalog.storage.producer_snapshot import read_snapshot
from kafkalog.storage.producer_state import ProducerStateManager
from kafkalog.storage.readonly.view import LogView
from kafkalog.util.fileio import FileSystem


def seen_producers(view: LogView, now_ms: int, fs: FileSystem) -> tuple[ProducerState, ...]:
    """Return the producers at the end of the log: from its newest sound snapshot and later batches.

    Those of the snapshot that have been idle for too long at `now_ms` are left out. CorruptRecord, StorageError.
    """
    known = ProducerStateManager(view.path, fs=fs)
    start = _load_newest(known, view, now_ms)
    for chunk in log_chunks(view, max(start, view.log_start_offset), view.log_end_offset):
        known.replay(chunk.batches, chunk.data, chunk.first, chunk.last)
    return tuple(known.producers)


def _load_newest(known: ProducerStateManager, view: LogView, now_ms: int) -> int:
    """Load the newest readable snapshot in the log's range; return its offset, or the log start without one."""
    for offset in reversed(known.snapshots.offsets):
        if not view.log_start_offset <= offset <= view.log_end_offset:
            continue
        try:
            entries = read_snapshot(known.snapshots.path(offset), fs=known.snapshots.fs)
        except CorruptSnapshot:
            continue
        except StorageError as error:
            if error.errno != ENOENT:
                raise
            continue
        oldest = now_ms - known.expiration_ms
        kept = (e for e in entries if e.timestamp > oldest or e.current_txn_first_offset >= 0)
        known.producers.load(ProducerState(*entry) for entry in kept)
        return offset
    return view.log_start_offset
