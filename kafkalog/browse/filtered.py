"""The level with the records that match alone, read a screenful at a time in both directions."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from functools import partial
from typing import TYPE_CHECKING, Any, Final

from kafkalog._core.batch.record import Record
from kafkalog._core.keys.key_picker import own_record
from kafkalog.browse import batches
from kafkalog.browse.batches import find_place
from kafkalog.browse.decoding import DecodedRecords, serdes_for
from kafkalog.browse.levels import Level, Row, record_columns
from kafkalog.browse.search import SEARCH_BYTES, key_offsets, matching_offsets, predicate_for
from kafkalog.errors import KafkalogError
from kafkalog.reading.chunks import batch_chunks, visible_chunks
from kafkalog.storage.damage import Skipped, note_skipped
from kafkalog.util.text import human_size, plural

if TYPE_CHECKING:
    from kafkalog.browse.search import Select
    from kafkalog.reading.chunks import Chunk
    from kafkalog.storage.readonly.view import LogView
    from kafkalog.tools.consume.decoded import Serdes
    from kafkalog.where import Expression

Offsets = Callable[["Chunk", int, int], Iterable[int]]
"""Returns the offsets of a chunk, within two bounds, whose records match."""
STEP_BYTES: Final = 8 << 20
"""Bytes of batches that a step back looks at together."""
_STEP_BATCHES: Final = 512
_MOST_GAPS: Final = 1024


def offsets_of(wanted: bytes | Expression, select: Select | None, view: LogView) -> Offsets:
    """Return what finds the records with a key, or for which a condition is true, with the decoders of `select`."""
    if isinstance(wanted, bytes):
        return partial(key_offsets, wanted)
    return partial(matching_offsets, view, predicate_for(wanted, select, view))


class FilteredLevel(Level):
    """Level of the records from offset `start` on that match; an anchor is an offset.

    Nothing is held but a screenful and the ends of stretches without a match. Reading ends after `most_bytes` of
    batches, also without as many rows as there could be, and the next call goes on behind them. `tell` is called before
    each chunk with the offset and the bytes read so far; an exception of it ends the reading. Damage is left out, and
    counted in `note`.
    """

    def __init__(
        self,
        view: LogView,
        offsets: Offsets,
        start: int,
        what: str,
        tell: Callable[[int, int], object] = lambda offset, read: None,
        *,
        serdes: Serdes | None = None,
        most_bytes: int | None = None,
    ) -> None:
        self.view: LogView = view
        self.start = start
        self.title = f"only {what}"
        self._decoded = DecodedRecords(serdes_for(view, serdes))
        self.columns = record_columns(self._decoded)
        self._offsets = offsets
        self._tell = tell
        self._most_bytes = SEARCH_BYTES if most_bytes is None else most_bytes
        self._read_bytes = 0
        self._following: dict[int, int] = {}
        """By an anchor, where reading on goes on: nothing in between matches."""
        self._preceding: dict[int, int] = {}
        """By an anchor, where reading back goes on."""
        self._skipped: list[Skipped] = []

    @property
    def end(self) -> int:
        """Current end of the log."""
        return self.view.log_end_offset

    def forget(self) -> None:
        """Read all again: the log may have been cut since, and other records have the offsets."""
        self._following.clear()
        self._preceding.clear()
        self._skipped.clear()

    def after(self, anchor: Any, count: int) -> list[Row]:
        """Return up to `count` matching records from an offset on."""
        self._read_bytes = 0
        found: list[Record] = []
        at, end = max(self._following.get(anchor, anchor), self.view.log_start_offset), self.end
        for chunk in self._chunks(at, end):
            if len(found) == count or self._read_bytes >= self._most_bytes:
                break
            self._tell(at, self._read_bytes)
            found += self._records(chunk, at, end, slice(count - len(found)))
            at = max(at, chunk.next_offset)
            self._read_bytes += len(chunk.data)
        else:
            at = max(at, end)
        if len(found) < count:
            _note(self._following, found[-1].offset + 1 if found else anchor, at)
        self._set_note(at < end and len(found) < count, f"up to offset {at:,}")
        return self._rows(found[:count])

    def before(self, anchor: Any, count: int) -> list[Row]:
        """Return up to `count` matching records that end before an offset."""
        self._read_bytes = 0
        found: list[Record] = []
        at, start = min(self._preceding.get(anchor, anchor), self.end), max(self.start, self.view.log_start_offset)
        while start < at and len(found) < count and self._read_bytes < self._most_bytes:
            first = max(start, self._step_back(at))
            earlier: list[Record] = []
            begin = first
            for chunk in self._chunks(first, at):
                self._tell(begin, self._read_bytes)
                earlier = [*earlier, *self._records(chunk, begin, at, slice(-count, None))][-count:]
                begin = max(begin, chunk.next_offset)
                self._read_bytes += len(chunk.data)
            found = [*earlier, *found]
            at = first
        if len(found) < count:
            _note(self._preceding, found[0].offset if found else anchor, at)
        self._set_note(start < at and len(found) < count, f"back to offset {at:,}")
        return self._rows(found[-count:])

    def _step_back(self, offset: int) -> int:
        """Return an offset at which a batch begins, STEP_BYTES of batches before another one, or as near as it can."""
        found, size = offset, 0
        for row in reversed(batches.before(self.view, find_place(self.view, offset), _STEP_BATCHES)):
            size += row.size
            if row.is_batch and row.base_offset < found:
                found = row.base_offset
            if size >= STEP_BYTES and found < offset:
                break
        return found if found < offset else self.start

    def _chunks(self, start: int, stop: int) -> Iterator[Chunk]:
        if start >= stop:
            return iter(())
        chunks = batch_chunks(self.view, start, stop, sequential=True, skipped=self._skipped)
        return visible_chunks(self.view, chunks, False, stop, self._skipped)

    def _records(self, chunk: Chunk, start: int, stop: int, part: slice) -> list[Record]:
        """Return a part of the matching records of a chunk with offsets in [start, stop), each with its own bytes."""
        found: list[Record] = []
        try:
            wanted = {*sorted(self._offsets(chunk, start, stop))[part]}
            for table in chunk.record_tables() if wanted else ():
                found += [own_record(table[row]) for row, offset in enumerate(table.offsets) if offset in wanted]
        except KafkalogError as error:
            if chunk.last - chunk.first > 1:  # the others are sound
                alone = (chunk._replace(first=row, last=row + 1) for row in range(chunk.first, chunk.last))
                return [one for each in alone for one in self._records(each, start, stop, slice(None))][part]
            place, size = chunk.batches.position(chunk.first), chunk.batches.size(chunk.first)
            first = chunk.batches.base_offset(chunk.first)
            note_skipped(self._skipped, Skipped(chunk.path, place, size, first, chunk.next_offset, str(error)))
            return []
        return found

    def _rows(self, found: Iterable[Record]) -> list[Row]:
        rows = [Row(record.offset, record.offset + 1, record) for record in found]
        for row in rows:
            self._decoded.parts(row.thing)  # type: ignore[arg-type]  # a record
        return rows

    def _set_note(self, is_cut: bool, where: str) -> None:
        said = [f"{human_size(self._read_bytes)} read {where}; n goes on"] if is_cut else []
        if self._skipped:
            said.append(f"{plural(len(self._skipped), 'damaged place')} left out")
        self.note = "; ".join(said)


def _note(ends: dict[int, int], anchor: int, end: int) -> None:
    """Note the end of a stretch without a match; of many, the newest are kept."""
    while len(ends) >= _MOST_GAPS:
        del ends[next(iter(ends))]
    ends[anchor] = end
