"""Random histories of compacted logs, and the plain rules that say what of them must outlive a clean.

    history = random_history(rng)         batches of every format and codec, tombstones, transactions, producers
    log = history.written(path, clock)    a kafkalog log that holds them
    history.folded()                      the last committed record of each key: no clean may change that

A history is a value: the oracle follows it by its rows and never looks at a log.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from random import Random
from typing import Any, Final, NamedTuple

from hypothesis import strategies as st

from kafkalog._core.batch.scan import scan
from kafkalog.log.log import Log
from kafkalog.log.open_writable import open_for_append
from kafkalog.records.builder import RecordsBuilder
from kafkalog.records.control import ControlType
from kafkalog.records.control_batch import marker_batch
from kafkalog.records.format import CompressionType, TimestampType
from kafkalog.records.legacy import LegacyBuilder
from kafkalog.util.fileio import OS, FileSystem
from tests.mock_time import MockClock

NOW: Final = 1_700_000_000_000
RETENTION_MS: Final = 60_000
KEYS: Final = (b"", b"a", b"b", b"key", b"\x00\x00\x00\x01", b"k" * 40)
"""A few, so that records meet; one of them has the bytes of a marker's key."""
PRODUCERS: Final = (100, 101)
TRANSACTIONAL: Final = (200, 201, 202)
SETTINGS: Final[Mapping[str, Any]] = {
    "cleanup_policy": "compact",
    "delete_retention_ms": RETENTION_MS,
    "min_cleanable_dirty_ratio": 0.0,
    "index_interval_bytes": 150,
    "message_timestamp_after_max_ms": 2**63 - 1,
}

Headers = tuple[tuple[str, bytes | None], ...]


class Row(NamedTuple):
    """A record of a history: `producer` is -1 for none, `magic` and `codec` are those of its batch."""

    offset: int
    timestamp: int
    key: bytes | None
    value: bytes | None
    headers: Headers
    producer: int
    in_txn: bool
    magic: int
    codec: CompressionType

    @property
    def shown(self) -> tuple[int, int, bytes | None, bytes | None, Headers]:
        """The part that a reader sees."""
        return self.offset, self.timestamp, self.key, self.value, self.headers


class Marker(NamedTuple):
    """The end of a producer's transaction."""

    offset: int
    producer: int
    commits: bool


@dataclass(frozen=True)
class History:
    """Batches (or None, where a new segment begins), and the rows and markers in them."""

    events: tuple[bytes | None, ...]
    rows: tuple[Row, ...]
    markers: tuple[Marker, ...]
    end: int
    last_sequences: Mapping[int, int]
    """By producer id: the last sequence it wrote; a part of a history does not tell."""
    segment_bytes: int = 1 << 20

    def written(self, path: Path, clock: MockClock, fs: FileSystem = OS, **settings: Any) -> Log:
        """A log in the partition directory `path` that holds all of it and ends with an empty active segment."""
        log = opened(path, clock, fs, internal_segment_bytes=self.segment_bytes, **settings)
        self.append(log)
        log.roll()
        return log

    def append(self, log: Log, start: int = 0, stop: int | None = None) -> None:
        """The events from number `start` on, before `stop`, to a log that has those before."""
        for event in self.events[start:stop]:
            if event is None:
                log.roll()
            else:
                log.replicate(event)

    def first(self, count: int | None) -> History:
        """The history of the first `count` events alone; None: all."""
        events = self.events[:count]
        end = max((last_offset(event) + 1 for event in events if event is not None), default=0)
        rows = tuple(row for row in self.rows if row.offset < end)
        markers = tuple(marker for marker in self.markers if marker.offset < end)
        return History(events, rows, markers, end, {}, self.segment_bytes)

    def below(self, end: int) -> History:
        """The history of the events that a log which ends at `end` has."""
        return self.first(next((n for n, e in enumerate(self.events) if e is not None and last_offset(e) >= end), None))

    @property
    def stable(self) -> int:
        """The last stable offset: the first record of a transaction that is open at the end."""
        return min(self._open_first().values(), default=self.end)

    def _open_first(self) -> dict[int, int]:
        first: dict[int, int] = {}
        for one in sorted((*self.rows, *self.markers)):
            if isinstance(one, Marker):
                first.pop(one.producer, None)
            elif one.in_txn:
                first.setdefault(one.producer, one.offset)
        return first

    def committed(self) -> list[Row]:
        """The records below the last stable offset that no aborted transaction holds, in order."""
        return [row for row in self.rows if row.offset < self.stable and not self.aborted(row)]

    def aborted(self, row: Row) -> bool:
        """True for a record whose transaction ends with an ABORT marker."""
        if not row.in_txn:
            return False
        later = (m for m in self.markers if m.producer == row.producer and m.offset > row.offset)
        first = min(later, default=None)
        return first is not None and not first.commits

    def folded(self) -> dict[bytes, bytes]:
        """Key -> value for a reader of committed records at the end, without deleted keys."""
        return folded((row.key, row.value) for row in self.committed())

    def latest(self, end: int) -> dict[bytes, Row]:
        """Key -> its last committed record below `end`, a tombstone or not."""
        return {row.key: row for row in self.committed() if row.key is not None and row.offset < end}

    def kept(self, end: int) -> list[Row]:
        """Return the records that a first clean of [0, end) keeps while tombstones are held (CLN-3, 6, 7, 9, 14)."""
        last = {row.offset for row in self.latest(end).values()}
        return [row for row in self.rows if row.offset >= end or row.offset in last]


def last_offset(event: bytes) -> int:
    """The last offset of an event's batches."""
    return int(scan(event).last_offset)


def folded(pairs: Iterable[tuple[bytes | None, bytes | None]]) -> dict[bytes, bytes]:
    """The last value of each key; a record without key counts for none."""
    found: dict[bytes, bytes] = {}
    for key, value in pairs:
        if key is None:
            continue
        if value is None:
            found.pop(key, None)
        else:
            found[key] = value
    return found


def opened(path: Path, clock: MockClock, fs: FileSystem = OS, **settings: Any) -> Log:
    """The log in `path`, compacted, made where there is none."""
    engine = open_for_append(path, {**SETTINGS, **settings}, fs=fs, clock=clock)
    return Log(engine.log, engine)


def histories(**limits: Any) -> st.SearchStrategy[History]:
    """Histories for property tests; limits: those of `random_history`."""
    return st.randoms(use_true_random=False).map(lambda rng: random_history(rng, **limits))


def random_history(
    rng: Random,
    *,
    least: int = 1,
    most: int = 40,
    old_formats: bool = True,
    close_all: bool = False,
    now_ms: int = NOW,
) -> History:
    """`least` to `most` events up to `now_ms`; with `close_all` no transaction is open at the end."""
    made = _Maker(rng, old_formats, now_ms)
    for _ in range(rng.randint(least, most)):
        made.step()
    if close_all:
        made.end_all()
    sizes = rng.choice([700, 1500, 1 << 20])
    rows, markers = tuple(made.rows), tuple(made.markers)
    return History(tuple(made.events), rows, markers, made.end, made.last_sequence, sizes)


@dataclass
class _Maker:
    rng: Random
    old_formats: bool
    now_ms: int
    events: list[bytes | None] = field(default_factory=list)
    rows: list[Row] = field(default_factory=list)
    markers: list[Marker] = field(default_factory=list)
    end: int = 0
    last_sequence: dict[int, int] = field(default_factory=dict)
    epochs: dict[int, int] = field(default_factory=dict)
    in_txn: set[int] = field(default_factory=set)

    def step(self) -> None:
        """One more event."""
        kind = self.rng.choice(["plain"] * 5 + ["producer"] * 3 + ["transaction"] * 4 + ["end"] * 3 + ["roll"] * 2)
        if kind == "roll":
            self.events.append(None)
        elif kind == "end":
            self.end_one()
        elif kind == "plain":
            self.plain()
        else:
            self.produced(self.rng.choice(PRODUCERS if kind == "producer" else TRANSACTIONAL))

    def plain(self) -> None:
        """A batch without a producer, of any format."""
        magic = self.rng.choice([0, 1, 2, 2, 2]) if self.old_formats else 2
        self.add(magic, self.codec(magic))

    def produced(self, producer: int) -> None:
        """A batch of a producer."""
        self.epochs.setdefault(producer, 0)
        if producer not in self.in_txn and self.rng.random() < 0.1:
            self.epochs[producer] += 1
            self.last_sequence[producer] = -1
        self.add(2, self.codec(2), producer)
        if producer in TRANSACTIONAL:
            self.in_txn.add(producer)

    def end_one(self) -> None:
        """A marker of an open transaction; sometimes of one that wrote nothing (CLN-19)."""
        ended = sorted(self.in_txn) or [p for p in sorted(self.epochs) if p in TRANSACTIONAL]
        if not ended:
            return
        producer = self.rng.choice(ended)
        self.in_txn.discard(producer)
        commits = self.rng.random() < 0.5
        kind = ControlType.COMMIT if commits else ControlType.ABORT
        batch = marker_batch(
            kind, producer, self.epochs[producer], 0, timestamp=self.time(), base_offset=self.end, leader_epoch=0
        )
        self.events.append(bytes(batch))
        self.markers.append(Marker(self.end, producer, commits))
        self.end += 1

    def end_all(self) -> None:
        """Every open transaction ends."""
        while self.in_txn:
            self.end_one()

    def codec(self, magic: int) -> CompressionType:
        """Any codec that the format has; none is as likely as all others."""
        codecs = [one for one in CompressionType if magic == 2 or one != CompressionType.ZSTD]
        return CompressionType.NONE if self.rng.random() < 0.5 else self.rng.choice(codecs)

    def time(self) -> int:
        """A timestamp that mostly grows."""
        return self.now_ms - 10_000_000 + 100 * self.end - self.rng.choice([0, 0, 0, 5000])

    def add(self, magic: int, codec: CompressionType, producer: int = -1) -> None:
        """A batch of one to five records, sometimes behind a gap, sometimes with gaps inside."""
        rng = self.rng
        by_log = magic > 0 and rng.random() < 0.15
        stamp = self.time()
        options: dict[str, Any] = {"compression": codec}
        if by_log:
            options |= {"timestamp_type": TimestampType.LOG_APPEND_TIME, "log_append_time": stamp}
        base = self.end + (rng.choice([0, 0, 0, 0, 7]) if producer < 0 else 0)
        if magic == 2:
            if producer >= 0:
                sequence = self.last_sequence.get(producer, -1) + 1
                options |= {"producer_id": producer, "producer_epoch": self.epochs[producer]}
                options |= {"base_sequence": sequence, "is_transactional": producer in TRANSACTIONAL}
            builder: RecordsBuilder | LegacyBuilder = RecordsBuilder(base, leader_epoch=0, **options)
        else:
            builder = LegacyBuilder(base, magic=magic, **options)
        holes = producer < 0 and rng.random() < 0.15
        offset = base
        for _ in range(rng.randint(1, 5)):
            key = rng.choice([*KEYS, None])
            value = rng.choice([None, b"", b"v%d" % offset, b"v%d" % offset + b"." * 60])
            headers: Headers = (("h", b"%d" % offset), ("n", None)) if magic == 2 and rng.random() < 0.2 else ()
            timestamp = -1 if magic == 0 else self.time()
            builder.append(timestamp, key, value, headers, offset=offset)
            shown = stamp if by_log else timestamp
            in_txn = producer in TRANSACTIONAL
            self.rows.append(Row(offset, shown, key, value, headers, producer, in_txn, magic, codec))
            last, offset = offset, offset + 1 + (rng.choice([0, 1, 4]) if holes else 0)
        if producer >= 0:
            self.last_sequence[producer] = self.last_sequence.get(producer, -1) + 1 + last - base
        self.events.append(bytes(builder.build()))
        self.end = last + 1
