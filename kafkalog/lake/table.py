"""A table as a sync sees it, whatever its format: positions, columns, files, commits."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, Final, NamedTuple, Protocol

if TYPE_CHECKING:
    import pyarrow
    import pyarrow.parquet

    from kafkalog.lake.changes import TableChanges
    from kafkalog.lake.evolution import Evolution
    from kafkalog.lake.partitioning import PartitionField
    from kafkalog.lake.positions import Positions

__all__ = ["NOTHING", "CommitConflict", "DataWriter", "LakeTable", "LiveFile", "WrittenFile"]


NOTHING: Final[Mapping[str, str]] = MappingProxyType({})


class CommitConflict(Exception):
    """A commit conflicted with another one, and changed nothing."""


class WrittenFile(NamedTuple):
    """A data file that no commit refers to yet: its path in the table, size, partition values, and Parquet footer."""

    path: str
    size: int
    rows: int
    partition: tuple[Any, ...]
    footer: pyarrow.parquet.FileMetaData


class LiveFile(NamedTuple):
    """A data file of the table's snapshot, as its format knows it; its size, and what its partition is known by."""

    path: str
    entry: Any
    size: int = 0
    partition: object = None


class DataWriter(Protocol):
    """A writer of the data files of a table; it can be pickled, so that another process writes some."""

    @property
    def name(self) -> str:
        """The table's name."""

    @property
    def schema(self) -> pyarrow.Schema:
        """Columns that a row has, without those that the table derives."""

    def partition_values(self, batch: pyarrow.RecordBatch) -> list[pyarrow.Array]:
        """Return the partition values of rows, an array for each field of the partitioning."""

    def rows_of_file(self, batch: pyarrow.RecordBatch) -> pyarrow.RecordBatch:
        """Return rows with the columns of a data file."""

    def new_file(self) -> tuple[str, Any]:
        """Return the path of a new data file, and a stream to write it."""

    def delete_file(self, path: str) -> None:
        """Delete a file that no commit refers to; a failure is ignored, since such a file is not part of the table."""

    def with_prefix(self, prefix: str) -> DataWriter:
        """Return a writer whose new files have names that begin with `prefix`, which may name a directory."""

    def siblings(self) -> list[str] | None:
        """Return the paths of the files in the directory of new ones; None if files have no common directory."""


class LakeTable(Protocol):
    """A table of a lakehouse at the snapshot that `load` found. Threads: one at a time."""

    name: str
    has_renames: bool
    """True if `evolve` renames columns."""
    has_time_of_day: bool
    """True if the format has a type for a time of day."""

    def load(self) -> bool:
        """Read the table's newest snapshot; return False if there is no table."""

    def create(
        self, schema: pyarrow.Schema, fields: Sequence[PartitionField], properties: Mapping[str, str]
    ) -> None:
        """Create the table; load it instead if another writer created it meanwhile."""

    @property
    def snapshot(self) -> str:
        """Name of the snapshot: Iceberg's snapshot id, Delta's version."""

    @property
    def properties(self) -> Mapping[str, str]:
        """The table's own properties."""

    @property
    def schema(self) -> pyarrow.Schema:
        """Columns that a row has, without those that the table derives."""

    @property
    def file_schema(self) -> pyarrow.Schema:
        """Columns of a data file."""

    @property
    def layout(self) -> tuple[Any, ...]:
        """Columns and partitioning of a data file: a commit takes no files of another layout."""

    def positions(self, partitions: Sequence[int]) -> Positions | None:
        """Return the positions of the topic's partitions in this snapshot; None if no sync of it wrote to the table."""

    @property
    def rolled_back_from(self) -> str | None:
        """Name of the snapshot that the last sync made, if the table was rolled back to one before it."""

    def evolve(
        self, change: Evolution, renames: Mapping[str, str] = NOTHING, properties: Mapping[str, str] = NOTHING
    ) -> None:
        """Change the columns, in a separate commit; `renames` are new paths and those that the table has.

        Raises CommitConflict, with nothing changed, if another writer changed them meanwhile.
        """

    @property
    def writer(self) -> DataWriter:
        """Writer of data files with the columns of this snapshot."""

    @property
    def generation(self) -> str:
        """Name of the table's current state, different after each commit and each rollback."""

    def changes(self) -> TableChanges:
        """Return the changes up to the loaded snapshot."""

    def live_files(self) -> list[LiveFile]:
        """Return the data files of the snapshot."""

    def read_file(self, file: LiveFile, columns: Sequence[str] | None = None) -> Iterator[pyarrow.RecordBatch]:
        """Yield the rows of a data file that are not deleted, with the columns of `schema`."""

    def commit(
        self, added: Sequence[WrittenFile], removed: Sequence[LiveFile], positions: Positions | None
    ) -> None:
        """Add and remove files and store the positions, in one commit on this snapshot; load the new one.

        Without positions, the commit is marked as one that only moves rows to other files.

        Raises CommitConflict, with nothing changed, if there is a newer snapshot.
        """
