"""Statistics of one log, as `log.stats()` returns them: values, tables and JSON. `survey` collects them."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from kafkalog.inspect.damage import DamagedPlace
from kafkalog.inspect.details import KeySpread
from kafkalog.inspect.histogram import Histogram, Step
from kafkalog.inspect.parts import IndexSummary
from kafkalog.inspect.rows import Column, Rows
from kafkalog.inspect.sample import Sample
from kafkalog.inspect.tally import Span
from kafkalog.inspect.values import duration, moment, rate
from kafkalog.types import TopicPartition
from kafkalog.util.text import human_size, plural

if TYPE_CHECKING:
    from kafkalog.inspect.details import KeyCount


class SegmentStats(NamedTuple):
    """A segment. Counts are estimates if `read_bytes` is below `size`, None if nothing of it was read.

    Times are ms, from the first record of the batches that were read to the largest; -1 for none.
    """

    base_offset: int
    end_offset: int
    size: int
    read_bytes: int
    records: int | None
    batches: int | None
    first_ms: int
    last_ms: int


class CodecStats(NamedTuple):
    """A codec's batches. `ratio` is bytes of records for each byte on disk.

    It is measured on the batches that were decompressed for it; None if there were none.
    """

    codec: str
    batches: int
    records: int
    bytes: int
    ratio: float | None


class Dirty(NamedTuple):
    """Uncleaned part of a compacted log: bytes before and after the first dirty offset.

    The active segment is excluded, since it is never cleaned.
    """

    first_dirty_offset: int
    clean_bytes: int
    dirty_bytes: int

    @property
    def ratio(self) -> float:
        """Dirty share, 0 to 1: above `min.cleanable.dirty.ratio` the log is cleaned."""
        total = self.clean_bytes + self.dirty_bytes
        return self.dirty_bytes / total if total else 0.0


SEGMENT_COLUMNS: Final = (
    Column("base offset", lambda one: one.base_offset, "number"),
    Column("end offset", lambda one: one.end_offset, "number"),
    Column("size", lambda one: one.size, "size"),
    Column("records", lambda one: one.records, "number"),
    Column("batches", lambda one: one.batches, "number"),
    Column("first", lambda one: one.first_ms, "time"),
    Column("span", lambda one: one.last_ms - one.first_ms if one.first_ms >= 0 else None, "duration"),
)
CODEC_COLUMNS: Final = (
    Column("codec", lambda one: one.codec),
    Column("batches", lambda one: one.batches, "number"),
    Column("records", lambda one: one.records, "number"),
    Column("bytes", lambda one: one.bytes, "size"),
    Column("ratio", lambda one: one.ratio, "ratio"),
)
PARTITION_COLUMNS: Final = (
    Column("partition", lambda one: one.name, "name"),
    Column("records", lambda one: f"{one.about}{one.records:,}", "count"),
    Column("bytes", lambda one: one.size, "size"),
    Column("segments", lambda one: len(one.segments), "number"),
    Column("batches", lambda one: f"{one.about}{one.batches:,}", "count"),
    Column("records/s", lambda one: one.records_per_second, "rate"),
    Column("ratio", lambda one: one.ratio, "ratio"),
    Column("dirty", lambda one: None if one.dirty is None else one.dirty.ratio, "share"),
    Column("last", lambda one: one.last_ms // 1000 * 1000 if one.last_ms >= 0 else None, "time"),
)
_FACT_COLUMNS: Final = (Column("what", lambda row: row[0]), Column("value", lambda row: row[1]))


@dataclass(frozen=True, repr=False)
class LogStats:
    """Statistics of a log.

    `records`, `batches` and the counts by codec are exact if `sample.is_whole`, else estimates from the part that
    was read; offsets, bytes and segments are always exact. All batches of the segments count, also those of the
    first one that lie below the log start. Transaction markers count only as `control_batches`. Times are ms, -1
    for none. `spans` are records and bytes by time. `indexes` has a row for each segment. `key_sizes`,
    `value_sizes` and `keys` are None unless requested. `dirty` is None unless the topic is known to be compacted.
    The checksums of all batches read, `checked_batches`, were compared; `damage` holds the damaged places.
    `problems` describes these and other errors in words; unreadable data is not counted.
    """

    topic_partition: TopicPartition
    path: str
    start_offset: int
    end_offset: int
    size: int
    sample: Sample
    records: int
    batches: int
    control_batches: int
    first_ms: int
    last_ms: int
    segments: tuple[SegmentStats, ...]
    indexes: tuple[IndexSummary, ...]
    codecs: tuple[CodecStats, ...]
    formats: dict[int, int]
    batch_sizes: Histogram
    batch_records: Histogram
    spans: tuple[Span, ...] = field(repr=False)
    key_sizes: Histogram | None = None
    value_sizes: Histogram | None = None
    tombstones: int = 0
    keys: KeySpread | None = None
    dirty: Dirty | None = None
    problems: tuple[str, ...] = ()
    damage: tuple[DamagedPlace, ...] = ()
    checked_batches: int = 0

    @property
    def name(self) -> str:
        """Partition name, `<topic>-<partition>`."""
        return str(self.topic_partition)

    @property
    def span_ms(self) -> int:
        """Time between the first and the last record (ms); 0 without timestamps."""
        return self.last_ms - self.first_ms if self.first_ms >= 0 else 0

    @property
    def records_per_second(self) -> float | None:
        """Records a second between the first and the last record; None if that time is 0."""
        return self.records * 1000 / self.span_ms if self.span_ms else None

    @property
    def bytes_per_second(self) -> float | None:
        """Bytes on disk a second between the first and the last record; None if that time is 0."""
        return self.size * 1000 / self.span_ms if self.span_ms else None

    @property
    def ratio(self) -> float | None:
        """Bytes of records for each byte on disk, over all codecs; None if the ratio of one is unknown."""
        packed = sum(one.bytes for one in self.codecs)
        if not packed or any(one.ratio is None for one in self.codecs):
            return None
        return sum(one.bytes * (one.ratio or 0.0) for one in self.codecs) / packed

    @property
    def about(self) -> str:
        """Prefix of estimated counts: `~`, or "" if counts are exact."""
        return "" if self.sample.is_whole else "~"

    def sampled(self) -> str:
        """Describe the sample in words; return "" if everything was read."""
        one = self.sample
        if one.is_whole:
            return ""
        return (
            f"sampled: {human_size(one.read_bytes)} of {human_size(one.total_bytes)} ({one.share:.2%}) in "
            f"{plural(one.places, 'place')}; counts with ~ are estimates"
        )

    def checked(self) -> str:
        """Describe in words how much was compared with its checksums, and the result."""
        return checked([self])

    # Tables

    @property
    def facts(self) -> Rows[tuple[str, str]]:
        """Statistics of the log as a whole."""
        notes = [self.sampled()] if self.sampled() else []
        notes += [f"problem: {problem}" for problem in self.problems]
        return Rows(list(self._facts()), _FACT_COLUMNS, title=self.name, notes=notes)

    def _facts(self) -> Iterator[tuple[str, str]]:
        about = self.about
        yield "offsets", f"[{self.start_offset:,}, {self.end_offset:,})"
        yield "records", f"{about}{self.records:,}"
        yield "size", f"{human_size(self.size)} in {plural(len(self.segments), 'segment')}"
        if self.first_ms >= 0:
            yield "time", f"{moment(self.first_ms)} to {moment(self.last_ms)} ({duration(self.span_ms)})"
        if self.span_ms:
            size = human_size(int(self.bytes_per_second or 0))
            yield "rate", f"{about}{rate(self.records_per_second)} records a second, {size} a second"
        yield "batches", self._batches()
        yield "compression", ", ".join(self._codec(one) for one in self.codecs) or "-"
        if set(self.formats) - {2}:
            yield "formats", ", ".join(f"v{magic}: {count:,}" for magic, count in sorted(self.formats.items()))
        entries = sum(one.offset_entries for one in self.indexes)
        if entries:
            apart = human_size(sum(one.size for one in self.indexes) // entries)
            yield "indexes", f"one entry every {apart}, {entries:,} in the offset indexes"
        if self.dirty is not None:
            yield "dirty", f"{self.dirty.ratio:.1%}: {human_size(self.dirty.dirty_bytes)} from offset " + (
                f"{self.dirty.first_dirty_offset:,} on"
            )
        if self.keys is not None:
            yield "keys", self._keys(self.keys)
        yield "checksums", self.checked()

    def _batches(self) -> str:
        text = f"{self.about}{self.batches:,}"
        if self.batch_sizes.mean is not None:
            text += f" of {human_size(round(self.batch_sizes.mean))} on average"
        if self.batch_records.mean is not None:
            text += f", {rate(self.batch_records.mean)} records"
        return text + (f"; {self.about}{plural(self.control_batches, 'marker')}" if self.control_batches else "")

    @staticmethod
    def _codec(one: CodecStats) -> str:
        return one.codec if one.ratio is None or one.codec == "none" else f"{one.codec} {one.ratio:.2f} : 1"

    @staticmethod
    def _keys(keys: KeySpread) -> str:
        least = "" if keys.is_whole else "at least "
        text = f"{least}{keys.distinct:,} different"
        if keys.top and keys.distinct:
            text += f"; the most frequent has {keys.share_of_top(1):.1%} of the records"
        return text + (f"; {keys.null_records:,} records without a key" if keys.null_records else "")

    @property
    def segment_rows(self) -> Rows[SegmentStats]:
        """Table of the segments."""
        return Rows(self.segments, SEGMENT_COLUMNS, title=f"{self.name}: segments")

    @property
    def codec_rows(self) -> Rows[CodecStats]:
        """Table of the codecs and their compression ratios."""
        return Rows(self.codecs, CODEC_COLUMNS, title=f"{self.name}: compression")

    @property
    def batch_rows(self) -> Rows[Step]:
        """Table of the batches by size, in powers of two."""
        return step_rows(self.batch_sizes, f"{self.name}: batches by size", "batches", self._part())

    @property
    def size_rows(self) -> list[Rows[Step]]:
        """Tables of the records by size of keys and of values; empty unless requested."""
        named = (("keys", self.key_sizes), ("values", self.value_sizes))
        shown = [(f"{self.name}: {what} by size", one) for what, one in named if one is not None]
        return [step_rows(one, title, "records", self._part()) for title, one in shown]

    def _part(self) -> str:
        return "" if self.sample.is_whole else "of the part of the log that was read; "

    @property
    def key_rows(self) -> Rows[KeyCount]:
        """Table of the keys with most records; empty unless requested."""
        keys = self.keys
        if keys is None:
            return Rows((), (), title=f"{self.name}: keys")
        total = max(keys.records, 1)
        columns = (
            Column("key", lambda one: one.key, "key"),
            Column("records", lambda one: one.records, "number"),
            Column("share", lambda one: one.records / total, "share"),
            Column("part", lambda one: one.records / total, "bar"),
            Column("bytes", lambda one: one.bytes, "size"),
        )
        notes = [f"{plural(keys.records, 'record')} decoded; {self._keys(keys)}"]
        return Rows(keys.top, columns, title=f"{self.name}: keys", notes=notes)

    def tables(self) -> list[Rows[object]]:
        """Return all tables that are not empty."""
        found: list[Rows[object]] = [self.facts, self.segment_rows, self.codec_rows, self.batch_rows, *self.size_rows]
        return [one for one in (*found, self.key_rows) if len(one)]

    def as_dict(self) -> dict[str, Any]:
        """Return everything for JSON: counts, bytes, ms, and None for unknown values; keys are escaped text."""
        from kafkalog.inspect.stats_json import as_dict

        return as_dict(self)

    def __repr__(self) -> str:
        """Return the statistics and the segments as tables."""
        return "\n\n".join(one.text(most=20) for one in (self.facts, self.segment_rows) if len(one))

    def _repr_html_(self) -> str:
        from kafkalog.inspect.html import fragment

        return fragment(self.tables(), most=100)


def partition_rows(logs: Sequence[LogStats]) -> Rows[LogStats]:
    """Return a row for each partition; `dirty` is omitted if no topic is compacted."""
    has_dirty = any(one.dirty is not None for one in logs)
    return Rows(logs, [one for one in PARTITION_COLUMNS if has_dirty or one.name != "dirty"])


def checked(logs: Sequence[LogStats]) -> str:
    """Describe in words how much of `logs` was compared with its checksums, and the result."""
    read, total = sum(one.sample.read_bytes for one in logs), sum(one.size for one in logs)
    damage = sum(len(one.damage) for one in logs)
    found = plural(damage, "damaged place") if damage else "no damage found"
    part = "" if all(one.sample.is_whole for one in logs) else " as a sample"
    batches = plural(sum(one.checked_batches for one in logs), "batch")
    return f"{batches} checked{part}, {human_size(read)} of {human_size(total)}: {found}"


def step_rows(histogram: Histogram, title: str, what: str, part: str = "") -> Rows[Step]:
    """Return a histogram as a table: a row for each power of two, with quantiles below; `part` begins the note."""
    steps = histogram.octaves()
    most = max((one.number for one in steps), default=1)
    columns = (
        Column("from", lambda one: one.low, "size"),
        Column("below", lambda one: one.high, "size"),
        Column(what, lambda one: one.number, "number"),
        Column("share", lambda one: one.number / max(histogram.count, 1), "share"),
        Column("part", lambda one: one.number / most, "bar"),
    )
    notes = []
    if histogram.mean is not None:
        half, most_of, nearly_all = (human_size(round(histogram.quantile(share) or 0)) for share in (0.5, 0.9, 0.99))
        notes = [
            f"{part}mean {human_size(round(histogram.mean))}; half are up to about {half}, 90% up to {most_of}, "
            f"99% up to {nearly_all}; the largest has {human_size(histogram.largest)}"
        ]
    return Rows(steps, columns, title=title, notes=notes)
