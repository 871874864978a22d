"""Partitions that a commit appends to, open for writing while the commit holds the directory's lock."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack
from typing import Final

from kafkalog._core.batch.scan import BatchHeader, scan
from kafkalog._core.batch.stamp import BadBatch, stamp_producer
from kafkalog.errors import CorruptStagedFile
from kafkalog.landing.landed import SEQUENCES, Found, LogBounds, landed_records
from kafkalog.landing.ledger import Producer, Target
from kafkalog.landing.topic_layout import partition_path
from kafkalog.log.open_writable import open_for_append
from kafkalog.log.writable import WritableLog
from kafkalog.manager.partition import holds_segments
from kafkalog.reading.chunks import batch_chunks
from kafkalog.storage.log import UnifiedLog
from kafkalog.types import TopicPartition
from kafkalog.util.clock import Clock
from kafkalog.util.closing import Closing
from kafkalog.util.fileio import FileSystem

_NO_LOG: Final = LogBounds(0, 0, None)


class PartitionLogs(Closing):
    """Partitions of one data directory by name, opened on request; closing closes and syncs them together.

    Only one thread at a time may use it.
    """

    def __init__(self, directory: str, *, fs: FileSystem, clock: Clock) -> None:
        self._directory = directory
        self._fs = fs
        self._clock = clock
        self._open: dict[TopicPartition, WritableLog] = {}
        self._closing = ExitStack()

    def exists(self, key: TopicPartition) -> bool:
        """Return True if the partition exists."""
        return key in self._open or holds_segments(partition_path(self._directory, key), self._fs)

    def open_existing(self, key: TopicPartition) -> bool:
        """Open the partition if it exists; return True if it is open. Errors as for `kafkalog.open`."""
        if key not in self._open and self.exists(key):
            self.open_or_create(key)
        return key in self._open

    def open_or_create(self, key: TopicPartition) -> None:
        """Open the partition, and create it if it is missing; errors as for `kafkalog.open`."""
        opened = open_for_append(partition_path(self._directory, key), fs=self._fs, clock=self._clock)
        self._closing.callback(opened.close)
        self._open[key] = opened

    def end(self, key: TopicPartition) -> int:
        """Return the log end; 0 for a missing partition."""
        opened = self._open.get(key)
        return 0 if opened is None else opened.log.log_end_offset

    def has_later_epoch(self, key: TopicPartition, producer: Producer) -> bool:
        """Return True if an open log knows this producer's id with its epoch or a later one."""
        known = _known(self._open[key].log, producer)
        return known is not None and known[0] >= producer.epoch

    def landed(self, target: Target, producer: Producer) -> int:
        """Sync the log and return the number of a target's records in it: see `landed_records`. Raises StorageError."""
        opened = self._open.get(target.topic_partition)
        if opened is None:
            return landed_records(target, producer, _NO_LOG, (), path=self._directory)
        log = opened.log
        log.commit()  # a killed process left them in the page cache, and a power loss would lose them
        bounds = LogBounds(log.log_start_offset, log.log_end_offset, _known(log, producer))
        found = (
            Found(one.base_offset, one.next_offset, one.producer_id, one.producer_epoch)
            for one in log_batches(log, target.start_offset, bounds.end)
        )
        return landed_records(target, producer, bounds, found, path=log.path)

    def append(
        self, key: TopicPartition, batches: bytearray, skip: int, passed: int, producer: Producer, path: str,
        position: int,
    ) -> None:  # fmt: skip
        """Append staged batches without their first `skip` records; `passed` records of the partition precede them.

        `path` and `position` are the batches' source, for errors. Raises CorruptStagedFile for invalid batches or ones
        that `skip` would split; StorageError, after which records already appended stay.
        """
        try:
            view = memoryview(batches)[_position_after(batches, skip) :]
            stamp_producer(view, producer.id, producer.epoch, passed % SEQUENCES)
        except BadBatch as error:
            raise CorruptStagedFile(f"{error}, in its section", path=path, position=position + error.position) from None
        log, table, row = self._open[key].log, scan(view, check_crc=False), 0
        while row < table.count:
            stop = log.rows_to_roll(view, table, row)
            if stop == row:  # a power loss must take the end of what landed, not its middle
                log.commit()
                log.roll()
                stop = max(log.rows_to_roll(view, table, row), row + 1)
            piece = view[table.position(row) : table.position(stop - 1) + table.size(stop - 1)]
            log.append_batches(piece, scan(piece, check_crc=False), check_records=False)
            row = stop

    def close(self) -> None:
        """Close and sync every log, then raise the last error, if any."""
        self._open.clear()
        self._closing.close()


def _known(log: UnifiedLog, producer: Producer) -> tuple[int, int] | None:
    """Return the epoch and last sequence that a log has for a producer's id."""
    for state in log.producers:
        if state.producer_id == producer.id:
            return state.producer_epoch, state.last_sequence
    return None


def log_batches(log: UnifiedLog, start: int, end: int) -> Iterator[BatchHeader]:
    """Yield the batches with offsets of [start, end), as far as they still exist."""
    for chunk in batch_chunks(log, max(start, log.log_start_offset), end, log):
        for row in range(chunk.first, chunk.last):
            yield chunk.batches[row]


def _position_after(batches: bytearray, records: int) -> int:
    """Return the position of the batch with so many records before it; raise BadBatch if none begins there."""
    if not records:
        return 0
    table = scan(batches, check_crc=False)
    for row in range(table.count):
        records -= table.records_in(row)
        if records <= 0:
            at = table.position(row) + table.size(row)
            if records < 0:
                raise BadBatch(f"the landed records end within the batch that ends at byte {at}", table.position(row))
            return at
    raise BadBatch("the landed records extend beyond the section", 0)
