"""JSON lines, as `kafkalog consume -J` prints records, as Arrow record batches."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

import pyarrow as pa

from kafkalog.errors import FormatError, StorageError
from kafkalog.spark.jobs.text_lines import TextTask, line_bounds, shorter
from kafkalog.tools.produce.json_lines import JsonRecord, parse_record
from kafkalog.util.fileio import OS

__all__ = ["json_batches"]

BATCH_LINES: Final = 10_000
BATCH_BYTES: Final = 4 << 20
_SCHEMA: Final = pa.schema([
    ("value", pa.binary()), ("key", pa.binary()), ("partition", pa.int32()), ("timestamp", pa.int64()),
    ("headers", pa.list_(pa.struct([("key", pa.string()), ("value", pa.binary())]))),
])  # fmt: skip


def json_batches(task: TextTask) -> Iterator[pa.RecordBatch]:
    """Yield the records of the lines that begin in the task's bytes.

    Raises FormatError with file and position for a line that is not a record and for a file that became shorter;
    StorageError.
    """
    waiting: list[JsonRecord] = []
    size = 0
    for position, line in _lines(task):
        if not line.strip():
            continue
        try:
            waiting.append(parse_record(line, task.path, 0))
        except FormatError as error:
            reason = error.message.partition(": ")[2]
            raise FormatError(
                f"the line is no record: {reason}", path=task.path, position=position, hint=error.hint
            ) from None
        size += len(line)
        if len(waiting) >= BATCH_LINES or size >= BATCH_BYTES:
            yield _batch(waiting)
            waiting, size = [], 0
    if waiting:
        yield _batch(waiting)


def _lines(task: TextTask) -> Iterator[tuple[int, bytes]]:
    try:
        with OS.open_file(task.path, "r") as file:
            start, stop = line_bounds(file, task)
        with open(task.path, "rb", buffering=1 << 20) as lines:
            lines.seek(start)
            while start < stop:
                line = lines.readline()
                if not line.endswith(b"\n") and start + len(line) < stop:
                    raise shorter(task.path, start + len(line))
                yield start, line
                start += len(line)
    except OSError as error:
        raise StorageError.from_os(error, "read the input", path=task.path) from error


def _batch(records: list[JsonRecord]) -> pa.RecordBatch:
    columns = [
        [one.value for one in records],
        [one.key for one in records],
        [one.partition for one in records],
        [one.timestamp for one in records],
        [[{"key": name.decode("utf-8", "replace"), "value": value} for name, value in one.headers] for one in records],
    ]
    arrays = [pa.array(values, field.type) for values, field in zip(columns, _SCHEMA, strict=True)]
    return pa.record_batch(arrays, schema=_SCHEMA)
