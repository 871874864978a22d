"""Statistics of a log as JSON values."""

from __future__ import annotations

from typing import TYPE_CHECKING

from kafkalog.inspect.width import escape_bytes

if TYPE_CHECKING:
    from kafkalog.inspect.details import KeySpread
    from kafkalog.inspect.histogram import Histogram
    from kafkalog.inspect.stats import LogStats


def as_dict(stats: LogStats) -> dict[str, object]:
    """Return the statistics as a dict; see `LogStats.as_dict`."""
    sample = stats.sample
    found: dict[str, object] = {
        "topic": stats.topic_partition.topic,
        "partition": stats.topic_partition.partition,
        "path": stats.path,
        "start_offset": stats.start_offset,
        "end_offset": stats.end_offset,
        "bytes": stats.size,
        "records": stats.records,
        "batches": stats.batches,
        "control_batches": stats.control_batches,
        "exact": sample.is_whole,
        "read_bytes": sample.read_bytes,
        "first": _time(stats.first_ms),
        "last": _time(stats.last_ms),
        "records_per_second": stats.records_per_second,
        "bytes_per_second": stats.bytes_per_second,
        "ratio": stats.ratio,
        "codecs": {one.codec: _drop_field(one._asdict(), "codec") for one in stats.codecs},
        "formats": {f"v{magic}": count for magic, count in sorted(stats.formats.items())},
        "batch_bytes": _histogram(stats.batch_sizes),
        "batch_records": _histogram(stats.batch_records),
        "segments": [
            {**one._asdict(), "first_ms": _time(one.first_ms), "last_ms": _time(one.last_ms)} for one in stats.segments
        ],
        "indexes": [{**one._asdict(), "bytes_per_entry": one.bytes_per_entry} for one in stats.indexes],
        "dirty": None if stats.dirty is None else {**stats.dirty._asdict(), "ratio": stats.dirty.ratio},
        "checked_bytes": sample.read_bytes,
        "checked_batches": stats.checked_batches,
        "damage": [one._asdict() for one in stats.damage],
        "problems": list(stats.problems),
    }
    if stats.key_sizes is not None and stats.value_sizes is not None:
        found["key_bytes"] = _histogram(stats.key_sizes)
        found["value_bytes"] = _histogram(stats.value_sizes)
        found["tombstones"] = stats.tombstones
    if stats.keys is not None:
        found["keys"] = _keys(stats.keys)
    return found


def _keys(keys: KeySpread) -> dict[str, object]:
    top = [{**one._asdict(), "key": None if one.key is None else escape_bytes(one.key, 1 << 12)} for one in keys.top]
    return {**keys._asdict(), "top": top, "curve": [list(point) for point in keys.curve]}


def _histogram(histogram: Histogram) -> dict[str, object]:
    return {**histogram.as_dict(), "steps": [one._asdict() for one in histogram.octaves()]}


def _time(ms: int) -> int | None:
    return ms if ms >= 0 else None


def _drop_field(fields: dict[str, object], name: str) -> dict[str, object]:
    return {key: value for key, value in fields.items() if key != name}
