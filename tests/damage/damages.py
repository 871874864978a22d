"""Damage to one segment of a log: each kind says what becomes of the batches' bytes."""

import random
from collections.abc import Callable, Iterator
from typing import NamedTuple

from tests.damage.logs import Batch, LogKind

PLACES = ("first", "middle", "last")


class Piece(NamedTuple):
    """Bytes that lie where a batch was written, or a copy of it."""

    batch: Batch
    data: bytes

    @property
    def is_changed(self) -> bool:
        """True where the bytes are not those of the batch."""
        return self.data != self.batch.data


class Damage(NamedTuple):
    """A segment after damage: all pieces of its data file, in order."""

    label: str
    text: str
    segment: int
    pieces: tuple[Piece, ...]
    behind: bytes = b""

    @property
    def data(self) -> bytes:
        """Content of the data file."""
        return b"".join(piece.data for piece in self.pieces) + self.behind


class Target(NamedTuple):
    """The batch to damage: its segment and its number in it."""

    kind: LogKind
    segment: int
    batch: int

    @property
    def text(self) -> str:
        """Place of the damage, in words."""
        return f"batch {self.batch} of segment {self.segment}"

    def pieces(self) -> list[Piece]:
        """The segment before any damage."""
        return [Piece(batch, batch.data) for batch in self.kind.segments[self.segment].batches]

    def done(self, label: str, what: str, pieces: list[Piece]) -> Damage:
        """The damage of the kind `label` that leaves `pieces`."""
        behind = self.kind.segments[self.segment].behind
        return Damage(label, f"{what} at {self.text}", self.segment, tuple(pieces), behind)


def place_of(number: int, count: int) -> int:
    """Index of the first, middle or last one of `count`."""
    return (0, count // 2, count - 1)[number]


def pick_target(kind: LogKind, rng: random.Random) -> Target:
    """The first, a middle or the last batch of the first, middle or last segment."""
    segment = place_of(rng.randrange(3), len(kind.segments))
    return Target(kind, segment, place_of(rng.randrange(3), len(kind.segments[segment].batches)))


def header_bits(kind: LogKind) -> Iterator[tuple[int, int]]:
    """(byte, bit) of each bit of a batch's header."""
    for byte in range({0: 18, 1: 26, 2: 61}[kind.magic]):
        for bit in range(8):
            yield byte, bit


def flip(target: Target, byte: int, bit: int) -> Damage:
    """One bit of the batch is another."""
    pieces = target.pieces()
    data = bytearray(pieces[target.batch].data)
    data[byte] ^= 1 << bit
    pieces[target.batch] = pieces[target.batch]._replace(data=bytes(data))
    return target.done(f"flip of {field_at(target.kind.magic, byte)}", f"bit {bit} of byte {byte} flipped", pieces)


def field_at(magic: int, byte: int) -> str:
    """The header field that holds a byte, or what its checksum covers."""
    fields = ((8, "base offset"), (12, "size"))
    fields += ((16, "leader epoch"), (17, "magic"), (21, "checksum")) if magic == 2 else ((16, "checksum"),)
    return next((name for end, name in fields if byte < end), "checked bytes")


def flip_in_body(target: Target, rng: random.Random) -> Damage:
    """One bit behind the header is another."""
    size = len(target.pieces()[target.batch].data)
    first = {0: 18, 1: 26, 2: 61}[target.kind.magic]
    return flip(target, rng.randrange(min(first, size - 1), size), rng.randrange(8))


def remove(target: Target, rng: random.Random) -> Damage:
    """The batch is gone, what is behind it moves up."""
    pieces = target.pieces()
    del pieces[target.batch]
    return target.done("removed", "removed", pieces)


def double(target: Target, rng: random.Random) -> Damage:
    """The batch is there twice."""
    pieces = target.pieces()
    pieces.insert(target.batch, pieces[target.batch])
    return target.done("doubled", "doubled", pieces)


def swap(target: Target, rng: random.Random) -> Damage:
    """The batch and another one of its segment are in each other's places: the next one, or one far away."""
    pieces = target.pieces()
    others = [n for n in range(len(pieces)) if abs(n - target.batch) == 1 or abs(n - target.batch) > 3]
    other = rng.choice(others)
    pieces[target.batch], pieces[other] = pieces[other], pieces[target.batch]
    return target.done("swapped", f"swapped with batch {other}", pieces)


def zero(target: Target, rng: random.Random) -> Damage:
    """All bytes of the batch are zero."""
    pieces = target.pieces()
    piece = pieces[target.batch]
    pieces[target.batch] = piece._replace(data=bytes(len(piece.data)))
    return target.done("zeroed", "zeroed", pieces)


def cut_inside(target: Target, rng: random.Random) -> Damage:
    """The file ends in the middle of the batch."""
    pieces = target.pieces()[: target.batch + 1]
    kept = rng.randrange(1, len(pieces[-1].data))
    pieces[-1] = pieces[-1]._replace(data=pieces[-1].data[:kept])
    return target.done("cut inside", f"cut {kept} bytes into the batch", pieces)._replace(behind=b"")


def cut_before(target: Target, rng: random.Random) -> Damage:
    """The file ends before the batch."""
    return target.done("cut before", "cut before the batch", target.pieces()[: target.batch])._replace(behind=b"")


def overwrite(target: Target, rng: random.Random) -> Damage:
    """A run of bytes, from inside the batch on, is overwritten with random ones."""
    pieces = target.pieces()
    position = sum(len(piece.data) for piece in pieces[: target.batch]) + rng.randrange(len(pieces[target.batch].data))
    run = rng.randbytes(rng.choice((1, 2, 4, 8, 16, 64, 300)))
    data = b"".join(piece.data for piece in pieces)
    run = run[: len(data) - position]
    data = data[:position] + run + data[position + len(run) :]
    at = 0
    for number, piece in enumerate(pieces):
        pieces[number] = piece._replace(data=data[at : at + len(piece.data)])
        at += len(piece.data)
    return target.done("overwritten", f"{len(run)} random bytes from position {position} on", pieces)


OTHERS: tuple[Callable[[Target, random.Random], Damage], ...] = (
    flip_in_body, remove, double, swap, zero, cut_inside, cut_before, overwrite,
)  # fmt: skip
"""Every kind of damage but a flip in the header."""
