"""Sound batches in a part of a file that may be damaged, as runs that a segment could hold unchanged."""

from __future__ import annotations

import errno
import os
from collections.abc import Iterable, Iterator
from contextlib import suppress
from typing import Final, NamedTuple

from kafkalog.errors import CorruptRecord
from kafkalog.storage.batch_search import BatchSearch, is_batch
from kafkalog.storage.damage import first_offset
from kafkalog.storage.file_slice import FileSlice, claimed_size
from kafkalog.util.fileio import File

_HEADER_BYTES: Final = 17
_MAX_RELATIVE_OFFSET: Final = 2**31 - 1


class SoundRun(NamedTuple):
    """Consecutive batches from byte `start` to `end` with valid checksums and ascending offsets."""

    start: int
    end: int
    first_offset: int
    last_offset: int
    batches: int
    records: int


class SoundCount(NamedTuple):
    """Totals of sound batches; the offsets are -1 if there is none."""

    batches: int = 0
    records: int = 0
    first_offset: int = -1
    last_offset: int = -1

    def __add__(self, other: tuple[object, ...]) -> SoundCount:
        """Return the sum of both."""
        assert isinstance(other, SoundCount)
        if not self.batches or not other.batches:
            return other if other.batches else self
        return SoundCount(
            self.batches + other.batches,
            self.records + other.records,
            min(self.first_offset, other.first_offset),
            max(self.last_offset, other.last_offset),
        )

    def __str__(self) -> str:
        """Return the counts as text."""
        records = "1 sound record" if self.records == 1 else f"{self.records} sound records"
        batches = "1 batch" if self.batches == 1 else f"{self.batches} batches"
        return f"{records} in {batches} (offsets {self.first_offset} to {self.last_offset})"


def count_batches(runs: Iterable[SoundRun]) -> SoundCount:
    """Return the totals of the batches of these runs."""
    totals = (SoundCount(run.batches, run.records, run.first_offset, run.last_offset) for run in runs)
    return sum(totals, SoundCount())


def sound_runs(file: File, position: int, end: int, base_offset: int) -> Iterator[SoundRun]:
    """Yield the runs of sound batches from byte `position` to `end`; `base_offset` is the lowest possible offset.

    Damage between them is skipped, wherever the next batch begins. StorageError.
    """
    search = BatchSearch(file)  # without a budget: recovery keeps what is found here, and cuts off the rest
    position = _skip_hole(file, position, end)
    while position < end:
        run = _run_from(file, position, end)
        if run is not None:
            yield run
            position = run.end
            continue
        following = _next_sound(file, position, end, base_offset, search)
        if following < 0:
            return
        position = following


def _next_sound(file: File, position: int, end: int, base_offset: int, search: BatchSearch) -> int:
    """Return the position of the next sound batch behind damaged bytes; -1 if there is none.

    The size of the damaged batch is tried first: data in its records may look like a batch. Where a damaged size skips
    batches, they lead to the one that it names.
    """
    following = position + claimed_size(file.pread(_HEADER_BYTES, position))
    if position < following < end and is_batch(file, following, end, base_offset):
        return search.first_that_leads_to(position + 1, following, base_offset)
    return search.find(position + 1, end, base_offset).position


def _run_from(file: File, position: int, end: int) -> SoundRun | None:
    """Return the run that begins at `position`; None if no sound batch begins there."""
    at, first, last, batches, records = position, -1, -1, 0, 0
    with suppress(CorruptRecord, _Stop):
        for data, table in FileSlice(file, position, end - position).scanned(check_crc=True):
            for row, header in enumerate(table):
                if not header.is_valid or header.last_offset < header.base_offset or header.last_offset <= last:
                    raise _Stop
                if first < 0:
                    first = first_offset(data, table, row)
                if header.last_offset - first > _MAX_RELATIVE_OFFSET:
                    raise _Stop
                at, last = table.position(row) + table.size(row), header.last_offset
                batches += 1
                records += max(header.count, 1 if header.magic < 2 else 0)
    return SoundRun(position, at, first, last, batches, records) if batches else None


class _Stop(Exception):
    """End of the run."""


def _skip_hole(file: File, position: int, end: int) -> int:
    """Return the first position from `position` on that may hold data; preallocated space is skipped unread."""
    try:
        return min(max(position, os.lseek(file.fileno(), position, os.SEEK_DATA)), end)
    except OSError as error:
        return end if error.errno == errno.ENXIO else position
    except AttributeError:  # a system without support for holes
        return position
