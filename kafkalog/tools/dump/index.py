"""The dump tool for `.index` and `.timeindex` files, and its complaints (format.md section 13, A5 to A8)."""

from __future__ import annotations

import struct
from collections.abc import Callable
from typing import TYPE_CHECKING, Final

from kafkalog._core.text.listing import OFFSET_ENTRY_BYTES, TIME_ENTRY_BYTES
from kafkalog.errors import CorruptIndex, CorruptRecord
from kafkalog.records.format import NO_TIMESTAMP
from kafkalog.storage import names
from kafkalog.storage.file_slice import FileSlice
from kafkalog.storage.index.preallocated_file import MAX_INDEX_BYTES
from kafkalog.tools.dump.complaints import Complaints
from kafkalog.tools.dump.log_peek import BatchPlace, Chain, LogPeek, sibling_path
from kafkalog.tools.dump.options import DumpOptions
from kafkalog.util.fileio import File, FileSystem
from kafkalog.util.os_errors import os_errors

if TYPE_CHECKING:
    from kafkalog.tools.dump.json_lines import Printer

CHUNK_ENTRIES = 1 << 14
_OFFSET_ENTRY: Final = struct.Struct(">ii")
_TIME_ENTRY: Final = struct.Struct(">qi")
_WARM_BYTES: Final = 8192

# compares the next entry (timestamp or None, offset, position or None) with the log
Check = Callable[[int, int], None]


def dump_index(
    path: str, base_offset: int, printer: Printer, options: DumpOptions, complaints: Complaints, *, fs: FileSystem
) -> None:
    """Print the entries of an offset index (`offset: 2 position: 87`), each compared with its batch.

    CorruptIndex or CorruptRecord if an entry points to no complete batch; the entries before it were printed.
    """
    with LogPeek(sibling_path(path, names.LOG_SUFFIX), fs) as log, _open(path, fs) as file:
        size = file.size()
        if size < OFFSET_ENTRY_BYTES:
            printer.empty(path)
            return
        if options.index_sanity_check:
            check_offset_index(file, size, base_offset)
            printer.passed(path)
            return

        def check(relative: int, position: int) -> None:
            place = log.batch_at(position, options.max_message_size)
            if place is None:
                raise CorruptIndex(
                    f"no complete batch of at most {options.max_message_size} bytes begins where an entry points",
                    path=path,
                    offset=base_offset + relative,
                    position=position,
                    hint="rebuild the index from the log, or raise --max-message-size",
                )
            if place.last_offset != base_offset + relative:
                pair = (base_offset + relative, place.last_offset)
                complaints.index_mismatches.setdefault(path, []).append(pair)

        _walk(path, file, _OFFSET_ENTRY, base_offset, None if options.verify_index_only else printer, check)


def dump_time_index(
    path: str, base_offset: int, printer: Printer, options: DumpOptions, complaints: Complaints, *, fs: FileSystem
) -> None:
    """Print the entries of a time index (`timestamp: 1002 offset: 2`), compared with the log and the previous entry.

    Without entries nothing is printed. The log's batches are found through the offset index beside it. CorruptIndex,
    CorruptRecord or InvalidRecord if they cannot be read; the entries before were printed.
    """
    with (
        LogPeek(sibling_path(path, names.LOG_SUFFIX), fs) as log,
        _open(sibling_path(path, names.INDEX_SUFFIX), fs) as index,
        _open(path, fs) as file,
    ):
        if options.index_sanity_check:
            check_time_index(file, file.size(), base_offset)
            printer.passed(path)
            return
        search = _Search(log, index, base_offset)
        check = _TimeCheck(path, base_offset, search, complaints)
        _walk(path, file, _TIME_ENTRY, base_offset, None if options.verify_index_only else printer, check)


class _Search:
    """Finds batches of a log by offset through its offset index, which may be out of order (its tail may be zeros)."""

    def __init__(self, log: LogPeek, index: File, base_offset: int) -> None:
        self.log = log
        self._base = base_offset
        size = index.size()
        if size > MAX_INDEX_BYTES:
            raise CorruptIndex(f"the index has {size} bytes, and the maximum is {MAX_INDEX_BYTES}", path=index.path)
        self._data = FileSlice(index, 0, size - size % OFFSET_ENTRY_BYTES).read()
        self._entries = len(self._data) // OFFSET_ENTRY_BYTES
        self._whole: Chain | None = None
        self._other: tuple[int, Chain] = (-1, Chain())
        self._last = (-1, 0, 0)

    def batch_with(self, offset: int) -> BatchPlace | None:
        """Return the batch that the reference takes for the one that holds the offset, or None.

        That is the first batch that ends there or later, from the index's position on. CorruptRecord if any batch after
        that position has an impossible size.
        """
        start = self._position(offset - self._base)
        self.log.check_position(start)
        chain, first = self._chain(start)
        at = first
        # entries mostly ascend: batches that the last search skipped are skipped again
        if self._last[0] == start and self._last[1] <= offset:
            at = self._last[2]
        while at < len(chain.positions) and chain.last_offsets[at] < offset:
            at += 1
        self._last = (start, offset, at)
        return chain.place(at) if at < len(chain.positions) else None

    def _chain(self, start: int) -> tuple[Chain, int]:
        """Return a chain of batches, and the number of the batch at `start` in it.

        The chain is that of the whole file if one of its batches begins at `start`, else that from `start` on.
        """
        if self._whole is None:
            try:
                self._whole = self.log.chain(0)
            except CorruptRecord:
                # the sound part is useless: every chain in it runs into the damage
                self._whole = Chain()
        first = self._whole.find(start)
        if first >= 0:
            return self._whole, first
        if self._other[0] != start:
            self._other = (start, self.log.chain(start))
        return self._other[1], 0

    def _position(self, relative: int) -> int:
        """Return the position of the entry at or before a relative offset, by the reference's search steps.

        With entries out of order, another search would give another result.
        """
        if self._entries == 0:
            return 0
        last = self._entries - 1
        warm = max(0, last - _WARM_BYTES // OFFSET_ENTRY_BYTES)
        if self._entry(warm)[0] < relative:
            slot = self._search_between(warm, last, relative)
        elif self._entry(0)[0] > relative:
            return 0
        else:
            slot = self._search_between(0, warm, relative)
        return self._entry(slot)[1]

    def _search_between(self, low: int, high: int, relative: int) -> int:
        while low < high:
            middle = (low + high + 1) >> 1
            found = self._entry(middle)[0]
            if found > relative:
                high = middle - 1
            elif found < relative:
                low = middle
            else:
                return middle
        return low

    def _entry(self, n: int) -> tuple[int, int]:
        relative, position = _OFFSET_ENTRY.unpack_from(self._data, OFFSET_ENTRY_BYTES * n)
        return relative, position


class _TimeCheck:
    """Compares the entries of a time index, one after the other, with the log."""

    def __init__(self, path: str, base_offset: int, search: _Search, complaints: Complaints) -> None:
        self._path = path
        self._base = base_offset
        self._search = search
        self._complaints = complaints
        self._previous = NO_TIMESTAMP

    def __call__(self, timestamp: int, relative: int) -> None:
        offset = self._base + relative
        complaints, path = self._complaints, self._path
        place = self._search.batch_with(offset)
        if place is None or place.last_offset != offset:
            found = -1 if place is None else place.last_offset
            complaints.offsets_not_found.setdefault(path, []).append((offset, found))
        else:
            largest = self._search.log.largest_timestamp(place)
            if largest != timestamp:
                complaints.time_mismatches.setdefault(path, []).append((timestamp, largest))
            if self._previous >= timestamp:
                complaints.times_out_of_order.setdefault(path, []).append((timestamp, self._previous))
        self._previous = timestamp


def _walk(
    path: str, file: File, entry: struct.Struct, base_offset: int, printer: Printer | None, check: Check
) -> None:
    """Check and list entries, up to the unused tail or the first one whose check raises.

    The tail begins at the first entry other than entry 0 whose relative offset is 0 (A6).
    """
    times = entry is _TIME_ENTRY
    total = file.size() // entry.size
    for first in range(0, total, CHUNK_ENTRIES):
        data = FileSlice(file, first * entry.size, min(CHUNK_ENTRIES, total - first) * entry.size).read()
        data = data[: len(data) - len(data) % entry.size]
        done = 0
        try:
            for one, other in entry.iter_unpack(data):
                if (other if times else one) == 0 and first + done > 0:
                    return
                check(one, other)
                done += 1
        finally:
            if printer is not None:
                printer.entries(path, base_offset, data[: done * entry.size], times=times, first=first == 0)
        if not data:
            return


def _open(path: str, fs: FileSystem) -> File:
    with os_errors("open the index", path):
        return fs.open_file(path, "r")


def check_offset_index(file: File, size: int, base_offset: int) -> None:
    """Raise CorruptIndex if the last entry is below the base or the length is no multiple of the entry size."""
    last = _entry(file, size, OFFSET_ENTRY_BYTES, 0)
    if last < 0:
        raise CorruptIndex(
            f"Corrupt index found, index file ({file.path}) has non-zero size but the last offset is "
            f"{base_offset + last} which is less than the base offset {base_offset}",
            path=file.path,
        )
    if size % OFFSET_ENTRY_BYTES:
        raise CorruptIndex(
            f"Index file {file.path} is corrupt, found {size} bytes which is neither positive nor a multiple of 8",
            path=file.path,
        )


def check_time_index(file: File, size: int, base_offset: int) -> None:
    """Raise CorruptIndex if the times or the last offset go back, or the length is no multiple of the entry size."""
    if size >= TIME_ENTRY_BYTES:
        first_time = int.from_bytes(FileSlice(file, 0, 8).read(), "big", signed=True)
        last_time = int.from_bytes(
            FileSlice(file, (size // TIME_ENTRY_BYTES - 1) * TIME_ENTRY_BYTES, 8).read(), "big", signed=True
        )
        last = _entry(file, size, TIME_ENTRY_BYTES, 8)
        found = f"Corrupt time index found, time index file ({file.path}) has non-zero size but the last "
        if last_time < first_time:
            raise CorruptIndex(
                f"{found}timestamp is {last_time} which is less than the first timestamp {first_time}", path=file.path
            )
        if last < 0:
            raise CorruptIndex(
                f"{found}offset is {base_offset + last} which is less than the first offset {base_offset}",
                path=file.path,
            )
    if size % TIME_ENTRY_BYTES:
        raise CorruptIndex(
            f"Time index file {file.path} is corrupt, found {size} bytes which is neither positive nor a multiple "
            "of 12",
            path=file.path,
        )


def _entry(file: File, size: int, entry_bytes: int, at: int) -> int:
    """Return the relative offset of the last complete entry, which begins `at` bytes into the entry."""
    position = (size // entry_bytes - 1) * entry_bytes
    return int.from_bytes(FileSlice(file, position + at, 4).read(), "big", signed=True)
