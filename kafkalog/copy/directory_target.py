"""Target in a data directory: batches are appended as a follower appends them, with their offsets and gaps.

The position of a copy is the end of the log itself. A run that was killed leaves whole batches up to some offset, as
after any crash, and the next one continues from there. No background job runs: retention or compaction would
change the copy before it is complete.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from contextlib import aclosing
from typing import TYPE_CHECKING, Final

from kafkalog.config.broker import BrokerConfig
from kafkalog.config.topic import TOPIC_TABLE, LogConfig
from kafkalog.copy.batches import bytes_of, committed_batches, is_changed_from
from kafkalog.copy.facts import TargetTopic, TargetTraits
from kafkalog.copy.plan import TopicPlan
from kafkalog.copy.report import CopiedPartition, NotKept
from kafkalog.copy.targets import Copied, GroupOffsets, PartitionJob
from kafkalog.copy.tiering import tier_closed
from kafkalog.dirs.open import open_dirs
from kafkalog.errors import IllegalArgument, IllegalState, KafkalogError, NotAPartition
from kafkalog.manager.checkpoints import (
    record_log_start,
    write_high_watermarks,
    write_log_starts,
    write_recovery_points,
)
from kafkalog.manager.jobs import write_each
from kafkalog.manager.log_manager import LogManager
from kafkalog.manager.opening import OpenedLogs, open_logs
from kafkalog.reading.chunks import batch_chunks
from kafkalog.server.groups.stored import commit_all, read_groups, whole_offsets
from kafkalog.storage.log import UnifiedLog
from kafkalog.storage.segment_reader import Chunk
from kafkalog.tiered.description import Description
from kafkalog.types import TopicPartition
from kafkalog.util.clock import SYSTEM_CLOCK
from kafkalog.util.fileio import OS

if TYPE_CHECKING:
    from kafkalog.dirs.log_dirs import LogDirs

_APPEND_BYTES: Final = 1 << 20
SUPPORTED: Final = frozenset(key.name for key in TOPIC_TABLE.keys)


class DirectoryTarget:
    """A data directory, locked until `close`; it is opened when it is first written to."""

    def __init__(self, path: str, tiered: Description | None = None) -> None:
        """`tiered` is a store that gets the closed segments of the topics too."""
        self.traits = TargetTraits(path, keeps_log=True, settings=SUPPORTED)
        self._tiered = tiered
        self._names: list[str] = []
        self._path = os.path.realpath(path)
        self._opened: OpenedLogs | None = None

    async def existing(self, names: Sequence[str]) -> dict[str, TargetTopic]:
        """Return those of the topics that exist; the directory is only read."""
        return topics_in(self._path, names)

    async def check(self, plan: TopicPlan) -> None:
        """Raise ConfigError for settings that are not valid, IllegalArgument for a compacted topic to be tiered."""
        config = LogConfig.from_stored(plan.settings)
        if self._tiered is not None and config.compact:
            raise IllegalArgument(
                f"{plan.topic.name} is compacted, and Kafka tiers no compacted topic",
                hint="copy it without the tiered store",
            )

    async def create(self, plan: TopicPlan) -> None:
        """Create the topic with the id of the source, or the rest of its partitions.

        InconsistentTopicId if the topic there is another one of that name; DirectoryLocked, StorageError, ConfigError.
        """
        manager = self._logs().manager
        topic = plan.topic
        self._names.append(topic.name)
        for number in topic.partitions:
            key = TopicPartition(topic.name, number)
            manager.get_or_create(key, topic_id=topic.topic_id, settings=plan.settings)

    def _logs(self) -> OpenedLogs:
        if self._opened is None:
            self._opened = open_logs([self._path], BrokerConfig(log_cleaner_enable=False), fs=OS, clock=SYSTEM_CLOCK)
        return self._opened

    async def copy(self, job: PartitionJob) -> Copied:
        """Append the batches that the log lacks. Errors as for `Source.chunks` and a follower's append.

        IllegalState if the log does not end with a batch of the source.
        """
        manager = self._logs().manager
        log = manager.get(job.key)
        assert log is not None
        lost = await self._position(log, job)
        before, written = log.log_end_offset, _Written()
        is_whole = await self._append_all(log, job, written)
        stop = job.facts.stop if is_whole else max(job.facts.start, min(job.facts.stop, log.log_end_offset))
        log.update_high_watermark(log.log_end_offset)
        log.flush()
        for write in (write_recovery_points, write_high_watermarks, write_log_starts):
            write_each(manager, write)
        done = max(0, min(before, job.facts.stop) - job.facts.start)
        report = CopiedPartition(
            job.key.topic, job.key.partition, job.facts.start, stop, log.log_start_offset,
            log.log_end_offset, done, written.records, written.size, "kept",
        )  # fmt: skip
        return Copied(report, None, lost)

    async def _append_all(self, log: UnifiedLog, job: PartitionJob, written: _Written) -> bool:
        """Append the missing batches; return False if a stop ended this early."""
        first = max(log.log_end_offset, job.facts.start)
        chunks = job.source.chunks(job.key, first, job.facts.stop, committed=job.isolation == "read_committed")
        async with aclosing(chunks):
            async for chunk in chunks:
                for row, data, records in _pieces(chunk, job, log.config.segment_size):
                    if job.is_stopped():
                        return False
                    try:
                        _append(self._logs().manager, log, data)
                    except KafkalogError as error:
                        _set_place(error, chunk, row)
                        raise
                    written.add(len(data), records)
                    job.progress(len(data))
        return True

    async def _position(self, log: UnifiedLog, job: PartitionJob) -> tuple[NotKept, ...]:
        """Make the log's end the offset to continue from; check that the log has the source's records."""
        start, end = job.facts.start, log.log_end_offset
        if log.log_start_offset == end and end < start:
            _restart(self._logs().manager, log, start)
            if not end:
                return ()
        if end > job.facts.end:
            raise IllegalState(
                f"{job.key} ends at offset {end}, and in the source at {job.facts.end}", path=log.path,
                hint="the source lost records, or this log was written to: copy into another directory",
            )  # fmt: skip
        if end < start:
            why = "the source deleted them before they were copied"
            return (NotKept(str(job.key), f"records of offsets {end} to {start}", why),)
        if start < end:
            await self._check_last(log, job)
        return ()

    async def _check_last(self, log: UnifiedLog, job: PartitionJob) -> None:
        """Raise IllegalState if the source has another batch than the log's last one anywhere in its offsets.

        Compaction may have removed the batch from the source, but never adds records. Either log may be redacted. Of a
        copy of committed records, only those are compared: the batch here has no producer.
        """
        end = log.log_end_offset
        own = next(batch_chunks(log, max(log.log_start_offset, end - 1), end), None)
        if own is None:
            return
        last = own.batches[own.last - 1]
        first = max(job.facts.start, min(last.base_offset, end - 1))
        may_be_compacted = job.topic.settings is None or job.topic.is_compacted
        is_committed = job.isolation == "read_committed"
        async for chunk in job.source.chunks(job.key, first, end, committed=is_committed):
            for row in range(chunk.first, chunk.last):
                batch = chunk.batches[row]
                is_same = (batch.last_offset, batch.size, batch.crc) == (last.last_offset, last.size, last.crc)
                if not is_same and not is_changed_from(
                    chunk, row, own, own.last - 1, may_be_compacted=may_be_compacted
                ):
                    raise IllegalState(
                        f"{job.key} has another batch at offset {last.base_offset} than the source", path=log.path,
                        offset=last.base_offset, hint="it is another log: copy into another directory",
                    )  # fmt: skip

    async def commit(self, offsets: GroupOffsets) -> dict[str, str]:
        """Commit groups' offsets unless these are ahead already. Errors as for `commit_all`."""
        known = whole_offsets([self._path])
        wanted: dict[str, dict[str, dict[int, int]]] = {}
        for group, found in offsets.items():
            for key, offset in found.items():
                if known.get(group, {}).get(key.topic, {}).get(key.partition, -1) < offset:
                    wanted.setdefault(group, {}).setdefault(key.topic, {})[key.partition] = offset
        brokers = read_groups([self._path]).kinds
        left = {group: f"the target has a {brokers[group]} group of this name" for group in wanted if group in brokers}
        own = {group: found for group, found in wanted.items() if group not in brokers}
        if own:
            await self.close()  # the groups' log is opened like any other
            commit_all(self._path, own)
        return left

    async def committed(self, group: str, keys: Sequence[TopicPartition]) -> dict[TopicPartition, int]:
        """Return the offsets that a group has in the target."""
        own = whole_offsets([self._path]).get(group, {})
        return {key: own[key.topic][key.partition] for key in keys if key.partition in own.get(key.topic, {})}

    async def finish(self) -> None:
        """Put closed segments in the tiered store, if there is one: else the log is all that readers see.

        Errors as for `tier_closed`.
        """
        if self._tiered is not None:
            await self.close()
            tier_closed(self._path, list(dict.fromkeys(self._names)), self._tiered)

    async def close(self) -> None:
        """Close the logs and release the lock."""
        opened, self._opened = self._opened, None
        if opened is not None:
            opened.close()


def topics_in(path: str, names: Sequence[str]) -> dict[str, TargetTopic]:
    """Return those of the topics that a data directory has, with the ends of their partitions; it is only read."""
    if not os.path.isdir(path):
        return {}
    with open_dirs(path) as dirs:
        topics = {}
        for name, topic in dirs.topics.items():
            if name in names:
                ends = {number: _end_of(dirs, name, number) for number in topic.partitions}
                topics[name] = TargetTopic(topic.settings, ends, ends)
        return topics


def _end_of(dirs: LogDirs, topic: str, number: int) -> int:
    """Return the end of a partition; 0 for a directory that a killed copy has only just created."""
    try:
        return dirs[topic, number].end_offset
    except NotAPartition:
        return 0


class _Written:
    def __init__(self) -> None:
        self.size = 0
        self.records = 0

    def add(self, size: int, records: int) -> None:
        self.size += size
        self.records += records


def _pieces(chunk: Chunk, job: PartitionJob, segment_size: int) -> Iterator[tuple[int, memoryview | bytearray, int]]:
    """Yield the batches of a chunk in buffers that fit in a segment, each with its first row and number of records."""
    limit = min(_APPEND_BYTES, segment_size)
    table, first = chunk.batches, chunk.first
    while first < chunk.last:
        last, size, records = first, 0, 0
        while last < chunk.last and (last == first or size + table.size(last) <= limit):
            size += table.size(last)
            records += max(0, table.records_in(last))
            last += 1
        if job.isolation == "read_committed":
            yield first, committed_batches(chunk._replace(first=first, last=last)), records
        else:
            yield first, bytes_of(chunk, first, last), records
        first = last


def _restart(manager: LogManager, log: UnifiedLog, offset: int) -> None:
    with manager.cutting({log.topic_partition: offset}):
        log.truncate_fully_and_start_at(offset)


def _set_place(error: KafkalogError, chunk: Chunk, row: int) -> None:
    """Add the position in the source to an append's error, for batches from `row` on, unless the error names a file."""
    if error.path is None:
        error.path = chunk.path
        error.offset = chunk.batches.base_offset(row) if error.offset is None else error.offset
        error.position = chunk.batches.position(row) + (error.position or 0)
    error.hint = error.hint or "check the source with `kafkalog verify`; the next run continues with these batches"


def _append(manager: LogManager, log: UnifiedLog, data: memoryview | bytearray) -> None:
    """Append batches as a follower.

    An empty log restarts at the first batch if its start lies inside that batch, and then hides the records before it:
    the source deleted them. The start is on disk before they are, since a kill may follow, after which a later run
    could not tell them from records that it has to leave.
    """
    base, start = int.from_bytes(memoryview(data)[:8], "big", signed=True), log.log_start_offset
    is_inside = start == log.log_end_offset and base < start and data[16] >= 2
    if is_inside:
        _restart(manager, log, base)
        record_log_start(os.path.dirname(log.path), log, next_start=start)
    log.append_as_follower(data, None)
    if is_inside:
        log.update_high_watermark(log.log_end_offset)
        log.maybe_increment_log_start_offset(start)
