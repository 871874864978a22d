"""Settings of a benchmark run, checked before anything is created."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Final

from kafkalog.config.topic import LogConfig
from kafkalog.errors import IllegalArgument
from kafkalog.records.packing import parse_compression
from kafkalog.util.keywords import closest_match

BENCHMARKS: Final = {
    "fillseq": "append records one by one, each in its own batch",
    "fillsync": "the same, with a sync after each append; a hundredth of the records",
    "fillwriter": "append records one by one to a writer, which batches them",
    "fillbatch": "append batches of records",
    "readseq": "read every record in order, with key and value",
    "readbatches": "read every batch in order, without decoding records",
    "readcolumns": "read every record as columns",
    "readrandom": "read single records by offset, in random order",
    "readtime": "find offsets by time, in random order",
    "verify": "check every batch and index of the log",
    "recover": "open the log as after a crash, and recover all of it",
    "compact": "compact a log in which every key occurs twice",
}
FILLS: Final = frozenset({"fillseq", "fillsync", "fillwriter", "fillbatch"})
READS: Final = frozenset({"readseq", "readbatches", "readcolumns", "readrandom", "readtime", "verify"})
"""Benchmarks that change nothing and may run on an existing log."""
MOST_RECORDS: Final = 10**12
MOST_VALUE_BYTES: Final = 16 << 20
MOST_KEY_BYTES: Final = 1 << 16
MOST_BATCH_RECORDS: Final = 10**6
MOST_BATCH_BYTES: Final = 256 << 20
MOST_THREADS: Final = 256
_RECORD_BYTES: Final = 40  # most bytes of a record besides key and value


@dataclass(frozen=True)
class Settings:
    """Benchmarks to run and their data; raises IllegalArgument, UnsupportedCompression, ConfigError if invalid.

    `num` is the number of records, or of operations of a random read, with keys of `key_size` and values of
    `value_size` bytes. `seconds` ends each benchmark early, None does not. With `cold`, pages of the log are dropped
    from the page cache before each read.

    >>> Settings(num=1000, value_size=50).record_bytes
    66
    """

    benchmarks: tuple[str, ...] = tuple(BENCHMARKS)
    num: int = 100_000
    value_size: int = 100
    key_size: int = 16
    batch_size: int = 100
    compression: str = "none"
    segment_bytes: int = 1 << 30
    threads: int = 1
    seconds: float | None = None
    seed: int = 301
    cold: bool = False
    only_reads: bool = field(default=False, repr=False)
    """True for a run on an existing log."""

    def __post_init__(self) -> None:
        _check_names(self.benchmarks, only_reads=self.only_reads)
        _check_range("num", self.num, MOST_RECORDS)
        _check_range("value_size", self.value_size, MOST_VALUE_BYTES)
        _check_range("key_size", self.key_size, MOST_KEY_BYTES)
        _check_range("batch_size", self.batch_size, MOST_BATCH_RECORDS)
        _check_range("threads", self.threads, MOST_THREADS)
        if self.seconds is not None and not (0 < self.seconds < math.inf):
            raise IllegalArgument(f"seconds is {self.seconds}", hint="give more than 0, or leave it out for no limit")
        if not 0 <= self.seed < 2**63:
            raise IllegalArgument(f"seed is {self.seed}", hint="give 0 to 2^63 - 1")
        parse_compression(self.compression)
        LogConfig.from_stored({"segment.bytes": str(self.segment_bytes)})
        most = min(self.segment_bytes, MOST_BATCH_BYTES)
        if self.batch_bytes > most:
            raise IllegalArgument(
                f"a batch of {self.batch_size} records may take {self.batch_bytes} bytes, at most {most} fit",
                hint="make batch_size or value_size smaller, or segment_bytes larger",
            )

    @property
    def batch_bytes(self) -> int:
        """Most bytes of a batch of `batch_size` records, uncompressed."""
        return 100 + self.batch_size * (self.key_size + self.value_size + _RECORD_BYTES)

    @property
    def record_bytes(self) -> int:
        """Bytes of a record's key and value."""
        return self.key_size + self.value_size


def _check_names(names: Sequence[str], *, only_reads: bool) -> None:
    known = [name for name in BENCHMARKS if name in READS or not only_reads]
    if not names:
        raise IllegalArgument("no benchmark is named", hint=f"there are {', '.join(known)}")
    for name in names:
        if name not in BENCHMARKS:
            meant = closest_match(name, BENCHMARKS)
            hint = f"did you mean {meant}? " if meant else ""
            raise IllegalArgument(f"there is no benchmark {name!r}", hint=f"{hint}There are {', '.join(BENCHMARKS)}")
        if name not in known:
            raise IllegalArgument(
                f"{name} writes, and a log that is there is only read", hint=f"on it there are {', '.join(known)}"
            )


def _check_range(name: str, value: int, most: int) -> None:
    if isinstance(value, bool) or not isinstance(value, int) or not 1 <= value <= most:
        raise IllegalArgument(f"{name} is {value!r}", hint=f"give a whole number from 1 to {most}")
