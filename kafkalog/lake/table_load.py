"""`load_table`: append the rows of an Iceberg or a Delta table to a topic, each once, without PySpark and Java.

    [lock of the load]  state -> finish its batch -> next files -> state -> stage -> Committer.commit -> state
"""

from __future__ import annotations

import hashlib
import logging
import os
import uuid
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from kafkalog.dirs.create import make_data_directory
from kafkalog.errors import (
    DirectoryLocked,
    IllegalArgument,
    IllegalState,
    InconsistentTopicId,
    PartitionNotFound,
)
from kafkalog.lake.load_state import LoadBatch, read_state, write_state
from kafkalog.lake.records import RecordColumns
from kafkalog.lake.row_encoder import RowSchema
from kafkalog.lake.targets import open_table, parse_target
from kafkalog.landing.commit import Committer
from kafkalog.landing.ledger import read_ledger
from kafkalog.landing.rows import stage_rows
from kafkalog.landing.staging import Job
from kafkalog.landing.task_stage import Landing
from kafkalog.manager.topics import check_partitions
from kafkalog.records.packing import PLAIN, Compression, parse_compression
from kafkalog.storage.names import validate_topic
from kafkalog.storage.partition_metadata import read_partition_metadata
from kafkalog.types import TopicPartition
from kafkalog.util.file_lock import open_locked
from kafkalog.util.fileio import OS
from kafkalog.util.os_errors import os_errors

if TYPE_CHECKING:
    import pyarrow

    from kafkalog.lake.changes import TableFile
    from kafkalog.lake.table import LakeTable
    from kafkalog.values.schemas.source import SchemaSource

_LOG: Final = logging.getLogger(__name__)
BATCH_BYTES: Final = 512 << 20
"""Size of a batch in bytes of files. A batch is staged, and lands whole or not at all."""
STATE: Final = "kafkalog.table-load."
_ROWS: Final = 1 << 13
"""Rows that are converted at a time, since a row as JSON takes many times its bytes."""


class LoadedBatch(NamedTuple):
    """One batch: its records and files, and the snapshot that they are of; `is_whole` with the snapshot's last ones."""

    records: int
    files: int
    snapshot: str
    is_whole: bool


def load_table(
    source: str,
    data: str | os.PathLike[str],
    topic: str,
    *,
    columns: Mapping[str, str] | None = None,
    value_format: str = "column",
    value: str | None = None,
    schema: Any = None,
    schemas: str | os.PathLike[str] | SchemaSource | None = None,
    framing: str | None = None,
    message: str | None = None,
    options: Mapping[str, str] | None = None,
    partitions: int = 1,
    compression: str | None = None,
    batch_bytes: int = BATCH_BYTES,
) -> Iterator[LoadedBatch]:
    """Append the rows of a table that the topic lacks, and yield the batches as they land; none if it lacks none.

    `source` names the table as for a sync, and `options` are those of its catalog or store. The first load appends all
    rows of the newest snapshot, a later one what each snapshot since then has appended. `columns` maps key, value,
    headers, timestamp and partition to columns of other names. With `value="json"`, `"avro"` or `"protobuf"` (in the
    words of a scan; `value_format` is the same) the value is the whole row. Without a partition the key chooses one.
    `partitions` is the number for a new topic.

    `schema`, `schemas`, `framing` and `message` are those of a scan's Avro and Protobuf values. The fields of a schema
    take the columns of their names, aliases or JSON names. Without one, all columns but the headers' make the schema.
    In the framing "registry", the default with `schemas`, each value names its schema's id; a directory `schemas` gets
    a file for a schema without id.

    A row is appended once, also after a crash: a batch is recorded before it lands, and the sink's ledger counts it
    once. Raises PartitionNotFound without such a table, IllegalArgument for columns that do not fit,
    IllegalState for a snapshot that removed or changed rows or is gone, InconsistentTopicId for a topic that was
    deleted meanwhile, DirectoryLocked while another program writes there or loads this table; InvalidRecord,
    CorruptCheckpoint, StorageError, MissingPackage.

    >>> from kafkalog.lake.sync import sync_topic
    >>> log.flush()
    >>> _ = sync_topic("data", "orders", "delta:orders-table")
    >>> [*load_table("delta:orders-table", "restored", "orders")]
    [LoadedBatch(records=2, files=1, snapshot='1', is_whole=True)]
    >>> [*load_table("delta:orders-table", "restored", "orders")]
    []
    """
    if value is not None and value_format not in ("column", value):
        raise IllegalArgument(f"value is {value!r}, and value_format {value_format!r}", hint="give one of them")
    destination = _LoadTarget.of(os.fspath(data), topic, partitions, compression)
    table = open_table(parse_target(source, options or {}), topic)
    if not table.load():
        raise PartitionNotFound("there is no such table", path=table.name, hint="check the name")
    record_columns = RecordColumns.of(
        table.schema, columns or {}, value or value_format, table.name, topic,
        RowSchema(schema, schemas, framing, message),
    )  # fmt: skip
    return _Load(table, record_columns, destination, max(1, batch_bytes)).batches()


class _LoadTarget(NamedTuple):
    """Destination of a load: the data directory, the topic, and how it is created and written."""

    path: str
    topic: str
    partitions: int
    compression: Compression

    @classmethod
    def of(cls, data: str, topic: str, partitions: int, compression: str | None) -> _LoadTarget:
        """Check the arguments of a load; create the directory if it is missing."""
        validate_topic(topic)
        check_partitions(partitions)
        codec = PLAIN if compression is None else parse_compression(compression)
        return cls(os.path.realpath(make_data_directory(data, OS)), topic, partitions, codec)


class _Load:
    """A load of one table into one topic; only one runs at a time."""

    def __init__(
        self, table: LakeTable, columns: RecordColumns, target: _LoadTarget, batch_bytes: int
    ) -> None:
        self._table = table
        self._changes = table.changes()
        self._columns = columns
        self._target = target
        self._batch_bytes = batch_bytes
        self._topic = target.topic
        text = f"{self._changes.identity} {self._topic}".encode()
        self._path = os.path.join(target.path, f"{STATE}{hashlib.sha256(text).hexdigest()[:32]}.json")
        self._id = uuid.uuid4().hex
        self._committer = Committer(target.path)

    def batches(self) -> Iterator[LoadedBatch]:
        """Land batches until the topic has all; the first may be one that a crash left undone."""
        with self._alone():
            last = read_state(self._path)
            if last is not None:
                self._id = last.load
                self._check_topic(last)
                if not last.done:
                    yield from self._finished(last)
                if last.stop < last.files:
                    yield from self._rest(last.since, last.snapshot, last.stop, last.batch)
                    last = read_state(self._path)
            since, number = (None, -1) if last is None else (last.snapshot, last.batch)
            for snapshot in self._changes.steps(since):
                for one in self._rest(since, snapshot, 0, number):
                    number += 1
                    yield one
                since = snapshot

    def _job(self) -> Job:
        return Job.batch(f"table-load-{self._id}")

    def _check_topic(self, last: LoadBatch) -> None:
        if last.topic_id is not None and last.topic_id != self._topic_id():
            raise InconsistentTopicId(
                f"the topic {self._topic} was deleted after rows were loaded into it", path=self._path,
                hint="remove this file to load all rows again, or load the table into another topic",
            )  # fmt: skip

    def _topic_id(self) -> str | None:
        first = os.path.join(self._target.path, str(TopicPartition(self._topic, 0)))
        return read_partition_metadata(OS, first) if OS.exists(first) else None

    @contextmanager
    def _alone(self) -> Iterator[None]:
        path = f"{self._path.removesuffix('.json')}.lock"
        with os_errors("lock the load", path):
            lock = open_locked(OS, path, "create")
        if lock is None:
            raise DirectoryLocked("this table is already being loaded into the topic", path=path, hint="wait for it")
        try:
            yield
        finally:
            lock.close()

    def _files(self, since: str | None, snapshot: str) -> list[TableFile]:
        return self._changes.files(snapshot, whole=since is None)

    def _finished(self, last: LoadBatch) -> Iterator[LoadedBatch]:
        """Land the batch that was recorded before a crash, unless it has landed."""
        self._committer.roll_forward()
        if read_ledger(self._target.path).landed(self._job(), last.batch):
            write_state(self._path, last._replace(done=True, topic_id=self._topic_id()))
            return
        files = self._files(last.since, last.snapshot)
        if len(files) != last.files:
            raise IllegalState(
                f"snapshot {last.snapshot} has {len(files)} files, and had {last.files} when its load began",
                path=self._table.name, hint="load the table into another topic",
            )  # fmt: skip
        yield self._land(last, files)

    def _rest(self, since: str | None, snapshot: str, first: int, number: int) -> Iterator[LoadedBatch]:
        """Land the files of a snapshot from `first` on, in batches after `number`.

        A snapshot without new rows is recorded too, since older ones may be expired from then on.
        """
        files = self._files(since, snapshot)
        if not files and since is not None:
            write_state(self._path, LoadBatch(self._id, number, True, since, snapshot, 0, 0, 0, self._topic_id()))
        while first < len(files):
            stop = _stop(files, first, self._batch_bytes)
            number += 1
            batch = LoadBatch(self._id, number, False, since, snapshot, first, stop, len(files), self._topic_id())
            write_state(self._path, batch)
            yield self._land(batch, files)
            first = stop

    def _land(self, batch: LoadBatch, files: list[TableFile]) -> LoadedBatch:
        part = files[batch.first : batch.stop]
        landing = Landing(self._target.path, self._job(), self._target.partitions, self._target.compression)
        staged = stage_rows(self._rows(part), landing, self._topic, batch.batch, 0, 0)
        done = self._committer.commit(self._job(), batch.batch, [staged])
        write_state(self._path, batch._replace(done=True, topic_id=self._topic_id()))
        _LOG.info("%s: %d records of snapshot %s", self._table.name, done.records, batch.snapshot)
        return LoadedBatch(done.records, len(part), batch.snapshot, batch.stop == batch.files)

    def _rows(self, files: list[TableFile]) -> Iterator[pyarrow.RecordBatch]:
        wanted = self._columns.wanted(self._table.schema)
        for file in files:
            for rows in self._table.read_file(file.file, wanted):
                for at in range(0, rows.num_rows, _ROWS):
                    yield self._columns.records(rows.slice(at, _ROWS))


def _stop(files: list[TableFile], first: int, most_bytes: int) -> int:
    """Return the end of a batch of files: one file, and more up to `most_bytes` in all."""
    total, stop = 0, first
    while stop < len(files) and (stop == first or total + files[stop].size <= most_bytes):
        total += files[stop].size
        stop += 1
    return stop
