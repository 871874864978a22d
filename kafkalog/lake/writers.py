"""Writers of a table's data files, for processes that have neither the table nor its catalog."""

from __future__ import annotations

import uuid
from collections.abc import Mapping, Sequence
from contextlib import suppress
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from kafkalog.errors import InvalidRecord
from kafkalog.lake.failures import TableMismatch
from kafkalog.lake.partitioning import PartitionField, column_at

if TYPE_CHECKING:
    import pyarrow

_HOUR_US: Final = 3_600_000_000


class IcebergWriter(NamedTuple):
    """The writer of an Iceberg table's files: the table's columns, partitioning and locations, and its file system."""

    name: str
    schema: pyarrow.Schema
    file_schema: pyarrow.Schema
    table_schema: Any
    spec: Any
    locations: Any
    io: Any
    prefix: str = ""

    def partition_values(self, batch: pyarrow.RecordBatch) -> list[pyarrow.Array]:
        """Return the values of the partition fields of rows, as the transforms of the table's spec make them."""
        found = []
        for one in self.spec.fields:
            column = column_at(batch, self.table_schema.find_column_name(one.source_id).split("."))
            values = _transformed(str(one.transform), column)
            if values is None:
                raise TableMismatch.of(
                    self.name, [(one.name, f"is a partition field by {one.transform}")],
                    "a sync writes partitions by a field, or by year, month, day and hour of a time",
                )  # fmt: skip
            found.append(values)
        return found

    def rows_of_file(self, batch: pyarrow.RecordBatch) -> pyarrow.RecordBatch:
        """Return rows with the field ids of a data file."""
        import pyarrow as pa

        columns = [column.cast(field.type) for column, field in zip(batch.columns, self.file_schema, strict=True)]
        return pa.RecordBatch.from_arrays(columns, schema=self.file_schema)

    def new_file(self) -> tuple[str, Any]:
        """Return the location of a new data file, and a stream to write it."""
        path = self._location(uuid.uuid4())
        return path, self.io.new_output(path).create(overwrite=False)

    def _location(self, name: object) -> str:
        path: str = self.locations.new_data_location(f"{self.prefix}{name}.parquet")
        return path

    def delete_file(self, path: str) -> None:
        """Delete a file that no commit refers to."""
        with suppress(Exception):  # whatever the store says: the file is not part of the table
            self.io.delete(path)

    def with_prefix(self, prefix: str) -> IcebergWriter:
        """Return a writer whose new files have names that begin with `prefix`."""
        return self._replace(prefix=prefix)

    def siblings(self) -> list[str] | None:
        """Return the locations of the files in the directory of new ones.

        None if the table distributes its files or names them in its own way.
        """
        import pyarrow.fs
        from pyiceberg.io.pyarrow import PyArrowFileIO

        places = {self._location(name).removesuffix(f"/{self.prefix}{name}.parquet") for name in ("a", "b")}
        if len(places) > 1 or not isinstance(self.io, PyArrowFileIO):
            return None
        place = self._location("a").rpartition("/")[0]
        scheme, netloc, path = self.io.parse_location(place, self.io.properties)
        found = self.io.fs_by_scheme(scheme, netloc).get_file_info(
            pyarrow.fs.FileSelector(path, allow_not_found=True)
        )
        return [f"{place}/{one.base_name}" for one in found if one.is_file]


class DeltaWriter(NamedTuple):
    """The writer of a Delta table's files: columns of a row and of a file, partition columns, and the table's place."""

    name: str
    schema: pyarrow.Schema
    file_schema: pyarrow.Schema
    fields: Sequence[PartitionField]
    url: str
    options: Mapping[str, str]
    prefix: str = ""

    def partition_values(self, batch: pyarrow.RecordBatch) -> list[pyarrow.Array]:
        """Return the values of the partition columns of rows; raise InvalidRecord for one that Delta cannot store."""
        found = [one.values(batch) for one in self.fields]
        for one, values in zip(self.fields, found, strict=True):
            if (one.name,) == one.path:  # the column is in no file: its values are those of the partitions alone
                _check_storable(one.name, values)
        return found

    def rows_of_file(self, batch: pyarrow.RecordBatch) -> pyarrow.RecordBatch:
        """Return rows without the partition columns."""
        return batch.select(self.file_schema.names)

    def new_file(self) -> tuple[str, Any]:
        """Return the name of a new data file, and a stream to write it."""
        files, name = delta_files(self.url, self.options), f"{self.prefix}part-{uuid.uuid4()}.parquet"
        if self._folder:
            files.create_dir(self._folder)
        return name, files.open_output_stream(name)

    @property
    def _folder(self) -> str:
        return self.prefix.rpartition("/")[0]

    def delete_file(self, path: str) -> None:
        """Delete a file that no commit refers to."""
        with suppress(Exception):  # whatever the store says: the file is not part of the table
            delta_files(self.url, self.options).delete_file(path)

    def with_prefix(self, prefix: str) -> DeltaWriter:
        """Return a writer whose new files have names that begin with `prefix`."""
        return self._replace(prefix=prefix)

    def siblings(self) -> list[str] | None:
        """Return the names of the files in the directory of new ones."""
        import pyarrow.fs

        place = pyarrow.fs.FileSelector(self._folder, allow_not_found=True)
        found = delta_files(self.url, self.options).get_file_info(place)
        return [f"{self._folder}/{one.base_name}".removeprefix("/") for one in found if one.is_file]


def delta_files(url: str, options: Mapping[str, str]) -> Any:
    """Return the file system of the directory of a Delta table at an absolute path or a URL."""
    import pyarrow.fs

    if "://" not in url:
        return pyarrow.fs.SubTreeFileSystem(url, pyarrow.fs.LocalFileSystem())
    from deltalake.fs import DeltaStorageHandler

    return pyarrow.fs.PyFileSystem(DeltaStorageHandler(url, dict(options) or None))


def _check_storable(name: str, values: pyarrow.Array) -> None:
    """Raise InvalidRecord for empty text, which Delta's log stores as null, and for bytes that are not UTF-8."""
    import pyarrow as pa
    import pyarrow.compute as pc

    is_bytes = pa.types.is_binary(values.type)
    if not is_bytes and not pa.types.is_string(values.type):
        return
    if pc.min(pc.binary_length(values)).as_py() == 0:
        raise InvalidRecord(
            f"a {name} is empty, which a Delta table stores as null in a partition",
            hint="partition the table by another column",
        )
    if is_bytes:
        try:
            values.cast(pa.string())
        except pa.ArrowInvalid:
            raise InvalidRecord(
                f"a {name} is not UTF-8, but a Delta table stores it as text in a partition",
                hint="partition the table by another column",
            ) from None


def _transformed(transform: str, column: pyarrow.Array) -> pyarrow.Array | None:
    """Return a column's values after a transform of Iceberg; None for an unknown transform."""
    import pyarrow as pa
    import pyarrow.compute as pc

    match transform:
        case "identity":
            return column
        case "hour":
            return pc.divide(pc.floor_temporal(column, unit="hour").cast(pa.int64()), _HOUR_US).cast(pa.int32())
        case "day":
            return column.cast(pa.date32()).cast(pa.int32())
        case "month":
            months = pc.multiply(pc.subtract(pc.year(column), 1970), 12)
            return pc.add(months, pc.subtract(pc.month(column), 1)).cast(pa.int32())
        case "year":
            return pc.subtract(pc.year(column), 1970).cast(pa.int32())
    return None
