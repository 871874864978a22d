"""One task of an export: a range of a log to Parquet or Arrow files, one for each date, in bounded memory."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import suppress
from typing import TYPE_CHECKING, Any, Final

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from kafkalog.errors import StorageError
from kafkalog.exchange.manifest import ExportedFile, ExportedRange
from kafkalog.exchange.planning import ExportTask
from kafkalog.log.scans import scan_of
from kafkalog.records.column_reader import BATCH_BYTES, COLUMNS
from kafkalog.storage.damage import Skipped
from kafkalog.util.fileio import OS

if TYPE_CHECKING:
    from numpy.typing import NDArray

ARROW: Final = "arrow"

DAY_MS: Final = 86_400_000
NO_DATE: Final = "__HIVE_DEFAULT_PARTITION__"
"""Directory name that readers of partitioned tables read as null."""
FIRST_DAY: Final = int(np.datetime64("0001-01-01", "D").astype(np.int64))
LAST_DAY: Final = int(np.datetime64("9999-12-31", "D").astype(np.int64))
GROUP_BYTES: Final = 32 << 20
"""Bytes in memory at which the columns of one date become a row group."""
MIN_BATCH_BYTES: Final = 64 << 10
MAX_WAITING_BYTES: Final = 64 << 20
"""Most bytes of columns in memory over all dates; beyond that the largest are written."""
MAX_OPEN: Final = 16
"""Most dates with open files; if records alternate between more dates, files are smaller."""
PLAIN: Final = frozenset(("offset", "timestamp"))
"""Columns with few repeated values: stored as differences instead of a dictionary."""


def export_range(task: ExportTask, skipped: list[Skipped] | None = None) -> ExportedRange:
    """Write and sync the files of a range and record it; raise as `Log.records` does, and StorageError.

    `skipped` receives what the task's `on_damage` leaves out. Attempts at the same range do not conflict: each has its
    own file names.
    """
    name = task.new_name()
    files = _Files(task, name)
    try:
        for batch in _batches(task, skipped):
            files.add(batch)
        return task.record_done(name, files.close())
    except pa.ArrowException as error:
        raise StorageError(f"could not write Parquet: {error}", path=task.staging) from error
    except OSError as error:
        raise StorageError.from_os(error, "write Parquet", path=task.staging) from error
    finally:
        files.abandon()


def _batches(task: ExportTask, skipped: list[Skipped] | None) -> Iterator[pa.RecordBatch]:
    """Yield the records as Arrow record batches, with the columns to export and those that select the file."""
    part, settings = task.range, task.settings
    wanted = {*settings.columns, "offset", *(("timestamp",) if settings.by_date else ())}
    columns = [name for name in COLUMNS if name in wanted]
    with task.open_log() as log:
        max_bytes = min(BATCH_BYTES, max(MIN_BATCH_BYTES, task.file_bytes // 8))
        options = {
            "isolation": task.reader_isolation, "batch_bytes": max_bytes, "on_damage": task.on_damage,
            "skipped": skipped,
        }  # fmt: skip
        scan = scan_of(log, part.start, part.stop, columns, {**options, "where": settings.where, **task.typed})
        for piece in scan:
            yield pa.record_batch(piece)
        task.not_decoded.append(getattr(scan, "undecodable", 0))


class _OpenFile:
    """A file that is being written, and the record batches waiting to be written to it."""

    def __init__(self, path: str, date: str | None, format: str) -> None:
        self.path = path
        self.format = format
        self.date = date
        self.first = -1
        self.last = -1
        self.records = 0
        self.waiting: list[pa.RecordBatch] = []
        self.waiting_bytes = 0
        self.sink: Any = None
        self.writer: Any = None

    def add(self, batch: pa.RecordBatch, offsets: NDArray[np.int64]) -> None:
        if self.first < 0:
            self.first = int(offsets[0])
        self.last = int(offsets[-1])
        self.records += len(offsets)
        self.waiting.append(batch)
        self.waiting_bytes += batch.get_total_buffer_size()

    def write(self, compression: str) -> int:
        """Write the waiting batches as a row group; return the bytes in the file so far."""
        table = pa.Table.from_batches(self.waiting)
        if self.writer is None:
            self.sink = pa.OSFile(os.fsencode(self.path), "wb")
            if self.format == ARROW:
                options = pa.ipc.IpcWriteOptions(compression=None if compression == "none" else compression)
                self.writer = pa.ipc.new_file(self.sink, table.schema, options=options)
            else:
                layout = _layout(table.schema, compression)
                self.writer = pq.ParquetWriter(self.sink, table.schema, write_page_checksum=True, **layout)
        if self.format == ARROW:
            self.writer.write_table(table)
        else:
            self.writer.write_table(table, row_group_size=max(1, table.num_rows))
        self.waiting, self.waiting_bytes = [], 0
        return int(self.sink.tell())

    def close(self) -> int:
        """Finish and sync the file; return its size in bytes."""
        self.writer.close()
        self.sink.close()  # closing the writer does not close an Arrow file
        with OS.open_file(self.path, "r") as file:
            file.sync()
            return file.size()


class _Files:
    """The files of one task: one open file for each date, closed when it is large enough."""

    def __init__(self, task: ExportTask, name: str) -> None:
        self._task = task
        self._columns = {*task.settings.columns, "key_error", "value_error"}
        self._name = name
        self._open: dict[str | None, _OpenFile] = {}
        self._done: list[ExportedFile] = []
        self._paths: list[str] = []

    def add(self, batch: pa.RecordBatch) -> None:
        """Add records in the order of their offsets."""
        if not batch.num_rows:
            return
        offsets = batch.column(batch.schema.get_field_index("offset")).to_numpy()
        kept = batch.select([name for name in batch.schema.names if name in self._columns])
        if not self._task.settings.by_date:
            self._put(None, kept, offsets)
            return
        times = batch.column(batch.schema.get_field_index("timestamp")).cast(pa.int64()).to_numpy()
        for date, rows in by_date(times):
            if rows is None:
                self._put(date, kept, offsets)
            else:
                self._put(date, kept.take(pa.array(rows)), offsets[rows])

    def _put(self, date: str | None, batch: pa.RecordBatch, offsets: NDArray[np.int64]) -> None:
        file = self._open.pop(date, None)
        if file is None:
            if len(self._open) >= MAX_OPEN:
                self._finish(next(iter(self._open)))  # the one whose last records are the oldest
            path = os.path.join(self._task.staging, f"{self._name}-{len(self._paths):04d}.{self._task.settings.format}")
            self._paths.append(path)
            file = _OpenFile(path, date, self._task.settings.format)
        self._open[date] = file
        file.add(batch, offsets)
        if file.waiting_bytes >= min(GROUP_BYTES, self._task.file_bytes):
            self._write(file)
        elif sum(one.waiting_bytes for one in self._open.values()) >= MAX_WAITING_BYTES:
            self._write(max(self._open.values(), key=lambda one: one.waiting_bytes))

    def _write(self, file: _OpenFile) -> None:
        if file.write(self._task.compression) >= self._task.file_bytes:
            self._finish(file.date)

    def _finish(self, date: str | None) -> None:
        file = self._open[date]
        if file.waiting:
            file.write(self._task.compression)
        size = file.close()
        del self._open[date]
        folder = "" if date is None else f"date={date}/"
        self._done.append(self._task.staged_file(file.path, file.first, file.last, file.records, size, folder))

    def close(self) -> list[ExportedFile]:
        """Finish and sync all files and return them."""
        for date in list(self._open):
            self._finish(date)
        self._paths = []
        return self._done

    def abandon(self) -> None:
        """Delete the files that `close` did not finish."""
        for file in self._open.values():
            if file.sink is not None:
                if file.format != ARROW:
                    file.writer.is_open = False  # otherwise it would write the footer when collected
                file.sink.close()
        for path in self._paths:
            with suppress(OSError):  # the driver deletes the directory
                os.unlink(path)
        self._open.clear()


def by_date(times: NDArray[np.int64]) -> Iterator[tuple[str, NDArray[np.intp] | None]]:
    """Yield the dates (UTC) of times in ms, with the rows of each date; None if all rows have the same date."""
    days = times // DAY_MS
    days[(times == -1) | (days < FIRST_DAY) | (days > LAST_DAY)] = np.iinfo(np.int64).min
    found = np.unique(days)
    for day in found.tolist():
        yield name_of(day), None if len(found) == 1 else np.flatnonzero(days == day)


def name_of(day: int) -> str:
    """Return the name of a day since 1970; days outside the calendar have NO_DATE."""
    return str(np.datetime64(day, "D")) if FIRST_DAY <= day <= LAST_DAY else NO_DATE


def _layout(schema: pa.Schema, compression: str) -> dict[str, object]:
    """Return the storage options of the columns."""
    leaves = [(one, path) for one in schema for path in _leaves(one.type, one.name)]
    return {
        "compression": compression,
        "use_dictionary": [path for one, path in leaves if not (_is_raw(one, "value") or one.name in PLAIN)],
        "column_encoding": {name: "DELTA_BINARY_PACKED" for name in schema.names if name in PLAIN},
        "write_statistics": [
            path for one, path in leaves if not (_is_raw(one, "key", "value") or one.name == "headers")
        ],
    }  # fmt: skip


def _is_raw(column: pa.Field, *names: str) -> bool:
    """Return True for a column of these names that is not decoded."""
    return column.name in names and pa.types.is_binary(column.type)


def _leaves(type: pa.DataType, path: str) -> Iterator[str]:
    """Yield the names in Parquet of the columns that a nested column consists of."""
    if pa.types.is_struct(type):
        for one in type:
            yield from _leaves(one.type, f"{path}.{one.name}")
    elif pa.types.is_list(type):
        yield from _leaves(type.value_type, f"{path}.list.element")
    elif pa.types.is_map(type):
        yield from _leaves(type.key_type, f"{path}.key_value.key")
        yield from _leaves(type.item_type, f"{path}.key_value.value")
    else:
        yield path
