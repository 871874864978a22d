"""Moves of partitions between the data directories of a node (KIP-113): a future log is filled, then takes over.

    request -> future log -> copy in the background -> hold appends -> copy the rest -> swap
The next start continues a future log that a stop or crash left behind, or copies from the beginning if its end differs
from the current log. The copy also starts over if the current log was truncated meanwhile: other records may have those
offsets.
"""

from __future__ import annotations

import asyncio
import logging
from typing import TYPE_CHECKING, Final

from kafkalog._core.batch.scan import scan
from kafkalog.errors import IllegalArgument, IllegalState, KafkalogError, OffsetOutOfRange
from kafkalog.manager.placement import find_directory
from kafkalog.server.error_codes import ErrorCode, code_of
from kafkalog.server.node.parts import Part
from kafkalog.storage.append import append_copied

if TYPE_CHECKING:
    from kafkalog.manager.data_directory import DataDirectory
    from kafkalog.server.node.node import Node
    from kafkalog.storage.log import UnifiedLog
    from kafkalog.types import TopicPartition

_LOG: Final = logging.getLogger(__name__)
CHUNK_BYTES: Final = 1 << 20
_RETRY_MS: Final = 100
_SHORT_MS: Final = 1


def copy_chunk(current: UnifiedLog, future: UnifiedLog) -> bool:
    """Copy the next part of a log into its future log; return False if that has all that the log had at the call.

    A future log that reaches beyond the current one, or ends before its start, is cut first.
    """
    end, before = current.log_end_offset, future.log_end_offset
    if future.log_end_offset < current.log_start_offset:
        # the log may start inside a batch, which is copied whole
        table = scan(current.read(current.log_start_offset, 1).records.read())
        begin = min(table.first_offset, current.log_start_offset) if len(table) else current.log_start_offset
        if future.log_end_offset < begin:
            future.truncate_fully_and_start_at(begin)
    elif future.log_end_offset > current.log_end_offset:
        future.truncate_to(current.log_end_offset)
    if future.log_end_offset < current.log_end_offset:
        limit = min(CHUNK_BYTES, future.config.segment_size)
        data = current.read(max(future.log_end_offset, current.log_start_offset), limit).records.read()
        append_copied(future, bytearray(data))
    future.update_high_watermark(min(current.high_watermark, future.log_end_offset))
    future.maybe_increment_log_start_offset(min(current.log_start_offset, future.high_watermark))
    return before != future.log_end_offset < end  # the last offsets may have no records


def prepare_future(current: UnifiedLog, future: UnifiedLog, cuts: int | None) -> int:
    """Empty a future log that may have other records than the current one, and return `truncation_count`.

    `cuts` is the count of the last call; None after a start, when the future log's last batch is compared.
    """
    count = current.truncation_count_when_idle()
    if cuts is None and future.log_end_offset > current.log_end_offset:
        future.truncate_to(current.log_end_offset)
    if cuts != count if cuts is not None else not _end_alike(current, future):
        _LOG.info("the copy of %s to another directory begins again", current.topic_partition)
        future.truncate_fully_and_start_at(0)
    return count


def take_epoch(current: UnifiedLog, future: UnifiedLog) -> None:
    """Begin the current log's newest epoch in the future log if they end alike: it may have begun without records."""
    state = current.state
    if state.log_end_offset == future.log_end_offset:
        future.begin_epoch(state.leader_epoch)


def _end_alike(current: UnifiedLog, future: UnifiedLog) -> bool:
    """Return True if the future log has no records, none that the current one still has, or its last batch is there."""
    end = future.log_end_offset
    if end <= max(future.log_start_offset, current.log_start_offset):
        return True
    copied, given = (one.read(end - 1, 1).records.read() for one in (future, current))
    batches, others = scan(copied), scan(given)
    return len(batches) == 0 or (len(others) > 0 and copied[: batches.size(0)] == given[: others.size(0)])


class DirMoves(Part):
    """The moves in progress. Only for the event loop's thread."""

    def __init__(self, node: Node) -> None:
        self._node = node
        self._tasks: dict[TopicPartition, asyncio.Task[None]] = {}
        self._cuts: dict[TopicPartition, int | None] = {}  # as `prepare_future` returned them
        self._turn = asyncio.Lock()
        """Held while a request is carried out: the last one of a partition counts."""

    async def start(self) -> None:
        """Continue the moves that were in progress when the node stopped."""
        if not self._node.is_read_only:
            for key in self._node.store.future_logs:
                self._begin(key)

    async def stop(self) -> None:
        """Stop copying. The future logs stay, for the next start."""
        for task in tuple(self._tasks.values()):
            task.cancel()
        await asyncio.gather(*self._tasks.values(), return_exceptions=True)

    async def move(self, key: TopicPartition, path: str) -> ErrorCode:
        """Begin to move a partition to a data directory, or give up its move if it lies there already."""
        store = self._node.store
        try:
            target = find_directory(store.directories, path)
        except IllegalArgument:
            target = None
        if target is None:
            return ErrorCode.LOG_DIR_NOT_FOUND
        if not target.is_online:
            return ErrorCode.KAFKA_STORAGE_ERROR
        try:
            self._node.replicas.find(key)
            async with self._turn:
                return await self._move_to(key, target)
        except KafkalogError as error:
            _LOG.warning("%s cannot be moved to %s: %s", key, path, error)
            return ErrorCode(code_of(error))

    async def _move_to(self, key: TopicPartition, target: DataDirectory) -> ErrorCode:
        store, run = self._node.store, self._node.run
        log, future = store.get(key), store.get(key, is_future=True)
        if future is not None and store.directory_of(future) is not target:
            await self._give_up(key)
            future = None
        if log is not None and store.directory_of(log) is not target and future is None:
            future = await run(store.get_or_create, key, is_future=True, directory=target.path)
        if future is not None and key not in self._tasks:  # also after an error ended it
            self._begin(key)
        return ErrorCode.NONE

    async def _give_up(self, key: TopicPartition) -> None:
        task = self._tasks.pop(key, None)
        if task is not None:
            task.cancel()
            await asyncio.gather(task, return_exceptions=True)
        await self._node.run(self._node.store.delete, key, is_future=True)

    def _begin(self, key: TopicPartition) -> None:
        self._cuts[key] = None
        task = asyncio.get_running_loop().create_task(self._run(key))
        self._tasks[key] = task
        task.add_done_callback(lambda done: self._tasks.pop(key, None) if self._tasks.get(key) is done else None)

    async def _run(self, key: TopicPartition) -> None:
        try:
            while not await self._try_step(key):
                pass
        except KafkalogError as error:
            _LOG.error("the move of %s to another directory is given up: %s", key, error)
        except Exception:
            _LOG.exception("the move of %s to another directory is given up", key)

    async def _try_step(self, key: TopicPartition) -> bool:
        try:
            return await self._step(key)
        except OffsetOutOfRange as error:  # a delete moved the log's start while its beginning was read
            _LOG.debug("%s is copied on from its new start: %s", key, error)
            await asyncio.sleep(_RETRY_MS / 1000)
            return False

    async def _step(self, key: TopicPartition) -> bool:
        """Copy what there is, then swap the logs; return True if the move has ended."""
        node, store = self._node, self._node.store
        log, future = store.get(key), store.get(key, is_future=True)
        if log is None or future is None:  # deleted meanwhile
            return True
        cuts = self._cuts[key] = await node.run(prepare_future, log, future, self._cuts[key])
        while await node.run(copy_chunk, log, future):
            if log.truncation_count != cuts:
                return False
        await node.run(future.flush)
        waits_for_records = log.data_end_offset <= future.log_end_offset < log.log_end_offset
        if waits_for_records or node.quorum.is_handing_over:  # a handover holds the appends itself
            await asyncio.sleep(_RETRY_MS / 1000)
            return False
        node.replicas.hold_writes()
        try:
            while node.replicas.pool_appends:
                await asyncio.sleep(_SHORT_MS / 1000)
            while copy_chunk(log, future):
                pass
            is_over = log.truncation_count == cuts
            if is_over:
                take_epoch(log, future)
                store.replace_with_future(key)
        except IllegalState as error:  # another thread appended: the rest is copied next
            _LOG.debug("%s is not swapped yet: %s", key, error)
            is_over = False
        finally:
            if not node.quorum.is_handing_over:  # else they wait for its end, although it began after this move's hold
                node.replicas.release_writes()
        if not is_over:
            await asyncio.sleep(_RETRY_MS / 1000)
            return False
        node.replicas.moved(key)
        return True
