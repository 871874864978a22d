"""Start and end of a read as given by options, and their offsets in each partition."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Final

from kafkalog.errors import IllegalArgument
from kafkalog.spark.offsets import EARLIEST_OFFSET, LATEST_OFFSET, format_offsets, parse_offsets, parse_timestamps
from kafkalog.types import TopicPartition


@dataclass(frozen=True, slots=True)
class End:
    """One end of every partition; `code` is its number in offset JSON."""

    code: int


EARLIEST: Final = End(EARLIEST_OFFSET)
LATEST: Final = End(LATEST_OFFSET)


@dataclass(frozen=True, slots=True)
class Offsets:
    """An offset for each partition; -2 and -1 are the ends."""

    of: Mapping[TopicPartition, int]


@dataclass(frozen=True, slots=True)
class Timestamps:
    """A time (ms) for each partition; without a record at or after it, the end if `or_latest`, else an error."""

    of: Mapping[TopicPartition, int]
    or_latest: bool


@dataclass(frozen=True, slots=True)
class Timestamp:
    """One time (ms) for all partitions; `or_latest` as for `Timestamps`."""

    at: int
    or_latest: bool


Limit = End | Offsets | Timestamps | Timestamp


def starting_limit(given: Mapping[str, str], default: End) -> Limit:
    """Return the start in the options (lower-case names): a time, else times, else offsets, else the default."""
    strategy = given.get("startingoffsetsbytimestampstrategy", "error").strip().lower()
    if strategy not in ("error", "latest"):
        raise IllegalArgument(
            f"startingOffsetsByTimestampStrategy is {strategy!r}", hint="give error or latest"
        )
    return _limit(given, "starting", default, strategy == "latest")


def ending_limit(given: Mapping[str, str]) -> Limit:
    """Return the end in the options, in the same order; a time after all records means the log end."""
    return _limit(given, "ending", LATEST, True)


def _limit(given: Mapping[str, str], side: str, default: End, or_latest: bool) -> Limit:
    text = given.get(f"{side}timestamp")
    if text is not None:
        return Timestamp(_time(text, f"{side}Timestamp"), or_latest)
    text = given.get(f"{side}offsetsbytimestamp")
    if text is not None:
        return Timestamps(parse_timestamps(text, f"{side}OffsetsByTimestamp"), or_latest)
    text = given.get(f"{side}offsets", "").strip()
    if not text:
        return default
    if text.lower() in ("earliest", "latest"):
        return EARLIEST if text.lower() == "earliest" else LATEST
    return Offsets(parse_offsets(text, f"{side}Offsets"))


def _time(text: str, option: str) -> int:
    try:
        time = int(text)
    except ValueError:
        time = -1
    if not 0 <= time < 2**63:
        raise IllegalArgument(f"{option} is {text!r}", hint="give milliseconds since 1970, such as 1700000000000")
    return time


def check_named(named: Iterable[TopicPartition], assigned: Iterable[TopicPartition], what: str) -> None:
    """Raise IllegalArgument unless the partitions named with offsets or times are exactly those that are read."""
    named, assigned = set(named), set(assigned)
    missing, extra = sorted(assigned - named), sorted(named - assigned)
    if missing or extra:
        both = (("missing", missing), ("unexpected", extra))
        faults = [f"{fault} {_format_list(some)}" for fault, some in both if some]
        raise IllegalArgument(
            f"{what} must name exactly the partitions that are read: {'; '.join(faults)}",
            hint="use -1 for the latest and -2 for the earliest offset where it does not matter",
        )


def _format_list(partitions: list[TopicPartition]) -> str:
    shown = ", ".join(map(str, partitions[:8]))
    return shown + (f" and {len(partitions) - 8} more" if len(partitions) > 8 else "")


def resolve(
    limit: Limit,
    partitions: Iterable[TopicPartition],
    *,
    side: str,
    earliest: Callable[[TopicPartition], int],
    latest: Callable[[TopicPartition], int],
    at_time: Callable[[TopicPartition, int], int | None],
) -> dict[TopicPartition, int]:
    """Return the offset of `limit` in each partition; `side` is "starting" or "ending".

    `at_time` returns the first offset at or after a time (ms), None without such a record. Raises IllegalArgument for
    partitions that the limit lacks or names needlessly, and if no record is at or after a starting time.
    """
    partitions = list(partitions)
    if isinstance(limit, Offsets):
        check_named(limit.of, partitions, f"{side}Offsets")
        wanted = {one: limit.of[one] for one in partitions}
    elif isinstance(limit, End):
        wanted = dict.fromkeys(partitions, limit.code)
    else:
        if isinstance(limit, Timestamps):
            check_named(limit.of, partitions, f"{side}OffsetsByTimestamp")
        wanted = {one: _offset_at(limit, one, side, at_time) for one in partitions}
    ends = {EARLIEST_OFFSET: earliest, LATEST_OFFSET: latest}
    return {one: ends[offset](one) if offset in ends else offset for one, offset in wanted.items()}


def _offset_at(
    limit: Timestamp | Timestamps,
    partition: TopicPartition,
    side: str,
    at_time: Callable[[TopicPartition, int], int | None],
) -> int:
    time = limit.at if isinstance(limit, Timestamp) else limit.of[partition]
    found = at_time(partition, time)
    if found is not None:
        return found
    if not limit.or_latest:
        raise IllegalArgument(
            f"{partition} has no record at or after the {side} time {time}",
            hint="set startingOffsetsByTimestampStrategy to latest to begin at the end of such a partition",
        )
    return LATEST_OFFSET


def check_order(starts: Mapping[TopicPartition, int], stops: Mapping[TopicPartition, int]) -> None:
    """Raise IllegalArgument if a partition's start is after its end."""
    wrong = {one: starts[one] for one in starts if starts[one] > stops[one]}
    if wrong:
        one = min(wrong)
        raise IllegalArgument(
            f"the starting offset {starts[one]} of {one} is after its ending offset {stops[one]}",
            hint=f"start at or before the end; the ends are {format_offsets({one: stops[one] for one in wrong})}",
        )
