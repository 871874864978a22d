"""JSON lines, as `kafkalog consume -J` prints records, as Arrow tables."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

import pyarrow as pa

from kafkalog.exchange.line_rows import line_record, line_table
from kafkalog.spark.jobs.text_lines import TextTask, line_bounds, shorter
from kafkalog.tools.produce.json_lines import JsonRecord
from kafkalog.util.fileio import OS
from kafkalog.util.os_errors import os_errors

BATCH_LINES: Final = 10_000
BATCH_BYTES: Final = 4 << 20
_COLUMNS: Final = ("value", "key", "partition", "timestamp", "headers")


def json_tables(task: TextTask) -> Iterator[pa.Table]:
    """Yield the records of the lines that begin in the task's bytes.

    Raises FormatError with file and position for a line that is not a record and for a file that became shorter;
    StorageError.
    """
    waiting: list[JsonRecord] = []
    size = 0
    for position, line in _lines(task):
        if not line.strip():
            continue
        waiting.append(line_record(line, task.path, position))
        size += len(line)
        if len(waiting) >= BATCH_LINES or size >= BATCH_BYTES:
            yield line_table(waiting).select(_COLUMNS)
            waiting, size = [], 0
    if waiting:
        yield line_table(waiting).select(_COLUMNS)


def _lines(task: TextTask) -> Iterator[tuple[int, bytes]]:
    with os_errors("read the input", task.path):
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
