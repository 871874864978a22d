"""The latest state of a log by key: a mapping that is read only and follows the log."""

from __future__ import annotations

import logging
import threading
from array import array
from bisect import bisect_left
from collections.abc import ItemsView, Iterable, Iterator, Mapping, ValuesView
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, Final

from kafkalog._core.batch.record import Record, RecordIterator
from kafkalog._core.log.txns import has_transactions
from kafkalog.keys.lookup import PASSING, checked_key, is_passing
from kafkalog.reading.chunks import batch_chunks, check_end, record_tables, records, visible_chunks
from kafkalog.reading.source import ATTEMPTS, end_of, refresh, truncation_count, was_replaced
from kafkalog.sidecars.view_end import ViewEnd
from kafkalog.storage.damage import first_offset
from kafkalog.storage.readonly.view import LogView

if TYPE_CHECKING:
    from kafkalog.keys.lookup import KeyLookup
    from kafkalog.reading.chunks import Chunk
    from kafkalog.reading.source import LogSource
    from kafkalog.storage.segments import LogSegments
    from kafkalog.types import Isolation

_LOG: Final = logging.getLogger(__name__)
LATEST_BYTES: Final = 1 << 30
"""Default for the memory of the keys of a mapping in memory."""
KEY_BYTES: Final = 200
"""Memory of a key beside its bytes: the object, its offset, and its share of a dict that was just made larger."""
CHUNK_KEYS: Final = 4096
"""Keys whose latest records are looked up together in an iteration."""


class _Full(Exception):
    """The keys take more memory than they may."""


class _Cleaned(Exception):
    """Offsets are missing between those that were read: a tombstone may have been cleaned away there."""


class RecordsByKey(Mapping[bytes, Record]):
    """The base of mappings from keys to records: all of it follows from `_find` and `_records`.

    `items()` and `values()` give the records of one walk, whatever is deleted meanwhile.
    """

    __slots__ = ()

    def _find(self, key: bytes) -> Record | None:
        """Return the record of a key; None if it is not in the mapping."""
        raise NotImplementedError

    def _records(self) -> Iterator[Record]:
        """Yield the records of all keys, as of the start."""
        raise NotImplementedError

    def __getitem__(self, key: bytes) -> Record:
        record = self._find(checked_key(key))
        if record is None:
            raise KeyError(key)
        return record

    def __contains__(self, key: object) -> bool:
        return self._find(checked_key(key)) is not None

    def __iter__(self) -> Iterator[bytes]:
        return (key for record in self._records() if (key := record.key) is not None)

    def items(self) -> ItemsView[bytes, Record]:
        """Return a view of the keys with their records; an iteration sees the log as of its start."""
        return _Items(self)

    def values(self) -> ValuesView[Record]:
        """Return a view of the records; an iteration sees the log as of its start."""
        return _Values(self)


class _Items(ItemsView[bytes, Record]):
    """Keys with their records, from one walk: a key that is deleted meanwhile raises nothing."""

    _mapping: RecordsByKey

    def __iter__(self) -> Iterator[tuple[bytes, Record]]:
        return ((key, record) for record in self._mapping._records() if (key := record.key) is not None)


class _Values(ValuesView[Record]):
    """Records from one walk, as `_Items`."""

    _mapping: RecordsByKey

    def __iter__(self) -> Iterator[Record]:
        return self._mapping._records()


class LatestRecords(RecordsByKey):
    """The last record of each key, without keys whose last record is a tombstone; it follows the log.

    Each access sees the log as it is then. Nothing is held in memory but the pages of the key index that were used and
    the keys of the active segment: a key is looked up as by `Log.get`. Iteration goes over the records in their order
    and yields each key at its last record, with eight bytes of memory for each; `len` counts in the same way, once for
    each state of the log.

    `items()` and `values()` give the records of one iteration, even if keys are deleted during it. `dict(latest)` looks
    up each key again and raises KeyError for one that was deleted in between: `dict(latest.items())` does not.

    Threads: safe; an iterator belongs to one thread.

    >>> latest = log.latest()
    >>> latest[b"u-1"].value, b"nobody" in latest, sorted(latest), latest.is_in_memory
    (b'first', False, [b'u-1', b'u-2'], False)
    """

    __slots__ = ("_counted", "_isolation", "_lookup", "_owner", "_source")

    def __init__(self, source: LogSource, lookup: KeyLookup, isolation: Isolation, owner: object) -> None:
        self._source = source
        self._lookup = lookup
        self._isolation = isolation
        self._owner = owner
        self._counted: tuple[object, int] = None, 0

    def _find(self, key: bytes) -> Record | None:
        """Return the last record of a key unless that is a tombstone."""
        record = self._lookup.get(key, self._isolation, None)
        return None if record is None or record.value is None else record

    @property
    def is_in_memory(self) -> bool:
        """True while the keys are held in memory."""
        return False

    def find_many(self, keys: list[bytes]) -> list[Record | None]:
        """Return the last record of each key; None for a key that is not in the mapping."""
        found = self._lookup.get_many(keys, self._isolation, None)
        return [None if record is None or record.value is None else record for record in found]

    def _records(self) -> Iterator[Record]:
        """Yield the latest records in the order of their offsets, as of the start.

        If a cleaner replaces segments during the iteration, records may be replaced by later ones of their keys: the
        iteration then also covers what was appended since, for the keys not yet seen.
        """
        refresh(self._source)
        source, isolation = self._source, self._isolation
        start, end = source.log_start_offset, end_of(source, isolation)
        met, before = array("q"), array("q")  # hashes of the keys; sorted, those of earlier rounds
        while True:
            segments = source.segments
            for record in self._latest_between(start, end):
                hashed = hash(record.key)
                at = bisect_left(before, hashed)
                if at == len(before) or before[at] != hashed:
                    met.append(hashed)
                    yield record
            if not was_replaced(source, segments):
                break
            before = array("q", sorted(met))
            start, end = max(end, source.log_start_offset), end_of(source, isolation)

    def _latest_between(self, start: int, end: int) -> Iterator[Record]:
        """Yield the records in [start, end) that are the last of their keys below `end`."""
        source, is_committed = self._source, self._isolation == "committed"
        found = records(source, start, end, self._owner, committed=is_committed)
        waiting: list[Record] = []
        for record in found:
            if record.key is not None:
                waiting.append(record)
                if len(waiting) == CHUNK_KEYS:
                    yield from self._latest_of(waiting, end)
                    waiting = []
        yield from self._latest_of(waiting, end)

    def _latest_of(self, candidates: list[Record], end: int) -> Iterator[Record]:
        """Yield those of the records that are the last of their keys below `end`."""
        last = {record.key: record for record in candidates if record.key is not None}
        ordered = sorted(last.items(), key=lambda item: item[1].offset)
        latest = self._lookup.get_many([key for key, _ in ordered], self._isolation, None, end)
        for (_, record), found in zip(ordered, latest, strict=True):
            if record.value is not None and found is not None and found.offset == record.offset:
                yield record

    def __len__(self) -> int:
        refresh(self._source)
        source = self._source
        state = source.log_start_offset, end_of(source, self._isolation), truncation_count(source), source.segments
        counted = self._counted  # once: another thread may keep that of another state
        if counted[0] != state:
            counted = self._counted = state, sum(1 for _ in self._records())
        return counted[1]

    def __repr__(self) -> str:
        return f"<{type(self).__name__} of {self._source.name}>"


class LatestInMemory(LatestRecords):
    """`LatestRecords` with the live keys and the offsets of their records in memory.

    Creation reads the log once; later accesses read what was appended. Iteration and `len` take no reading. Once the
    keys would take more than `memory_bytes`, they are given up, and from then on it is as without memory.
    """

    __slots__ = (
        "_has_transactions", "_held_bytes", "_is_full", "_last", "_lock", "_memory_bytes", "_next", "_offsets",
        "_segments", "_start", "_truncations", "_view_end", "_view_state",
    )  # fmt: skip

    def __init__(
        self, source: LogSource, lookup: KeyLookup, isolation: Isolation, owner: object, memory_bytes: int
    ) -> None:
        super().__init__(source, lookup, isolation, owner)
        self._lock = threading.Lock()
        self._view_end = ViewEnd(source) if isinstance(source, LogView) else None
        self._memory_bytes = memory_bytes
        self._is_full = False
        self._begin()
        self._held()

    @property
    def is_in_memory(self) -> bool:
        """True while the keys are held in memory: until they take more than `memory_bytes`."""
        return not self._is_full

    def _begin(self) -> None:
        self._offsets: dict[bytes, int] = {}  # in the order of the offsets; guarded by self._lock
        self._held_bytes = 0
        self._segments: LogSegments[Any] = self._source.segments  # of before the reading
        self._has_transactions = False
        self._last: Record | None = None  # read last, to notice that another process cut the log below it
        self._view_state: object = None
        if self._view_end is not None:
            self._view_end.forget()
        self._next = self._start = self._source.log_start_offset
        self._truncations = truncation_count(self._source)

    @contextmanager
    def _followed(self) -> Iterator[dict[bytes, int] | None]:
        """Give the keys and offsets as the log is now, under the lock; None if they do not fit into the memory."""
        with self._lock:
            if not self._is_full:
                self._follow_locked()
            yield None if self._is_full else self._offsets

    def _held(self) -> list[tuple[bytes, int]] | None:
        """Return the keys and offsets as the log is now; None if they do not fit into the memory."""
        with self._followed() as offsets:
            return None if offsets is None else list(offsets.items())

    def _follow_locked(self) -> None:
        """Read what was appended, and drop what was deleted or truncated."""
        for attempt in range(ATTEMPTS):
            try:
                self._follow_once()
                return
            except _Full:
                self._is_full = True
                self._begin()
                _LOG.warning(
                    "the latest keys of %s take more than %d bytes: they are looked up in the log from now on",
                    self._source.path, self._memory_bytes,
                )  # fmt: skip
                return
            except _Cleaned:
                self._begin()
            except PASSING as error:
                if attempt == ATTEMPTS - 1 or not is_passing(error):
                    raise
                self._begin()

    def _follow_once(self) -> None:
        refresh(self._source)
        source, isolation = self._source, self._isolation
        start, end = source.log_start_offset, end_of(source, isolation)
        is_same = self._is_same()  # always asked: it keeps what it saw of the files
        is_same = is_same and not self._was_cleaned()
        if truncation_count(source) != self._truncations or end < self._next or start < self._start or not is_same:
            self._begin()
            start, end = self._start, end_of(source, isolation)
        if start > self._start:
            self._start = start
            while self._offsets and (first := next(iter(self._offsets.items())))[1] < start:
                self._drop(first[0])
        last, next_offset = None, max(self._next, start)
        if next_offset >= end:
            check_end(source, end, isolation == "committed", None)
            return
        segments, is_first = source.segments, not self._offsets
        for record in self._appended(next_offset, end):
            last, key = record, record.key
            if key is None:
                continue
            self._drop(key)
            if record.value is not None:
                self._offsets[key] = record.offset
                self._held_bytes += len(key) + KEY_BYTES
                if self._held_bytes > self._memory_bytes:
                    raise _Full
        if is_first and self._offsets and was_replaced(source, segments):
            self._drop_missing(end)
        self._next = end
        if last is not None:
            self._last = Record(last.value, last.key, last.timestamp, last.headers, last.offset)

    def _was_cleaned(self) -> bool:
        """Return True if aborted records that were read may be gone: those before them are the last of their keys."""
        before, now = self._segments, self._source.segments
        if before is now:
            return False
        self._segments = now
        if not self._has_transactions or self._isolation == "committed":
            return False
        kept = [one for one in before if one.base_offset >= now[0].base_offset]
        return len(kept) > len(now) or any(one is not other for one, other in zip(kept, now, strict=False))

    def _drop_missing(self, end: int) -> None:
        """Drop the keys whose records below `end` are gone: a tombstone may have been cleaned before it was read.

        A cleaner removes a tombstone only after the records that it deletes, so those are gone by now.
        """
        found = (
            offset
            for table in record_tables(self._source, max(self._start, self._source.log_start_offset), end)
            for offset in table.offsets
        )
        at, missing = -1, []
        for key, offset in self._offsets.items():  # in the order of the offsets, as the log
            while at < offset:
                at = next(found, end)
            if at != offset:
                missing.append(key)
        for key in missing:
            self._drop(key)

    def _drop(self, key: bytes) -> None:
        """Remove a key, if it is held."""
        if self._offsets.pop(key, None) is not None:
            self._held_bytes -= len(key) + KEY_BYTES

    def _appended(self, start: int, end: int) -> Iterator[Record]:
        """Return the records in [start, end); raise _Cleaned if offsets are missing, unless no key is held yet."""
        source, is_committed = self._source, self._isolation == "committed"
        chunks = self._noted(batch_chunks(source, start, end, self._owner))
        if self._offsets:
            chunks = _contiguous(chunks, start, end)
        visible = visible_chunks(source, chunks, is_committed, end, None)
        return RecordIterator((table for chunk in visible for table in chunk.record_tables()), start, end)

    def _noted(self, chunks: Iterable[Chunk]) -> Iterator[Chunk]:
        for chunk in chunks:
            if self._view_end is not None:
                self._view_end.note(chunk)
            if not self._has_transactions:
                self._has_transactions = has_transactions(chunk.batches, chunk.first, chunk.last)
            yield chunk

    def _is_same(self) -> bool:
        """Return False if what was read is gone: another process cut the log and wrote it again."""
        source, last = self._source, self._last
        if not isinstance(source, LogView) or source.state is self._view_state:
            return True
        self._view_state = source.state
        if self._view_end is not None and not self._view_end.is_same():
            return False
        if last is None or last.offset < source.log_start_offset:
            return True
        found = records(source, last.offset, last.offset + 1, committed=self._isolation == "committed")
        return next(found, None) == last

    def _find(self, key: bytes) -> Record | None:
        with self._followed() as offsets:
            offset = None if offsets is None else offsets.get(key)
        if offsets is None:
            return super()._find(key)
        return None if offset is None else self._read(key, offset)

    def find_many(self, keys: list[bytes]) -> list[Record | None]:
        """Return the last record of each key; None for a key that is not in the mapping."""
        return super().find_many(keys) if self._is_full else [self._find(key) for key in keys]

    def _read(self, key: bytes, offset: int) -> Record | None:
        """Return the record of a key at an offset, or its last record if the log changed meanwhile."""
        try:
            record = next(records(self._source, offset, offset + 1), None)
        except PASSING as error:
            if not is_passing(error):
                raise
            record = None
        if record is not None and record.key == key:
            return record
        return super()._find(key)

    def _records(self) -> Iterator[Record]:
        held = self._held()
        if held is None:
            yield from super()._records()
            return
        for key, offset in held:
            record = self._read(key, offset)
            if record is not None:
                yield record

    def __contains__(self, key: object) -> bool:
        with self._followed() as offsets:
            is_held = offsets is not None and checked_key(key) in offsets
        return super().__contains__(key) if offsets is None else is_held

    def __iter__(self) -> Iterator[bytes]:
        held = self._held()
        return super().__iter__() if held is None else iter([key for key, _ in held])

    def __len__(self) -> int:
        with self._followed() as offsets:
            count = None if offsets is None else len(offsets)
        return super().__len__() if count is None else count


def _contiguous(chunks: Iterable[Chunk], start: int, end: int) -> Iterator[Chunk]:
    """Yield chunks as they are; raise _Cleaned if their batches, control ones too, leave out offsets in [start, end).

    What was cleaned inside a compressed batch of v0 or v1 does not show.
    """
    expected = start
    for chunk in chunks:
        table = chunk.batches
        is_whole = chunk.first == 0 and chunk.last == len(table) and table.first_offset <= expected
        if not is_whole or table.record_count != table.last_offset - table.first_offset + 1:
            for row in range(chunk.first, chunk.last):
                batch = table[row]
                if first_offset(chunk.data, table, row) > expected:
                    raise _Cleaned
                if batch.magic >= 2 and batch.count != batch.last_offset - batch.base_offset + 1:
                    raise _Cleaned
                expected = batch.last_offset + 1
        expected = chunk.next_offset
        yield chunk
    if expected < end:
        raise _Cleaned
