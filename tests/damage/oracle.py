"""Sound batches after damage, and so the records that a reader has to see.

It knows the batches as they were written and walks the damaged bytes by itself: no code of the package is used.

A batch is whole where its size field leads to its end and its checksum is right. A whole batch with the offset that it
was written with is sound. One whose base offset is another is damaged where that contradicts what stands around it;
where it does not, as at the end of a log or before a gap, no reader can know: its records count under the new offset.
"""

import struct
import zlib
from bisect import bisect_left
from collections.abc import Iterator, Sequence
from itertools import islice
from typing import NamedTuple

import crc32c

from tests.damage.damages import Damage, Piece
from tests.damage.logs import Batch, LogKind, Row

MOST_BELOW = 2**31 - 1
"""How far an offset may lie above its segment's base."""
READINGS = 16
NO_END = 1 << 64


def is_whole(data: bytes) -> bool:
    """True where these bytes are one batch of a known format whose size and checksum are right."""
    if len(data) < 17 or struct.unpack_from(">i", data, 8)[0] != len(data) - 12:
        return False
    magic = data[16]
    if magic == 2:
        return len(data) >= 61 and struct.unpack_from(">I", data, 17)[0] == crc32c.crc32c(data[21:])
    return magic in (0, 1) and struct.unpack_from(">I", data, 12)[0] == zlib.crc32(data[16:])


def has_odd_magic(data: bytes) -> bool:
    """True for a batch of a format above v2 that would be whole in v2."""
    return len(data) > 16 and data[16] not in (0, 1, 2) and is_whole(data[:16] + b"\2" + data[17:])


class Claim(NamedTuple):
    """A piece as it lies in the log, with the offsets that it claims to have."""

    segment: int
    position: int
    piece: Piece
    whole: bool
    base: int
    last: int

    @property
    def batch(self) -> Batch:
        """The batch written here."""
        return self.piece.batch

    @property
    def is_honest(self) -> bool:
        """True for a whole batch with the offset that it was written with."""
        return self.whole and self.base == self.piece.batch.base

    @property
    def has_own_offsets(self) -> bool:
        """True for a wrapper of v0: the records inside have absolute offsets."""
        return self.batch.data[16] == 0 and self.batch.data[17] & 7 != 0

    @property
    def rows(self) -> tuple[Row, ...]:
        """The records under the offsets that the batch claims; those in a wrapper of v0 have offsets of their own."""
        shift = 0 if self.has_own_offsets else self.base - self.piece.batch.base
        return tuple(row._replace(offset=row.offset + shift) for row in self.piece.batch.rows)


def claims_of(kind: LogKind, damage: Damage | None) -> Iterator[Claim]:
    """All pieces of the log in order."""
    for number, segment in enumerate(kind.segments):
        pieces: Sequence[Piece] = [Piece(batch, batch.data) for batch in segment.batches]
        if damage is not None and damage.segment == number:
            pieces = damage.pieces
        position = 0
        for piece in pieces:
            batch, whole = piece.batch, is_whole(piece.data)
            shift = struct.unpack_from(">q", piece.data)[0] - struct.unpack_from(">q", batch.data)[0] if whole else 0
            yield Claim(number, position, piece, whole, batch.base + shift, batch.last + shift)
            position += len(piece.data)


class Span(NamedTuple):
    """Offsets [first, stop) whose records a reader cannot have, and where they lie."""

    first: int
    stop: int
    claim: Claim


class Oracle:
    """Remains of a damaged log, and the claims that a reader may make about it."""

    def __init__(self, kind: LogKind, damage: Damage | None) -> None:
        self.kind = kind
        self.claims = list(claims_of(kind, damage))
        whole = [claim for claim in self.claims if claim.whole and self._fits_segment(claim)]
        honest = _once([claim for claim in whole if claim.is_honest])
        self.is_ordered = all(one.last < two.base for one, two in zip(honest, honest[1:], strict=False))
        self.guessed = [claim for claim in whole if not claim.is_honest and self._fits_gap(claim, honest)]
        """Batches with another offset than they were written with, which nothing contradicts."""
        self.sound = sorted([*honest, *self.guessed], key=lambda claim: claim.base)
        self.readings = self._readings(whole)
        last = max((n for n, claim in enumerate(self.claims) if claim.whole), default=-1)
        tail = self.claims[last + 1 :] if not kind.is_closed else []
        self.tail = [claim for claim in tail if claim.segment == len(kind.segments) - 1]
        """What a log that was not closed may end with: bytes with no sound batch behind them."""
        self.broken = [
            Span(claim.batch.base, claim.batch.last + 1, claim)
            for claim in self.claims
            if not claim.is_honest and claim not in self.guessed and claim not in self.tail
        ]
        self.rows = [row for claim in self.sound for row in claim.rows]
        self._offsets = [row.offset for row in self.rows]
        undamaged = [*(claim.batch for claim in self.claims if claim.whole), *kind.copied]
        self.originals = {row for batch in undamaged for row in batch.rows}
        """Records of all whole batches under the offsets that they were written with."""
        self.odd_ends = {claim.batch.last for claim in self.claims if has_odd_magic(claim.piece.data)}
        self.odd_ends |= {claim.last for claim in self.claims if self._fits_by_header(claim, honest)}
        """Last offsets that may be given as batches, not as records: of batches of an unknown format, and of wrappers
        with an offset that only the records inside contradict."""
        self.ends = {claim.batch.last for claim in self.claims if claim.whole} | self.odd_ends
        """Last offsets of batches that may be given."""

    def _fits_segment(self, claim: Claim) -> bool:
        segments = self.kind.segments
        below = segments[claim.segment + 1].base if claim.segment + 1 < len(segments) else NO_END
        base = segments[claim.segment].base
        return base <= claim.base and claim.last < below and claim.last - base <= MOST_BELOW

    def _fits_gap(self, claim: Claim, honest: list[Claim]) -> bool:
        """True where the batch lies above all batches before it and below all behind it."""
        here = (claim.segment, claim.position)
        return all(
            one.last < claim.base if (one.segment, one.position) < here else claim.last < one.base for one in honest
        )

    def _fits_by_header(self, claim: Claim, honest: list[Claim]) -> bool:
        """True for a wrapper with another offset than it had, where the headers around it do not contradict that."""
        if not self.kind.is_wrapped or not claim.whole or claim.is_honest:
            return False
        here = (claim.segment, claim.position)
        return self.kind.segments[claim.segment].base <= claim.last and all(
            (one.last < claim.last) == ((one.segment, one.position) < here) for one in honest
        )

    def _readings(self, whole: list[Claim]) -> list[list[Claim]]:
        """The longest chains of whole batches with ascending offsets: where there are several, a reader may be wrong.

        The first ones are those of batches that have their own offsets. A guessed batch may as well be left out.
        """
        if all(one.last < two.base for one, two in zip(whole, whole[1:], strict=False)):
            chains = [whole]
        else:
            chains = sorted(_longest_chains(whole), key=lambda chain: sum(not claim.is_honest for claim in chain))
        if self.guessed:
            chains += [[claim for claim in chain if claim not in self.guessed] for chain in chains]
        return chains

    # What a read of [start, stop) has to give

    def rows_in(self, start: int, stop: int) -> list[Row]:
        """The records that are to be seen."""
        return self.rows[bisect_left(self._offsets, start) : bisect_left(self._offsets, stop)]

    def batches_in(self, start: int, stop: int) -> list[int]:
        """Last offsets of the batches that are to be seen; of a wrapper the header says no other offset."""
        return [
            claim.last
            for claim in self.sound
            if claim.last >= start and (claim.last if self.kind.is_wrapped else claim.base) < stop
        ]

    def broken_in(self, start: int, stop: int) -> list[Span]:
        """The damage between two offsets, as these were written."""
        return [span for span in self.broken if span.first < stop and span.stop > start]

    @property
    def end(self) -> int:
        """The offset after the last sound batch; the lowest one that a reading of the offsets allows."""
        first = self.kind.segments[0].base
        return min(max((claim.last + 1 for claim in reading), default=first) for reading in self.readings)


def _once(claims: list[Claim]) -> list[Claim]:
    """Return the claims without copies of a known batch, by offset where they are not in order."""
    seen: dict[int, Claim] = {}
    for claim in claims:
        seen.setdefault(claim.base, claim)
    return [seen[base] for base in sorted(seen)]


def _longest_chains(claims: list[Claim]) -> list[list[Claim]]:
    """At most READINGS of the longest sequences of claims, in order, that ascend."""
    best = [1] * len(claims)
    for n in range(len(claims) - 1, -1, -1):
        best[n] += max((best[m] for m in range(n + 1, len(claims)) if claims[n].last < claims[m].base), default=0)

    def chains(previous: Claim | None, first: int, length: int) -> Iterator[list[Claim]]:
        if length == 0:
            yield []
            return
        for n in range(first, len(claims)):
            if best[n] == length and (previous is None or previous.last < claims[n].base):
                for rest in chains(claims[n], n + 1, length - 1):
                    yield [claims[n], *rest]

    return list(islice(chains(None, 0, max(best, default=0)), READINGS))
