"""A partition of a node: its log, its role and the progress of its replicas."""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Final
from uuid import UUID

from kafkalog._core.batch.scan import BatchTable
from kafkalog.errors import (
    FencedLeaderEpoch,
    InconsistentTopicId,
    NotEnoughReplicas,
    NotLeaderOrFollower,
    OffsetNotAvailable,
    OffsetOutOfRange,
    PolicyViolation,
    UnexpectedAppendOffset,
    UnknownLeaderEpoch,
)
from kafkalog.manager.log_remover import Cutting, cut_alone
from kafkalog.server.error_codes import ErrorCode
from kafkalog.server.replica.fetch_check import FetchCheck
from kafkalog.server.replica.listeners import Listener
from kafkalog.server.replica.results import FetchParams, FetchPartition, FetchResult
from kafkalog.server.replica.roles import (
    ALL,
    LEFT,
    UNKNOWN_PLACE,
    FollowerState,
    Role,
    effective_min_isr,
    epoch_to_begin,
    may_join,
    next_high_watermark,
    with_isr,
    without_late,
)
from kafkalog.storage.append import Origin
from kafkalog.storage.log import UnifiedLog
from kafkalog.storage.producer_state import VerificationGuard
from kafkalog.types import (
    EARLIEST_TIMESTAMP,
    LATEST_TIMESTAMP,
    NO_TIMESTAMP,
    Isolation,
    LogAppendInfo,
    LogOffsetMetadata,
    OffsetAndTimestamp,
    TopicPartition,
)

if TYPE_CHECKING:
    from kafkalog.util.buffers import Data

_LOG: Final = logging.getLogger(__name__)
_WITHOUT_LIMIT: Final = frozenset({EARLIEST_TIMESTAMP, -4, -5, -6})
"""Timestamps of ListOffsets whose answer may be at or above the reader's end: the earliest and the tiered ones."""
HIGH_WATERMARK: Final = -1
"""Offset in a delete request that stands for the high watermark."""


class Partition:
    """A partition whose log this node holds.

    `role` is an immutable value that is replaced as a whole. The event loop owns everything except `append`, which may
    run in a pool: it reads the role once, and the log has its own lock. Call `after_append` on the loop afterwards.
    """

    __slots__ = (
        "_check", "_notified", "_now_ms", "followers", "future_log", "is_deleted", "lag_max_ms",
        "leader_epoch_start_offset", "least_isr", "listeners", "log", "node_id", "role", "topic_id",
        "topic_partition",
    )  # fmt: skip

    def __init__(
        self,
        topic_partition: TopicPartition,
        log: UnifiedLog,
        node_id: int,
        monotonic_ms: Callable[[], int],
        *,
        topic_id: UUID | None = None,
        lag_max_ms: int = 30_000,
        least_isr: int = 1,
    ) -> None:
        self.topic_partition = topic_partition
        self.topic_id = topic_id
        self.log = log
        self._check = FetchCheck(log)
        self.node_id = node_id
        self.lag_max_ms = lag_max_ms
        self.least_isr = least_isr
        self.future_log: UnifiedLog | None = None
        self.is_deleted = False
        self.leader_epoch_start_offset: int | None = None
        self.role = Role(-1, -1, -1, (), ())
        self._now_ms = monotonic_ms
        self.followers: dict[int, FollowerState] = {}  # progress of the other replicas, by node
        self.listeners: list[Listener] = []
        self._notified = log.high_watermark

    # Roles

    def become_leader(self, role: Role) -> bool:
        """Apply a role in which this node leads. Return True if the node became the leader of a new epoch.

        A role of an older partition epoch is ignored. Within a leader epoch, the state of the followers and the start
        offset of the epoch are kept (PART-15). Without followers, the high watermark is the log end. With followers, it
        starts at the log's, which is the checkpoint's after a start (PART-12), and then moves with the followers.
        """
        before = self.role
        if role.partition_epoch < before.partition_epoch:
            return False
        is_new = before.leader != self.node_id or role.leader_epoch > before.leader_epoch
        others = [node_id for node_id in role.replicas if node_id != self.node_id]
        if others:
            self.log.begin_epoch(role.leader_epoch)  # no effect if the epoch has begun already
        in_sync, behind = FollowerState(last_caught_up_ms=self._now_ms()), FollowerState()
        previous = {} if is_new else self.followers
        self.followers = {one: previous.get(one, in_sync if one in role.isr else behind) for one in others}
        if is_new:
            self.leader_epoch_start_offset = self.log.log_end_offset
        self.log.leader_epoch = role.leader_epoch
        self.log.high_watermark_follows_end = not others
        self.role = role
        if not others:
            self.log.update_high_watermark(self.log.log_end_offset)
        self.after_append()
        return is_new

    def become_follower(self, role: Role) -> bool:
        """Apply a role in which another node leads. Return True if the leader or its epoch is new."""
        before = self.role
        if role.partition_epoch < before.partition_epoch:
            return False
        self.followers = {}
        self.leader_epoch_start_offset = None
        self.log.high_watermark_follows_end = False
        self.role = role
        return role.leader != before.leader or role.leader_epoch > before.leader_epoch

    def learn_in_sync(self, leader_epoch: int, isr: tuple[int, ...]) -> None:
        """Set the ISR that clients see to the one that the leader of this epoch reported."""
        role = self.role
        if role.leader != self.node_id and role.leader_epoch == leader_epoch and role.isr != isr:
            self.role = role._replace(isr=isr)

    @property
    def is_leader(self) -> bool:
        """True if this node leads the partition."""
        return self.role.leader == self.node_id

    @property
    def is_alone(self) -> bool:
        """True if this node leads the partition and has no followers: every append is replicated at once."""
        return not self.followers and self.role.leader == self.node_id

    @property
    def leader_epoch(self) -> int:
        """Epoch of the leader, -1 before the first one."""
        return self.role.leader_epoch

    def leader_role(self) -> Role:
        """Return this node's role as the leader. Raise NotLeaderOrFollower if another node leads."""
        role = self.role
        if role.leader != self.node_id:
            raise NotLeaderOrFollower(f"{self.topic_partition} is led by node {role.leader}, not {self.node_id}")
        return role

    def check_topic_id(self, topic_id: UUID | None) -> None:
        """Raise InconsistentTopicId if `topic_id` is not this partition's; None (a request by name) always passes."""
        if topic_id is not None and self.topic_id not in (None, topic_id):
            raise InconsistentTopicId(f"{self.topic_partition} has the topic id {self.topic_id}")

    def check_epoch(self, current_leader_epoch: int, only_leader: bool = True) -> None:
        """Raise if this node may not answer a request with this leader epoch, -1 for none (PART-4, PART-5).

        FencedLeaderEpoch for an epoch below the partition's, UnknownLeaderEpoch for one above. NotLeaderOrFollower if
        `only_leader` is set and another node leads.
        """
        role = self.role
        if current_leader_epoch >= 0:
            if current_leader_epoch < role.leader_epoch:
                raise FencedLeaderEpoch(f"leader epoch {current_leader_epoch} of {self.topic_partition} is out of date")
            if current_leader_epoch > role.leader_epoch:
                raise UnknownLeaderEpoch(f"leader epoch {current_leader_epoch} of {self.topic_partition} is unknown")
        if only_leader and role.leader != self.node_id:
            self.leader_role()

    # Writing

    def append(
        self,
        batch: Any,  # Data or ReadyBatch; the log's type leaves out the memoryviews of a request
        required_acks: int,
        *,
        origin: Origin = "client",
        table: BatchTable | None = None,
        guard: VerificationGuard | None = None,
        epoch_bumps: bool = False,
    ) -> LogAppendInfo:
        """Append a batch as the leader, as `UnifiedLog.append_as_leader` does. Call `after_append` next.

        NotLeaderOrFollower. NotEnoughReplicas, before anything is written, if acks is all and the ISR is too small.
        """
        role = self.leader_role()
        in_sync = len(role.isr)
        if required_acks == ALL and in_sync < len(role.replicas) and in_sync < (needed := self._min_isr(role)):
            raise NotEnoughReplicas(
                f"The size of the current ISR {sorted(role.isr)} is insufficient to satisfy the min.isr requirement of "
                f"{needed} for partition {self.topic_partition}"
            )
        return self.log.append_as_leader(
            batch, leader_epoch=role.leader_epoch, origin=origin, table=table, guard=guard, epoch_bumps=epoch_bumps
        )

    def append_as_follower(
        self, batches: Data, leader_epoch: int, cutting: Cutting = cut_alone, start: int = -1
    ) -> LogAppendInfo:
        """Append a leader's batches.

        A log that ends inside the first batch restarts at the batch's first offset, within a `cutting`, if it is empty
        (PART-13) or ends at or below `start`, the leader's. UnexpectedAppendOffset for other batches below the log end.
        """
        log = self.log
        try:
            return log.append_as_follower(batches, leader_epoch)
        except UnexpectedAppendOffset as error:
            end, first, last = log.log_end_offset, error.first_offset, error.last_offset
            if first is None or last is None or not 0 <= first < end <= min(last, max(log.log_start_offset, start)):
                raise
            _LOG.info("%s: the log restarts at %d instead of %d", self.topic_partition, first, end)
            with cutting({self.topic_partition: first}):
                log.truncate_fully_and_start_at(first)
            return log.append_as_follower(batches, leader_epoch)

    def after_append(self) -> bool:
        """Update the high watermark and notify the listeners. Return True if it moved since the last call."""
        if self.followers:
            self._raise_high_watermark()
        mark = self.log.high_watermark
        if mark == self._notified:
            return False
        self._notified = mark
        if self.listeners:
            self._notify(lambda listener: listener.on_high_watermark(self.topic_partition, mark))
        return True

    def _raise_high_watermark(self) -> None:
        if self.is_under_min_isr:
            return
        end = self.log.readable_end("log_end")
        mark = next_high_watermark(end, self.role, self.followers, self._now_ms(), self.lag_max_ms)
        if mark.message_offset >= 0:
            self.log.maybe_increment_high_watermark(mark)

    @property
    def is_under_min_isr(self) -> bool:
        """True if fewer replicas are in sync than acks=all needs; the high watermark then does not move (PART-2)."""
        return len(self.role.isr) < self._min_isr(self.role)

    def _min_isr(self, role: Role) -> int:
        return effective_min_isr(self.log.config.min_insync_replicas, role, self.least_isr)

    def reached(self, required_offset: int) -> tuple[bool, int]:
        """Return (done, error code) for a write up to `required_offset` (PART-3).

        `done` is True if enough replicas have every record below the offset. With `done` False, an error code other
        than 0 means that the write cannot succeed here.
        """
        if not self.is_leader:
            return False, ErrorCode.NOT_LEADER_OR_FOLLOWER
        if self.log.high_watermark < required_offset:
            return False, 0
        return True, ErrorCode.NOT_ENOUGH_REPLICAS_AFTER_APPEND if self.is_under_min_isr else 0

    # Reading

    def read(
        self, params: FetchParams, request: FetchPartition, max_bytes: int, min_one_message: bool
    ) -> FetchResult:
        """Return the records from the fetch offset on, at most `max_bytes` (FLOW-12, FLOW-15).

        If the reader's last epoch ended elsewhere, return its (epoch, end offset) instead of records (PART-6).
        NotLeaderOrFollower, FencedLeaderEpoch, UnknownLeaderEpoch, OffsetOutOfRange, CorruptRecord, StorageError;
        MustWait within `at_once`. Threads: any.
        """
        log, role = self.log, self.role
        if request.current_leader_epoch >= 0 or role.leader != self.node_id:
            self.check_epoch(request.current_leader_epoch, params.only_leader)
        state = log.state
        offset = request.fetch_offset
        result = FetchResult(
            0, state.high_watermark, state.last_stable_offset, state.log_start_offset, state.log_end_offset
        )
        if request.last_fetched_epoch >= 0:
            result.diverging_epoch = self._diverging(request)
        if result.diverging_epoch is None and params.replica_id >= 0:
            result.diverging_epoch = self._to_begin(request)
        if result.diverging_epoch is not None:
            result.place = LogOffsetMetadata(offset)
            return result
        if self._check.log is not log:  # the log was closed and reopened
            self._check = FetchCheck(log)
        found = self._check.read(offset, max_bytes, params.isolation, min_one_message)
        result.place = found.fetch_offset_metadata
        result.records = None if found.first_entry_incomplete else found.records
        if found.aborted_transactions is not None:
            result.aborted = [(one.producer_id, one.first_offset) for one in found.aborted_transactions]
        has_records = result.records is not None and result.records.size
        if not has_records and offset >= result.end_for(params.isolation):
            result.role = role
        return result

    def reads_as(self, result: FetchResult) -> bool:
        """Return True if repeating the read that gave `result`, which had no records, would give the same result."""
        state = self.log.state
        return (
            result.role is self.role
            and result.log_end_offset == state.log_end_offset
            and result.high_watermark == state.high_watermark
            and result.last_stable_offset == state.last_stable_offset
            and result.log_start_offset == state.log_start_offset
        )

    def _diverging(self, request: FetchPartition) -> tuple[int, int] | None:
        found = self.log.end_offset_for_epoch(request.last_fetched_epoch)
        if found is None:
            raise OffsetOutOfRange(
                f"the end of epoch {request.last_fetched_epoch} is unknown", offset=request.fetch_offset
            )
        if request.fetch_offset < self.log.log_start_offset:
            raise OffsetOutOfRange("the offset is below the log start", offset=request.fetch_offset)
        return found if found[0] < request.last_fetched_epoch or found[1] < request.fetch_offset else None

    def _to_begin(self, request: FetchPartition) -> tuple[int, int] | None:
        """Return the (epoch, offset) that a follower must begin before its next fetch, or None.

        The leader reports it as a divergence. The epoch is above the follower's last one and begins where the
        follower's log ends.
        """
        if request.last_fetched_epoch >= self.role.leader_epoch or not (epochs := self.log.leader_epochs):
            return None
        return epoch_to_begin(epochs[-1], request.fetch_offset, request.last_fetched_epoch, request.log_start_offset)

    def diverges(self, request: FetchPartition) -> bool:
        """Return True if a waiting fetch must be answered because its last epoch ended elsewhere (FLOW-13)."""
        if request.last_fetched_epoch < 0:
            return False
        found = self.log.end_offset_for_epoch(request.last_fetched_epoch)
        return found is None or found[0] < request.last_fetched_epoch or found[1] < request.fetch_offset

    def offset_for_time(
        self, timestamp: int, isolation: Isolation | None, current_leader_epoch: int = -1, only_leader: bool = True
    ) -> OffsetAndTimestamp | None:
        """Return the offset that ListOffsets finds (PART-8 to PART-10), or None if no record matches.

        An `isolation` of None is a replica's request, which sees the log up to its end. OffsetNotAvailable if the high
        watermark of a new leader is still below the start of its epoch.
        """
        self.check_epoch(current_leader_epoch, only_leader)
        log = self.log
        end = log.readable_end("log_end" if isolation is None else isolation).message_offset
        start = self.leader_epoch_start_offset
        lags = isolation is not None and start is not None and start > log.high_watermark
        if timestamp == LATEST_TIMESTAMP:
            if lags:
                raise self._not_available()
            return OffsetAndTimestamp(end, NO_TIMESTAMP, self.leader_epoch)
        found = log.offset_for_time(timestamp)
        if found is None or timestamp in _WITHOUT_LIMIT or found.offset < end:
            return found
        if lags:
            raise self._not_available()
        return None

    def _not_available(self) -> OffsetNotAvailable:
        return OffsetNotAvailable(
            f"the high watermark of {self.topic_partition} has not reached the start of epoch {self.leader_epoch}"
        )

    def end_offset_for_epoch(self, epoch: int, current_leader_epoch: int, only_leader: bool) -> tuple[int, int]:
        """Return (epoch, end offset) of the newest epoch up to `epoch`, or (-1, -1). Errors as in `check_epoch`."""
        self.check_epoch(current_leader_epoch, only_leader)
        return self.log.end_offset_for_epoch(epoch) or (-1, -1)

    # Deleting

    def delete_records(self, offset: int) -> int:
        """Delete the records below `offset` (-1: the high watermark) and return the low watermark (PART-11).

        NotLeaderOrFollower; PolicyViolation for a topic that is only compacted; OffsetOutOfRange.
        """
        self.leader_role()
        log = self.log
        if not log.config.delete:
            raise PolicyViolation(
                f"Records of partition {self.topic_partition} can not be deleted due to the configured policy"
            )
        target = log.high_watermark if offset == HIGH_WATERMARK else offset
        if target < 0:
            raise OffsetOutOfRange(f"The offset {target} for partition {self.topic_partition} is not valid")
        log.maybe_increment_log_start_offset(target)
        return self.low_watermark

    @property
    def low_watermark(self) -> int:
        """Lowest log start of the leader, the future replica, and the followers active in the last `lag_max_ms`."""
        now_ms = self._now_ms()
        active = [one for one in tuple(self.followers.values()) if one.is_active(now_ms, self.lag_max_ms)]
        logs = [self.log] if self.future_log is None else [self.log, self.future_log]
        return min([*(log.log_start_offset for log in logs), *(one.log_start_offset for one in active)])

    # Followers

    def follower_fetched(self, node_id: int, result: FetchResult, log_start_offset: int, last_epoch: int) -> bool:
        """Record the fetch of a follower. Return True if the high watermark moved.

        A fetch that failed or diverged does not show the follower's position (FLOW-20). Its records of earlier epochs
        count once it has begun the leader's epoch, which `last_epoch` shows (`quorum/decisions.py` explains why).
        NotLeaderOrFollower for a node that is not a replica.
        """
        state = self.followers.get(node_id)
        if state is None:
            raise NotLeaderOrFollower(f"node {node_id} is not a follower of {self.topic_partition}")
        if result.error_code or result.diverging_epoch is not None:
            return False
        now_ms = self._now_ms()
        place = result.place if last_epoch >= self.role.leader_epoch else UNKNOWN_PLACE
        state = self.followers[node_id] = state.fetched(place, log_start_offset, now_ms, result.log_end_offset)
        role = self.role
        if self._notified == result.log_end_offset == result.place.message_offset and node_id in role.isr:
            return False  # all replicas have everything: the most frequent case
        if node_id not in role.isr and may_join(state, self.log.high_watermark, self.leader_epoch_start_offset):
            self.role = with_isr(role, (*role.isr, node_id))
            _LOG.info("%s: node %d rejoined the ISR: %s", self.topic_partition, node_id, self.role.isr)
        return self.after_append()

    def drop_late(self, left: int | None = None) -> bool:
        """Remove late followers (`lag_max_ms`) and one that `left` from the ISR. Return True if any were removed."""
        role, end = self.role, self.log.log_end_offset
        if not self.followers:
            return False
        if left in self.followers:
            self.followers[left] = LEFT
        self.role = without_late(role, self.followers, end, self._now_ms(), self.lag_max_ms)
        if self.role is role:
            return False
        _LOG.warning("%s: the ISR shrank to %s", self.topic_partition, self.role.isr)
        self.after_append()
        return True

    # Listeners

    def add_listener(self, listener: Listener) -> bool:
        """Add a listener. Return False if the partition was deleted and will send no notifications (PART-16)."""
        if self.is_deleted:
            return False
        self.listeners.append(listener)
        return True

    def deleted(self) -> None:
        """Notify the listeners once that the partition was deleted."""
        if not self.is_deleted:
            self.is_deleted = True
            self._notify(lambda listener: listener.on_deleted(self.topic_partition))
            self.listeners = []

    def failed(self) -> None:
        """Notify the listeners that the partition's disk failed."""
        self._notify(lambda listener: listener.on_failed(self.topic_partition))

    def _notify(self, notify: Callable[[Listener], object]) -> None:
        for listener in tuple(self.listeners):
            try:
                notify(listener)
            except Exception:
                _LOG.exception("a listener of %s failed", self.topic_partition)

    @property
    def high_watermark(self) -> int:
        """Offset below which every record is safe."""
        return self.log.high_watermark

    @property
    def last_stable_offset(self) -> int:
        """Offset below which every transaction is decided."""
        return self.log.last_stable_offset

    def __repr__(self) -> str:
        return f"<Partition {self.topic_partition} of {self.role.leader}, epoch {self.role.leader_epoch}, {self.log!r}>"
