"""Survey of batch headers in a segment: batches, records, bytes and codecs by hour, without decoding records."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Final, NamedTuple, TypeVar

from kafkalog._core.batch.scan import BatchTable
from kafkalog.errors import CorruptRecord, KafkalogError, StorageError
from kafkalog.records.compression import decompress
from kafkalog.records.format import BATCH_OVERHEAD_BYTES, CODEC_MASK, CONTROL_BIT, codec_name
from kafkalog.storage.file_slice import FileSlice
from kafkalog.storage.trailing_zeros import only_zeros
from kafkalog.types import TopicPartition
from kafkalog.util.fileio import OS, FileSystem

HOUR_MS: Final = 3_600_000
MAX_MS: Final = 253_402_300_799_999
"""Last millisecond with a calendar date; a larger timestamp counts as none."""
NO_HOUR: Final = -1
"""Hour of batches without timestamps."""
Key = TypeVar("Key")


class Group(NamedTuple):
    """Key of the counts. The hour (ms since 1970) is that of a batch's largest timestamp; NO_HOUR without one."""

    topic: str
    partition: int
    hour_ms: int
    codec: str


@dataclass
class Counts:
    """Sums over batches. `bytes` are those on disk with all headers.

    `packed_bytes` and `plain_bytes` are the compressed and decompressed bytes of records in sampled batches: one batch
    of each chunk of about a megabyte, or every batch if requested. `first_ms` and `last_ms` are the smallest and the
    largest of the batches' largest timestamps; -1 without any.
    """

    batches: int = 0
    records: int = 0
    bytes: int = 0
    packed_bytes: int = 0
    plain_bytes: int = 0
    first_ms: int = -1
    last_ms: int = -1

    def add(self, other: Counts) -> None:
        """Add the sums of other batches."""
        for name in ("batches", "records", "bytes", "packed_bytes", "plain_bytes"):
            setattr(self, name, getattr(self, name) + getattr(other, name))
        known = [one for one in (self.first_ms, other.first_ms) if one >= 0]
        self.first_ms = min(known, default=-1)
        self.last_ms = max(self.last_ms, other.last_ms)

    @property
    def ratio(self) -> float | None:
        """Bytes of records for each byte on disk, by the decompressed batches; None without any."""
        return self.plain_bytes / self.packed_bytes if self.packed_bytes else None

    @property
    def records_a_second(self) -> float | None:
        """Records a second between the first and the last batch; None if that time is 0."""
        span_ms = self.last_ms - self.first_ms
        return self.records * 1000 / span_ms if self.first_ms >= 0 and span_ms > 0 else None

    @property
    def bytes_a_second(self) -> float | None:
        """Bytes on disk a second between the first and the last batch; None if that time is 0."""
        span_ms = self.last_ms - self.first_ms
        return self.bytes * 1000 / span_ms if self.first_ms >= 0 and span_ms > 0 else None



class Survey(NamedTuple):
    """Result for a segment: its rows, and the text of the error that ended the survey early, or None."""

    rows: dict[Group, Counts]
    problem: str | None


def survey_segment(
    path: str, partition: TopicPartition, *, exact: bool = False, is_last: bool = True, fs: FileSystem = OS
) -> Survey:
    """Survey a `.log` file; each byte is read once, and checksums are not compared (`verify` does that).

    `exact` decompresses every compressed batch, not one of each chunk. Transaction markers count only as bytes. A
    partial batch at the end of the last segment is ignored; other damage ends the survey of this segment. The file's
    content never raises an error.
    """
    rows: dict[Group, Counts] = {}
    problem = None
    try:
        with fs.open_file(path, "r") as file:
            for data, table in FileSlice(file, 0, file.size()).scanned(whole=not is_last):
                _add_table(rows, partition, data, table, exact)
    except FileNotFoundError:
        return Survey({}, None)  # deleted by retention in the meantime
    except CorruptRecord as error:
        if not _is_reserved(path, error.position, fs):
            problem = str(error)
    except KafkalogError as error:
        problem = str(error)
    except OSError as error:
        problem = str(StorageError.from_os(error, "read", path=path))
    return Survey(rows, problem)


def _is_reserved(path: str, position: int | None, fs: FileSystem) -> bool:
    """Return True if only zeros follow: space that a broker preallocated."""
    if position is None:
        return False
    try:
        with fs.open_file(path, "r") as file:
            return only_zeros(file, position, file.size())
    except OSError:
        return False


def _add_table(
    rows: dict[Group, Counts], partition: TopicPartition, data: bytes, table: BatchTable, exact: bool
) -> None:
    """Add the batches of a chunk, grouped by hour and codec."""
    from kafkalog.records.arrays import numpy

    count = len(table)
    largest = numpy.asarray(table.max_timestamps)
    hours = numpy.where((largest >= 0) & (largest <= MAX_MS), largest // HOUR_MS, NO_HOUR)
    kinds = numpy.fromiter((table.attributes(i) & (CODEC_MASK | CONTROL_BIT) for i in range(count)), numpy.int64, count)
    sizes = numpy.asarray(table.sizes)
    records = numpy.where(kinds & CONTROL_BIT, 0, numpy.maximum(numpy.asarray(table.counts), 0))
    keys, index = numpy.unique(hours * 64 + kinds, return_inverse=True)
    for n, key in enumerate(keys.tolist()):
        chosen = index == n
        hour, kind = divmod(key, 64)
        times = largest[chosen]
        known = times[(times >= 0) & (times <= MAX_MS)]
        is_data = not kind & CONTROL_BIT
        counts = Counts(
            int(chosen.sum()) if is_data else 0, int(records[chosen].sum()), int(sizes[chosen].sum()), 0, 0,
            int(known.min()) if len(known) and is_data else -1, int(known.max()) if len(known) and is_data else -1,
        )  # fmt: skip
        if kind & CODEC_MASK and is_data:
            some = numpy.flatnonzero(chosen) if exact else numpy.flatnonzero(chosen)[:1]
            _sample(counts, data, table, some.tolist())
        when = hour * HOUR_MS if hour >= 0 else NO_HOUR
        group = Group(partition.topic, partition.partition, when, codec_name(kind & CODEC_MASK))
        rows.setdefault(group, Counts()).add(counts)


def _sample(counts: Counts, data: bytes, table: BatchTable, rows: Sequence[int]) -> None:
    """Add the packed and decompressed sizes of some compressed v2 batches; older formats and damage are ignored."""
    start = table.position(0)
    for i in rows:
        if table.magic(i) < 2:
            continue
        at = table.position(i) - start
        packed = memoryview(data)[at + BATCH_OVERHEAD_BYTES : at + table.size(i)]
        try:
            plain = len(decompress(table.attributes(i) & CODEC_MASK, packed))
        except KafkalogError:
            continue
        counts.packed_bytes += len(packed)
        counts.plain_bytes += plain


def merged(surveys: Iterable[dict[Group, Counts]]) -> dict[Group, Counts]:
    """Return the sums of several surveys by group, in order of topic, partition, hour and codec."""
    return dict(sorted(sums(item for rows in surveys for item in rows.items()).items()))


def sums(items: Iterable[tuple[Key, Counts]]) -> dict[Key, Counts]:
    """Return the sums of the counts by key."""
    found: dict[Key, Counts] = {}
    for key, counts in items:
        found.setdefault(key, Counts()).add(counts)
    return found
