"""Outcomes of transactions: the records that a reader of committed ones has to see, and those that it may see."""

from collections.abc import Iterable
from typing import NamedTuple

from tests.damage.logs import LogKind, Row
from tests.damage.oracle import Claim, Oracle, claims_of


class Decided(NamedTuple):
    """Base offsets, as they were written, of the committed batches, and the offset at which reading ends."""

    committed: frozenset[int]
    end: int


def decided(claims: Iterable[Claim], end: int) -> Decided:
    """Return the decisions of the markers among these batches."""
    committed: set[int] = set()
    open_ones: dict[int, list[Claim]] = {}
    for claim in claims:
        batch = claim.batch
        if batch.producer < 0:
            committed.add(batch.base)
        elif batch.is_commit is None:
            open_ones.setdefault(batch.producer, []).append(claim)
        else:
            done = open_ones.pop(batch.producer, [])
            committed.update(one.batch.base for one in done if batch.is_commit)
    return Decided(frozenset(committed), min((some[0].base for some in open_ones.values()), default=end))


def as_written(kind: LogKind) -> Decided:
    """Return the decisions of the log's transactions before any damage."""
    return decided(claims_of(kind, None), kind.end)


def committed_rows(
    oracle: Oracle, start: int, stop: int, reading: list[Claim] | None = None
) -> tuple[list[Row], set[Row]]:
    """The rows of [start, stop) that a reader of committed records has to see, and those that it may see.

    Where nothing shows that a marker is missing, or the reader skips to what a `reading` holds for sound, what the
    remaining ones decide is as good as what was written.
    """
    sound = oracle.sound if reading is None else reading
    before, now = as_written(oracle.kind), decided(sound, oracle.end)
    must: list[Row] = []
    may: set[Row] = set()
    for claim in sound:
        rows = [row for row in claim.rows if start <= row.offset < stop]
        was = [row for row in rows if claim.batch.base in before.committed and claim.batch.base < before.end]
        still = [row for row in rows if claim.batch.base in now.committed and row.offset < now.end]
        must += was if oracle.broken and reading is None else [row for row in was if row in still]
        may.update(was, still)
    return must, may
