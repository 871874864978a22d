"""Charts of one log, or of all partitions of a topic together, as HTML."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Final

from kafkalog.inspect import svg
from kafkalog.inspect.details import KeyCount
from kafkalog.inspect.histogram import Histogram
from kafkalog.inspect.series import Series, average_runs, axis_end, rates
from kafkalog.inspect.stats import LogStats
from kafkalog.inspect.values import moment, rate, text_of
from kafkalog.inspect.width import cut, escape_bytes
from kafkalog.util.text import human_size, plural

if TYPE_CHECKING:
    from kafkalog.inspect.counts import PathCounts

_MAX_COLUMNS: Final = 120
_MAX_BARS: Final = 10
_KEY_COLUMNS: Final = 24
_DAYS_MS: Final = 10 * 86_400_000


def pictures(logs: Sequence[LogStats]) -> str:
    """Return all charts that have data, for the partitions of a topic."""
    parts = [*rate_pictures(logs), *_segments(logs), *_batches(logs), *_codecs(logs), *_keys(logs), *_dirty(logs)]
    return "".join([*parts, *_indexes(logs)])


def rate_pictures(logs: Sequence[LogStats]) -> Iterator[str]:
    """Yield charts of records and bytes a second over time."""
    series = rates(span for one in logs for span in one.spans)
    if series is None:
        return
    axis = _axis(series.start_ms, series.end_ms)
    times = [_time_text(round(series.start_ms + series.step_ms * at)) for at in range(len(series.records) + 1)]
    left_out = f"; {series.outside:.2%} of the records are outside" if series.outside else ""
    yield svg.figure(
        "Records a second", f"peak {rate(max(series.records))}{left_out}",
        _rate(series, times, axis, is_bytes=False), wide=True,
    )  # fmt: skip
    yield svg.figure(
        "Bytes a second", f"peak {human_size(round(max(series.bytes)))}",
        _rate(series, times, axis, is_bytes=True), wide=True,
    )  # fmt: skip


def _rate(series: Series, times: Sequence[str], axis: Sequence[str], *, is_bytes: bool) -> str:
    values = series.bytes if is_bytes else series.records
    labels = [human_size(round(value)) if is_bytes else rate(value) for value in values]
    titles = [f"{times[at]} to {times[at + 1]}: {text} a second" for at, text in enumerate(labels)]
    end = axis_end(max(values), binary=is_bytes)
    ends = [human_size(round(one)) if is_bytes else rate(one) for one in (end, end / 2, 0)]
    what = "bytes" if is_bytes else "records"
    return svg.area(values, titles, end, ends, axis, f"{what} a second over time", kind="b" if is_bytes else "a")


def _axis(start_ms: int, end_ms: int) -> tuple[str, str, str]:
    """Return labels for both ends and the middle of a time axis; a common day appears once."""
    first, middle, last = (_time_text(one) for one in (start_ms, (start_ms + end_ms) // 2, end_ms))
    if first[:10] == last[:10]:
        return first, middle[11:], last[11:]
    return (first, middle, last) if end_ms - start_ms < _DAYS_MS else (first[:10], middle[:10], last[:10])


def _time_text(ms: int) -> str:
    return moment(ms // 1000 * 1000).replace("T", " ").removesuffix("Z")


def _segments(logs: Sequence[LogStats]) -> Iterator[str]:
    """Yield a chart of the segment sizes, oldest first, partition after partition."""
    every = [(log.topic_partition.partition, one) for log in logs for one in log.segments]
    if not any(one.size for _, one in every):
        return
    bars = [(number, one.base_offset, one.size) for number, one in every]
    inner = _by_segment(bars, ", on average", "", "sizes of segments", kind="a")
    yield svg.figure("Size by segment", f"{plural(len(every), 'segment')}; partition: base offset", inner)


def _by_segment(bars: Sequence[tuple[int, int, float]], each: str, unit: str, label: str, *, kind: str) -> str:
    """Return columns of bytes for (partition, base offset, bytes) of segments; neighbours share a column if many."""
    runs = average_runs([size for _, _, size in bars], _MAX_COLUMNS)
    titles = []
    for first, last, mean in runs:
        number, base_offset, _ = bars[first]
        many = f" and {plural(last - first, 'more segment')}{each}" if last > first else ""
        titles.append(f"partition {number}, segment {base_offset:,}{many}: {unit}{human_size(round(mean))}")
    end = axis_end(max(mean for _, _, mean in runs), binary=True)
    ends = [human_size(round(one)) for one in (end, end / 2, 0)]
    axis = [f"{number}: {base_offset:,}" for number, base_offset, _ in (bars[0], bars[-1])]
    return svg.columns([mean for _, _, mean in runs], titles, end, ends, axis, label, kind=kind)


def _batches(logs: Sequence[LogStats]) -> Iterator[str]:
    merged = Histogram.merged(one.batch_sizes for one in logs)
    steps = merged.octaves()
    if not steps or merged.mean is None:
        return
    most = max(one.number for one in steps)
    titles = [f"{human_size(one.low)} to {human_size(one.high)}: {plural(one.number, 'batch')}" for one in steps]
    end = axis_end(most)
    ends = [f"{one:,.0f}" for one in (end, end / 2, 0)]
    middle = () if len(steps) % 2 else (human_size(steps[len(steps) // 2].low),)
    axis = (human_size(steps[0].low), *middle, human_size(steps[-1].high))
    note = f"mean {human_size(round(merged.mean))}, 99% up to {human_size(round(merged.quantile(0.99) or 0))}"
    inner = svg.columns([one.number for one in steps], titles, end, ends, axis, "batches by size")
    yield svg.figure("Batches by size", note, inner)


def _codecs(logs: Sequence[LogStats]) -> Iterator[str]:
    found: dict[str, list[float]] = {}
    for log in logs:
        for one in log.codecs:
            sums = found.setdefault(one.codec, [0, 0.0, 0])
            sums[0] += one.bytes
            if one.ratio is not None:
                sums[1] += one.ratio * one.bytes
                sums[2] += one.bytes
    if not found:
        return
    ratios = {codec: plain / known if known else None for codec, (_, plain, known) in found.items()}
    most = max([1.0, *(one for one in ratios.values() if one is not None)])
    rows = [
        (codec, (ratio or 0.0) / most,
         ("unknown" if ratio is None else f"{ratio:.2f} : 1") + f", {human_size(round(found[codec][0]))}")
        for codec, ratio in ratios.items()
    ]  # fmt: skip
    yield svg.figure("Compression ratio", "bytes of records for each byte on disk", svg.bars(rows, kind="b"))


def _keys(logs: Sequence[LogStats]) -> Iterator[str]:
    keyed = [log for log in logs if log.keys is not None and log.keys.distinct]
    if not keyed:
        return
    records = sum(log.keys.records for log in logs if log.keys is not None)
    found: dict[bytes | None, KeyCount] = {}
    for log in keyed:
        for one in log.keys.top if log.keys is not None else ():
            known = found.get(one.key, KeyCount(one.key, 0, 0))
            found[one.key] = KeyCount(one.key, known.records + one.records, known.bytes + one.bytes)
    top = sorted(found.values(), key=lambda one: -one.records)[:_MAX_BARS]
    rows = [
        (cut(escape_bytes(one.key), _KEY_COLUMNS), one.records / top[0].records,
         f"{one.records / records:.1%}, {one.records:,}")
        for one in top
    ]  # fmt: skip
    distinct = sum(log.keys.distinct for log in keyed if log.keys is not None)
    is_whole = all(log.keys.is_whole for log in keyed if log.keys is not None)
    least = "" if is_whole else "at least "
    where = ", those of each partition" if len(keyed) > 1 else ""
    what = f"{least}{plural(distinct, 'key')}{where}, in {plural(records, 'decoded record')}"
    yield svg.figure("Most frequent keys", what, svg.bars(rows, is_key=True))
    largest = max(keyed, key=lambda log: log.keys.distinct if log.keys is not None else 0)
    if largest.keys is not None and len(largest.keys.curve) > 2:
        axis = ("no key", "share of keys, most frequent first", "all keys")
        inner = svg.curve(largest.keys.curve, axis, "share of records by share of keys")
        yield svg.figure("Key skew", f"share of the records of {largest.name} that its keys have", inner)


def count_picture(counts: PathCounts) -> str:
    """Return a chart of the records of a topic by the value of a path; what is beside it is in its note."""
    cells = counts.cells()
    most = max((records for _, records, _ in cells), default=1)
    total = max(counts.records + counts.undecodable.records, 1)
    rows = [
        (cut(text_of(value, "key"), _KEY_COLUMNS), records / max(most, 1),
         f"{records / total:.1%}, {records:,}, {human_size(size)}")
        for value, records, size in cells
    ]  # fmt: skip
    return svg.figure(counts.topic, "; ".join(counts.notes), svg.bars(rows, is_key=True))


def _dirty(logs: Sequence[LogStats]) -> Iterator[str]:
    known = [log for log in logs if log.dirty is not None]
    if not known:
        return
    known.sort(key=lambda log: -log.dirty.ratio if log.dirty is not None else 0)
    rows = [
        (log.name, log.dirty.ratio, f"{log.dirty.ratio:.1%}, {human_size(log.dirty.dirty_bytes)}")
        for log in known[:_MAX_BARS] if log.dirty is not None
    ]  # fmt: skip
    left = len(known) - len(rows)
    note = "of what could be cleaned" + (f"; {plural(left, 'cleaner partition')} not shown" if left else "")
    yield svg.figure("Dirty ratio", note, svg.bars(rows, kind="c"))


def _indexes(logs: Sequence[LogStats]) -> Iterator[str]:
    """Yield a chart of the distances between entries of the offset indexes, segment by segment."""
    every = [(log.topic_partition.partition, one) for log in logs for one in log.indexes if one.bytes_per_entry]
    if not every:
        return
    bars = [(number, one.base_offset, one.bytes_per_entry or 0.0) for number, one in every]
    inner = _by_segment(bars, "", "one entry every ", "index density", kind="b")
    entries = sum(one.offset_entries for _, one in every)
    yield svg.figure("Index density", f"bytes from one entry to the next; {entries:,} entries", inner)
