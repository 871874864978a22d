"""Data files of a table: Parquet of about one size, written in bounded memory, separately for each partition."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import suppress
from typing import TYPE_CHECKING, Any, Final

from kafkalog.lake.failures import store_errors
from kafkalog.lake.partitioning import by_partition
from kafkalog.lake.table import WrittenFile
from kafkalog.records.column_reader import BATCH_BYTES

if TYPE_CHECKING:
    import pyarrow

    from kafkalog.lake.table import DataWriter

FILE_BYTES: Final = 128 << 20
LEAST_FILE_BYTES: Final = 1 << 10
GROUP_BYTES: Final = 32 << 20
"""Size in memory, in bytes, at which the rows of one partition become a row group."""
MOST_WAITING_BYTES: Final = 64 << 20
"""Memory limit, in bytes, for the rows of all partitions; beyond it the largest are written."""
MOST_OPEN: Final = 32
"""Limit of open files; if rows alternate between more partitions, files are smaller."""
LEAST_PIECE_BYTES: Final = 64 << 10
PLAIN: Final = frozenset(("offset", "timestamp"))
"""Columns with few repeated values: stored as differences instead of a dictionary."""


class _OpenFile:
    """A file being written, and the rows waiting for it."""

    def __init__(self, partition: tuple[Any, ...]) -> None:
        self.partition = partition
        self.waiting: list[pyarrow.RecordBatch] = []
        self.waiting_bytes = 0
        self.path = ""
        self.sink: Any = None
        self.writer: Any = None


class TableFiles:
    """The new data files of a table; `finished` are those that are complete.

    `close` completes all, `abandon` deletes those that no commit took over by `take`. Raises StorageError.
    """

    def __init__(self, writer: DataWriter, file_bytes: int = FILE_BYTES) -> None:
        self._writer = writer
        self._file_bytes = file_bytes
        self._open: dict[tuple[Any, ...], _OpenFile] = {}
        self._paths: list[str] = []
        self.finished: list[WrittenFile] = []

    @property
    def finished_bytes(self) -> int:
        """Bytes of the finished files."""
        return sum(one.size for one in self.finished)

    def add(self, batch: pyarrow.RecordBatch) -> None:
        """Add rows with the columns of the table's schema."""
        if not batch.num_rows:
            return
        with store_errors("write the table's files", self._writer.name):
            for partition, rows in by_partition(batch, self._writer.partition_values(batch)):
                self._put(partition, self._writer.rows_of_file(rows))

    def _put(self, partition: tuple[Any, ...], rows: pyarrow.RecordBatch) -> None:
        file = self._open.pop(partition, None)
        if file is None:
            if len(self._open) >= MOST_OPEN:
                self._finish(next(iter(self._open.values())))  # the least recently used one
            file = _OpenFile(partition)
        self._open[partition] = file
        file.waiting.append(rows)
        file.waiting_bytes += rows.nbytes
        if file.waiting_bytes >= min(GROUP_BYTES, 2 * self._file_bytes):
            self._write(file)
        elif sum(one.waiting_bytes for one in self._open.values()) >= MOST_WAITING_BYTES:
            self._write(max(self._open.values(), key=lambda one: one.waiting_bytes))

    def _write(self, file: _OpenFile) -> None:
        """Write the waiting rows as a row group, and finish a file that is large enough."""
        import pyarrow as pa
        import pyarrow.parquet as pq

        rows = pa.Table.from_batches(file.waiting)
        if file.writer is None:
            file.path, file.sink = self._writer.new_file()
            self._paths.append(file.path)
            file.writer = pq.ParquetWriter(file.sink, rows.schema, **layout(rows.schema))
        file.writer.write_table(rows, row_group_size=rows.num_rows)
        file.waiting, file.waiting_bytes = [], 0
        if file.sink.tell() >= self._file_bytes:
            self._finish(file)

    def _finish(self, file: _OpenFile) -> None:
        if file.waiting:
            before, self._file_bytes = self._file_bytes, 1 << 62
            try:
                self._write(file)
            finally:
                self._file_bytes = before
        file.writer.close()
        size = file.sink.tell()
        file.sink.close()
        footer = file.writer.writer.metadata
        del self._open[file.partition]
        self.finished.append(WrittenFile(file.path, size, footer.num_rows, file.partition, footer))

    def close(self) -> None:
        """Complete all files."""
        with store_errors("write the table's files", self._writer.name):
            for file in [*self._open.values()]:
                self._finish(file)

    def take(self) -> None:
        """Note that a commit has the finished files, or may have them."""
        taken = {one.path for one in self.finished}
        self._paths = [path for path in self._paths if path not in taken]
        self.finished = []

    def abandon(self) -> None:
        """Delete the files that no commit has."""
        for file in self._open.values():
            if file.sink is not None:
                file.writer.is_open = False  # otherwise it would write the footer when it is collected
                with suppress(OSError):  # of a full disk: the file is deleted
                    file.sink.close()
        for path in self._paths:
            self._writer.delete_file(path)
        self._open, self._paths, self.finished = {}, [], []


def piece_bytes(file_bytes: int) -> int:
    """Return the bytes of records to read at a time for files of a size: a row group has at least one such piece.

    >>> piece_bytes(128 << 20), piece_bytes(1 << 20), piece_bytes(1 << 10)
    (8388608, 131072, 65536)
    """
    return min(BATCH_BYTES, max(LEAST_PIECE_BYTES, file_bytes // 8))


def layout(schema: pyarrow.Schema) -> dict[str, object]:
    """Return a ParquetWriter's arguments for the columns of a file."""
    import pyarrow as pa

    types = pa.types
    plain = {
        one.name for one in schema if one.name in PLAIN and (types.is_integer(one.type) or types.is_timestamp(one.type))
    }  # a projection may give the names to columns of other types
    return {
        "compression": "zstd",
        "use_dictionary": [path for one in schema for path in _paths(one) if path not in plain],
        "column_encoding": dict.fromkeys(plain, "DELTA_BINARY_PACKED"),
        "store_schema": False,
    }


def _paths(field: pyarrow.Field, before: str = "") -> Iterator[str]:
    """Yield the paths of a field's leaves in Parquet."""
    import pyarrow as pa

    types, kind, path = pa.types, field.type, before + field.name
    if types.is_struct(kind):
        for one in kind:
            yield from _paths(one, path + ".")
    elif types.is_list(kind):
        yield from _paths(kind.value_field.with_name("element"), path + ".list.")
    elif types.is_map(kind):
        yield from _paths(kind.key_field.with_name("key"), path + ".key_value.")
        yield from _paths(kind.item_field.with_name("value"), path + ".key_value.")
    else:
        yield path
