"""A table as a sync sees it, whatever its format: positions, columns, files, commits."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, Final, NamedTuple, TypeAlias

if TYPE_CHECKING:
    import pyarrow
    import pyarrow.parquet

    from kafkalog.lake.delta import DeltaLakeTable
    from kafkalog.lake.iceberg import IcebergTable
    from kafkalog.lake.writers import DeltaWriter, IcebergWriter

    DataWriter: TypeAlias = "DeltaWriter | IcebergWriter"
    """A writer of the data files of a table; it can be pickled, so that another process writes some."""
    LakeTable: TypeAlias = "DeltaLakeTable | IcebergTable"
    """A table at the snapshot that `load` found. Threads: one at a time.

    A change raises CommitConflict, with nothing changed, if there is a newer snapshot.
    """

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
