"""Read a broker's metadata: `__cluster_metadata-0` with its snapshots, or the file that a controller begins it with.

    <metadata log dir>/__cluster_metadata-0/<offset>-<epoch>.checkpoint   a snapshot: all records below the offset
    <metadata log dir>/__cluster_metadata-0/<offset>.log                  the log, one record batch after another
    <metadata log dir>/__cluster_metadata-0/0-0.checkpoint                begins an empty log, formatted by 4.4 or later
    <metadata log dir>/bootstrap.checkpoint                               the same, formatted by an earlier Kafka

Nothing is locked or written, so this works while a broker runs. All of the log counts as committed, which is true if
there is only one voting controller.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterator, Sequence
from contextlib import suppress
from typing import Final, NamedTuple

from kafkalog.errors import CorruptRecord, IllegalArgument, KafkalogError
from kafkalog.manager.cluster_image import NEEDED, ClusterImage
from kafkalog.records.batch import RecordBatch
from kafkalog.records.control import control_record
from kafkalog.records.internal import UnknownRecordType, UnknownRecordVersion, metadata_record
from kafkalog.records.memory import MemoryRecords
from kafkalog.records.message import MessageError
from kafkalog.records.schemas.metadata import RECORDS
from kafkalog.storage.log_walk import log_chunks
from kafkalog.storage.names import (
    BOOTSTRAP_FILE,
    BOOTSTRAP_SNAPSHOT,
    LOG_SUFFIX,
    METADATA_DIRECTORY,
    parse_base_offset,
)
from kafkalog.storage.readonly.view import LogView
from kafkalog.util.fileio import OS, FileSystem
from kafkalog.util.os_errors import os_errors

MAX_SNAPSHOT_BYTES: Final = 1 << 31
_SNAPSHOT: Final = re.compile(r"([0-9]{20})-([0-9]{10})\.checkpoint")


class ClusterMetadata(NamedTuple):
    """Contents of the metadata files in `path`, a data directory.

    image: topics, settings, users; is_fresh: no controller has written a record yet, and `image` is its initial state,
    from the file `bootstrap_path`; end_offset and leader_epoch: the end of the log, and the epoch of its last batch;
    problem: the error of the data after that end, if it is no whole valid batch; has_directory: the directory of the
    metadata log exists, which formatting creates only in the broker's metadata.log.dir.
    """

    path: str
    image: ClusterImage
    is_fresh: bool
    end_offset: int
    leader_epoch: int
    problem: KafkalogError | None
    bootstrap_path: str
    has_directory: bool

    @property
    def log_path(self) -> str:
        """The directory of the metadata log."""
        return os.path.join(self.path, METADATA_DIRECTORY)

    @property
    def rank(self) -> int:
        """Evidence that the broker uses this directory: 2 for a log with records, 1 for its directory, 0 for a file."""
        return 2 if not self.is_fresh else int(self.has_directory)


def choose_metadata(found: Sequence[ClusterMetadata]) -> ClusterMetadata | None:
    """Return the metadata that applies, of all in a broker's data directories; None if there is none.

    Kafka before 4.4 formats every data directory with a bootstrap.checkpoint, and the broker uses one directory. A
    directory with a metadata log takes precedence over one that could only begin it. IllegalArgument if two of the same
    rank contradict each other: the set of users is never guessed.
    """
    rank = max((one.rank for one in found), default=0)
    same = [one for one in found if one.rank == rank]
    for one in same:
        if all(other is one or one.is_fresh and one.image.contains(other.image) for other in same):
            return one
    if not same:
        return None
    raise IllegalArgument(
        f"{same[1].path} also has a broker's metadata, and the two differ", path=same[0].path,
        hint="the broker uses the one in metadata.log.dir (default: the first of log.dirs): move "
        f"{METADATA_DIRECTORY if rank else BOOTSTRAP_FILE} out of the other data directory",
    )  # fmt: skip


def read_cluster_metadata(path: str | os.PathLike[str], *, fs: FileSystem = OS) -> ClusterMetadata | None:
    """Return the metadata in the data directory `path`; None if it has neither a log nor a file to begin one with.

    CorruptRecord for damage in a snapshot or inside the log, MessageError (an InvalidRecord) for a record that this
    version needs and cannot read, StorageError.
    """
    directory = os.fspath(path)
    log_path = os.path.join(directory, METADATA_DIRECTORY)
    names = _names(log_path, fs)
    image = ClusterImage()
    snapshot = max((found.groups() for name in names if (found := _SNAPSHOT.fullmatch(name))), default=None)
    start = epoch = records = 0
    if snapshot is not None:
        start, epoch = int(snapshot[0]), int(snapshot[1])
        name = f"{snapshot[0]}-{snapshot[1]}.checkpoint"
        for batch in read_batches(os.path.join(log_path, name), fs):
            if name != BOOTSTRAP_SNAPSHOT or batch.header.is_control:
                records += _replay_batch(image, batch, os.path.join(log_path, name))
    end, problem = start, None
    if any(name.endswith(LOG_SUFFIX) and parse_base_offset(name) is not None for name in names):
        with LogView(log_path, fs=fs) as view:
            try:
                for batch in _batches(view, start):
                    records += _replay_batch(image, batch, log_path)
                    epoch = max(epoch, batch.header.leader_epoch)
            except CorruptRecord as error:
                if view.damage is None or error.position != view.damage.position:  # at the end: left to the caller
                    raise
            end, problem = view.log_end_offset, view.damage
    bootstrap = ""
    if not records:
        bootstrap, beginning = _bootstrap(directory, BOOTSTRAP_SNAPSHOT in names, fs)
        if not bootstrap and problem is None:
            return None
        for batch in beginning:
            _replay_batch(image, batch, bootstrap)
    return ClusterMetadata(directory, image, not records, end, epoch, problem, bootstrap, bool(names))


def _bootstrap(directory: str, has_snapshot: bool, fs: FileSystem) -> tuple[str, list[RecordBatch]]:
    """Return the file that a controller begins an empty log with, "" for none, and the batches that it copies."""
    path = os.path.join(directory, METADATA_DIRECTORY, BOOTSTRAP_SNAPSHOT)
    if has_snapshot and (batches := [one for one in read_batches(path, fs) if not one.header.is_control]):
        return path, batches
    path = os.path.join(directory, BOOTSTRAP_FILE)
    return (path, read_batches(path, fs)) if fs.exists(path) else ("", [])


def _names(directory: str, fs: FileSystem) -> list[str]:
    with os_errors("read the metadata directory", directory), suppress(FileNotFoundError, NotADirectoryError):
        return fs.names(directory)
    return []


def read_batches(path: str, fs: FileSystem = OS) -> list[RecordBatch]:
    """Return the batches of a snapshot or bootstrap file; CorruptRecord unless each is whole and valid. StorageError.
    """
    with os_errors("read the metadata snapshot", path):
        data = fs.read_file(path, MAX_SNAPSHOT_BYTES)
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


def _batches(view: LogView, start: int) -> Iterator[RecordBatch]:
    """Yield the batches from the first that reaches `start` on; CorruptRecord for damage between them."""
    for chunk in log_chunks(view, max(start, view.log_start_offset), view.log_end_offset):
        first, end = chunk.batches.position(chunk.first), chunk.batches.position(chunk.last - 1)
        end += chunk.batches.size(chunk.last - 1)
        yield from MemoryRecords(chunk.data[first - chunk.position : end - chunk.position]).batches()


def _replay_batch(image: ClusterImage, batch: RecordBatch, path: str) -> int:
    """Replay a batch, and return the number of its records that are not control records."""
    count = 0
    for record in batch.records():
        if batch.header.is_control:
            image.replay_control(control_record(record.key, record.value))
            continue
        try:
            found = metadata_record(record.value or b"", RECORDS)
            if found.version > RECORDS[found.type].highest:
                raise UnknownRecordVersion(number=found.type)
            image.replay(found)
        except (UnknownRecordType, UnknownRecordVersion) as error:
            known = RECORDS.get(error.number)
            if known is not None and known.name in NEEDED:
                raise _too_new(image, known.name, path, record.offset) from None
            image.skipped[error.number] += 1
        except MessageError as error:
            error.path, error.offset = path, record.offset
            raise
        count += 1
    return count


def _too_new(image: ClusterImage, name: str, path: str, offset: int) -> MessageError:
    return MessageError(
        f"a newer Kafka (metadata.version {image.metadata_version}) wrote the {name} in an unknown version",
        path=path, offset=offset, hint="use a kafkalog release that supports this version of Kafka",
    )  # fmt: skip
