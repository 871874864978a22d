"""Partition directories with transactions, made event by event, and what a consumer of committed records sees.

The oracle follows the log from its beginning, as the reference's consumer does with the whole list of aborted
transactions: a batch is left out while its producer's transaction is one that ends with an ABORT marker.
"""

import struct
from dataclasses import dataclass, field
from pathlib import Path

from tests.builder import R, batch, crc32c
from tests.raw_batches import write_segment

TRANSACTIONAL = 0x10
CONTROL = 0x30
ABORT, COMMIT = 0, 1

Event = tuple[str, int, int]
"""(kind, producer, records): kind is "plain", "data", "abort", "commit" or "roll"."""


def marker(offset: int, producer_id: int, kind: int) -> bytes:
    """A transaction marker of 78 bytes, as a coordinator writes it."""
    record = R(struct.pack(">hi", 0, 7), struct.pack(">hh", 0, kind), timestamp=1000 + offset)
    return batch([record], base_offset=offset, attributes=CONTROL, producer_id=producer_id, producer_epoch=0)


@dataclass
class Log:
    """A log of transactions in memory: batches by segment, and what the files beside them say."""

    segments: dict[int, list[bytes]] = field(default_factory=lambda: {0: []})
    indexes: dict[int, list[tuple[int, int, int, int]]] = field(default_factory=lambda: {0: []})
    snapshots: dict[int, dict[int, int]] = field(default_factory=dict)
    open: dict[int, int] = field(default_factory=dict)
    known: set[int] = field(default_factory=set)
    data: list[tuple[int, int, int]] = field(default_factory=list)
    plain: list[int] = field(default_factory=list)
    aborted: list[tuple[int, int, int]] = field(default_factory=list)
    end: int = 0

    @property
    def base(self) -> int:
        """First offset of the last segment."""
        return max(self.segments)

    @property
    def stable(self) -> int:
        """The last stable offset."""
        return min(self.open.values(), default=self.end)

    def add(self, event: Event) -> None:
        """One more event at the log's end; the state before it can be snapshot."""
        kind, producer_id, count = event
        self.snapshots[self.end] = dict.fromkeys(self.known, -1) | self.open
        if kind == "roll":
            if self.segments[self.base]:
                self.segments[self.end] = []
                self.indexes[self.end] = []
        elif kind in ("plain", "data"):
            self._add_records(producer_id, count, kind == "data")
        else:
            self._add_marker(producer_id, kind == "abort")
        self.snapshots[self.end] = dict.fromkeys(self.known, -1) | self.open

    def _add_records(self, producer_id: int, count: int, in_transaction: bool) -> None:
        rows = [R(b"v%d" % (self.end + n), timestamp=1000 + self.end + n) for n in range(count)]
        fields = {"base_offset": self.end, "leader_epoch": 3}
        if in_transaction:
            fields |= {"attributes": TRANSACTIONAL, "producer_id": producer_id, "producer_epoch": 0}
            fields |= {"base_sequence": 0}
            self.open.setdefault(producer_id, self.end)
            self.known.add(producer_id)
            self.data += [(producer_id, self.end + n, self.end) for n in range(count)]
        else:
            self.plain += range(self.end, self.end + count)
        self.segments[self.base].append(batch(rows, **fields))
        self.end += count

    def _add_marker(self, producer_id: int, aborts: bool) -> None:
        self.segments[self.base].append(marker(self.end, producer_id, ABORT if aborts else COMMIT))
        self.known.add(producer_id)
        first = self.open.pop(producer_id, None)
        if aborts and first is not None:
            self.aborted.append((producer_id, first, self.end))
            stable = min(self.open.values(), default=self.end + 1)
            self.indexes[self.base].append((producer_id, first, self.end, stable))
        self.end += 1

    def committed(self, start: int = 0) -> list[int]:
        """The offsets of the records that a consumer of committed ones gets from `start` on."""
        seen = list(self.plain)
        for producer_id, offset, base in self.data:
            if not any(p == producer_id and first <= base <= last for p, first, last in self.aborted):
                seen.append(offset)
        return sorted(offset for offset in seen if start <= offset < self.stable)

    def write(self, directory: Path) -> None:
        """The segments with all their files, and a snapshot at each segment's base and at the end, as a broker has."""
        for base, parts in self.segments.items():
            write_segment(directory, base, parts)
            if self.indexes[base]:
                index_path(directory, base).write_bytes(txn_index(self.indexes[base]))
            if base:
                self.write_snapshot(directory, base)
        self.write_snapshot(directory, self.end)

    def write_snapshot(self, directory: Path, offset: int) -> None:
        """The producer snapshot at an offset between two events."""
        snapshot_path(directory, offset).write_bytes(snapshot(self.snapshots.get(offset, {})))


def made(events: list[Event]) -> Log:
    """The log of these events."""
    log = Log()
    for event in events:
        log.add(event)
    return log


def txn_index(entries: list[tuple[int, int, int, int]]) -> bytes:
    """The bytes of a `.txnindex` file: (producer id, first, last, last stable offset) each."""
    return b"".join(struct.pack(">hqqqq", 0, *entry) for entry in entries)


def snapshot(producers: dict[int, int]) -> bytes:
    """The bytes of a `.snapshot` file: first offset of the open transaction, or -1, by producer id."""
    body = struct.pack(">i", len(producers))
    for producer_id, first_offset in producers.items():
        body += struct.pack(">qhiqiqiq", producer_id, 0, 0, 0, 0, 1000, 7, first_offset)
    return struct.pack(">hI", 1, crc32c(body)) + body


def index_path(directory: Path, base: int) -> Path:
    """Return the path of a segment's transaction index."""
    return directory / f"{base:020d}.txnindex"


def snapshot_path(directory: Path, offset: int) -> Path:
    """Return the path of the producer snapshot at an offset."""
    return directory / f"{offset:020d}.snapshot"
