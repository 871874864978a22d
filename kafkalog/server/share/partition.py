"""A share partition of a node: its window of records in flight, the timer of their locks, and its stored state."""

from __future__ import annotations

import asyncio
import logging
import re
from collections.abc import Callable, Sequence
from datetime import timedelta
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from kafkalog.errors import KafkalogError
from kafkalog.server.error_codes import ErrorCode
from kafkalog.server.groups.group_log import group_error_code
from kafkalog.server.node.pool import read_with
from kafkalog.server.replica.results import FetchParams, FetchPartition, FetchResult
from kafkalog.server.settings.groups import group_setting
from kafkalog.server.share import dead_letters
from kafkalog.server.share import window as windows
from kafkalog.server.share.batches import LogBatch, aborted_ranges, read_batches, without
from kafkalog.server.share.state import UNKNOWN_START, Change, ShareKey, ShareState
from kafkalog.server.share.window import (
    AcknowledgedRange,
    AcknowledgementRefused,
    AcquiredRows,
    DeadLetters,
    Ending,
    Limits,
    Plan,
    RecordState,
    Window,
)

if TYPE_CHECKING:
    from kafkalog.server.node.node import Node
    from kafkalog.server.share.state_log import ShareStateLog
    from kafkalog.storage.file_slice import FileSlice
    from kafkalog.types import Isolation, TopicPartition

_LOG: Final = logging.getLogger(__name__)
_MOST_BYTES: Final = 1 << 20
"""Limit of the bytes that one fetch looks through in a partition, if its first batch is not larger."""
_PASS_OVER_MS: Final = 5_000
_LETTERS_S: Final = 30.0
"""Limit of the time that a state waits for its dead letters before another one takes its place."""


class Fetched(NamedTuple):
    """Result of a fetch from one share partition."""

    error_code: int = 0
    records: FileSlice | None = None
    rows: tuple[AcquiredRows, ...] = ()

    @property
    def offsets(self) -> int:
        """Number of acquired offsets."""
        return sum(row.last - row.first + 1 for row in self.rows)


class SharePartition:
    """A share partition. Only for the event loop's thread; a change is stored before it takes effect."""

    def __init__(
        self, node: Node, log: ShareStateLog, key: ShareKey, place: TopicPartition, wake: Callable[[], object]
    ) -> None:
        self.key = key
        self.place = place
        self.failure = 0
        """Error code of a change that took effect but was not stored, because of which the partition was closed."""
        self._node = node
        self._log = log
        self._wake = wake
        self._window: Window | None = None
        self._timer: asyncio.TimerHandle | None = None
        self._timer_ms = 0
        self._fetching = asyncio.Lock()
        self._burials: set[asyncio.Task[None]] = set()

    async def load(self) -> int:
        """Load the stored state, if not done. Return 0 or the error code for the client."""
        if self._window is not None:
            return 0
        async with self._fetching:
            error = await self._log.ready(self.key)
            if error or self._window is not None:
                return error
            state = await self._begun()
            if not isinstance(state, ShareState):
                return state
            loaded = windows.loaded(state.start, state.batches)
            self._window = windows.begin_at(loaded, self._node.replicas.find(self.place).log.log_start_offset)
        return 0

    def resume_letters(self) -> None:
        """Start writing the dead letters that the loaded state lacks: once, and not for a partition to be dropped."""
        if self._window is not None and not self._node.is_read_only:
            self._bury(windows.unwritten(self._window, self.setting("share.delivery.count.limit")))

    async def letters_written(self) -> None:
        """Wait until the dead letters in progress are written, or given up; a limited time."""
        if self._burials:
            await asyncio.wait(tuple(self._burials), timeout=_LETTERS_S)

    async def _begun(self) -> ShareState | int:
        """Return the stored state with the offset at which the group begins, or the error code for the client.

        An offset that would be another one after a restart is stored: no record between the two may be lost.
        """
        partition = self._node.replicas.find(self.place)
        while (state := self._log.get(self.key)) is not None and state.start == UNKNOWN_START:
            timestamp = reset_timestamp(self.setting("share.auto.offset.reset"), self._node.clock())
            found = await self._node.run(partition.offset_for_time, timestamp, self._isolation)
            if self._log.get(self.key) is not state:  # stored by another call meanwhile
                continue
            if found is None:
                start = (await read_with(self._node.run, partition.log.readable_end, self._isolation)).message_offset
            else:
                start = found.offset
            if timestamp == EARLIEST:
                return state._replace(start=start)
            self._log.write(self.key, Change(partition.leader_epoch, start, 0, ()))
            error = await self._log.settled([self.key])
            if error:
                return error
        return ErrorCode.INVALID_REQUEST if state is None else state

    def setting(self, name: str) -> Any:
        """Return a setting of the group."""
        return group_setting(self._node, self.key.group_id, name)

    @property
    def _isolation(self) -> Isolation:
        is_committed = self.setting("share.isolation.level").lower() == "read_committed"
        return "committed" if is_committed else "high_watermark"

    def close(self) -> None:
        """Stop the timer and the dead letters, which follow after the next load; the partition is no longer used."""
        if self._timer is not None:
            self._timer.cancel()
        for task in self._burials:
            task.cancel()
        self._window = None

    # Fetching

    async def has_records(self) -> bool:
        """Return True if a fetch may acquire records. Errors as in `ReplicaManager.find`."""
        if self._window is None:
            return False
        log = self._node.replicas.find(self.place).log
        window = windows.begin_at(self._window, log.log_start_offset)
        at = windows.next_offset(window, self.setting("share.partition.max.record.locks"))
        if at is None:
            return False
        return at < (await read_with(self._node.run, log.readable_end, self._isolation)).message_offset

    async def fetch(
        self, member: str, max_bytes: int, max_records: int, batch_size: int, *, is_exact: bool,
        is_open: Callable[[], bool],
    ) -> Fetched:  # fmt: skip
        """Acquire records for a member while `is_open` returns True, without waiting for any.

        Errors are in the result. Records of aborted transactions are passed over, as many as that takes a short time.
        """
        until_ms = self._node.monotonic_ms() + _PASS_OVER_MS
        async with self._fetching:
            while True:
                before = self._window
                found = await self._fetch(member, max_bytes, max_records, batch_size, is_exact, is_open)
                is_progress = self._window not in (None, before)
                if found.error_code or found.rows or not is_progress or self._node.monotonic_ms() >= until_ms:
                    return found
                await asyncio.sleep(0)  # a read from memory does not suspend: others would wait for all rounds

    async def _fetch(
        self, member: str, max_bytes: int, max_records: int, batch_size: int, is_exact: bool,
        is_open: Callable[[], bool],
    ) -> Fetched:  # fmt: skip
        if self._window is None or max_records <= 0:
            return Fetched()
        log = self._node.replicas.find(self.place).log
        self._window = windows.begin_at(self._window, log.log_start_offset)
        max_locks = self.setting("share.partition.max.record.locks")
        at = windows.next_offset(self._window, max_locks)
        if at is None:
            return Fetched()
        result = await self._read(at, max_bytes)
        batches: list[LogBatch] = []
        if result.records is not None and self._window is not None:
            most_offsets = min(max_records, max_locks) + self._window.size
            batches = await read_with(self._node.run, read_batches, result.records, at, most_offsets)
        if not is_open() or result.error_code == ErrorCode.OFFSET_OUT_OF_RANGE:  # it left, or the log was cut
            return Fetched()
        if result.error_code or result.records is None or self._window is None:
            return Fetched(result.error_code)
        deadline_ms = self._node.monotonic_ms() + self.setting("share.record.lock.duration.ms")
        delivery_limit = self.setting("share.delivery.count.limit")
        limits = Limits(max_records, max_locks, deadline_ms, delivery_limit, max(1, batch_size), is_exact)
        return self._acquire(member, at, result, batches, limits)

    async def _read(self, at: int, max_bytes: int) -> FetchResult:
        size = min(max_bytes, _MOST_BYTES)
        params = FetchParams(0, 0, size, self._isolation)
        [result] = await self._node.replicas.fetch(params, [FetchPartition(self.place, at, size, self.key.topic_id)])
        return result

    def _acquire(
        self, member: str, at: int, result: FetchResult, batches: Sequence[LogBatch], limits: Limits
    ) -> Fetched:
        assert self._window is not None and result.records is not None
        pairs = [(one.first, one.last) for one in batches]
        plan = windows.acquire(self._window, member, at, pairs, limits)
        rows = plan.rows
        if result.aborted:
            aborted = aborted_ranges(batches, result.aborted)
            plan = windows.archive(plan.window, aborted)
            rows = without(rows, aborted)
        error = self._apply(plan)
        if error or not rows:
            return Fetched(error)
        first = next(one for one in batches if one.last >= rows[0].first)
        last = next(one for one in reversed(batches) if one.first <= rows[-1].last)
        begin = first.position - result.records.position
        return Fetched(0, result.records.slice(begin, last.position + last.size - first.position), rows)

    # Completing

    def acknowledge(self, member: str, ranges: Sequence[AcknowledgedRange]) -> tuple[int, str | None]:
        """Apply a member's acknowledgements. Return the error code and message."""
        if self._window is None:
            return ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, None
        if not self.setting("share.renew.acknowledge.enable") and any(windows.RENEW in one.types for one in ranges):
            return ErrorCode.INVALID_RECORD_STATE, "Renewing acquisition locks is not enabled for the group."
        renewed_ms = self._node.monotonic_ms() + self.setting("share.record.lock.duration.ms")
        try:
            plan = windows.acknowledge(self._window, member, ranges, self._ending, renewed_ms)
        except AcknowledgementRefused as error:
            return error.code, error.message
        return self._apply(plan), None

    def release(self, member: str) -> int:
        """Release the records of a member whose session ended. Return the error code."""
        if self._window is None:
            return 0
        return self._apply(windows.release(self._window, member, self._ending))

    @property
    def _ending(self) -> Ending:
        has_letters = dead_letters.are_enabled(self._node, self.key.group_id)
        dead = RecordState.ARCHIVING if has_letters else RecordState.ARCHIVED
        return Ending(self.setting("share.delivery.count.limit"), dead)

    def _expire(self) -> None:
        self._timer = None
        if self._window is None:
            return
        plan = windows.expire(self._window, self._node.monotonic_ms(), self._ending)
        if self._apply(plan):
            # the records stay acquired, but by no member, until the state can be written
            self._timer_ms = self._node.monotonic_ms() + self.setting("share.record.lock.duration.ms")
            self._timer = self._node.later(self.setting("share.record.lock.duration.ms"), self._expire)

    def _apply(self, plan: Plan) -> int:
        """Store the states of a plan, then use its window. Return 0, or an error code with nothing done."""
        if plan.batches:
            try:
                epoch = self._node.replicas.find(self.place).leader_epoch
                self._log.write(self.key, Change(epoch, plan.stored_start, plan.complete, plan.batches))
            except (KafkalogError, OSError) as error:
                _LOG.error("the state of share partition %s cannot be written: %s", self.key, error)
                return group_error_code(error)
        self._window = plan.window
        self._watch()
        if plan.batches:
            self._wake()
        self._bury(plan.letters)
        return 0

    def _bury(self, letters: Sequence[DeadLetters]) -> None:
        """Start writing dead letters; then their records are archived."""
        if letters:
            task = asyncio.get_running_loop().create_task(self._write_letters(letters))
            self._burials.add(task)
            task.add_done_callback(self._burials.discard)

    async def _write_letters(self, letters: Sequence[DeadLetters]) -> None:
        for one in letters:
            try:
                await dead_letters.write(self._node, self.key, self.place, one)
            except (KafkalogError, OSError) as error:  # the records are archived in any case, as in the reference
                message = "no dead letters for share partition %s, offsets %d to %d: %s"
                _LOG.error(message, self.key, one.first, one.last, error)
            while self._window is not None and self._apply(windows.archived(self._window, one.first, one.last)):
                await asyncio.sleep(self.setting("share.record.lock.duration.ms") / 1000)

    def _watch(self) -> None:
        """Start the timer for the first lock that expires."""
        assert self._window is not None
        deadline_ms = self._window.next_deadline_ms
        if deadline_ms is None or (self._timer is not None and self._timer_ms <= deadline_ms):
            return
        if self._timer is not None:
            self._timer.cancel()
        self._timer_ms = deadline_ms
        self._timer = self._node.later(max(1, deadline_ms - self._node.monotonic_ms()), self._expire)


LATEST: Final = -1
EARLIEST: Final = -2
_DURATION: Final = re.compile(
    r"by_duration:P(?:(\d+)D)?(?:T(?:(\d+)H)?(?:(\d+)M)?(?:(\d+(?:\.\d*)?)S)?)?", re.IGNORECASE
)


def reset_timestamp(reset: str, now_ms: int) -> int:
    """Return the timestamp to look up: `EARLIEST`, `LATEST`, or a time in ms, at least 0, for a duration before now."""
    if reset.lower() == "earliest":
        return EARLIEST
    found = _DURATION.fullmatch(reset)
    if found is None:
        return LATEST
    days, hours, minutes, seconds = (float(part or 0) for part in found.groups())
    try:
        past = timedelta(days=days, hours=hours, minutes=minutes, seconds=seconds)
    except OverflowError:  # before all records
        return 0
    return max(0, now_ms - past // timedelta(milliseconds=1))
