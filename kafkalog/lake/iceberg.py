"""An Iceberg table as a sync writes it, through pyiceberg: each snapshot's summary has the positions."""

from __future__ import annotations

import os
import weakref
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from typing import TYPE_CHECKING, Any, Final

from kafkalog.errors import IllegalArgument, IllegalState
from kafkalog.lake.changes import IcebergChanges, TableChanges, ancestors
from kafkalog.lake.failures import missing_package, store_errors
from kafkalog.lake.iceberg_files import file_rows
from kafkalog.lake.partitioning import PartitionField
from kafkalog.lake.positions import Positions
from kafkalog.lake.table import NOTHING, CommitConflict, LiveFile, WrittenFile
from kafkalog.lake.writers import IcebergWriter

if TYPE_CHECKING:
    import pyarrow

    from kafkalog.lake.evolution import Evolution
    from kafkalog.lake.targets import IcebergTarget

PREFIX: Final = "kafkalog.sync."
"""Prefix, before the topic, of the positions' name in snapshot summaries and table properties."""
LOCAL_CATALOG: Final = "catalog.db"
CATALOG_NAME: Final = "default"
"""Name of a local catalog, stored in its file with each table; pyiceberg's default."""
FIRST_SEQUENCE: Final = 1
"""Sequence number of a table's first snapshot."""
_WRITTEN_VERSION: Final = 2
"""Newest version of Iceberg's format that pyiceberg (0.12) writes."""
_CATALOG_TABLES: Final = 2
_LOCK_TIMEOUT_S: Final = 60
_NOT_IN_URLS: Final = frozenset("#?%")
_MERGES: Final = "commit.manifest-merge.enabled"


class IcebergTable:
    """An Iceberg table of a catalog, or of the local catalog of a directory, which is created if missing.

    Positions are in the summary of the snapshot that has the rows, so a table that is rolled back has the earlier
    positions. The table's properties have a copy, for tables whose older snapshots were expired.
    """

    has_renames = True
    has_time_of_day = True

    def __init__(self, target: IcebergTarget, topic: str) -> None:
        self.name = f"iceberg:{target.identifier}"
        self._target = target
        self._key = PREFIX + topic
        try:
            import pyiceberg.io.pyarrow  # noqa: F401
        except ImportError as error:
            raise missing_package("Iceberg tables", error) from None
        with store_errors("open the catalog", self.name):
            self._catalog = _catalog(target)
        weakref.finalize(self, self._catalog.close)  # it may keep a connection to a database
        self._table: Any = None
        self._file_schema: pyarrow.Schema | None = None

    def load(self) -> bool:
        """Read the table's newest snapshot; return False if there is no table."""
        from pyiceberg.exceptions import NoSuchNamespaceError, NoSuchTableError

        with store_errors("load the table", self.name):
            try:
                self._use(self._catalog.load_table(self._target.identifier))
            except (NoSuchTableError, NoSuchNamespaceError):
                self._table = None
                return False
        return True

    def _use(self, table: Any) -> None:
        from pyiceberg.io.pyarrow import schema_to_pyarrow

        self._table = table
        self._file_schema = _plain_schema(schema_to_pyarrow(table.schema(), include_field_ids=True))
        self.schema = _plain_schema(schema_to_pyarrow(table.schema(), include_field_ids=False))

    def create(
        self, schema: pyarrow.Schema, fields: Sequence[PartitionField], properties: Mapping[str, str]
    ) -> None:
        """Create the table and its namespace; load it instead if another writer created it meanwhile."""
        from pyiceberg.exceptions import CommitFailedException, TableAlreadyExistsError

        with store_errors("create the table", self.name):
            self._create_namespace(self._target.identifier.rpartition(".")[0])
            with suppress(TableAlreadyExistsError, CommitFailedException):
                with self._catalog.create_table_transaction(
                    self._target.identifier, schema, properties=dict(properties)
                ) as change:
                    if fields:
                        with change.update_spec() as spec:
                            for one in fields:
                                spec.add_field(".".join(one.path), one.transform, one.name)
        if not self.load():
            raise IllegalState("the table was created, but no longer exists", path=self.name, hint="run the sync again")

    def _create_namespace(self, namespace: str) -> None:
        try:
            self._catalog.create_namespace_if_not_exists(namespace)
        except Exception:  # an SQL catalog fails where another writer created it between its check and its insert
            if not self._catalog.namespace_exists(namespace):
                raise

    @property
    def snapshot(self) -> str:
        """Id of the current snapshot; "none" for a table without one."""
        found = self._table.current_snapshot()
        return "none" if found is None else str(found.snapshot_id)

    @property
    def properties(self) -> Mapping[str, str]:
        """Properties of the table."""
        found: Mapping[str, str] = self._table.properties
        return found

    @property
    def file_schema(self) -> pyarrow.Schema:
        """Columns of a data file, with their field ids."""
        assert self._file_schema is not None
        return self._file_schema

    @property
    def layout(self) -> tuple[Any, ...]:
        """Columns and partitioning of a data file."""
        return self.file_schema, self._table.spec()

    def positions(self, partitions: Sequence[int]) -> Positions | None:
        """Return the positions in the snapshot's newest ancestor with positions.

        Raises IllegalState if that ancestor was expired after the table was rolled back.
        """
        found, oldest = self._newest_with_positions()
        if found is not None:
            return Positions.parse(found.summary.additional_properties[self._key], self.name)
        return None if oldest is None else self._copied(oldest.sequence_number or 0)

    def _newest_with_positions(self) -> tuple[Any, Any]:
        """Return the snapshot's newest ancestor with positions, or None, and the oldest ancestor examined."""
        oldest = None
        for oldest in ancestors(self._table.metadata):
            if oldest.summary is not None and self._key in oldest.summary.additional_properties:
                return oldest, oldest
        return None, oldest

    def _copy(self) -> tuple[int, str] | None:
        """Return the sequence number of a snapshot and the copy of its positions; None without a copy.

        The number is 0 if it is not known: snapshots of format version 1 have none.
        """
        text = self._table.properties.get(self._key)
        if text is None:
            return None
        sequence, _, positions = text.partition(" ")
        return int(sequence) if sequence.isdecimal() else 0, positions

    @property
    def rolled_back_from(self) -> str | None:
        """Name of the snapshot that the last sync made, if the table was rolled back to one before it."""
        found, oldest = self._newest_with_positions()
        last = (self._copy() or (0, ""))[0]
        if last <= (0 if oldest is None else oldest.sequence_number or 0):
            return None
        if found is not None and last <= (found.sequence_number or 0):
            return None
        known = [str(one.snapshot_id) for one in self._table.metadata.snapshots if one.sequence_number == last]
        return known[0] if known else f"with the sequence number {last}, which was expired"

    def _copied(self, oldest: int) -> Positions | None:
        """Return the copy of the newest positions if their snapshot is older than the sequence number `oldest`.

        `oldest` is that of the oldest known ancestor; earlier ones, if any, were expired.
        """
        copy = self._copy()
        if copy is None:
            return None
        last, positions = copy
        if 0 < last < oldest:
            return Positions.parse(positions, self.name)
        if oldest == FIRST_SEQUENCE:
            return None  # the table was rolled back to a snapshot before the first sync
        before = self.rolled_back_from
        what = "the snapshots with the positions of the sync were expired"
        if before is not None:
            what = f"the table was rolled back to snapshot {self.snapshot} from snapshot {before}, and those before "
            what += "were expired"
        raise IllegalState(
            f"{what}: which records it has is not known", path=self.name, hint="sync the topic into another table"
        )

    def evolve(
        self, change: Evolution, renames: Mapping[str, str] = NOTHING, properties: Mapping[str, str] = NOTHING
    ) -> None:
        """Rename, add and widen columns, in a separate commit. Errors as for `writer`."""
        from pyiceberg.exceptions import CommitFailedException

        self._check_version()
        with store_errors("change the table's columns", self.name):
            try:
                with self._table.transaction() as whole:
                    if renames:
                        with whole.update_schema() as update:
                            for path, there in renames.items():
                                if path.rpartition(".")[2] != there.rpartition(".")[2]:
                                    update.rename_column(self._path(there), path.rpartition(".")[2])
                    if change:
                        with whole.update_schema() as update:
                            update.union_by_name(change.schema)
                    if properties:
                        whole.set_properties(dict(properties))
            except CommitFailedException as error:
                raise CommitConflict(str(error)) from None
            self._use(self._table)

    def _path(self, path: str) -> tuple[str, ...]:
        """Return the parts of a field's path in the schema, where elements of lists are parts too."""
        from pyiceberg.types import ListType

        found: list[str] = []
        for name in path.split("."):
            found.append(name)
            while isinstance(self._table.schema().find_type(".".join(found)), ListType):
                found.append("element")
        return tuple(found[:-1] if found[-1] == "element" else found)

    @property
    def writer(self) -> IcebergWriter:
        """Writer of data files with the columns of the loaded snapshot; IllegalState if it could not be committed."""
        self._check_version()
        table = self._table
        return IcebergWriter(
            self.name, self.schema, self.file_schema, table.schema(), table.spec(), table.location_provider(), table.io
        )

    def _check_version(self) -> None:
        version = self._table.metadata.format_version
        if version > _WRITTEN_VERSION:
            raise IllegalState(
                f"the table has format version {version}, which pyiceberg only reads", path=self.name,
                hint="sync the topic into another table, or write to this one with another engine",
            )  # fmt: skip

    @property
    def generation(self) -> str:
        """Name of the table's current state, different after each commit and each rollback."""
        metadata = self._table.metadata
        newest = metadata.snapshots[-1].snapshot_id if metadata.snapshots else None
        return f"{metadata.table_uuid} {metadata.last_sequence_number} {newest}"

    def changes(self) -> TableChanges:
        """Return the changes up to the loaded snapshot."""
        return IcebergChanges(self._table, self.name)

    def live_files(self) -> list[LiveFile]:
        """Return the data files of the snapshot; raise IllegalState for a table with delete files."""
        with store_errors("list the table's files", self.name):
            tasks = [*self._table.scan().plan_files()]
        if any(task.delete_files for task in tasks):
            raise IllegalState(
                "the table has delete files, which an upsert cannot keep", path=self.name,
                hint="run rewrite_data_files in the engine that wrote them",
            )  # fmt: skip
        return [
            LiveFile(one.file.file_path, one, one.file.file_size_in_bytes, (one.file.spec_id, *one.file.partition))
            for one in tasks
        ]

    def read_file(self, file: LiveFile, columns: Sequence[str] | None = None) -> Iterator[pyarrow.RecordBatch]:
        """Yield the rows of a data file with the table's current columns, found by field ids.

        pyiceberg's own reader (0.12) turns null lists into empty ones, so its rows must not be rewritten.
        """
        import pyarrow as pa

        names = self.schema.names if columns is None else columns
        wanted = pa.schema([one for one in self.schema if one.name in names])
        entry = getattr(file.entry, "file", file.entry)
        with store_errors("read the table's files", self.name):
            yield from file_rows(self._table, self.name, entry, wanted, self.file_schema)

    def commit(
        self, added: Sequence[WrittenFile], removed: Sequence[LiveFile], positions: Positions | None
    ) -> None:
        """Commit a snapshot with the files and positions.

        The catalog checks the snapshot it is based on, and the partitioning, which may change without a snapshot.
        """
        from pyiceberg.exceptions import CommitFailedException
        from pyiceberg.table.update import AssertDefaultSpecId

        with store_errors("commit to the table", self.name):
            sequence = self._table.metadata.next_sequence_number()
            change = self._table.transaction()
            with self._producer(change, bool(removed), positions) as producer:
                for file in added:
                    producer.append_data_file(self._data_file(file))
                for live in removed:
                    producer.delete_data_file(live.entry.file)
            if positions is not None:
                change.set_properties({self._key: f"{sequence} {positions.text()}"})
            spec = AssertDefaultSpecId(**{"default-spec-id": self._table.metadata.default_spec_id})
            try:
                # not commit_transaction(), which would commit again on a newer snapshot: that may have these rows
                self._catalog.commit_table(self._table, (*change._requirements, spec), change._updates)
            except CommitFailedException as error:
                raise CommitConflict(str(error)) from None
        self.load()

    def _producer(self, change: Any, removes: bool, positions: Positions | None) -> Any:
        """Return the producer of the snapshot: an append, an overwrite or, without positions, a `replace`."""
        if positions is None:
            return _replacement(change, self._table.io)
        update = change.update_snapshot(snapshot_properties={self._key: positions.text()})
        if removes:
            return update.overwrite()
        return update.merge_append() if self.properties.get(_MERGES) == "true" else update.fast_append()

    def _data_file(self, file: WrittenFile) -> Any:
        """Return the manifest's entry of a file, with the statistics of its Parquet footer."""
        from pyiceberg.io.pyarrow import (
            compute_statistics_plan,
            data_file_statistics_from_parquet_metadata,
            parquet_path_to_id_mapping,
        )
        from pyiceberg.manifest import DataFile, DataFileContent, FileFormat
        from pyiceberg.partitioning import partition_record_value
        from pyiceberg.typedef import Record

        schema, spec = self._table.schema(), self._table.spec()
        ids = parquet_path_to_id_mapping(schema)
        statistics = data_file_statistics_from_parquet_metadata(
            parquet_metadata=file.footer,
            stats_columns=_known_bounds(compute_statistics_plan(schema, self._table.properties), file.footer, ids),
            parquet_column_mapping=ids,
        )
        values = [
            partition_record_value(one, value, schema) for one, value in zip(spec.fields, file.partition, strict=True)
        ]
        return DataFile.from_args(
            content=DataFileContent.DATA, file_path=file.path, file_format=FileFormat.PARQUET,
            partition=Record(*values), file_size_in_bytes=file.size, sort_order_id=None, spec_id=spec.spec_id,
            equality_ids=None, key_metadata=None, **statistics.to_serialized_dict(),
        )  # fmt: skip


def _replacement(change: Any, io: Any) -> Any:
    """Return a producer of snapshots with the parent's rows in other files, which pyiceberg (0.12) lacks.

    It is pyiceberg's overwrite with the operation `replace`, by which readers of changes recognize it.
    """
    from pyiceberg.table.snapshots import Operation, Summary
    from pyiceberg.table.update.snapshot import _OverwriteFiles

    class _Replacement(_OverwriteFiles):
        def _summary(self, snapshot_properties: Any = NOTHING) -> Any:
            found = super()._summary(dict(snapshot_properties))
            return Summary(Operation.REPLACE, **found.additional_properties)

    return _Replacement(operation=Operation.OVERWRITE, transaction=change, io=io)


def _known_bounds(plan: Mapping[int, Any], footer: Any, ids: Mapping[str, int]) -> dict[int, Any]:
    """Return a plan of statistics without the bounds of columns for which a row group lacks bounds.

    Parquet omits bounds of more than 4 KiB, and pyiceberg (0.12) would use those of the other row groups for the whole
    file, so that readers would skip its rows.
    """
    from dataclasses import replace

    from pyiceberg.io.pyarrow import MetricModeTypes, MetricsMode

    found = dict(plan)
    for group in (footer.row_group(number) for number in range(footer.num_row_groups)):
        for column in (group.column(number) for number in range(group.num_columns)):
            one = found[ids[column.path_in_schema]]
            if one.mode.type != MetricModeTypes.NONE and not _has_bounds(column):
                found[one.field_id] = replace(one, mode=MetricsMode(MetricModeTypes.COUNTS))
    return found


def _has_bounds(column: Any) -> bool:
    """Return True if the bounds of a row group's column are known, or if it has only nulls."""
    statistics = column.statistics
    if statistics is None:
        return False
    if not statistics.has_min_max:
        return bool(statistics.has_null_count and statistics.null_count == column.num_values)
    try:
        return statistics.min is not None and statistics.max is not None
    except OverflowError:  # a time beyond Python's years
        return False


def _catalog(target: IcebergTarget) -> Any:
    """Return the catalog of a target; for a directory it is an SQLite file in it."""
    if target.warehouse is None:
        from pyiceberg.catalog import load_catalog

        try:
            return load_catalog(target.catalog, **target.options)
        except ValueError:  # its text may have the password of an address
            raise IllegalArgument(
                f"catalog {target.catalog!r} has no settings, or wrong ones",
                hint="describe it in .pyiceberg.yaml, or by properties: -X uri=http://..., -X type=rest or type=sql",
            ) from None
    try:
        from pyiceberg.catalog.sql import SqlCatalog
        from sqlalchemy import URL
        from sqlalchemy.exc import OperationalError
    except ImportError as error:
        raise missing_package("local Iceberg catalogs", error) from None
    if "://" in target.warehouse:
        raise IllegalArgument(
            f"{target.warehouse} is not a local directory",
            hint="give a catalog for remote tables: iceberg://CATALOG/NAMESPACE.TABLE",
        )
    directory = os.path.abspath(target.warehouse)
    os.makedirs(directory, exist_ok=True)
    database, timeout = os.path.join(directory, LOCAL_CATALOG), str(_LOCK_TIMEOUT_S)
    properties: dict[str, Any] = {
        "uri": f"sqlite:///{database}?timeout={timeout}", "warehouse": f"file://{directory}",
    }  # fmt: skip
    if _NOT_IN_URLS & {*directory}:  # locations that are plain paths are taken as they are
        properties["uri"] = URL.create("sqlite", database=database, query={"timeout": timeout})
        properties["warehouse"] = directory
    properties |= {**target.options, "init_catalog_tables": "false"}  # else an error leaves no catalog to be closed
    catalog = SqlCatalog(CATALOG_NAME, **properties)
    try:
        for _ in range(_CATALOG_TABLES):
            try:
                catalog.create_tables()
                return catalog
            except OperationalError:  # another process created one of them between the check and the creation
                continue
        catalog.create_tables()
    except BaseException:
        catalog.close()
        raise
    return catalog


def _plain_schema(schema: pyarrow.Schema) -> pyarrow.Schema:
    """Return a schema with 32-bit offsets: a record batch is small."""
    import pyarrow as pa

    return pa.schema(_plain_field(one) for one in schema)


def _plain_field(field: pyarrow.Field) -> pyarrow.Field:
    import pyarrow as pa

    kind, types = field.type, pa.types
    if types.is_struct(kind):
        kind = pa.struct([_plain_field(one) for one in kind])
    elif types.is_list(kind) or types.is_large_list(kind):
        kind = pa.list_(_plain_field(kind.value_field))
    elif types.is_map(kind):
        kind = pa.map_(_plain_field(kind.key_field), _plain_field(kind.item_field))
    elif types.is_large_string(kind):
        kind = pa.string()
    elif types.is_large_binary(kind):
        kind = pa.binary()
    return field.with_type(kind)
