"""A broker's metadata read from its directory: `__cluster_metadata-0` with its snapshots, or `bootstrap.checkpoint`.

    <metadata log dir>/__cluster_metadata-0/<offset>-<epoch>.checkpoint   a snapshot: all records below the offset
    <metadata log dir>/__cluster_metadata-0/<offset>.log                  the log, one record batch after another
    <metadata log dir>/bootstrap.checkpoint                               what a controller begins an empty log with

Read beside a running broker too: nothing is locked, nothing written. All of the log is taken as committed, which it
is where one controller votes.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterator
from typing import Final, NamedTuple

from kafkalog.errors import CorruptRecord, KafkalogError, StorageError
from kafkalog.manager.cluster_image import ClusterImage
from kafkalog.records.batch import RecordBatch
from kafkalog.records.control import control_record
from kafkalog.records.internal import metadata_record
from kafkalog.records.memory import MemoryRecords
from kafkalog.records.message import MessageError
from kafkalog.records.schemas.metadata import RECORDS
from kafkalog.storage.log_walk import log_chunks
from kafkalog.storage.names import BOOTSTRAP_FILE, LOG_SUFFIX, METADATA_DIRECTORY, parse_base_offset
from kafkalog.storage.view import LogView
from kafkalog.util.fileio import OS, FileSystem

MAX_SNAPSHOT_BYTES: Final = 1 << 31
_SNAPSHOT: Final = re.compile(r"([0-9]{20})-([0-9]{10})\.checkpoint")


class ClusterMetadata(NamedTuple):
    """What the metadata files in `path`, a data directory, say.

    image: topics, settings, brokers; is_fresh: no controller has written a record yet, and `image` is what it will
    begin with; end_offset and leader_epoch: where the log ends, and the epoch of its last batch; problem: what lies
    behind that end, if it is no whole valid batch.
    """

    path: str
    image: ClusterImage
    is_fresh: bool
    end_offset: int
    leader_epoch: int
    problem: KafkalogError | None

    @property
    def log_path(self) -> str:
        """The directory of the metadata log."""
        return os.path.join(self.path, METADATA_DIRECTORY)

    @property
    def bootstrap_path(self) -> str:
        """The file that a controller begins an empty log with."""
        return os.path.join(self.path, BOOTSTRAP_FILE)


def read_cluster_metadata(path: str | os.PathLike[str], *, fs: FileSystem = OS) -> ClusterMetadata | None:
    """The metadata in the data directory `path`; None where there is none: no log, and no bootstrap file.

    CorruptRecord for damage in a snapshot or inside the log, MessageError (an InvalidRecord) for a record that this
    version cannot read, StorageError.
    """
    directory = os.fspath(path)
    log_path = os.path.join(directory, METADATA_DIRECTORY)
    names = _names(log_path, fs)
    image = ClusterImage()
    snapshot = max((found.groups() for name in names if (found := _SNAPSHOT.fullmatch(name))), default=None)
    start = epoch = records = 0
    if snapshot is not None:
        start, epoch = int(snapshot[0]), int(snapshot[1])
        records = _replay_file(image, os.path.join(log_path, f"{snapshot[0]}-{snapshot[1]}.checkpoint"), fs)
    end, problem = start, None
    if any(name.endswith(LOG_SUFFIX) and parse_base_offset(name) is not None for name in names):
        with LogView(log_path, fs=fs) as view:
            try:
                for batch in _batches(view, start):
                    records += _replay_batch(image, batch, log_path)
                    epoch = max(epoch, batch.header.leader_epoch)
            except CorruptRecord as error:
                if error is not view.damage:  # at the end it is told, and the caller decides
                    raise
            end, problem = view.log_end_offset, view.damage
    if not records:
        if fs.exists(os.path.join(directory, BOOTSTRAP_FILE)):
            _replay_file(image, os.path.join(directory, BOOTSTRAP_FILE), fs)
        elif problem is None:
            return None
    return ClusterMetadata(directory, image, not records, end, epoch, problem)


def _names(directory: str, fs: FileSystem) -> list[str]:
    try:
        return fs.names(directory)
    except (FileNotFoundError, NotADirectoryError):
        return []
    except OSError as error:
        raise StorageError.from_os(error, "read the metadata directory", path=directory) from error


def read_batches(path: str, fs: FileSystem = OS) -> list[RecordBatch]:
    """The batches of a snapshot or bootstrap file; CorruptRecord unless each is whole and valid. StorageError."""
    try:
        data = fs.read_file(path, MAX_SNAPSHOT_BYTES)
    except OSError as error:
        raise StorageError.from_os(error, "read the metadata snapshot", path=path) from error
    records = MemoryRecords(data)
    try:
        found = list(records.batches())
        for batch in found:
            batch.ensure_valid()
    except CorruptRecord as error:
        raise CorruptRecord(f"the metadata snapshot is damaged: {error.message}", path=path) from None
    if records.valid_bytes != len(data):
        raise CorruptRecord("the metadata snapshot ends inside a batch", path=path, position=records.valid_bytes)
    return found


def _replay_file(image: ClusterImage, path: str, fs: FileSystem) -> int:
    """Replay a snapshot; the number of its records that are not control records."""
    return sum(_replay_batch(image, batch, path) for batch in read_batches(path, fs))


def _batches(view: LogView, start: int) -> Iterator[RecordBatch]:
    """Yield the batches from the first that reaches `start` on; CorruptRecord for damage between them."""
    for chunk in log_chunks(view, max(start, view.log_start_offset), view.log_end_offset):
        first, end = chunk.batches.position(chunk.first), chunk.batches.position(chunk.last - 1)
        end += chunk.batches.size(chunk.last - 1)
        yield from MemoryRecords(chunk.data[first - chunk.position : end - chunk.position]).batches()


def _replay_batch(image: ClusterImage, batch: RecordBatch, path: str) -> int:
    count = 0
    for record in batch.records():
        if batch.header.is_control:
            image.replay_control(control_record(record.key, record.value))
            continue
        try:
            image.replay(metadata_record(record.value or b"", RECORDS))
        except MessageError as error:
            error.path, error.offset = path, record.offset
            raise
        count += 1
    return count
