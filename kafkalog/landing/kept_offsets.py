"""Appending staged batches that keep their offsets to partitions that were empty.

A batch that is already in its log is recognized by offset, size and checksum. After a kill the import continues at the
log's end, if everything before it comes from the import.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator, Mapping
from typing import Final

from kafkalog._core.batch.scan import BatchHeader, BatchTable, scan
from kafkalog.dirs.create import check_name_is_free
from kafkalog.errors import IllegalState
from kafkalog.landing.import_plan import ImportPlan, KeptTarget
from kafkalog.landing.partition_logs import log_batches
from kafkalog.landing.staging import StageReader
from kafkalog.landing.topic_layout import partition_path, read_layout
from kafkalog.log.open import open as open_log
from kafkalog.log.open_writable import open_for_append
from kafkalog.manager.topics import TopicStore
from kafkalog.storage.log import UnifiedLog
from kafkalog.types import TopicPartition
from kafkalog.util.clock import Clock
from kafkalog.util.fileio import FileSystem

APPEND_BYTES: Final = 1 << 20



def is_empty(directory: str, where: TopicPartition) -> bool:
    """Return True if a partition is missing, or has no record and never had one."""
    path = partition_path(directory, where)
    if not os.path.isdir(path):
        return True
    with open_log(path) as log:
        return log.end_offset == 0


def check_targets(
    directory: str, targets: Iterable[KeptTarget], partitions: Mapping[str, int], *, fs: FileSystem
) -> None:
    """Raise IllegalState if a target is no longer empty, TopicExists for a new topic whose name collides."""
    for target in targets:
        if not is_empty(directory, target.topic_partition):
            raise IllegalState(
                f"{target.topic_partition} is no longer empty, so the records cannot keep their offsets",
                path=directory, hint="import without offsets, or into another directory",
            )  # fmt: skip
    for topic in partitions:
        if not read_layout(directory, topic, fs=fs).partitions:
            check_name_is_free([directory], topic, directory, fs, beside=partitions)


def land_plan(directory: str, plan: ImportPlan, *, fs: FileSystem, clock: Clock) -> None:
    """Append what is not in the logs yet, and sync; the caller holds the directory's lock.

    Raises IllegalState if a log holds something other than the plan's batches; CorruptStagedFile, StorageError.
    """
    for topic, count in sorted(plan.partitions.items()):
        TopicStore(directory, fs=fs).ensure(topic, partitions=count)
        for number in range(count):
            where = TopicPartition(topic, number)
            opened = open_for_append(partition_path(directory, where), fs=fs, clock=clock)
            try:
                for target in plan.targets:
                    if target.topic_partition == where:
                        _append(directory, opened.log, target, fs)
            finally:
                opened.close()


def _append(directory: str, log: UnifiedLog, target: KeptTarget, fs: FileSystem) -> None:
    if log.log_end_offset == 0 and target.first > 0:
        log.truncate_fully_and_start_at(target.first)
    end = log.log_end_offset
    if not target.first <= end <= target.end:
        raise _unexpected_end(target, end, log.path)
    with StageReader(directory, target.file, fs=fs) as reader:
        if end > target.first and not _matches_staged(log, reader, target, end):
            raise _unexpected_end(target, end, log.path)
        for data, table in _tables(reader):
            for first, stop in _groups(table, end):
                at = table.position(first)
                last = table.position(stop - 1) + table.size(stop - 1)
                log.append_as_follower(bytes(memoryview(data)[at:last]), 0)


def _matches_staged(log: UnifiedLog, reader: StageReader, target: KeptTarget, end: int) -> bool:
    """Return True if everything in a log up to `end` is what is staged for it; False if nothing is left to compare."""
    start = max(target.first, log.log_start_offset)
    if start >= end:
        return False
    staged = (_identity(batch) for _, table in _tables(reader) for batch in table if batch.next_offset > start)
    return all(_identity(batch) == next(staged, None) for batch in log_batches(log, start, end))


def _identity(batch: BatchHeader) -> tuple[int, int, int]:
    """Return what identifies a batch at its place: offset, size and checksum."""
    return batch.base_offset, batch.size, batch.crc


def _tables(reader: StageReader) -> Iterator[tuple[bytearray, BatchTable]]:
    """Yield the staged batches section by section, with their bytes."""
    for section in reader.sections:
        data = reader.read(section)
        yield data, scan(data, check_crc=False)


def _groups(table: BatchTable, end: int) -> Iterator[tuple[int, int]]:
    """Yield rows [first, stop) of about APPEND_BYTES each, of the batches from the offset `end` on."""
    first = 0
    while first < table.count and table.last_offset_of(first) < end:
        first += 1
    while first < table.count:
        stop, size = first, 0
        while stop < table.count and (stop == first or size + table.size(stop) <= APPEND_BYTES):
            size += table.size(stop)
            stop += 1
        yield first, stop
        first = stop


def _unexpected_end(target: KeptTarget, end: int, path: str) -> IllegalState:
    return IllegalState(
        f"{target.topic_partition} ends at {end}, where an import of offsets {target.first} to {target.end - 1} "
        "cannot continue",
        path=path, offset=end,
        hint="another writer appended to it after the import was killed: delete the partition and the plan, "
        "then import again",
    )  # fmt: skip
