"""Arrow rows for tests of the way in: what was placed read back, and columns in each layout there is."""

from collections.abc import Iterable, Sequence
from typing import Any, NamedTuple

import pyarrow as pa

from kafkalog._core.batch.decode import decode
from kafkalog._core.batch.scan import scan
from kafkalog.config.topic import LogConfig
from kafkalog.records.placer import Placed, Placer, TopicTarget

NOW = 1_700_000_000_000
HEADERS = pa.list_(pa.struct([("key", pa.string()), ("value", pa.binary())]))
LARGE_HEADERS = pa.large_list(pa.struct([("key", pa.large_string()), ("value", pa.large_binary())]))
VIEW_HEADERS = pa.list_(pa.struct([("key", pa.string_view()), ("value", pa.binary_view())]))
LAYOUTS = {
    "plain": {"bytes": pa.binary(), "text": pa.string(), "headers": HEADERS},
    "large": {"bytes": pa.large_binary(), "text": pa.large_string(), "headers": LARGE_HEADERS},
    "views": {"bytes": pa.binary_view(), "text": pa.string_view(), "headers": VIEW_HEADERS},
}
Header = tuple[str, bytes | None]


class Got(NamedTuple):
    """A record as it was read back."""

    key: bytes | None
    value: bytes | None
    timestamp: int
    headers: tuple[Header, ...]


def targets(partitions: int = 1, most: int = 1 << 20, **others: int) -> Any:
    """A resolver: every topic has so many partitions, unless `others` says otherwise."""
    return lambda name: TopicTarget(others.get(name, partitions), LogConfig(max_message_bytes=most))


def placed(data: Any, **options: Any) -> list[Placed]:
    """All that a placer makes of one piece of data, or of several."""
    options.setdefault("topics", targets())
    options.setdefault("now_ms", lambda: NOW)
    if not options.get("columns") and "topic" not in options:
        options["topic"] = "t"
    topics = options.pop("topics")
    placer = Placer(topics, **options)
    parts = [part for piece in (data if isinstance(data, list) else [data]) for part in placer.add(piece)]
    return [*parts, *placer.finish()]


def records_of(parts: Iterable[Placed]) -> dict[tuple[str, int], list[Got]]:
    """The records by partition; everything that is said about them is checked on the way."""
    found: dict[tuple[str, int], list[Got]] = {}
    for part in parts:
        rows = found.setdefault((part.topic, part.partition), [])
        table = scan(part.batches)
        assert table.stop_position == len(memoryview(part.batches))
        assert table.first_invalid < 0
        assert part.first_record == len(rows) == table[0].base_offset
        for n, header in enumerate(table):
            assert table.header_fault(n) == 0
            assert (header.producer_id, header.producer_epoch, header.base_sequence) == (-1, -1, -1)
        records = decode(part.batches, table)
        assert records.status == 0
        rows += [Got(r.key, r.value, r.timestamp, r.headers) for r in records]
        assert (part.records, part.batch_count) == (len(records), len(table))
        assert part.max_timestamp == max(records.timestamps)
        assert [r.offset for r in records] == list(range(part.first_record, len(rows)))
    return found


def only(parts: Sequence[Placed]) -> list[Got]:
    """The records where all of them are in one partition."""
    found = records_of(parts)
    assert len(found) <= 1
    return next(iter(found.values()), [])
