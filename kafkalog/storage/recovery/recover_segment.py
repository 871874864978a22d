"""Recovery of one segment: keep its sound beginning and rebuild everything derived from it.

The segment ends at the first batch that is incomplete, fails its checksum, or does not follow the previous one. Both
indexes and the transaction index are written as by appends, and leader epochs and producers are updated to the
segment's end (format.md section 7, SEG-20 to SEG-22, LOAD-10 to LOAD-12).

`scan_segment` reads, in any thread, and changes nothing. `recover_segment` then applies the result, segment by
segment.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import Final, NamedTuple

from kafkalog._core.log.recovery import BAD_CRC, BAD_ORDER, BAD_RANGE, BAD_SIZE, MORE, PARTIAL, RecoveryPass
from kafkalog._core.log.txns import TxnScan
from kafkalog.storage.file_records import FileRecords
from kafkalog.storage.file_slice import MAX_FILE_SIZE, check_next_offset
from kafkalog.storage.index.aborted_txns import AbortedTxn
from kafkalog.storage.index.offset_index import OffsetIndex
from kafkalog.storage.index.time_index import ENTRY, TimeIndex
from kafkalog.storage.leader_epoch import EpochEntry, LeaderEpochCache
from kafkalog.storage.log_walk import sound_chunks
from kafkalog.storage.producer_snapshot import ProducerEntry
from kafkalog.storage.producer_state import ProducerStateManager
from kafkalog.storage.segment import MAX_RELATIVE_OFFSET, LogSegment
from kafkalog.storage.segment_reader import Anchor, Extent
from kafkalog.util.scan_buffer import scan_buffer

_LOG: Final = logging.getLogger(__name__)
_DAMAGE: Final = {
    PARTIAL: "the rest is not a complete batch",
    BAD_SIZE: "the size field there is invalid",
    BAD_CRC: "the batch does not match its checksum",
    BAD_ORDER: "the batch does not end above the previous one",
}


class SegmentData(NamedTuple):
    """The data of a segment to scan; without index sizes only its end is determined."""

    records: FileRecords
    base_offset: int
    index_interval_bytes: int = MAX_FILE_SIZE
    max_index_size: int = 0


class FoundSegment(NamedTuple):
    """Result of one pass over a `.log` file: the pass, and why it stopped."""

    found: RecoveryPass
    status: int

    @property
    def end_offset(self) -> int:
        """Offset behind the last sound batch; the base offset if there is none."""
        return self.found.tail.last_offset + 1 if self.found.batches else self.found.base_offset

    def within(self, bound: int | None, behind: int | None) -> FoundSegment:
        """Return the result; an offset too high for the segment counts as damage if the log continues below it.

        `bound` is the base offset of the next segment, `behind` that of the batch behind the bad one; None if there
        is none. Offsets that really do not fit (KAFKA-6264) are below those of the following batches, and less than
        a segment's span above the previous ones.
        """
        following = min((offset for offset in (bound, behind) if offset is not None), default=2**63)
        bad = self.found.bad_offset
        is_low, is_far = bad < self.found.base_offset, bad - self.end_offset > MAX_RELATIVE_OFFSET
        is_damage = self.status == BAD_RANGE and (is_low or is_far or following <= bad)
        return self._replace(status=BAD_ORDER) if is_damage else self

    @property
    def is_cut(self) -> bool:
        """True if bytes behind the last sound batch are cut; an offset that does not fit is not damage."""
        return self.found.tail.size < self.found.end and self.status != BAD_RANGE

    @property
    def damage(self) -> str:
        """Reason why the pass stopped."""
        return _DAMAGE.get(self.status, "the rest is not a batch")

    def epochs_above(self, known: int) -> list[EpochEntry]:
        """Return the leader epochs above the known one that begin in the segment (LOG-59, SEG-25)."""
        base, begun = self.found.base_offset, self.found.leader_epochs
        return [EpochEntry(epoch, max(start, base)) for epoch, start in begun if epoch > known]


def scan_segment(
    segment: LogSegment | SegmentData, advance: Callable[[int], object] | None = None
) -> FoundSegment:
    """Scan the data of a segment up to the first damage; call `advance(bytes)` as the scan advances.

    Threads: any, in parallel with passes over other segments. StorageError.
    """
    records = segment.records
    found = RecoveryPass(
        segment.base_offset,
        records.size,
        segment.index_interval_bytes,
        segment.max_index_size // OffsetIndex.entry_size,
        segment.max_index_size // TimeIndex.entry_size,
    )
    status = MORE
    while status == MORE:
        start = found.position
        buffer = scan_buffer(start)
        status = found.check(buffer, 0, records.read_into(buffer, start))
        if status == MORE and found.position == start:  # another process truncated the file
            status = PARTIAL
        if advance is not None:
            advance(found.position - start)
    if advance is not None:
        advance(found.end - found.position)
    if found.batches:
        check_next_offset(found.tail.last_offset, records.path)
    return FoundSegment(found, status)


def recover_segment(
    segment: LogSegment,
    producers: ProducerStateManager,
    epochs: LeaderEpochCache,
    scanned: FoundSegment,
    *,
    cuts: bool = True,
) -> int:
    """Cut the segment at the first damage, rebuild its files, and return the number of bytes cut.

    `scanned` is the result of `scan_segment`; `producers` and `epochs` are updated from it. With `cuts` false the
    data stays unchanged, the indexes end at the first damage, and the transaction index has the decisions of the
    sound batches. SegmentOffsetOverflow if a sound batch has an offset that the segment cannot hold, CorruptRecord
    if it has the largest possible one; StorageError.
    """
    _refuse_end(segment, scanned)
    found = scanned.found
    segment.txn_index.reset()
    segment.is_damaged = not cuts and scanned.is_cut
    aborted = _aborted_around_damage(segment, producers) if segment.is_damaged else []
    if found.batches:
        done = producers.take_over(found.producers, found.tail.last_offset)
        aborted = aborted or [
            AbortedTxn(0, txn.producer_id, txn.first_offset, txn.last_offset, stable)
            for txn, stable in done
            if txn.is_aborted
        ]
    if aborted:
        segment.txn_index.extend(aborted)
    epochs.extend(scanned.epochs_above(epochs.latest_epoch))
    _refuse_overflow(segment, scanned)
    where, end = found.tail.size, scanned.end_offset
    cut = segment.records.truncate_to(where) if cuts else 0
    if cut:
        _LOG.warning("%s: cut at byte %d, offset %d, %d bytes lost: %s", segment.path, where, end, cut, scanned.damage)
    elif segment.is_damaged:
        text = "%s: damaged at byte %d, offset %d, and not changed; its indexes end there: %s"
        _LOG.warning(text, segment.path, where, end, scanned.damage)
    segment.offset_index.refill(found.offset_index)
    segment.time_index.refill(found.time_index + (_time_behind(segment, found) if segment.is_damaged else b""))
    return cut


def _aborted_around_damage(segment: LogSegment, producers: ProducerStateManager) -> list[AbortedTxn]:
    """Return the transactions aborted by markers in sound batches; `producers` are those at the base offset."""
    entries = (ProducerEntry(*state.entry()) for state in producers.producers)
    starts = ((one.producer_id, one.current_txn_first_offset) for one in entries)
    scan = TxnScan((producer_id, first_offset) for producer_id, first_offset in starts if first_offset >= 0)
    base, data = segment.base_offset, segment.records.slice(0, segment.size)
    extent = Extent(base, data, base + MAX_RELATIVE_OFFSET + 1)
    for chunk in sound_chunks(extent, base, extent.bound, lambda _: None, anchor=Anchor(0, base)):
        scan.feed(chunk.own_table(), segment.records.read)
    return [AbortedTxn(0, *fields) for fields in scan.aborted]


def _time_behind(segment: LogSegment, found: RecoveryPass) -> bytes:
    """Return the index entry for the largest time behind damage, for searches; b"" if no time is larger."""
    base, data = segment.base_offset, segment.records.slice(0, segment.size)
    extent = Extent(base, data, base + MAX_RELATIVE_OFFSET + 1)
    last = found.time_index[-ENTRY.size :]
    known, relative = ENTRY.unpack(last) if last else (-1, 0)
    timestamp, offset = known, base + relative
    anchor = Anchor(found.tail.size, base)
    for chunk in sound_chunks(extent, base, extent.bound, lambda _: None, anchor=anchor):
        if chunk.batches.max_timestamp > timestamp:
            timestamp, offset = chunk.batches.max_timestamp, chunk.batches.offset_of_max_timestamp
    return ENTRY.pack(timestamp, max(offset - base, relative)) if timestamp > known else b""


def rebuild_indexes(segment: LogSegment, scanned: FoundSegment) -> None:
    """Rewrite both indexes of a segment as appends would have, up to the first damage of its data (SEG-22).

    `scanned` is the result of `scan_segment`. SegmentOffsetOverflow if an offset does not fit the segment;
    StorageError.
    """
    _refuse_end(segment, scanned)
    _refuse_overflow(segment, scanned)
    segment.offset_index.refill(scanned.found.offset_index)
    segment.time_index.refill(scanned.found.time_index)


def _refuse_end(segment: LogSegment, scanned: FoundSegment) -> None:
    if scanned.status == BAD_RANGE:
        check_next_offset(scanned.found.bad_offset, segment.path, scanned.found.tail.size)


def _refuse_overflow(segment: LogSegment, scanned: FoundSegment) -> None:
    if scanned.status == BAD_RANGE:
        segment.ensure_offset_in_range(scanned.found.bad_offset)
