"""Small topics for the tests of Spark: made in a data directory, damaged, and read back as rows without a JVM."""

from pathlib import Path
from typing import Any

import kafkalog
from kafkalog.spark.batch_plan import plan_batch
from kafkalog.spark.options import SourceOptions
from kafkalog.spark.reading import arrow_batches

TIME = 1_700_000_000_000


def make_topic(
    data: Path, topic: str = "orders", partitions: int = 1, batches: int = 4, records: int = 25, **settings: Any
) -> Path:
    """Write a topic of so many batches; a record's value is its offset, its time TIME plus its offset."""
    for partition in range(partitions):
        with kafkalog.open(data / f"{topic}-{partition}", "a", **settings) as log:
            for first in range(0, batches * records, records):
                log.append([(b"k%d" % n, b"v%d" % n, TIME + n) for n in range(first, first + records)])
    return data


def first_segment(data: Path, topic: str = "orders", partition: int = 0) -> Path:
    """The first segment's data file."""
    return min((data / f"{topic}-{partition}").glob("*.log"))


def batch_positions(segment: Path) -> list[tuple[int, int]]:
    """(position, size) of each batch of a segment file, in order."""
    data, at, found = segment.read_bytes(), 0, []
    while at < len(data):
        size = int.from_bytes(data[at + 8 : at + 12], "big") + 12
        found.append((at, size))
        at += size
    return found


def flip(path: Path, position: int, bits: int = 0xFF) -> None:
    """Changes the byte at a position."""
    data = bytearray(path.read_bytes())
    data[position] ^= bits
    path.write_bytes(data)


def source_options(*paths: Path | str, **options: Any) -> SourceOptions:
    """The options of a batch read of these paths; `subscribe` is orders unless something else is subscribed to."""
    given = {"path": str(paths[0])} if len(paths) == 1 else {"paths": "[" + ", ".join(f'"{p}"' for p in paths) + "]"}
    if not {"subscribe", "subscribePattern", "assign"} & set(options):
        given["subscribe"] = "orders"
    given |= {name: str(value) for name, value in options.items()}
    return SourceOptions.parse(given, streaming=False)


def rows_of(options: SourceOptions) -> list[dict[str, Any]]:
    """All rows of a batch read, in the order of its ranges."""
    return [
        row
        for one in plan_batch(options)
        for batch in arrow_batches(one, options.columns, options)
        for row in batch.to_pylist()
    ]


def offsets_of(options: SourceOptions) -> list[int]:
    """The offsets of all rows."""
    return [row["offset"] for row in rows_of(options)]
