"""Tables of a partition's auxiliary files: indexes, leader epochs, aborted transactions, producers.

Files are read as they are. Damage is reported in a note below the table and never raised.
"""

from __future__ import annotations

import os
from collections.abc import Iterable
from errno import ENOENT
from typing import TYPE_CHECKING, Final, NamedTuple

from kafkalog.errors import FormatError, KafkalogError, StorageError
from kafkalog.inspect.rows import Column, Rows
from kafkalog.storage.index.aborted_txns import AbortedTxn, read_aborted_txns
from kafkalog.storage.leader_epoch import read_epochs
from kafkalog.storage.names import index_file_name, time_index_file_name, txn_index_file_name
from kafkalog.storage.readonly.index import OffsetIndexView, TimeIndexView
from kafkalog.storage.segments import Segment
from kafkalog.util.fileio import OS, FileSystem

if TYPE_CHECKING:
    from kafkalog._core.log.producer_state import ProducerState

_TXN_ENTRIES_BYTES: Final = 64 << 20
"""Most bytes read of one transaction index: two million transactions."""


class IndexSummary(NamedTuple):
    """The two indexes of a segment: their entries, the bytes of the segment, and problems with the files.

    Offsets and times (ms) are those of the last entries, -1 without one. `problem` is "" if both are intact.
    """

    base_offset: int
    size: int
    offset_entries: int
    time_entries: int
    last_offset: int
    last_timestamp: int
    problem: str

    @property
    def bytes_per_entry(self) -> float | None:
        """Average distance of the offset index entries in bytes of the segment; None without an entry."""
        return self.size / self.offset_entries if self.offset_entries else None


INDEX_COLUMNS: Final = (
    Column("base offset", lambda one: one.base_offset, "number"),
    Column("size", lambda one: one.size, "size"),
    Column("offset entries", lambda one: one.offset_entries, "number"),
    Column("time entries", lambda one: one.time_entries, "number"),
    Column("bytes an entry", lambda one: one.bytes_per_entry, "size"),
    Column("last offset", lambda one: one.last_offset if one.last_offset >= 0 else None, "number"),
    Column("last time", lambda one: one.last_timestamp, "time"),
)


def index_summary(directory: str, base_offset: int, size: int, fs: FileSystem = OS) -> IndexSummary:
    """Summarize the `.index` and `.timeindex` of a segment of `size` bytes; only one file at a time is in memory."""
    offsets = OffsetIndexView(os.path.join(directory, index_file_name(base_offset)), base_offset, fs=fs)
    count = offsets.entries
    last = offsets.last_offset if count else -1
    problems = [offsets.problem]
    times = TimeIndexView(os.path.join(directory, time_index_file_name(base_offset)), base_offset, fs=fs)
    problems.append(times.problem)
    problem_text = "; ".join(problem.message for problem in problems if problem is not None)
    last_timestamp = times.last_entry.timestamp if times.entries else -1
    return IndexSummary(base_offset, size, count, times.entries, last, last_timestamp, problem_text)


def index_summaries(name: str, directory: str, segments: Iterable[Segment], fs: FileSystem = OS) -> Rows[IndexSummary]:
    """Return a row for each segment."""
    found = [index_summary(directory, segment.base_offset, segment.size, fs) for segment in segments]
    notes = [f"{one.base_offset}: {one.problem}" for one in found if one.problem]
    return Rows(found, INDEX_COLUMNS, title=f"{name}: indexes", notes=notes)


class Epoch(NamedTuple):
    """A leader epoch and its offsets, [start, end)."""

    epoch: int
    start_offset: int
    end_offset: int


EPOCH_COLUMNS: Final = (
    Column("epoch", lambda one: one.epoch, "number"),
    Column("start offset", lambda one: one.start_offset, "number"),
    Column("end offset", lambda one: one.end_offset, "number"),
    Column("offsets", lambda one: one.end_offset - one.start_offset, "number"),
)


def epochs(
    name: str,
    directory: str,
    end_offset: int,
    known: Iterable[tuple[int, int]] | None = None,
    fs: FileSystem = OS,
) -> Rows[Epoch]:
    """Return the leader epochs, oldest first: those `known` to the log's owner, else those of the checkpoint file."""
    notes = []
    if known is None:
        known = ()
        try:
            known = read_epochs(directory, fs=fs)
        except KafkalogError as error:
            notes.append(f"not read: {error}")
    entries = list(known)
    ends = [start for _, start in entries[1:]] + [end_offset]
    found = [Epoch(epoch, start, max(start, end)) for (epoch, start), end in zip(entries, ends, strict=False)]
    return Rows(found, EPOCH_COLUMNS, title=f"{name}: leader epochs", notes=notes)


TXN_COLUMNS: Final = (
    Column("producer id", lambda one: one.producer_id, "number"),
    Column("first offset", lambda one: one.first_offset, "number"),
    Column("marker offset", lambda one: one.last_offset, "number"),
    Column("last stable offset", lambda one: one.last_stable_offset, "number"),
)


def aborted_txns(name: str, directory: str, segments: Iterable[Segment], fs: FileSystem = OS) -> Rows[AbortedTxn]:
    """Return the aborted transactions in the segments' transaction indexes, in the order of their markers."""
    found: list[AbortedTxn] = []
    notes = []
    for segment in segments:
        path = os.path.join(directory, txn_index_file_name(segment.base_offset))
        try:
            found += read_aborted_txns(path, fs=fs, limit=_TXN_ENTRIES_BYTES)
        except (FormatError, StorageError) as error:
            if not isinstance(error, StorageError) or error.errno != ENOENT:
                notes.append(f"not read: {error}")
    return Rows(found, TXN_COLUMNS, title=f"{name}: aborted transactions", notes=notes)


PRODUCER_COLUMNS: Final = (
    Column("producer id", lambda one: one.producer_id, "number"),
    Column("epoch", lambda one: one.producer_epoch, "number"),
    Column("last sequence", lambda one: _non_negative(one.last_sequence), "number"),
    Column("last offset", lambda one: _non_negative(one.last_offset), "number"),
    Column("last time", lambda one: one.last_timestamp, "time"),
    Column("open transaction from", lambda one: _non_negative(one.current_txn_first_offset), "number"),
    Column("coordinator epoch", lambda one: _non_negative(one.coordinator_epoch), "number"),
)


def _non_negative(value: int) -> int | None:
    return value if value >= 0 else None


def producers(name: str, states: Iterable[ProducerState], notes: Iterable[str] = ()) -> Rows[ProducerState]:
    """Return the producers that the log knows, by producer id."""
    ordered = sorted(states, key=lambda state: state.producer_id)
    return Rows(ordered, PRODUCER_COLUMNS, title=f"{name}: producers", notes=notes)
