"""Append Arrow data to one log: rows become batches as they are read, a few megabytes at a time."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Final

from kafkalog._core.log.values import LogAppendInfo, make_append_info
from kafkalog.errors import IllegalArgument, KafkalogError
from kafkalog.records.placer import Placer, TopicTarget
from kafkalog.util.keywords import closest_match

if TYPE_CHECKING:
    from kafkalog.log.writable import WritableLog
    from kafkalog.records.packing import Compression

PARTS: Final = ("value", "key", "headers", "timestamp")
"""Parts of a record that a column may hold; topic and partition are those of the log."""
_NOTHING: Final = LogAppendInfo(-1, -1)


def append_arrow(
    opened: WritableLog, data: object, columns: Mapping[str, str | None] | None, requested: Compression | None,
    batch_bytes: int,
) -> LogAppendInfo:  # fmt: skip
    """Append `data` to an open log as `Log.append_arrow` does, without its sync."""
    names = _names(columns)
    target = TopicTarget.of(opened.log.config, 1, requested)
    placer = Placer(
        lambda topic: target, topic=opened.topic_partition.topic, columns=names, batch_bytes=batch_bytes,
        now_ms=opened.milliseconds,
    )  # fmt: skip
    info = _NOTHING
    try:
        for source in (placer.add(data), placer.finish()):
            for part in source:
                info = _combine(info, opened.append_batches(part.batches, check_records=False))
    except KafkalogError as error:
        if info.last_offset >= 0 and error.offset is None:
            error.offset = info.last_offset + 1
        error.path = error.path or opened.path
        raise
    return info


def _names(columns: Mapping[str, str | None] | None) -> dict[str, str | None]:
    """Return the column name of each part; raise IllegalArgument for an unknown part."""
    for part in columns or ():
        if part not in PARTS:
            nearest = closest_match(str(part), PARTS)
            hint = f"did you mean {nearest}?" if nearest else f"the parts are {', '.join(PARTS)}"
            raise IllegalArgument(f"{part!r} is not a part of a record", hint=hint)
    return {**(columns or {}), "topic": None, "partition": None}


def _combine(first: LogAppendInfo, second: LogAppendInfo) -> LogAppendInfo:
    """Return the info of two appends, one after the other, as one."""
    if first.first_offset < 0:
        return second
    newest = second if second.max_timestamp > first.max_timestamp else first
    return make_append_info(
        first.first_offset, second.last_offset, second.last_leader_epoch, newest.max_timestamp,
        newest.offset_of_max_timestamp, second.log_append_time, second.log_start_offset,
        first.source_compression, first.target_compression, first.shallow_count + second.shallow_count,
        first.valid_bytes + second.valid_bytes, True,
    )  # fmt: skip
