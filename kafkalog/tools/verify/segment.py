"""Check of one `.log` file: every batch, the bytes between damaged batches, and the end."""

from __future__ import annotations

import time
from bisect import bisect_left
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Final, NamedTuple

from kafkalog._core.log.segment_check import (
    BAD_CRC,
    BAD_HEADER,
    BAD_MAGIC,
    BAD_ORDER,
    BAD_SIZE,
    END,
    MORE,
    PARTIAL,
    BatchCheck,
)
from kafkalog.errors import StorageError
from kafkalog.storage.batch_search import NOWHERE, BatchSearch, Budget, Found, is_batch
from kafkalog.storage.scan_advice import ScanAdvice
from kafkalog.storage.trailing_zeros import is_untrimmed, only_zeros
from kafkalog.tools.verify.chain import Placed, outside_chain, placed_batches
from kafkalog.tools.verify.report import Findings, Severity
from kafkalog.util.fileio import File, FileSystem
from kafkalog.util.os_errors import os_errors
from kafkalog.util.scan_buffer import scan_buffer, scan_room

PATIENCE: Final = 4
"""Number of times the end of a file in use is read again before a problem is reported."""
PATIENCE_S: Final = 0.02
CALL_BYTES: Final = 2 << 20
"""Bytes that a thread checks without the interpreter's lock before it reports progress."""
_REPLICA: Final = "a replica or a backup may have these batches"
_RESTORE: Final = (
    f"{_REPLICA}; `kafkalog consume --on-damage skip` reads the sound records, and `kafkalog repair --excise --apply` "
    "removes the damaged bytes from the segment and saves them"
)
_CUT: Final = "recovery cuts it off, and so does `kafkalog repair --truncate-tail --apply`; no complete batch is lost"
_TRIM: Final = "a broker of Kafka 4.4 refuses the log until `kafkalog repair --truncate-tail --apply` cuts it off"
_CUT_DAMAGE: Final = f"{_REPLICA}; `kafkalog repair --truncate-tail --apply` cuts them off and saves them"

Progress = Callable[[int], None]


class Tail(NamedTuple):
    """The bytes after the last batch of a file: `kind` is zeros, torn (cut off), crc or size; `size` bytes."""

    kind: str
    position: int
    size: int
    what: str


class Place(NamedTuple):
    """Bytes of a segment that are no sound batch, or batches that contradict the others.

    `offset` is the lowest that they may have had. `last_sound_offset` is before them and `next_sound_offset` after,
    None if the segment has no sound batch there. `is_searched` is False if the search after them was abandoned.
    """

    position: int
    size: int
    severity: Severity | None
    kind: str
    what: str
    hint: str | None
    offset: int
    last_sound_offset: int | None
    next_sound_offset: int | None = None
    is_searched: bool = True

    @property
    def end(self) -> int:
        """Position of the byte after the place."""
        return self.position + self.size

    def between(self, before: int | None, after: int | None) -> Place:
        """Return the place with the sound offsets of other segments where it has none."""
        last = before if self.last_sound_offset is None else self.last_sound_offset
        following = after if self.next_sound_offset is None else self.next_sound_offset
        return self._replace(last_sound_offset=last, next_sound_offset=following)


class Batches(NamedTuple):
    """A place between two adjacent batches whose offsets are not consecutive."""

    position: int
    end_offset: int
    next_offset: int


@dataclass
class SegmentFacts:
    """Results of the pass over a segment file.

    `good` are the ranges of bytes that hold batches with valid checksums, `kept` those of them that contradict no other
    batch, and `places` the bytes between and after these.
    """

    path: str
    base_offset: int
    size: int = 0
    batches: int = 0
    records: int = 0
    first_offset: int = -1
    next_offset: int = 0
    good_end: int = 0
    max_timestamp: int = -1
    gaps: int = 0
    last_gap: Batches | None = None
    thinned: int = 0
    damaged: bool = False
    tail: Tail | None = None
    good: list[tuple[int, int]] = field(default_factory=list)
    kept: list[tuple[int, int]] = field(default_factory=list)
    places: list[Place] = field(default_factory=list)
    epoch_runs: list[tuple[int, int, int, int]] = field(default_factory=list)
    aborts: list[tuple[int, int, int]] = field(default_factory=list)
    index_result: tuple[int, int, int, int, int, int] = (0, 0, 0, -1, 0, 0)
    time_result: tuple[int, int, int, int, int, int] = (0, 0, 0, -1, 0, 0)


class SegmentPass:
    """One pass over an open `.log` file of `length` bytes; `run` returns the facts, findings go to `findings`.

    `is_live`: the directory is in use, so an end that is no batch may become one. `is_clean`: it was closed cleanly, so
    such an end is no torn write. `has_room`: its offset index ends in free space. No one reads offsets below
    `log_start_offset`. `next_base_offset` is that of the next segment: batches end below it. StorageError if the system
    fails. A file that is truncated or grows meanwhile ends at
    its present end.
    """

    def __init__(
        self,
        file: File,
        base_offset: int,
        findings: Findings,
        *,
        fs: FileSystem,
        length: int,
        is_last: bool = True,
        is_live: bool = False,
        is_clean: bool = False,
        check_crc: bool = True,
        log_start_offset: int = 0,
        entries: tuple[bytes, bytes] = (b"", b""),
        has_room: bool = False,
        next_base_offset: int | None = None,
        progress: Progress | None = None,
    ) -> None:
        self._file = file
        self._findings = findings
        self._is_last = is_last
        self._is_live = is_live
        self._is_clean = is_clean
        self._has_room = has_room
        self._last_indexed = int.from_bytes(entries[0][-4:], "big")
        self._progress = progress
        self._advice = ScanAdvice(file, length, fs)
        self._check = BatchCheck(base_offset, length, check_crc=check_crc, log_start_offset=log_start_offset)
        self._check.expect_entries(*entries)
        self._facts = SegmentFacts(file.path, base_offset)
        self._budget = Budget(length)
        self._search = BatchSearch(file, self._budget)
        self._inner_search = BatchSearch(file, Budget(length))  # within what a damaged batch claims
        self._next_base = next_base_offset
        self._places: list[Place] = []
        self._misplaced: dict[int, Place] = {}  # batches whose checksums hold, by position
        self._is_unordered = False
        self._tries = 0
        self._is_stale = False  # the bytes in the buffer differ from the file's
        self._reported = 0

    def run(self) -> SegmentFacts:
        """Check the whole file and return the facts."""
        check = self._check
        while True:
            status, start, read_bytes = self._check_ahead()
            buffer = scan_buffer(start)
            if read_bytes < 0:
                read_bytes = self._read(buffer, start)
                if read_bytes < len(buffer) and start + read_bytes < check.end:
                    self._handle_truncation(start + read_bytes)
                    continue
                status = check.check(buffer, 0, read_bytes)
            if not self._handle_status(status, buffer, start, read_bytes):
                break
            self._advice.passed(check.position)
            self._report_progress()
        self._report_progress()
        self._advice.done(check.end)
        return self._collect_facts()

    def _check_ahead(self) -> tuple[int, int, int]:
        """Check the next chunks; return the status, position and size of the last one. -1: it is still to be read."""
        if self._file.is_plain:
            return self._check.check_file(self._file.fileno(), scan_room(), CALL_BYTES)
        return MORE, self._check.position, -1

    def _handle_status(self, status: int, buffer: memoryview, start: int, read_bytes: int) -> bool:
        """Act on a status of a chunk and check its rest; return True while there is more of the file to read."""
        check = self._check
        self._is_stale = False
        while status != MORE:
            if status == END:
                return False
            if status in (BAD_SIZE, PARTIAL, BAD_CRC):
                if not self._skip_damage(status):
                    return False
            else:
                self._contradiction(status)
            # the position may also go back after damage
            if self._is_stale or not 0 <= check.position - start <= read_bytes:
                break
            status = check.check(buffer, check.position - start, read_bytes - (check.position - start))
        return True

    # Damage

    def _skip_damage(self, status: int) -> bool:
        """Skip bytes that are no batch if a sound one follows; return False at the end of the sound part."""
        check = self._check
        damage_start, what, kind = self._describe_fault(status)
        found = NOWHERE
        # a preallocated file may be a gigabyte of zeros: no batch begins among them
        zeros = status == BAD_SIZE and check.value == 0 and only_zeros(self._file, damage_start, check.end)
        if not zeros:
            found = self._next_sound(damage_start, check.position if status == BAD_CRC else damage_start)
        is_end = found.position < 0 and not found.gave_up
        if is_end and not zeros and self._is_live and self._is_last and self._wait_for_writer(damage_start):
            return True
        if is_end:
            self._record_tail(damage_start, kind, what)
            return False
        where = f"a sound batch follows at position {found.position}"
        hint, end = _RESTORE, found.position
        if found.gave_up:
            where = f"from there to position {found.position} no sound batch was found, and the search was abandoned"
            hint, end = _REPLICA, check.end
        next_offset = None if found.gave_up else self._base_offset_at(end)
        self._record_place(
            damage_start, end, Severity.DAMAGE, kind, f"{what}; {where}", hint, next_offset,
            is_searched=not found.gave_up,
        )  # fmt: skip
        if found.gave_up:
            return False
        check.skip_to(found.position)
        return True

    def _record_place(
        self,
        position: int,
        end: int,
        severity: Severity | None,
        kind: str,
        what: str,
        hint: str | None = None,
        next_sound_offset: int | None = None,
        *,
        is_searched: bool = True,
    ) -> None:
        """Record a place that is no sound batch; `severity` is None if it is not reported."""
        check = self._check
        last = check.next_offset - 1 if check.first_offset >= 0 else None
        self._places.append(
            Place(
                position, end - position, severity, kind, what, hint, check.next_offset, last, next_sound_offset,
                is_searched,
            )
        )  # fmt: skip

    def _base_offset_at(self, position: int) -> int:
        with os_errors("read", self._file.path, position):
            return int.from_bytes(self._file.pread(8, position), "big", signed=True)

    def _next_sound(self, damage_start: int, chained: int) -> Found:
        check = self._check
        if chained > damage_start and not self._budget.spend(chained - damage_start):
            return Found(damage_start + 1, True)
        if chained > damage_start and is_batch(self._file, chained, check.end, check.next_offset):
            found_at = self._inner_search.first_that_leads_to(damage_start + 1, chained, check.next_offset)
            return Found(found_at, False)
        found = self._search.find(damage_start + 1, check.end, check.next_offset)
        if found == NOWHERE and check.next_offset > check.base_offset:
            # the checksum does not cover the base offset: one that is too high must not hide later batches
            found = self._search.find(damage_start + 1, check.end, check.base_offset)
        return found

    def _describe_fault(self, status: int) -> tuple[int, str, str]:
        """Return (position, text, kind) of the fault at which the check stopped."""
        check = self._check
        if status == BAD_CRC:
            position, size = check.batch[:2]
            stored, computed = check.checksums
            if size < 61 and check.batch[4] >= 2:
                return position, f"a batch of {size} bytes is shorter than its header of 61", "size"
            what = f"the checksum of the batch of {size} bytes is {stored:#010x}, its bytes give {computed:#010x}"
            return position, what, "crc"
        left = check.end - check.position
        if status == PARTIAL:
            what = f"{left} bytes are left, too few for a batch"
            if check.value:
                what = f"the batch is cut off: {left} of its {check.value} bytes are present"
            return check.position, what, "torn"
        return check.position, f"invalid size field {check.value}", "size"

    def _record_tail(self, position: int, kind: str, what: str) -> None:
        """End the file at `position`, after which nothing is sound, and record the tail."""
        check, facts = self._check, self._facts
        size = check.end - position
        zeros = only_zeros(self._file, position, check.end)
        if zeros:
            kind = "zeros"
            what = f"{size} bytes of zeros follow the last batch: space reserved in advance, or never written"
        facts.tail = Tail(kind, position, size, what)
        severity: Severity | None = Severity.REPAIRABLE
        hint: str | None = _CUT
        if not self._is_last:
            severity, hint = Severity.DAMAGE, f"{_RESTORE}; recovery in Kafka would drop every later segment"
            what += f"; the segment ends with these {size} bytes, and another segment follows"
        elif self._is_live and zeros:
            severity, hint = None, None  # room that the owner reserved
        elif self._is_clean and zeros and is_untrimmed(self._has_room, self._last_indexed, position):
            severity, hint = Severity.NOTE, None
            what = f"{size} bytes of reserved space follow the last batch, which no close cut off; {_TRIM}"
        elif self._is_live:
            severity, hint = Severity.NOTE, None
            what += "; the directory is in use, so a write may be in progress"
        elif self._is_clean and not zeros:
            severity, hint = Severity.DAMAGE, _CUT_DAMAGE
            what += "; nothing sound follows, but the directory was closed cleanly"
        else:
            what += "; nothing sound follows, so the log ends here"
        self._record_place(position, check.end, severity, f"tail-{kind}", what, hint)

    def _contradiction(self, status: int) -> None:
        """Record a batch with a valid checksum whose place or header is wrong."""
        check = self._check
        position, size, base, last, magic, attributes = check.batch
        if status == BAD_ORDER:  # this one or an earlier one: only all of them together show which
            self._is_unordered = True
            return
        if status == BAD_MAGIC:
            kind, what = "magic", f"the batch has format {magic}: only 0, 1 and 2 are known"
        elif status == BAD_HEADER:
            count, delta = check.counts
            counts = f"{count} records, offsets {base} to {last} ({delta} more)"
            kind, what = "header", f"invalid header: {counts}, attributes {attributes:#x}"
        else:
            kind = "range"
            what = f"the offsets {base} to {last} are outside a segment that begins at {check.base_offset}"
        self._misplaced[position] = Place(position, size, Severity.DAMAGE, kind, what, _RESTORE, base, None)

    # Reading the file
    def _read(self, buffer: memoryview, position: int) -> int:
        length = min(len(buffer), self._check.end - position)
        try:  # once for each chunk: a context would be noticeable
            return self._file.pread_into(buffer[:length], position) if length > 0 else 0
        except OSError as error:
            raise StorageError.from_os(error, "read", path=self._file.path, position=position) from error

    def _wait_for_writer(self, position: int) -> bool:
        """Wait a moment for the writer; return True if the end should be read again from `position`."""
        if self._tries >= PATIENCE:
            return False
        self._tries += 1
        time.sleep(PATIENCE_S)
        check = self._check
        check.skip_to(position)
        check.set_end(self._file.size())
        self._is_stale = True
        return True

    def _handle_truncation(self, read_end: int) -> None:
        """Continue with the rest of a file that its owner truncated. StorageError if it did not become shorter."""
        length = self._file.size()
        if length >= self._check.end:
            self._tries += 1  # it may have grown again meanwhile
            if self._tries > PATIENCE:
                what = f"only {read_end} of the {length} bytes that the system reports can be read"
                raise StorageError(what, path=self._file.path, position=read_end)
        what = f"the file was truncated to {length} bytes while it was read"
        self._findings.add(Severity.NOTE, "changed", what, position=length)
        self._check.set_end(min(length, self._check.end))

    def _report_progress(self) -> None:
        done = self._check.position - self._reported
        if self._progress is not None and done > 0:
            self._progress(done)
            self._reported += done

    def _collect_facts(self) -> SegmentFacts:
        check, facts = self._check, self._facts
        facts.size = check.end
        facts.batches, facts.records = check.batches, check.records
        facts.first_offset, facts.next_offset = check.first_offset, check.next_offset
        facts.gaps, facts.thinned = check.gaps, check.thinned
        if check.gaps:
            facts.last_gap = Batches(check.gap_position, check.gap_from, check.gap_to)
        facts.good_end = check.last_good
        facts.good = ranges_between(self._places, check.last_good)
        is_above = self._next_base is not None and check.first_offset >= 0 and check.next_offset > self._next_base
        if self._misplaced or self._is_unordered or is_above:
            self._find_misplaced()
        facts.places = sorted(self._places, key=lambda place: place.position)
        facts.kept = ranges_between(facts.places, facts.size)
        for place in facts.places:
            facts.damaged |= place.severity == Severity.DAMAGE
            if place.severity is not None:
                self._findings.add(
                    place.severity, place.kind, place.what, offset=place.offset, position=place.position,
                    hint=place.hint, size=place.size, last_sound_offset=place.last_sound_offset,
                    next_sound_offset=place.next_sound_offset,
                )  # fmt: skip
        facts.max_timestamp = check.max_timestamp
        facts.epoch_runs, facts.aborts = check.epoch_runs, check.abort_markers
        facts.index_result, facts.time_result = check.index_result, check.time_result
        return facts

    def _find_misplaced(self) -> None:
        """Find the batches to leave out so that the others' offsets ascend, and update the places around them."""
        check, facts = self._check, self._facts
        batches = placed_batches(self._file, facts.good, self._misplaced)
        outside = outside_chain(batches, check.base_offset, self._next_base)
        kept = [one for one in batches if one.position not in outside]
        for one in batches:
            if one.position in outside:
                self._misplaced[one.position] = _outside(one, kept, check.base_offset)
        places = (*self._places, *self._misplaced.values())
        self._places = [_between(place, kept, check.base_offset) for place in places]
        facts.first_offset = kept[0].base_offset if kept else -1
        facts.next_offset = kept[-1].last_offset + 1 if kept else check.base_offset
        facts.good_end = kept[-1].position + kept[-1].size if kept else 0
        gaps = [
            Batches(after.position, before.last_offset + 1, after.base_offset)
            for before, after in zip(kept, kept[1:], strict=False)
            if after.position == before.position + before.size and after.base_offset > before.last_offset + 1
        ]
        facts.gaps, facts.last_gap = len(gaps), gaps[-1] if gaps else None


def ranges_between(places: Sequence[Place], size: int) -> list[tuple[int, int]]:
    """Return the ranges of the first `size` bytes outside of the places, which ascend."""
    ranges, start = [], 0
    for place in places:
        if start < place.position:
            ranges.append((start, place.position))
        start = place.end
    return [*ranges, (start, size)] if start < size else ranges


def _outside(one: Placed, kept: Sequence[Placed], base_offset: int) -> Place:
    """Return the place of a batch that is not in the chain of the others."""
    place = _between(Place(one.position, one.size, Severity.DAMAGE, "order", "", _RESTORE, 0, None), kept, base_offset)
    around = f"the previous one ends at {place.offset - 1}"
    if place.next_sound_offset is not None:
        around += f" and the next one begins at {place.next_sound_offset}"
    what = f"the batch has offsets {one.base_offset} to {one.last_offset}, but {around}: its base offset is wrong"
    return place._replace(what=what)


def _between(place: Place, kept: Sequence[Placed], base_offset: int) -> Place:
    """Return the place with the offsets of the sound batches around it."""
    at = bisect_left(kept, place.position, key=lambda one: one.position)
    last = kept[at - 1].last_offset if at else None
    following = kept[at].base_offset if at < len(kept) else None
    offset = base_offset if last is None else last + 1
    return place._replace(offset=offset, last_sound_offset=last, next_sound_offset=following)
