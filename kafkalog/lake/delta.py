"""A Delta table as a sync writes it, through delta-rs: positions are application transactions of its commits."""

from __future__ import annotations

import base64
import json
import os
import struct
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from datetime import date, datetime
from decimal import Decimal
from typing import TYPE_CHECKING, Any, Final
from urllib.parse import unquote

from kafkalog.errors import IllegalState
from kafkalog.lake.changes import DeltaChanges, TableChanges
from kafkalog.lake.failures import missing_package, store_errors
from kafkalog.lake.partitioning import PartitionField, parse_partitioning
from kafkalog.lake.positions import Positions
from kafkalog.lake.table import NOTHING, CommitConflict, LiveFile, WrittenFile
from kafkalog.lake.writers import DeltaWriter, delta_files
from kafkalog.util.clock import SYSTEM_CLOCK

if TYPE_CHECKING:
    import pyarrow

    from kafkalog.lake.evolution import Evolution
    from kafkalog.lake.targets import DeltaTarget

PARTITIONING: Final = "kafkalog.partitioning"
"""Property with the partitioning, from which the partition columns of a Delta table are derived."""
_READ_ROWS: Final = 1 << 20
_HALVES: Final = ("high", "low")
_ID: Final = struct.Struct(">qq")
_BOUNDED: Final = frozenset(("partition", "offset", "timestamp"))
"""Columns whose minimum and maximum each file's statistics have."""
STATISTICS_COLUMNS: Final = "delta.dataSkippingStatsColumns"
"""Property with the columns that have statistics: for all others, readers expect none."""
_FORGETS: Final = "delta.setTransactionRetentionDuration"
"""Property with the time after which readers ignore the last version of an application."""
_CONSTRAINTS: Final = "delta.constraints."
_COLUMN_RULES: Final = ("delta.generationExpression", "delta.identity.", "delta.invariants")
_APPEND_ONLY: Final = "delta.appendOnly"
_COLUMN_MAPPING: Final = "delta.columnMapping.mode"
"""Property of a table whose files have other names for its columns, which delta-rs (1.6) does not look up."""


class DeltaLakeTable:
    """A Delta table at a path or URL.

    Each partition of the topic is an application of Delta's protocol, whose last version is the next offset. Further
    applications hold the checksum of the partition's last record, and the topic's id.
    """

    has_renames = False
    has_time_of_day = False

    def __init__(self, target: DeltaTarget, topic: str) -> None:
        self.name = f"delta:{target.url}"
        self._target = target
        self._app = f"kafkalog:{topic}"
        try:
            import deltalake  # noqa: F401
        except ImportError as error:
            raise missing_package("Delta tables", error) from None
        self._url = target.url if "://" in target.url else os.path.abspath(target.url)
        self._table: Any = None

    def load(self) -> bool:
        """Read the table's newest version; return False if there is no table."""
        from deltalake.exceptions import TableNotFoundError

        with store_errors("load the table", self.name):
            try:
                self._use(self._open())
            except TableNotFoundError:
                self._table = None
                return False
        return True

    def _open(self, version: int | None = None) -> Any:
        """Return a version of the table, by default the newest."""
        from deltalake import DeltaTable

        return DeltaTable(self._url, version, storage_options=dict(self._target.options) or None)

    def _use(self, table: Any) -> None:
        import pyarrow as pa

        mode = table.metadata().configuration.get(_COLUMN_MAPPING, "none")
        if mode != "none":
            raise IllegalState(
                f"the names of the table's columns in its files are mapped ({_COLUMN_MAPPING} is {mode})",
                path=self.name, hint="copy the rows into a table without that property",
            )  # fmt: skip
        self._table = table
        everything = pa.schema(table.schema().to_arrow())
        self._partition_columns = list(table.metadata().partition_columns)
        words = table.metadata().configuration.get(PARTITIONING)
        fields = () if words is None else parse_partitioning(json.loads(words))
        known = {one.name: one for one in fields if one.name in self._partition_columns}
        self._fields = [known.get(name, PartitionField("identity", (name,))) for name in self._partition_columns]
        derived = {one.name for one in self._fields if (one.name,) != one.path}
        self.schema = pa.schema([one for one in everything if one.name not in derived])
        """Columns of a row, without those derived for the partitioning."""
        self.file_schema = pa.schema([one for one in everything if one.name not in self._partition_columns])
        """Columns of a data file, which has no partition columns."""

    def create(
        self, schema: pyarrow.Schema, fields: Sequence[PartitionField], properties: Mapping[str, str]
    ) -> None:
        """Create the table; load it instead if another writer created it meanwhile."""
        import pyarrow as pa
        from deltalake import DeltaTable

        rows = pa.RecordBatch.from_pylist([], schema)
        for one in fields:
            if (one.name,) != one.path:
                schema = schema.append(pa.field(one.name, one.values(rows).type))
        configuration: dict[str, str | None] = dict(properties)
        by = {one.name for one in fields}
        bounded = [name for name in _bounded(schema) if name not in by]
        if bounded:
            configuration[STATISTICS_COLUMNS] = ",".join(bounded)
        if fields:
            configuration[PARTITIONING] = json.dumps([one.text for one in fields])
        with store_errors("create the table", self.name):
            DeltaTable.create(
                self._url, schema, mode="ignore", partition_by=[one.name for one in fields],
                configuration=configuration, raise_if_key_not_exists=False,
                storage_options=dict(self._target.options) or None,
            )  # fmt: skip
        if not self.load():
            raise IllegalState("the table was created, but no longer exists", path=self.name, hint="run the sync again")

    @property
    def snapshot(self) -> str:
        """Version of the table."""
        return str(self._table.version())

    @property
    def properties(self) -> Mapping[str, str]:
        """Configuration of the table."""
        found: Mapping[str, str] = self._table.metadata().configuration
        return found

    @property
    def layout(self) -> tuple[Any, ...]:
        """Columns and partitioning of a data file."""
        return self.file_schema, tuple(self._fields)

    @property
    def rolled_back_from(self) -> str | None:
        """None: a Delta table only gets new versions."""
        return None

    def positions(self, partitions: Sequence[int]) -> Positions | None:
        """Return the versions that the applications of the partitions wrote last.

        IllegalState for a table that forgets them, since a sync would write all records again, and for one with row
        constraints, which a sync does not check.
        """
        self._check_rules()
        offsets, checksums = {}, {}
        with store_errors("read the table's positions", self.name):
            for number in partitions:
                offset = self._table.transaction_version(f"{self._app}:{number}")
                if offset is not None:
                    offsets[number] = offset
                    checksum = self._table.transaction_version(f"{self._app}:{number}:checksum")
                    if checksum is not None and checksum >= 0:
                        checksums[number] = checksum
            halves = [self._table.transaction_version(f"{self._app}:topic-id:{half}") for half in _HALVES]
        return Positions(None if None in halves else _id_text(halves), offsets, checksums) if offsets else None

    def _check_rules(self) -> None:
        forgotten_after = self.properties.get(_FORGETS)
        if forgotten_after is not None:
            raise IllegalState(
                f"the table forgets after an {forgotten_after} which records it has ({_FORGETS})", path=self.name,
                hint=f"remove that property: ALTER TABLE ... UNSET TBLPROPERTIES ('{_FORGETS}')",
            )  # fmt: skip
        rules = [name for name in self.properties if name.startswith(_CONSTRAINTS)]
        fields = self._table.schema().fields
        rules += [f"{key} of {one.name}" for one in fields for key in one.metadata if key.startswith(_COLUMN_RULES)]
        if rules:
            raise IllegalState(
                f"the table has rules for its rows, which a sync does not apply: {', '.join(sorted(rules)[:5])}",
                path=self.name, hint="sync into a table without them, and write from there",
            )  # fmt: skip

    def evolve(
        self, change: Evolution, renames: Mapping[str, str] = NOTHING, properties: Mapping[str, str] = NOTHING
    ) -> None:
        """Add columns; to widen one, rewrite all rows with the new types, in one commit."""
        from deltalake import CommitProperties, write_deltalake

        once = CommitProperties(max_commit_retries=0)
        with self._commit_errors("change the table's columns"):
            if change.widened:
                self._rewrite(change.schema, once)
            elif change.added:
                write_deltalake(
                    self._table, change.schema.empty_table(), mode="append", schema_mode="merge",
                    commit_properties=once,
                )  # fmt: skip
            if properties:
                self._table.alter.set_table_properties(
                    dict(properties), raise_if_not_exists=False, commit_properties=once
                )
        self.load()

    @contextmanager
    def _commit_errors(self, doing: str) -> Iterator[None]:
        """Raise CommitConflict if a commit in the block failed because of a newer version, else StorageError.

        delta-rs has one error and one message for both.
        """
        from deltalake.exceptions import CommitFailedError

        before = self._table.version()
        with store_errors(doing, self.name):
            try:
                yield
            except CommitFailedError as error:
                if self._open().version() == before:
                    raise
                raise CommitConflict(str(error)) from None

    def _rewrite(self, schema: pyarrow.Schema, once: Any) -> None:
        import pyarrow as pa
        from deltalake import write_deltalake

        from kafkalog.lake.rows import fitted

        stored = self._table.to_pyarrow_dataset()
        derived = [one for one in stored.schema if one.name not in self.schema.names]
        wide = pa.schema([*schema, *derived])
        rows = (fitted(batch, wide) for batch in stored.to_batches())
        write_deltalake(
            self._table, pa.RecordBatchReader.from_batches(wide, rows), mode="overwrite", schema_mode="overwrite",
            partition_by=self._partition_columns or None, commit_properties=once,
        )  # fmt: skip

    @property
    def writer(self) -> DeltaWriter:
        """Writer of data files with the columns of the loaded version."""
        return DeltaWriter(
            self.name, self.schema, self.file_schema, tuple(self._fields), self._url, dict(self._target.options)
        )

    @property
    def generation(self) -> str:
        """Name of the table's current state, different after each commit."""
        return f"{self._table.metadata().id} {self._table.version()}"

    def _files(self) -> Any:
        return delta_files(self._url, self._target.options)

    def changes(self) -> TableChanges:
        """Return the changes up to the loaded version."""
        with store_errors("load the table", self.name):
            table = self._open(self._table.version())
        return DeltaChanges(table, self.name, self._files())

    def live_files(self) -> list[LiveFile]:
        """Return the data files of the version; raise IllegalState for a table with deletion vectors."""
        import pyarrow as pa

        with store_errors("list the table's files", self.name):
            if any(True for _ in pa.RecordBatchReader.from_stream(self._table.deletion_vectors())):
                raise IllegalState(
                    "the table has deletion vectors, which an upsert cannot keep", path=self.name,
                    hint="run OPTIMIZE or REORG ... APPLY (PURGE) in the engine that wrote them",
                )  # fmt: skip
            actions = pa.table(self._table.get_add_actions(flatten=True)).to_pylist()
        return [  # paths in Delta's log are URLs
            LiveFile(
                unquote(one["path"]), one, one["size_bytes"],
                tuple(one[f"partition.{name}"] for name in self._partition_columns),
            )
            for one in actions
        ]  # fmt: skip

    def read_file(self, file: LiveFile, columns: Sequence[str] | None = None) -> Iterator[pyarrow.RecordBatch]:
        """Yield the rows of a data file with the current columns, including those of its partition."""
        import pyarrow as pa
        import pyarrow.parquet as pq

        from kafkalog.lake.rows import fitted

        names = self.schema.names if columns is None else columns
        wanted = pa.schema([self.schema.field(name) for name in self.schema.names if name in names])
        constant = {one: file.entry[f"partition.{one}"] for one in self._partition_columns if one in wanted.names}
        with store_errors("read the table's files", self.name), self._files().open_input_file(file.path) as source:
            stored = pq.ParquetFile(source, coerce_int96_timestamp_unit="us")  # ns end in the year 2262
            present = [name for name in stored.schema_arrow.names if name in wanted.names]
            for batch in stored.iter_batches(batch_size=_READ_ROWS, columns=present, use_threads=False):
                for name, value in constant.items():
                    kind = wanted.field(name).type
                    batch = batch.append_column(name, pa.repeat(pa.scalar(value, kind), batch.num_rows))
                yield fitted(batch, wanted)

    def commit(
        self, added: Sequence[WrittenFile], removed: Sequence[LiveFile], positions: Positions | None
    ) -> None:
        """Commit a version with the files and the positions; it fails if another one was committed meanwhile."""
        from deltalake import CommitProperties
        from deltalake._internal import RemoveAction
        from deltalake.transaction import AddAction

        now, is_new = SYSTEM_CLOCK.milliseconds(), positions is not None
        if removed and is_new and self.properties.get(_APPEND_ONLY) == "true":
            raise IllegalState(
                f"the table only takes new rows ({_APPEND_ONLY}), and an upsert replaces some", path=self.name,
                hint="remove that property, or sync without upsert",
            )  # fmt: skip
        listed = [name for name in (self.properties.get(STATISTICS_COLUMNS) or "").split(",") if name]
        bounded = frozenset(listed) if {*listed} <= {*_bounded(self.file_schema)} else frozenset[str]()
        actions: list[Any] = [
            AddAction(one.path, one.size, self._written_partition(one), now, is_new, _statistics(one, bounded))
            for one in added
        ]
        actions += [
            RemoveAction(one.path, is_new, now, one.size, self._live_partition(one)) for one in removed
        ]
        properties = CommitProperties(max_commit_retries=0)
        if positions is not None:
            properties = CommitProperties(
                {"kafkalog": positions.text()}, max_commit_retries=0,
                app_transactions=self._transactions(positions, now),
            )  # fmt: skip
        with self._commit_errors("commit to the table"):
            self._table.create_write_transaction(
                actions, "append", self._table.schema(), self._partition_columns or None,
                commit_properties=properties,
            )  # fmt: skip
        self.load()

    def _transactions(self, positions: Positions, now_ms: int) -> list[Any]:
        from deltalake import Transaction

        found = []
        for number, offset in positions.next_offsets.items():
            found.append(Transaction(f"{self._app}:{number}", offset, now_ms))
            found.append(Transaction(f"{self._app}:{number}:checksum", positions.checksums.get(number, -1), now_ms))
        if positions.topic_id is not None:
            for half, number in zip(_HALVES, _id_numbers(positions.topic_id), strict=True):
                found.append(Transaction(f"{self._app}:topic-id:{half}", number, now_ms))
        return found

    def _written_partition(self, file: WrittenFile) -> dict[str, str | None]:
        return {
            name: partition_text(value) for name, value in zip(self._partition_columns, file.partition, strict=True)
        }

    def _live_partition(self, file: LiveFile) -> dict[str, str | None]:
        return {name: partition_text(file.entry[f"partition.{name}"]) for name in self._partition_columns}


def partition_text(value: object) -> str | None:
    """Return the value of a partition column as Delta's protocol writes it.

    >>> partition_text(datetime(2026, 11, 28, 17)), partition_text(True), partition_text(None)
    ('2026-11-28 17:00:00.000000', 'true', None)
    """
    if value is None:
        return None
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, datetime):
        return value.replace(tzinfo=None).isoformat(" ", "microseconds")
    if isinstance(value, bytes):
        return value.decode()
    if isinstance(value, Decimal):
        return f"{value:f}"
    return value.isoformat() if isinstance(value, date) else str(value)


def _id_numbers(topic_id: str) -> tuple[int, int]:
    """Return the halves of a topic's id as versions of applications, which are signed."""
    high, low = _ID.unpack(base64.urlsafe_b64decode(topic_id + "=="))
    return high, low


def _id_text(halves: Sequence[int]) -> str:
    return base64.urlsafe_b64encode(_ID.pack(*halves)).decode().rstrip("=")


def _statistics(file: WrittenFile, bounded: frozenset[str]) -> str:
    """Return Delta's statistics of a file: the number of rows, and the bounds of the columns `bounded`.

    They cover all of these columns or none, and no column with nulls: delta-rs' datasets (1.6) skip a file whose
    bound is missing, and skip nulls in a column with bounds.
    """
    least: dict[str, Any] = {}
    largest: dict[str, Any] = {}
    unknown = set()
    for group in (file.footer.row_group(number) for number in range(file.footer.num_row_groups)):
        for column in (group.column(number) for number in range(group.num_columns)):
            name, found = column.path_in_schema, column.statistics
            if name not in bounded:
                continue
            if found is None or not found.has_min_max or found.null_count:
                unknown.add(name)
                continue
            try:
                low, high = found.min, found.max
            except OverflowError:  # a time beyond Python's years
                unknown.add(name)
                continue
            least[name] = min(least.get(name, low), low)
            largest[name] = max(largest.get(name, high), high)
    bounds = {"minValues": least, "maxValues": largest} if bounded and least.keys() - unknown == bounded else {}
    return json.dumps({"numRecords": file.rows, **bounds}, default=_time_text)


def _bounded(schema: pyarrow.Schema) -> list[str]:
    """Return the columns of a file that get bounds, if they have the types of the log's own columns."""
    import pyarrow as pa

    types = pa.types
    return [
        one.name
        for one in schema
        if one.name in _BOUNDED
        and (types.is_integer(one.type) or (types.is_timestamp(one.type) and one.type.tz is not None))
    ]


def _time_text(value: datetime) -> str:
    return f"{value.replace(tzinfo=None).isoformat(timespec='microseconds')}Z"
