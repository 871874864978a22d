"""A log's expected content: batches with every byte, offsets, producers, transactions, epochs; pure values."""

from __future__ import annotations

import struct
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import NamedTuple


class Batch(NamedTuple):
    """A batch as it lies in the log. `kind` is "data", "commit" or "abort"; without a producer its id is -1."""

    base: int
    last: int
    data: bytes
    kind: str
    producer_id: int
    producer_epoch: int
    sequence: int
    in_txn: bool
    leader_epoch: int

    def __repr__(self) -> str:
        return f"{self.kind}[{self.base}..{self.last}] {len(self.data)} B of {self.producer_id}"


class Known(NamedTuple):
    """A log's knowledge of a producer; -1 for unknown values."""

    epoch: int
    last_sequence: int
    last_offset: int
    txn_first_offset: int


@dataclass(frozen=True)
class Model:
    """A log: its batches, where it starts and ends, and the leader epoch of the next append."""

    start: int = 0
    end: int = 0
    batches: tuple[Batch, ...] = ()
    leader_epoch: int = 0

    @property
    def data_end(self) -> int:
        """The offset behind the last batch; the start where there is none."""
        return self.batches[-1].last + 1 if self.batches else self.start

    def appended(self, batches: Iterable[Batch]) -> Model:
        """With these at the end."""
        added = tuple(batches)
        return replace(self, batches=self.batches + added, end=added[-1].last + 1) if added else self

    def truncated(self, offset: int) -> Model:
        """Ending at `offset`; a batch that holds it inside goes whole."""
        kept = tuple(batch for batch in self.batches if batch.last < offset)
        return replace(self, batches=kept, end=offset, start=min(self.start, offset))

    def started_at(self, offset: int) -> Model:
        """With a higher start."""
        return replace(self, start=max(self.start, offset))

    def visible(self) -> tuple[Batch, ...]:
        """The batches that hold an offset from the start on."""
        return tuple(batch for batch in self.batches if batch.last >= self.start)


def on_disk(directory: Path) -> Iterator[tuple[int, bytes]]:
    """(base offset, bytes) of each batch of a partition directory, by the files' own bytes and nothing else."""
    for path in sorted(directory.glob("*.log")):
        data = path.read_bytes()
        at = 0
        while at < len(data):
            if not any(data[at:]):  # room that is reserved ahead
                break
            base, size = struct.unpack_from(">qi", data, at)
            assert size > 0 and at + 12 + size <= len(data), f"{path.name}: no whole batch at byte {at}"
            yield base, data[at : at + 12 + size]
            at += 12 + size


def producers(batches: Iterable[Batch]) -> dict[int, Known]:
    """Return the producers of these batches, as a log that read them knows them."""
    found: dict[int, Known] = {}
    for batch in batches:
        if batch.producer_id < 0:
            continue
        before = found.get(batch.producer_id, Known(-1, -1, -1, -1))
        if batch.kind == "data":
            first = batch.base if batch.in_txn and before.txn_first_offset < 0 else before.txn_first_offset
            last = batch.sequence + batch.last - batch.base
            found[batch.producer_id] = Known(batch.producer_epoch, last, batch.last, first)
        else:
            found[batch.producer_id] = before._replace(epoch=batch.producer_epoch, txn_first_offset=-1)
    return found


def committed(batches: tuple[Batch, ...], stable: int) -> list[int]:
    """Base offsets of the data batches below `stable` that are of no aborted transaction."""
    aborted: set[int] = set()
    open_txns: dict[int, list[int]] = {}
    for batch in batches:
        if batch.kind != "data":
            bases = open_txns.pop(batch.producer_id, [])
            if batch.kind == "abort":
                aborted.update(bases)
        elif batch.in_txn:
            open_txns.setdefault(batch.producer_id, []).append(batch.base)
    return [b.base for b in batches if b.kind == "data" and b.base < stable and b.base not in aborted]


def epochs(batches: Iterable[Batch]) -> list[tuple[int, int]]:
    """(leader epoch, first offset) of each epoch that these batches begin."""
    found: list[tuple[int, int]] = []
    for batch in batches:
        if not found or batch.leader_epoch > found[-1][0]:
            found.append((batch.leader_epoch, batch.base))
    return found
