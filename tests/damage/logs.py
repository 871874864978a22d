"""Small logs of every format, codec and state to damage, with the batches and records that they were made of."""

import random
import shutil
import struct
import tempfile
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from functools import cache
from pathlib import Path
from typing import NamedTuple

import kafkalog
from kafkalog.records.builder import RecordsBuilder
from kafkalog.records.format import CompressionType
from kafkalog.records.legacy import LegacyBuilder
from tests import builder, raw_batches
from tests.transactional import COMMIT, CONTROL, TRANSACTIONAL, marker

TOPIC = "t"
PARTITION = "t-0"
SEGMENTS, BATCHES = 3, 12
FIRST_TIME = 1_700_000_000_000
STEP_MS = 1000
INDEX_INTERVAL_BYTES = 150
CLEAN_FILE = ".kafka_cleanshutdown"
RECOVERY_FILE = "recovery-point-offset-checkpoint"
CODECS = ("none", "gzip", "snappy", "lz4", "zstd")
FAMILIES = (
    *(f"v{magic} {codec}" for magic in (0, 1) for codec in CODECS if codec != "zstd"),
    *(f"v2 {codec}" for codec in CODECS),
    "compacted",
    "transactions",
)
CLOSURES = ("closed", "unclean", "flushed")
"""Closed well; not closed, all of it to recover; not closed, with the last segment to recover."""
SWAPS = ("swapped", "joined")
"""Not closed while its cleaner replaced segments: the first one is in a `.swap`, alone or with all of the second one,
which is still there."""
SWAP = ".swap"


class Row(NamedTuple):
    """A record as every way of reading gives it."""

    offset: int
    timestamp: int
    key: bytes | None
    value: bytes | None


class Batch(NamedTuple):
    """A batch as it was written; `rows` are what a consumer sees of it.

    `producer` is that of a transaction; `is_commit` says what a marker of its end decides, None for records.
    """

    data: bytes
    base: int
    last: int
    rows: tuple[Row, ...]
    producer: int = -1
    is_commit: bool | None = None


class Segment(NamedTuple):
    """A segment as it was written; its file may go on with batches that other segments have (`behind`)."""

    base: int
    batches: tuple[Batch, ...]
    suffix: str = ""
    behind: bytes = b""

    @property
    def name(self) -> str:
        """Path of its data file in the data directory."""
        return f"{PARTITION}/{self.base:020d}.log{self.suffix}"

    @property
    def data(self) -> bytes:
        """Content of that file."""
        return b"".join(batch.data for batch in self.batches) + self.behind


@dataclass(frozen=True)
class LogKind:
    """A log to damage: what it holds, and the files of its data directory."""

    family: str
    has_indexes: bool
    closure: str
    segments: tuple[Segment, ...]
    files: dict[str, bytes]

    @property
    def name(self) -> str:
        """Format, codec and state in a few words."""
        return f"{self.family}, {'' if self.has_indexes else 'no '}indexes, {self.closure}"

    @property
    def is_closed(self) -> bool:
        """True where the directory says that it was closed well."""
        return self.closure == "closed"

    @property
    def copied(self) -> tuple[Batch, ...]:
        """Batches of which the first segment's file has a copy too."""
        return self.segments[1].batches if self.segments[0].behind else ()

    @property
    def end(self) -> int:
        """Offset after the last batch."""
        return self.segments[-1].batches[-1].last + 1

    @property
    def magic(self) -> int:
        """Format of all batches."""
        return self.segments[0].batches[0].data[16]

    @property
    def is_wrapped(self) -> bool:
        """True where messages of v0 or v1 wrap compressed ones: their offset is that of the last one inside."""
        return self.magic < 2 and not self.family.endswith("none")


def row_at(offset: int, magic: int, rng: random.Random) -> Row:
    """The record that belongs at `offset`."""
    time = -1 if magic == 0 else FIRST_TIME + offset * STEP_MS
    key = None if rng.random() < 0.2 else b"k%d" % (offset % 7)
    return Row(offset, time, key, b"v%d-" % offset + rng.randbytes(rng.randint(0, 12)).hex().encode())


def _of_format(magic: int, codec: str, rng: random.Random) -> Iterator[Batch]:
    kind = CompressionType[codec.upper()]
    count = 3 if magic == 2 or codec != "none" else 1
    base = 0
    while True:
        rows = tuple(row_at(offset, magic, rng) for offset in range(base, base + count))
        made: RecordsBuilder | LegacyBuilder
        if magic == 2:
            made = RecordsBuilder(base, compression=kind, leader_epoch=0)
        else:
            made = LegacyBuilder(base, magic=magic, compression=kind)
        for row in rows:
            made.append(row.timestamp, row.key, row.value)
        yield Batch(bytes(made.build()), base, base + count - 1, rows)
        base += count


def _compacted(rng: random.Random) -> Iterator[Batch]:
    """Batches with gaps between and inside them, as a cleaner leaves them."""
    base = 0
    while True:
        deltas = sorted(rng.sample(range(5), rng.randint(1, 3)))
        rows = tuple(row_at(base + delta, 2, rng) for delta in deltas)
        records = [(row.timestamp, row.key, row.value) for row in rows]
        data = raw_batches.batch(base, records, deltas=deltas, last_delta=4)
        yield Batch(data, base, base + 4, rows)
        base += 5 + rng.choice((0, 0, 0, 4, 20))


def _transactions(rng: random.Random) -> Iterator[Batch]:
    """Batches of two producers' transactions with their markers, in turn."""
    base = 0
    sequences = {7: 0, 8: 0}
    while True:
        producer = rng.choice((7, 8))
        for _ in range(rng.randint(1, 2)):
            rows = tuple(row_at(offset, 2, rng) for offset in range(base, base + 2))
            records = [builder.R(row.value, row.key, row.timestamp) for row in rows]
            data = builder.batch(
                records, base_offset=base, attributes=TRANSACTIONAL, producer_id=producer, producer_epoch=0,
                base_sequence=sequences[producer], leader_epoch=0,
            )  # fmt: skip
            sequences[producer] += 2
            yield Batch(data, base, base + 1, rows, producer)
            base += 2
        kind = rng.randint(0, 1)
        data = marker(base, producer, kind)
        assert struct.unpack_from(">h", data, 21)[0] == CONTROL
        yield Batch(data, base, base, (), producer, kind == COMMIT)
        base += 1


def _batches(family: str) -> Iterator[Batch]:
    rng = random.Random(family)
    makers: dict[str, Callable[[random.Random], Iterator[Batch]]] = {
        "compacted": _compacted,
        "transactions": _transactions,
    }
    if family in makers:
        return makers[family](rng)
    version, codec = family.split()
    return _of_format(int(version[1]), codec, rng)


@cache
def _family(family: str) -> LogKind:
    """The log of a family with indexes, closed well: kafkalog makes all but the data files."""
    batches = _batches(family)
    segments = []
    for _ in range(SEGMENTS):
        some = tuple(next(batches) for _ in range(BATCHES))
        segments.append(Segment(some[0].base if segments else 0, some))
    data = Path(tempfile.mkdtemp(prefix="kafkalog-damage-"))
    try:
        (data / PARTITION).mkdir()
        for segment in segments:
            (data / segment.name).write_bytes(segment.data)
        with kafkalog.open(data / PARTITION, "a", index_interval_bytes=INDEX_INTERVAL_BYTES) as log:
            log.flush()
        paths = [path for path in data.rglob("*") if path.is_file() and path.name != ".lock"]
        files = {str(path.relative_to(data)): path.read_bytes() for path in paths}
    finally:
        shutil.rmtree(data)
    for segment in segments:
        assert files[segment.name] == segment.data
    return LogKind(family, True, "closed", tuple(segments), files)


@cache
def log_of(family: str, has_indexes: bool, closure: str) -> LogKind:
    """The log of a family in the state that the other two say."""
    kind = _family(family)
    files = dict(kind.files)
    if not has_indexes:
        files = {name: data for name, data in files.items() if not name.endswith(("index",))}
    if closure != "closed":
        del files[CLEAN_FILE], files[RECOVERY_FILE], files[f"{PARTITION}/{kind.end:020d}.snapshot"]
    if closure == "flushed":
        files[RECOVERY_FILE] = b"0\n1\n%s 0 %d\n" % (TOPIC.encode(), kind.segments[-1].base)
    kind = replace(kind, has_indexes=has_indexes, closure=closure, files=files)
    return _swapped(kind) if closure in SWAPS else kind


def _swapped(kind: LogKind) -> LogKind:
    """Return the log with the files of the first segment as `.swap`."""
    first, second, *others = kind.segments
    swap = first._replace(suffix=SWAP, behind=second.data if kind.closure == "joined" else b"")
    stem = f"{PARTITION}/{first.base:020d}"
    files = {name + SWAP if name.startswith(stem) else name: data for name, data in kind.files.items()}
    files[swap.name] = swap.data
    return replace(kind, segments=(swap, second, *others), files=files)
