"""Follower of one leader: fetches in a session, and writes the answers in a thread.

`following.py` makes the decisions and `following_disk.py` carries them out; this module schedules them. The event loop
owns everything here.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Iterable, Mapping
from contextlib import suppress
from typing import TYPE_CHECKING, Final
from uuid import UUID

from kafkalog.config.keys import MAX_INT
from kafkalog.manager.log_remover import Cutting
from kafkalog.server.client.errors import PeerError, PeerMisbehaved
from kafkalog.server.error_codes import ErrorCode, code_of
from kafkalog.server.replica.following import (
    AppendRecords,
    FetchLimits,
    Following,
    OnDisk,
    RequestBounds,
    RetryLater,
    Row,
    Suspend,
    TruncateTo,
    first_plan,
    next_due_ms,
    pause_ms,
    plan_of,
    plan_of_bounds,
    row_of,
)
from kafkalog.server.replica.following_disk import FollowerTask, TaskResult, position_of, run_tasks
from kafkalog.server.replica.following_session import SESSION_ERRORS, FollowerSession
from kafkalog.server.replica.leader_source import Answers, LeaderSource
from kafkalog.server.replica.partition import Partition
from kafkalog.server.replica.throttle import FollowingThrottle
from kafkalog.types import TopicPartition
from kafkalog.util.shielded import shielded

if TYPE_CHECKING:
    from kafkalog.server.node.pool import Run

_LOG: Final = logging.getLogger(__name__)
_DELETED: Final = frozenset({
    ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, ErrorCode.UNKNOWN_TOPIC_ID, ErrorCode.INCONSISTENT_TOPIC_ID,
})  # fmt: skip
"""Errors about a topic that the leader has deleted, until this node deletes it, too."""
_FAILURES_OF_A_DELETE: Final = 5
"""After so many of these errors, in about two seconds, it is news that the topic is still here."""
ABOUT_LEADERS: Final = frozenset({
    ErrorCode.NOT_LEADER_OR_FOLLOWER, ErrorCode.FENCED_LEADER_EPOCH, ErrorCode.UNKNOWN_LEADER_EPOCH,
})  # fmt: skip
"""Errors which say that another node leads, or that the leader's epoch differs."""
Connect = Callable[[], Awaitable[LeaderSource]]


class ReplicaFetcher:
    """Follower of one leader, from `start` to `stop`: it keeps partitions equal to the leader's.

    `connect` returns a connection to the leader, and is called again after each failure. `run` runs a function in a
    thread. `on_appended` is called for each partition whose log or high watermark may have moved. `on_other_leader` is
    called for errors which say that another node leads. `peer_error` is the reason why there is no connection, or None.
    """

    def __init__(
        self,
        connect: Connect,
        *,
        run: Run,
        cutting: Cutting,
        monotonic_ms: Callable[[], int],
        limits: FetchLimits | None = None,
        throttle: FollowingThrottle | None = None,
        on_appended: Callable[[Partition], object] = Partition.after_append,
        on_other_leader: Callable[[TopicPartition, int], object] = lambda key, code: None,
    ) -> None:
        self.peer_error: PeerError | None = None
        self.throttle = FollowingThrottle() if throttle is None else throttle
        self._connect = connect
        self._run = run
        self._cutting = cutting
        self._now_ms = monotonic_ms
        self._limits = FetchLimits() if limits is None else limits
        self._on_appended = on_appended
        self._on_other_leader = on_other_leader
        self._partitions: dict[TopicPartition, Partition] = {}
        self.states: dict[TopicPartition, Following] = {}  # the partitions that returned records last are at the end
        """The position and schedule of each followed partition."""
        self._new: dict[TopicPartition, OnDisk] = {}  # what has to succeed before the first fetch
        self._ids: dict[str, UUID | None] = {}
        self._session = FollowerSession()
        self._writing: asyncio.Future[list[TaskResult]] | None = None
        self._wake_up: asyncio.Future[None] | None = None
        self._task: asyncio.Task[None] | None = None

    # Partitions

    def follow(self, partition: Partition, leader_epoch: int) -> None:
        """Follow a partition, or continue it in another leader epoch; -1 if the leader reports no epoch."""
        key, position = partition.topic_partition, position_of(partition.log, leader_epoch)
        known = self.states.get(key)
        if known is not None and known.leader_epoch == leader_epoch and self._partitions[key] is partition:
            return
        if self._ids.get(key.topic, partition.topic_id) != partition.topic_id:
            self._session.lost()  # the topic was deleted and created again under its name
        self._partitions[key] = partition
        self._ids[key.topic] = partition.topic_id
        self.states[key] = Following(position, leader_epoch)
        self._new.pop(key, None)
        first = first_plan(position, partition.log.high_watermark)
        if first is not None:
            self._new[key] = first
        self._wake()

    async def leave(self, keys: Iterable[TopicPartition]) -> None:
        """Stop following these partitions. On return, nothing is being written to them."""
        for key in keys:
            for known in (self.states, self._partitions, self._new):
                known.pop(key, None)
        await self.settled()

    async def settled(self) -> None:
        """Wait for the write in progress to finish."""
        if self._writing is not None:
            await asyncio.wait([self._writing])

    # Start and stop

    def start(self) -> None:
        """Start fetching."""
        self._task = asyncio.get_running_loop().create_task(self._follow_forever())

    async def stop(self) -> None:
        """Stop fetching. On return, nothing is being written."""
        if self._task is not None:  # kept, so that a second call waits as well
            self._task.cancel()
            await asyncio.wait([self._task])
        await self.settled()

    async def _follow_forever(self) -> None:
        failures = 0
        while True:
            try:
                await self._follow_over_one_connection()
            except Exception as error:
                self._log_lost(error)
                failures = 0 if self.peer_error is None else failures + 1
                self.peer_error = error if isinstance(error, PeerError) else PeerError(f"{error}")
                await asyncio.sleep(pause_ms(failures, self._limits) / 1000)

    async def _follow_over_one_connection(self) -> None:
        source = await self._connect()
        try:
            while True:
                await self.fetch_once(source)
                self.peer_error = None
        finally:
            await source.close()

    def _log_lost(self, error: Exception) -> None:
        self._session.lost()
        if not isinstance(error, PeerError):
            _LOG.error("following a leader failed; retrying", exc_info=error)
        elif self.peer_error is None:
            _LOG.warning("lost contact with the leader: %s", error)

    def _wake(self) -> None:
        if self._wake_up is not None and not self._wake_up.done():
            self._wake_up.set_result(None)

    async def _wait(self, ms: float) -> None:
        self._wake_up = asyncio.get_running_loop().create_future()
        with suppress(TimeoutError):
            async with asyncio.timeout(max(1, ms) / 1000):
                await self._wake_up

    # One round

    async def fetch_once(self, source: LeaderSource) -> None:
        """Fetch once and carry out the answer, or pause if nothing is due. Errors as in `LeaderSource.fetch`."""
        now_ms = self._now_ms()
        if first := {key: plan for key, plan in self._new.items() if self.states[key].is_due(now_ms)}:
            await self._write({key: self.states[key] for key in first}, first)
        throttled_ms = self.throttle.wait_ms(now_ms)
        requested = {
            key: state for key, state in self.states.items()
            if state.is_due(now_ms) and key not in self._new
            and not self.throttle.holds_back(key, state.is_in_sync, throttled_ms)
        }  # fmt: skip
        if not requested:
            await self._wait(self._idle_ms(now_ms, throttled_ms))
            return
        answers = await self._fetch(source, {key: row_of(state, self._limits) for key, state in requested.items()})
        if answers is not None:
            await self._apply(source, requested, answers)

    def _idle_ms(self, now_ms: int, throttled_ms: int) -> int:
        due_ms = next_due_ms(self.states.values())
        wait_ms = self._limits.backoff_ms if due_ms is None or due_ms <= now_ms else due_ms - now_ms
        return min(wait_ms, throttled_ms or wait_ms, self._limits.backoff_ms)

    async def _fetch(self, source: LeaderSource, rows: Mapping[TopicPartition, Row]) -> Answers | None:
        ask = self._session.next(rows)
        topics = {key.topic for key in (*rows, *ask.forgotten)}
        answers = await source.fetch(ask, {name: self._ids[name] for name in topics})
        if self._session.answered(answers.error_code, answers.session_id):
            return answers
        if answers.error_code not in SESSION_ERRORS:
            _LOG.warning("%s answered a fetch with error %d", source.connection.peer, answers.error_code)
            await self._wait(self._limits.backoff_ms)
        return None

    async def _apply(
        self, source: LeaderSource, requested: Mapping[TopicPartition, Following], answers: Answers
    ) -> None:
        plans: dict[TopicPartition, OnDisk] = {}
        outside: dict[TopicPartition, int] = {}
        seen = set()
        for key, answer in answers.rows:
            if key not in requested or key in seen:
                raise PeerMisbehaved(f"it answers for {key}, which was not requested", peer=source.connection.peer)
            seen.add(key)
            if self.states.get(key) is not requested[key]:  # no longer followed, or followed in another epoch
                self._session.lost()  # else the leader would not repeat what only this answer says
                continue
            match plan_of(answer):
                case RequestBounds():
                    outside[key] = requested[key].leader_epoch
                case RetryLater(code):
                    self._failed(key, code)
                case Suspend(code):
                    self.states[key] = requested[key]._replace(is_suspended=True, is_in_sync=False)
                    self._on_other_leader(key, code)
                case plan:
                    plans[key] = plan
        await self._write(requested, plans)
        if outside:
            await self._realign(source, requested, outside)

    async def _realign(
        self, source: LeaderSource, requested: Mapping[TopicPartition, Following], outside: Mapping[TopicPartition, int]
    ) -> None:
        """Repair logs that end outside the leader's: ask for the leader's bounds, and restart or truncate there."""
        plans: dict[TopicPartition, OnDisk] = {}
        for key, bounds in (await source.bounds(outside)).items():
            if self.states.get(key) is not requested[key]:
                continue
            plan = plan_of_bounds(requested[key].position.end_offset, bounds.start_offset, bounds.end_offset)
            if bounds.error_code or isinstance(plan, RetryLater):
                self._failed(key, bounds.error_code or ErrorCode.OFFSET_OUT_OF_RANGE)
                continue
            action = "truncated to its end" if isinstance(plan, TruncateTo) else "restarted at its start"
            start, end = bounds.start_offset, bounds.end_offset
            _LOG.warning("%s: the leader has offsets %d to %d; the log is %s", key, start, end, action)
            plans[key] = plan
        await self._write(requested, plans)

    async def _write(
        self, requested: Mapping[TopicPartition, Following], plans: Mapping[TopicPartition, OnDisk]
    ) -> None:
        tasks = []
        for key, plan in plans.items():
            state, partition = requested[key], self._partitions[key]
            if _is_idle(partition, plan):
                self.states[key] = state.moved(state.position, is_in_sync=True)
            else:
                newest = state.leader_epoch if state.leader_epoch >= 0 else MAX_INT
                tasks.append(FollowerTask(key, partition, plan, newest))
        if not tasks:
            return
        self._writing = asyncio.ensure_future(self._run(run_tasks, tasks, self._cutting))
        for done in await shielded(self._writing):  # `stop` waits for the thread
            self._written(done, requested[done.key], plans[done.key])
        self._writing = None

    def _written(self, done: TaskResult, before: Following, plan: OnDisk) -> None:
        key, partition = done.key, self._partitions.get(done.key)
        if partition is None:
            return
        self._on_appended(partition)
        now = self.states[key]
        if now is not before:  # another epoch of leadership has begun
            self.states[key] = now._replace(position=position_of(partition.log, now.leader_epoch))
            return
        if done.error is not None:
            self._failed(key, code_of(done.error), done)
            return
        self._new.pop(key, None)
        size = len(plan.records) if isinstance(plan, AppendRecords) and plan.records is not None else 0
        self.throttle.record(key, size, self._now_ms())
        is_to_move = size or not isinstance(plan, AppendRecords)
        if is_to_move and done.position == before.position:  # an immediate retry would give the same answer
            self._failed(key, ErrorCode.UNKNOWN_SERVER_ERROR, done)
            return
        is_in_sync = isinstance(plan, AppendRecords) and done.position.end_offset >= plan.high_watermark
        if size:
            del self.states[key]
        self.states[key] = before.moved(done.position, is_in_sync=is_in_sync)

    def _failed(self, key: TopicPartition, code: int, done: TaskResult | None = None) -> None:
        state = self.states[key]
        is_news = state.failures == (_FAILURES_OF_A_DELETE if code in _DELETED else 0)
        level = logging.WARNING if is_news else logging.DEBUG
        reason = f"the leader reports error {code}" if done is None else done.error or "its answer changes nothing"
        _LOG.log(level, "cannot follow the leader of %s now: %s", key, reason)
        self.states[key] = state.failed(self._now_ms(), self._limits, None if done is None else done.position)
        if code in ABOUT_LEADERS:
            self._on_other_leader(key, code)


def _is_idle(partition: Partition, plan: OnDisk) -> bool:
    """Return True if a plan changes nothing, because the answer had no news."""
    if not isinstance(plan, AppendRecords) or (plan.records is not None and len(plan.records)):
        return False
    log = partition.log
    return plan.high_watermark in (-1, log.high_watermark) and plan.log_start_offset <= log.log_start_offset
