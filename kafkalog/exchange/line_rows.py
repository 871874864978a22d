"""JSON lines, as `kafkalog consume -J` prints records, as Arrow tables with one row each."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

import pyarrow as pa

from kafkalog.errors import FormatError, IllegalArgument
from kafkalog.storage.names import validate_partition
from kafkalog.tools.produce.json_lines import JsonRecord, parse_record
from kafkalog.util.os_errors import os_errors

GROUP_LINES: Final = 10_000
GROUP_BYTES: Final = 8 << 20
MAX_LINE_BYTES: Final = 1 << 30
"""Longest line in bytes: a line is held in memory, and no segment takes a record as long as that."""
_SCHEMA: Final = pa.schema([
    ("value", pa.binary()), ("key", pa.binary()),
    ("headers", pa.list_(pa.struct([("key", pa.string()), ("value", pa.binary())]))),
    ("timestamp", pa.int64()), ("timestampType", pa.int32()),
    ("topic", pa.string()), ("partition", pa.int32()), ("offset", pa.int64()),
])  # fmt: skip


def line_tables(path: str) -> Iterator[tuple[int, int, pa.Table]]:
    """Yield (start, stop, table) for successive groups of some thousand lines.

    Raises FormatError, with the position, for a line that is not a record; StorageError.
    """
    waiting: list[JsonRecord] = []
    start = stop = 0
    for position, line in _lines(path, 0, None):
        if line.strip():
            waiting.append(line_record(line, path, position))
        stop = position + len(line)
        if len(waiting) >= GROUP_LINES or stop - start >= GROUP_BYTES:
            yield start, stop, line_table(waiting)
            waiting, start = [], stop
    if waiting:
        yield start, stop, line_table(waiting)


def read_lines(path: str, start: int, stop: int) -> pa.Table:
    """Return the table of the lines in bytes [start, stop) of a file; raise FormatError or StorageError."""
    found = _lines(path, start, stop)
    return line_table([line_record(line, path, position) for position, line in found if line.strip()])


def line_record(line: bytes, path: str, position: int) -> JsonRecord:
    """Parse a line; raise FormatError, with its position in the file `path`, if it is not a record."""
    try:
        record = parse_record(line, path, 0)
        if record.partition is not None:
            validate_partition(record.partition)
        return record
    except (FormatError, IllegalArgument) as error:
        reason = error.message.partition(": ")[2] or error.message
        raise FormatError(f"line is not a record: {reason}", path=path, position=position, hint=error.hint) from None


def _lines(path: str, start: int, stop: int | None) -> Iterator[tuple[int, bytes]]:
    with os_errors("read the input", path):
        with open(path, "rb", buffering=1 << 20) as file:
            file.seek(start)
            while (stop is None or start < stop) and (line := file.readline(MAX_LINE_BYTES)):
                if len(line) == MAX_LINE_BYTES:
                    raise FormatError(
                        f"a line has {MAX_LINE_BYTES} bytes or more", path=path, position=start,
                        hint="check that each record is on its own line",
                    )  # fmt: skip
                yield start, line
                start += len(line)


def line_table(records: list[JsonRecord]) -> pa.Table:
    """Return a table with a row for each of the records."""
    headers = [[{"key": name.decode("utf-8", "replace"), "value": value} for name, value in r.headers] for r in records]
    columns = [
        [r.value for r in records], [r.key for r in records], headers, [r.timestamp for r in records],
        [int(r.is_append_time) for r in records], [r.topic for r in records], [r.partition for r in records],
        [r.offset for r in records],
    ]  # fmt: skip
    return pa.table([pa.array(v, f.type) for v, f in zip(columns, _SCHEMA, strict=True)], schema=_SCHEMA)
