"""What a handover must know of each partition directory; only read, nothing is locked or changed."""

from __future__ import annotations

import os
from collections.abc import Iterator
from typing import NamedTuple

from kafkalog.errors import CorruptCheckpoint, CorruptSnapshot, StorageError
from kafkalog.storage.leader_epoch import LeaderEpochCache
from kafkalog.storage.log_walk import log_chunks
from kafkalog.storage.partition_metadata import read_partition_metadata
from kafkalog.storage.producer_snapshot import read_snapshot
from kafkalog.storage.snapshots import Snapshots
from kafkalog.storage.view import LogView
from kafkalog.types import TopicPartition
from kafkalog.util.fileio import FileSystem


class PartitionSurvey(NamedTuple):
    """One partition directory as it lies.

    topic_id: of partition.metadata, None without that file. leader_epoch: the highest that any batch or the epoch
    file has, -1 for none. largest_producer_id: -1 for none. undecided: the first offset of a transaction that is open,
    None for none. torn: what lies behind the last whole batch, None for nothing. epochs_problem: why the epoch file
    cannot be read.
    """

    topic_partition: TopicPartition
    path: str
    topic_id: str | None
    start_offset: int
    end_offset: int
    leader_epoch: int
    largest_producer_id: int
    undecided: int | None
    torn: str | None
    epochs_problem: str | None

    @property
    def directory(self) -> str:
        """The data directory."""
        return os.path.dirname(self.path)


def survey(topic_partition: TopicPartition, path: str, fs: FileSystem) -> PartitionSurvey:
    """Look at one partition directory.

    CorruptRecord for damage in what is read of it, CorruptCheckpoint for its partition.metadata, StorageError.
    """
    with LogView(path, fs=fs) as view:
        epochs_problem = None
        epoch = view.leader_epoch
        try:
            epoch = max(epoch, LeaderEpochCache.read(path, fs=fs).latest_epoch)
        except CorruptCheckpoint as error:
            epochs_problem = error.message
        stable, end = view.last_stable_offset, view.log_end_offset
        damage = view.damage
        return PartitionSurvey(
            topic_partition,
            path,
            read_partition_metadata(fs, path),
            view.log_start_offset,
            end,
            epoch,
            _largest_producer_id(view, path, fs),
            stable if stable < end else None,
            None if damage is None else str(damage.message),
            epochs_problem,
        )


def _largest_producer_id(view: LogView, path: str, fs: FileSystem) -> int:
    """The largest producer id that a broker may know from this directory: of snapshots and what lies behind them."""
    largest, start = -1, view.log_start_offset
    for offset in (snapshots := Snapshots(path, fs=fs)).offsets:
        try:
            entries = read_snapshot(snapshots.path(offset), fs=fs)
        except (CorruptSnapshot, StorageError):
            continue  # it is not believed by a broker either, which reads the log instead
        largest = max([largest, *(entry.producer_id for entry in entries)])
        if offset <= view.log_end_offset:
            start = max(start, offset)
    return max([largest, *_producer_ids(view, start)])


def _producer_ids(view: LogView, offset: int) -> Iterator[int]:
    """Yield the producer ids of the batches from `offset` on; CorruptRecord for damage between them."""
    for chunk in log_chunks(view, offset, view.log_end_offset):
        if chunk.batches.has_producers:
            yield from (chunk.batches[row].producer_id for row in range(chunk.first, chunk.last))
