"""Imports a file of JSON lines of any size into a topic, and goes on where it was interrupted.

    python import_json_lines.py events.jsonl data/events-0 --key user --time at --compression zstd

Each line becomes a record as it is; `--key` names the field whose text is the record's key, `--time` the one with its
time (ISO-8601, or milliseconds since 1970). Empty lines are left out. A line that is no JSON object, or lacks a field
that is asked for, ends the import and is named; everything before it is in the log. Line after line goes into one
partition, so the log itself says how many are done: run the same command again and it goes on behind them.

It prints a line like "imported 25,000,000 lines, 5.00 GB in 190 s, 26 MB/s, peak memory 60 MB". To try it:

    python import_json_lines.py --make 5G events.jsonl
"""

import argparse
import json
import resource
import sys
import time
from collections.abc import Iterator
from datetime import UTC, datetime
from itertools import islice
from pathlib import Path
from typing import BinaryIO

import kafkalog

BATCH_BYTES = 512 * 1024
UNITS = {"K": 10**3, "M": 10**6, "G": 10**9}


class BadLine(Exception):
    """A line that cannot be imported."""


def lines_of(file: BinaryIO) -> Iterator[tuple[int, bytes]]:
    """The lines that hold something, with their numbers in the file."""
    for number, line in enumerate(file, 1):
        line = line.strip()
        if line:
            yield number, line


def record_of(line: bytes, key_field: str | None, time_field: str | None) -> tuple[bytes | None, datetime | int | None]:
    """A line's key and time."""
    document = json.loads(line)
    if not isinstance(document, dict):
        raise ValueError("it is not a JSON object")
    key = None if key_field is None else str(document[key_field]).encode()
    when = None if time_field is None else document[time_field]
    return key, datetime.fromisoformat(when) if isinstance(when, str) else when


def import_lines(
    file: BinaryIO, log: kafkalog.Log, key: str | None, time_field: str | None, compression: str
) -> tuple[int, int]:
    """Import the new lines; return their number and bytes."""
    done = log.end_offset
    count = size = 0
    with log.writer(batch_bytes=BATCH_BYTES, linger_ms=1000, compression=compression) as writer:
        for number, line in islice(lines_of(file), done, None):
            try:
                writer.append(line, *record_of(line, key, time_field))
            except (ValueError, KeyError, TypeError, RecursionError) as error:
                raise BadLine(f"{file.name}:{number}: {type(error).__name__}: {error}") from error
            count += 1
            size += len(line) + 1
    return count, size


def make(path: Path, size: int) -> None:
    """Writes a file of about so many bytes to try the import with."""
    first = datetime.now(UTC).timestamp() - 86_400
    with path.open("w", buffering=1 << 20) as file:
        written = number = 0
        while written < size:
            at = datetime.fromtimestamp(first + number / 1000, UTC).isoformat(timespec="milliseconds")
            page = f"/products/{number * 7919 % 100_003}"
            written += file.write(
                f'{{"user": "user-{number % 5000}", "at": "{at}", "page": "{page}", "milliseconds": {number % 977}, '
                f'"agent": "Mozilla/5.0 (X11; Linux x86_64; rv:140.0) Gecko/20100101 Firefox/140.0"}}\n'
            )
            number += 1


def size(text: str) -> int:
    """A number of bytes, such as 200K or 5G."""
    return int(float(text.rstrip("KMG")) * UNITS.get(text[-1:], 1))


def main() -> None:
    parser = argparse.ArgumentParser(description="Import JSON lines into a topic.")
    parser.add_argument("source", type=Path, metavar="FILE")
    parser.add_argument("partition", type=Path, nargs="?", metavar="DIR/TOPIC-N")
    parser.add_argument("--key", metavar="FIELD", help="the field whose text is the key")
    parser.add_argument("--time", metavar="FIELD", help="the field that has the time")
    parser.add_argument("--compression", default="none", metavar="CODEC", help="gzip, snappy, lz4, zstd or none")
    parser.add_argument("--make", type=size, metavar="SIZE", help="make FILE instead, of so many bytes (200K, 5G)")
    arguments = parser.parse_args()
    if arguments.make is not None:
        make(arguments.source, arguments.make)
        return
    if arguments.partition is None:
        parser.error("the partition to import into is missing: DIR/TOPIC-N")
    began = time.monotonic()
    with (
        arguments.source.open("rb", buffering=1 << 20) as file,
        kafkalog.open(arguments.partition, "a", retention_ms=-1) as log,
    ):
        count, imported = import_lines(file, log, arguments.key, arguments.time, arguments.compression)
    seconds = max(time.monotonic() - began, 0.001)
    memory = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    print(
        f"imported {count:,} lines, {imported / 1e9:.2f} GB in {seconds:.0f} s, {imported / seconds / 1e6:.0f} MB/s, "
        f"peak memory {memory:.0f} MB"
    )


if __name__ == "__main__":
    try:
        main()
    except (kafkalog.KafkalogError, OSError, BadLine) as error:
        sys.exit(str(error))
    except KeyboardInterrupt:
        sys.exit(130)
