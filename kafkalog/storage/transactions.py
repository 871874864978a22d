"""Transactions of a log, read from its files: the last stable offset and the aborted transactions.

The log behind the newest producer snapshot (the tail) is scanned by batch header and followed as the log grows.
Before it, `.txnindex` files list the aborted transactions, and snapshots those that continue into the next segment.
If a file is missing or damaged, the segment is scanned instead. A missing `.txnindex` usually means that nothing was
aborted, so its segment is scanned only when records of a transaction are read from it.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Callable, Mapping
from functools import partial
from typing import Final, NamedTuple, Protocol

from kafkalog._core.log.txns import AbortedRanges, TxnScan
from kafkalog.errors import CorruptRecord, FormatError, KafkalogError, StorageError
from kafkalog.storage.file_records import FileRecords
from kafkalog.storage.file_slice import LARGEST_OFFSET
from kafkalog.storage.index.aborted_txns import AbortedTxn, check_believable, check_sanity, read_aborted_txns
from kafkalog.storage.log_walk import sound_chunks
from kafkalog.storage.names import snapshot_file_name, txn_index_file_name
from kafkalog.storage.producer_snapshot import read_snapshot
from kafkalog.storage.segment_reader import Anchor, Extent
from kafkalog.storage.segments import AnySegment, AnySegments
from kafkalog.storage.snapshots import Snapshots
from kafkalog.storage.undecided import ScanDamage, Undecided
from kafkalog.util.fileio import OS, FileSystem

_HEADER_BYTES: Final = 61
_WINDOW_BYTES: Final = 16 << 10
_NO_LIMIT: Final = 2**63 - 1
_LEAST_INDEX_BYTES: Final = 1 << 20
"""A transaction index up to this size is read even if its segment is smaller."""


class AbortedTransaction(NamedTuple):
    """A producer's aborted transaction: its first offset (or the first relevant here) and its marker's offset."""

    producer_id: int
    first_offset: int
    last_offset: int


class LogExtent(Protocol):
    """A log at one moment; `end_position` is its end in the last segment."""

    @property
    def segments(self) -> AnySegments: ...
    @property
    def log_end_offset(self) -> int: ...
    @property
    def end_position(self) -> int: ...


class _SegmentTxns(NamedTuple):
    """Transactions of one segment before the tail: those whose marker is in it, and those that continue behind it.

    open_at_end: those that continue into another segment before the tail. first_markers: as in TxnScan if the
    segment was scanned; None if files were read, whose first offsets are exact.
    """

    aborted: tuple[AbortedTransaction, ...]
    open_at_end: Mapping[int, int]
    first_markers: Mapping[int, tuple[int, bool]] | None
    damage: ScanDamage


class _Tail:
    """Scan of the log behind a snapshot: from offset `start` on, up to `position` of `segment`.

    `header` belongs to the batch before `position`, at `last_position` (-1: none). While it is unchanged, nothing
    before it was rewritten.
    """

    __slots__ = ("carried", "damage", "header", "last_position", "position", "scan", "segment", "start")

    def __init__(self, start: int, carried: Mapping[int, int], segment: AnySegment, position: int) -> None:
        self.start = start
        self.carried = carried
        self.damage = ScanDamage()
        self.scan = TxnScan(carried)
        self.segment = segment
        self.position = position
        self.last_position = -1
        self.header = b""

    def remember(self, position: int) -> None:
        """Remember the batch at `position` as the last one scanned."""
        self.last_position = position
        self.header = self.segment.records.read(position, _HEADER_BYTES)

    def still_holds(self, segments: AnySegments) -> bool:
        """Return False if the log was truncated or rewritten below the scanned end."""
        segment = self.segment
        if segments.get(segment.base_offset) is not segment or segment.size < self.position:
            return False
        return self.last_position < 0 or segment.records.read(self.last_position, len(self.header)) == self.header


class _Window:
    """Reads small pieces of a file in order, through a buffer: markers of short transactions lie close together."""

    __slots__ = ("_data", "_records", "_start")

    def __init__(self, records: FileRecords) -> None:
        self._records = records
        self._start = 0
        self._data = b""

    def __call__(self, position: int, size: int) -> bytes:
        at = position - self._start
        if at < 0 or at + size > len(self._data):
            self._data = self._records.read(position, max(size, _WINDOW_BYTES))
            self._start, at = position, 0
        return self._data[at : at + size]


class Transactions:
    """The transactions of the partition in `directory`; the caller passes the log as it is now.

    Threads: safe. No file is read before the first query.
    """

    def __init__(self, directory: str, *, fs: FileSystem = OS) -> None:
        self._directory = directory
        self._fs = fs
        self._lock = threading.Lock()
        self._tail: _Tail | None = None
        self._end_offset = 0  # of the log, as of the last query
        self._cuts = 0  # likewise: what a view had scanned of a log that was cut meanwhile may have been half of each
        self._before: dict[int, tuple[object, _SegmentTxns]] = {}
        self._ranges: dict[int, tuple[object, AbortedRanges]] = {}
        self._problems: dict[str, tuple[KafkalogError, Callable[[], object]]] = {}  # and a function that checks again

    @property
    def problems(self) -> tuple[KafkalogError, ...]:
        """Errors of files that could not be used, and of damage found by scans.

        Each is checked again, since another process may have been writing, replacing or deleting the file.
        """
        with self._lock:
            for path, (_, check) in list(self._problems.items()):
                try:
                    check()
                    del self._problems[path]
                except (FormatError, CorruptRecord, StorageError) as error:
                    if _is_missing(error):
                        del self._problems[path]
            return tuple(error for error, _ in self._problems.values())

    @property
    def is_damaged(self) -> bool:
        """True if there are problems."""
        return bool(self._problems)

    @property
    def has_met_damage(self) -> bool:
        """True if the scan of the log's end met damage."""
        tail = self._tail
        return tail is not None and bool(tail.damage.places)

    def _forget(self) -> None:
        self._tail = None
        self._before.clear()
        self._ranges.clear()
        self._problems.clear()

    def first_unstable_offset(self, log: LogExtent) -> int | None:
        """Return the first offset of the longest-open transaction (LOG-30); None if none is open. StorageError."""
        return min(self.open_transactions(log).values(), default=None)

    def open_transactions(self, log: LogExtent) -> dict[int, int]:
        """Return each open transaction's first offset, by producer id."""
        with self._lock:
            self._follow(log)
            return dict(self._tail_now.scan.open)

    def relocate(self, directory: str) -> None:
        """Set the new name of the partition directory."""
        self._directory = directory

    def aborted_ranges(self, log: LogExtent, first_offset: int, next_offset: int) -> AbortedRanges:
        """Return the aborted transactions that records with offsets in [first_offset, next_offset) may belong to.

        Undecided transactions count as not aborted: query only below the last stable offset.
        """
        with self._lock:
            self._follow(log)
            segments = log.segments
            first = segments.floor(first_offset) or segments[0]
            ranges = self._ranges_of(segments, first)
            following = segments.higher(first.base_offset)
            if following is None or following.base_offset >= next_offset:
                return ranges
            found = set(self._aborted_in(segments, first))
            while following is not None and following.base_offset < next_offset:
                found.update(self._aborted_in(segments, following))
                following = segments.higher(following.base_offset)
            return AbortedRanges(found)

    def undecided(self, log: LogExtent, first_offset: int, next_offset: int) -> Undecided | None:
        """Return the first transaction left undecided by damage with records in [first_offset, next_offset).

        Call `aborted_ranges` first, and this only if `is_damaged` is true then.
        """
        with self._lock:
            self._follow(log)
            if not self._problems:
                return None
            segments = log.segments
            found: list[Undecided] = []
            segment: AnySegment | None = segments.floor(first_offset) or segments[0]
            while segment is not None and segment.base_offset < next_offset:
                found += self._known_in(segments, segment)[1]
                segment = segments.higher(segment.base_offset)
        in_range = (one for one in found if one.first_offset < next_offset and one.end_offset > first_offset)
        return min(in_range, key=lambda one: one.first_offset, default=None)

    def undecided_at_end(self, log: LogExtent) -> Undecided | None:
        """Return the longest-open transaction if damage may hide its end."""
        with self._lock:
            self._follow(log)
            tail = self._tail_now
            first = min(tail.scan.open.values(), default=None)
            return next((one for one in tail.damage.undecided if one.first_offset == first), None)

    def aborted_transactions(self, log: LogExtent, first_offset: int, next_offset: int) -> list[AbortedTransaction]:
        """Return the aborted transactions of a range in one segment, in marker order, for a fetch response.

        CorruptRecord if damage leaves some of the records undecided.
        """
        with self._lock:
            self._follow(log)
            segments = log.segments
            aborted, undecided = self._known_in(segments, segments.floor(first_offset) or segments[0])
        for one in undecided:
            if one.first_offset < next_offset and one.end_offset > first_offset:
                raise one.error()
        found = set(aborted)
        in_range = [one for one in found if one.last_offset >= first_offset and one.first_offset < next_offset]
        return sorted(in_range, key=lambda one: one.last_offset)

    # The tail

    @property
    def _tail_now(self) -> _Tail:
        assert self._tail is not None
        return self._tail

    def _follow(self, log: LogExtent) -> None:
        """Extend the tail to the log's end."""
        segments = log.segments
        tail, self._end_offset = self._tail, log.log_end_offset
        cuts, self._cuts = self._cuts, getattr(log, "cuts", 0)
        if tail is None or cuts != self._cuts or not tail.still_holds(segments):
            self._forget()
            tail = self._begin(segments, log.log_end_offset)
        self._tail = None  # an interrupted scan starts over
        active = segments.active
        segment: AnySegment = tail.segment
        while True:
            stop = log.end_position if segment is active else segment.size
            if tail.position < stop:
                self._scan(tail.scan, segment, tail.position, stop, tail.damage, segments, tail)
                tail.position = stop
            following = segments.higher(segment.base_offset)
            if following is None:
                break
            segment = tail.segment = following
            tail.position, tail.last_position = 0, -1
        self._tail = tail

    def _begin(self, segments: AnySegments, end_offset: int) -> _Tail:
        """Return a tail that begins at the newest readable snapshot within the log, or at the first segment."""
        for offset in reversed(Snapshots(self._directory, fs=self._fs).offsets):
            if not segments[0].base_offset <= offset <= end_offset:
                continue
            carried = self._snapshot(offset)
            if carried is None:
                continue
            segment = segments.floor(offset) or segments[0]
            try:
                tail = _Tail(offset, carried, segment, self._position(segment, offset))
                last = segment.translate_offset(offset - 1) if tail.position else None
            except CorruptRecord as error:
                self._note_damage(segment, error)
                continue
            if last is not None:
                tail.remember(last[1])
            return tail
        return _Tail(segments[0].base_offset, {}, segments[0], 0)

    def _position(self, segment: AnySegment, offset: int) -> int:
        """Return the position of the first batch at or above `offset` in its segment; the segment's size if none."""
        base = segment.base_offset
        if offset <= base:
            return 0
        found = None if offset >= self._end_offset else segment.translate_offset(offset)
        if found is None:
            return int(segment.size)
        if int.from_bytes(segment.records.read(found[1], 8), "big") == offset:
            return int(found[1])
        extent = Extent(base, segment.records.slice(0, segment.size), LARGEST_OFFSET, True)  # a gap, or a wrong offset
        for chunk in sound_chunks(extent, offset, LARGEST_OFFSET, lambda _: None, anchor=Anchor(0, base)):
            return int(chunk.batches.position(chunk.first))
        return int(segment.size)

    def _snapshot(self, offset: int) -> dict[int, int] | None:
        """Return the first offset of each transaction open at `offset`, by producer; None without a sound snapshot."""
        path = os.path.join(self._directory, snapshot_file_name(offset))
        read = partial(read_snapshot, path, fs=self._fs)
        try:
            entries = read()
        except (FormatError, StorageError) as error:
            if not _is_missing(error):
                self._problems[path] = error, read
            return None
        open_ones = ((e.producer_id, e.current_txn_first_offset) for e in entries if e.current_txn_first_offset >= 0)
        return dict(open_ones)

    def _note_damage(self, segment: AnySegment, error: CorruptRecord) -> None:
        def check() -> None:
            if self._fs.exists(segment.path):
                raise error

        self._problems[segment.path] = error, check

    def _scan(
        self, scan: TxnScan, segment: AnySegment, start: int, stop: int, damage: ScanDamage, segments: AnySegments,
        tail: _Tail | None = None,
    ) -> None:
        """Feed the sound batches between two positions of a segment to `scan`; record damage also in `damage`."""
        records = segment.records
        read = _Window(records)
        following = segments.higher(segment.base_offset)
        is_last = following is None or stop < segment.size
        bound = LARGEST_OFFSET if following is None else following.base_offset
        is_elsewhere = getattr(segment, "is_elsewhere", None)
        extent = Extent(segment.base_offset, records.slice(0, stop), bound, is_last, is_elsewhere=is_elsewhere)

        def damaged(error: CorruptRecord) -> None:
            self._note_damage(segment, error)
            damage.note(error, scan, records.read(error.position or 0, _HEADER_BYTES))

        anchor = Anchor(start, segment.base_offset)
        for chunk in sound_chunks(extent, segment.base_offset, LARGEST_OFFSET, damaged, anchor=anchor):
            table = chunk.own_table()
            scan.feed(table, read)
            if tail is not None:
                tail.remember(table.position(len(table) - 1))

    # Before the tail

    def _ranges_of(self, segments: AnySegments, segment: AnySegment) -> AbortedRanges:
        tail = self._tail_now
        token = segment, _stamp(segment), tail, len(tail.scan.aborted)
        known = self._ranges.get(segment.base_offset)
        if known is not None and known[0] == token:
            return known[1]
        ranges = AbortedRanges(set(self._aborted_in(segments, segment)))
        self._ranges[segment.base_offset] = token, ranges
        return ranges

    def _aborted_in(self, segments: AnySegments, segment: AnySegment) -> list[AbortedTransaction]:
        """Return the aborted transactions with records in the segment."""
        return self._known_in(segments, segment)[0]

    def _known_in(self, segments: AnySegments, segment: AnySegment) -> tuple[list[AbortedTransaction], list[Undecided]]:
        """Return the aborted transactions with records in the segment, and those that damage leaves undecided."""
        tail = self._tail_now
        of_tail = [AbortedTransaction(*fields[:3]) for fields in tail.scan.aborted]
        if segment.base_offset >= tail.start:
            return of_tail, tail.damage.undecided
        own = self._segment_txns(segments, segment)
        found, undecided = list(own.aborted), [*own.damage.undecided, *tail.damage.undecided]
        still_open = dict(own.open_at_end)
        later = segments.higher(segment.base_offset)
        while still_open and later is not None and later.base_offset < tail.start:
            txns = self._segment_txns(segments, later)
            undecided += [one for item in still_open.items() for one in txns.damage.before_marker(*item)]
            still_open = _end_in(found, still_open, txns, later.base_offset, undecided)
            later = segments.higher(later.base_offset)
        for producer_id, first_offset in still_open.items():
            if tail.carried.get(producer_id, _NO_LIMIT) > first_offset:  # else the tail knows it
                undecided += _without_marker(found, producer_id, first_offset, tail, undecided)
        return found + of_tail, undecided  # the tail knows the first offsets of those that continue into it

    def _segment_txns(self, segments: AnySegments, segment: AnySegment) -> _SegmentTxns:
        token = segment, _stamp(segment)
        known = self._before.get(segment.base_offset)
        if known is not None and known[0] == token:
            return known[1]
        txns = self._read_segment_txns(segments, segment)
        self._before[segment.base_offset] = token, txns
        return txns

    def _read_segment_txns(self, segments: AnySegments, segment: AnySegment) -> _SegmentTxns:
        tail = self._tail_now
        following = segments.higher(segment.base_offset)
        holds_tail = following is None or tail.start < following.base_offset
        end_offset = tail.start if following is None else min(tail.start, following.base_offset)
        indexed = self._indexed(segment, _NO_LIMIT if holds_tail else end_offset)
        still_open = {} if holds_tail else self._snapshot(end_offset)
        if indexed is not None and still_open is not None:
            return _SegmentTxns(indexed, still_open, None, ScanDamage())
        scan, damage = TxnScan(), ScanDamage()
        stop = self._position(segment, end_offset) if holds_tail else segment.size
        self._scan(scan, segment, 0, stop, damage, segments)
        if indexed is None:
            indexed = tuple(AbortedTransaction(*fields[:3]) for fields in scan.aborted)
        else:
            known = {one[:2] for one in indexed}
            damage.undecided = [one for one in damage.undecided if one[:2] not in known]
        return _SegmentTxns(indexed, scan.open, scan.first_markers, damage)

    def _indexed(self, segment: AnySegment, end_offset: int) -> tuple[AbortedTransaction, ...] | None:
        """Return the entries of the segment's transaction index; None if it is missing, empty or damaged."""
        path = os.path.join(self._directory, txn_index_file_name(segment.base_offset))
        if getattr(segment, "is_damaged", False):
            return None

        def read() -> list[AbortedTxn]:
            # every entry had a batch in the segment, so the index is the shorter file
            entries = read_aborted_txns(
                path, fs=self._fs, limit=max(segment.size, _LEAST_INDEX_BYTES), strict=True
            )
            check_sanity(entries, segment.base_offset, path)
            check_believable(entries, end_offset, path)
            return entries

        try:
            entries = read()
        except (FormatError, StorageError) as error:
            if not _is_missing(error):
                self._problems[path] = error, read
            return None
        return tuple(AbortedTransaction(e.producer_id, e.first_offset, e.last_offset) for e in entries) or None


def _stamp(segment: AnySegment) -> object:
    """Return a value that changes when a segment before the tail is replaced."""
    return getattr(segment, "measured", None)


def _is_missing(error: KafkalogError) -> bool:
    return isinstance(error.__cause__, FileNotFoundError)


def _without_marker(
    found: list[AbortedTransaction], producer_id: int, first_offset: int, tail: _Tail, undecided: list[Undecided]
) -> list[Undecided]:
    """Return the undecided parts of a transaction that ended before the tail and whose marker was not found.

    The next marker decides. Without one, a transaction whose end lies in damage counts as aborted.
    """
    is_hidden = any(one.holds(producer_id, first_offset) for one in undecided)
    if producer_id in tail.carried:  # by another transaction
        found += [AbortedTransaction(producer_id, first_offset, tail.start - 1)] * is_hidden
        return []
    more = tail.damage.before_marker(producer_id, first_offset)
    last_offset, is_aborted = tail.scan.first_markers.get(producer_id, (tail.start - 1, is_hidden or bool(more)))
    found += [AbortedTransaction(producer_id, first_offset, last_offset)] * is_aborted
    return more


def _end_in(
    found: list[AbortedTransaction],
    still_open: dict[int, int],
    txns: _SegmentTxns,
    base_offset: int,
    undecided: list[Undecided],
) -> dict[int, int]:
    """Return the transactions of `still_open` that continue behind this later segment; append aborted ones to `found`.

    A transaction in `undecided` is also added to `found` if the segment's index does not list it.
    """
    still = {}
    for producer_id, first_offset in still_open.items():
        if txns.first_markers is not None:
            marker = txns.first_markers.get(producer_id)
            if marker is None:
                still[producer_id] = first_offset
            elif marker[1]:
                found.append(AbortedTransaction(producer_id, first_offset, marker[0]))
            continue
        ends = (one for one in txns.aborted if one.producer_id == producer_id and one.first_offset < base_offset)
        aborted = next(ends, None)
        if aborted is not None:
            found.append(aborted._replace(first_offset=first_offset))
        elif txns.open_at_end.get(producer_id, base_offset) < base_offset:
            still[producer_id] = first_offset
        elif any(one.holds(producer_id, first_offset) for one in undecided):
            found.append(AbortedTransaction(producer_id, first_offset, base_offset - 1))
    return still
