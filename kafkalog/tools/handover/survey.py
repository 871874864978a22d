"""Survey of partition directories for a handover; read-only, nothing is locked or changed."""

from __future__ import annotations

import os
from collections.abc import Iterator
from typing import Final, NamedTuple

from kafkalog.errors import CorruptCheckpoint, CorruptSnapshot, StorageError
from kafkalog.records.internal import coordinator_record
from kafkalog.records.message import MessageError
from kafkalog.records.schemas.transactions import KEYS, VALUES
from kafkalog.storage.leader_epoch import LeaderEpochCache
from kafkalog.storage.log_walk import data_records, log_chunks
from kafkalog.storage.names import CLEAN_SHUTDOWN_FILE
from kafkalog.storage.partition_metadata import read_partition_metadata
from kafkalog.storage.producer_snapshot import read_snapshot
from kafkalog.storage.readonly.view import LogView
from kafkalog.storage.snapshots import Snapshots
from kafkalog.types import TopicPartition
from kafkalog.util.fileio import FileSystem

TRANSACTION_STATE: Final = "__transaction_state"
_UNFINISHED: Final = frozenset({1, 2, 3, 7})
"""States of a transaction that a coordinator ends: ongoing, its end prepared, or its producer being fenced."""


class Open(NamedTuple):
    """A transaction that is open in a partition."""

    producer_id: int
    topic_partition: TopicPartition


class PartitionSurvey(NamedTuple):
    """One partition directory.

    topic_id: of partition.metadata, None without that file. leader_epoch: the highest in any batch or the epoch file,
    -1 for none. largest_producer_id: -1 for none. open_transactions: the first offset of each, by producer id. torn:
    error of the bytes after the last complete batch, None for none. is_untrimmed: closed cleanly, but reserved space
    follows that batch. epochs_problem: error of an unreadable epoch file.
    ends: transactions that a coordinator ends when it loads this partition of `__transaction_state`.
    """

    topic_partition: TopicPartition
    path: str
    topic_id: str | None
    start_offset: int
    end_offset: int
    leader_epoch: int
    largest_producer_id: int
    open_transactions: dict[int, int]
    torn: str | None
    is_untrimmed: bool
    epochs_problem: str | None
    ends: frozenset[Open] = frozenset()

    @property
    def directory(self) -> str:
        """The data directory."""
        return os.path.dirname(self.path)


def survey(topic_partition: TopicPartition, path: str, fs: FileSystem) -> PartitionSurvey:
    """Survey one partition directory.

    CorruptRecord for damage in the part that is read, CorruptCheckpoint for its partition.metadata, StorageError.
    """
    with LogView(path, fs=fs) as view:
        epochs_problem = None
        epoch = view.leader_epoch
        try:
            epoch = max(epoch, LeaderEpochCache.read(path, fs=fs).latest_epoch)
        except CorruptCheckpoint as error:
            epochs_problem = error.message
        damage = view.damage
        return PartitionSurvey(
            topic_partition,
            path,
            read_partition_metadata(fs, path),
            view.log_start_offset,
            view.log_end_offset,
            epoch,
            _largest_producer_id(view, path, fs),
            view.open_transactions,
            None if damage is None else str(damage.message),
            view.has_reserved_space and fs.exists(os.path.join(os.path.dirname(path), CLEAN_SHUTDOWN_FILE)),
            epochs_problem,
            frozenset(_transactions_to_end(view)) if topic_partition.topic == TRANSACTION_STATE else frozenset(),
        )


def _largest_producer_id(view: LogView, path: str, fs: FileSystem) -> int:
    """Return the largest producer id a broker may load from this directory: from snapshots and later batches."""
    largest, start = -1, view.log_start_offset
    for offset in (snapshots := Snapshots(path, fs=fs)).offsets:
        try:
            entries = read_snapshot(snapshots.path(offset), fs=fs)
        except (CorruptSnapshot, StorageError):
            continue  # a broker ignores it too, and reads the log instead
        largest = max([largest, *(entry.producer_id for entry in entries)])
        if offset <= view.log_end_offset:
            start = max(start, offset)
    return max([largest, *_producer_ids(view, start)])


def _producer_ids(view: LogView, offset: int) -> Iterator[int]:
    """Yield the producer ids of the batches from `offset` on; CorruptRecord for damage between them."""
    for chunk in log_chunks(view, offset, view.log_end_offset):
        if chunk.batches.has_producers:
            yield from (chunk.batches[row].producer_id for row in range(chunk.first, chunk.last))


def _transactions_to_end(view: LogView) -> Iterator[Open]:
    """Yield the transactions that a coordinator with these records ends.

    Unreadable records are skipped, as by a broker.
    """
    values: dict[bytes, bytes | None] = {}
    for record in data_records(view, view.log_start_offset, view.log_end_offset):
        values[record.key or b""] = record.value
    for key, value in values.items():
        try:
            data = coordinator_record(key, value, KEYS, VALUES).value
        except MessageError:
            continue
        if data is not None and data["transactionStatus"] in _UNFINISHED:
            for entry in data["transactionPartitions"] or ():
                for number in entry["partitionIds"]:
                    yield Open(data["producerId"], TopicPartition(entry["topic"], number))
