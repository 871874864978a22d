"""A table of many partitions."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

from kafkalog.inspect.rows import Column, Rows
from kafkalog.inspect.stats import LogStats

__all__ = ["partition_rows"]

_COLUMNS: Final = (
    Column("partition", lambda one: one.name, "name"),
    Column("records", lambda one: f"{one.about}{one.records:,}", "count"),
    Column("bytes", lambda one: one.size, "size"),
    Column("segments", lambda one: len(one.segments), "number"),
    Column("batches", lambda one: f"{one.about}{one.batches:,}", "count"),
    Column("records/s", lambda one: one.records_per_second, "rate"),
    Column("ratio", lambda one: one.ratio, "ratio"),
    Column("dirty", lambda one: None if one.dirty is None else one.dirty.ratio, "share"),
    Column("last", lambda one: _second(one.last_ms), "time"),
)


def _second(ms: int) -> int:
    return ms // 1000 * 1000 if ms >= 0 else ms


def partition_rows(every: Iterable[LogStats]) -> Rows[LogStats]:
    """Return a row for each partition; `dirty` is omitted if no topic is compacted."""
    found = list(every)
    columns = [one for one in _COLUMNS if one.name != "dirty" or any(stats.dirty is not None for stats in found)]
    return Rows(found, columns)
