"""One partition as a node serves it: its log, its role, and how far its replicas are."""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping
from typing import Any, Final, Protocol
from uuid import UUID

from kafkalog._core.scan import BatchTable
from kafkalog.config_keys import MAX_LONG
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
from kafkalog.server.replica.results import FetchParams, FetchPartition, FetchResult
from kafkalog.server.replica.roles import (
    ALL,
    UNKNOWN_PLACE,
    FollowerState,
    Role,
    effective_min_isr,
    epoch_to_begin,
    low_watermark,
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

_LOG: Final = logging.getLogger(__name__)
_EARLIEST: Final = frozenset({EARLIEST_TIMESTAMP, -4})
_TIERED: Final = frozenset({-5, -6})
HIGH_WATERMARK: Final = -1
"""Asked for as an offset to delete up to."""


class Listener(Protocol):
    """Who follows a partition; called on the loop. After `on_deleted` comes nothing more."""

    def on_high_watermark(self, topic_partition: TopicPartition, offset: int) -> object: ...
    def on_failed(self, topic_partition: TopicPartition) -> object: ...
    def on_deleted(self, topic_partition: TopicPartition) -> object: ...


class Partition:
    """A partition that this node has a log of.

    `role` is one immutable value, replaced as a whole. All of it belongs to the loop, but for `append`, which may run
    in a pool: it takes the role once and the log has its own lock; `after_append` then belongs to the loop again.
    """

    __slots__ = (
        "_check", "_followers", "_listeners", "_now_ms", "_told", "future_log", "is_deleted", "lag_max_ms",
        "leader_epoch_start_offset", "least_isr", "log", "node_id", "role", "topic_id", "topic_partition",
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
        self._followers: dict[int, FollowerState] = {}
        self._listeners: list[Listener] = []
        self._told = log.high_watermark

    # Roles

    def become_leader(self, role: Role, high_watermark: int | None = None) -> bool:
        """True when this made the node the leader of a new epoch.

        A role of an older partition epoch is ignored; with the same leader epoch what is known of the followers, and
        where the epoch began, stays (PART-15). Alone, a leader's high watermark is its log's end; else it begins at
        the one given (the checkpoint's), within the log (PART-12), and moves with the followers.
        """
        before = self.role
        if role.partition_epoch < before.partition_epoch:
            _LOG.info("%s: partition epoch %d is older than %d", self.topic_partition, role.partition_epoch, before[2])
            return False
        is_new = before.leader != self.node_id or role.leader_epoch > before.leader_epoch
        others = [node_id for node_id in role.replicas if node_id != self.node_id]
        if others:
            self.log.begin_epoch(role.leader_epoch)  # where it was not begun yet
        in_sync, behind = FollowerState(last_caught_up_ms=self._now_ms()), FollowerState()
        known = {} if is_new else self._followers
        self._followers = {
            node_id: known.get(node_id, in_sync if node_id in role.isr else behind) for node_id in others
        }
        if is_new:
            self.leader_epoch_start_offset = self.log.log_end_offset
        self.log.leader_epoch = role.leader_epoch
        self.log.high_watermark_follows_end = not others
        if others and high_watermark is not None and is_new:
            self.log.update_high_watermark(high_watermark)
        self.role = role
        if not others:
            self.log.update_high_watermark(self.log.log_end_offset)
        self.after_append()
        return is_new

    def become_follower(self, role: Role) -> bool:
        """True when this node follows another leader, or a new epoch, from now on."""
        before = self.role
        if role.partition_epoch < before.partition_epoch:
            return False
        self._followers = {}
        self.leader_epoch_start_offset = None
        self.log.high_watermark_follows_end = False
        self.role = role
        return role.leader != before.leader or role.leader_epoch > before.leader_epoch

    def learn_in_sync(self, leader_epoch: int, isr: tuple[int, ...]) -> None:
        """Who is in sync, as the leader of this epoch told its follower: what clients are shown."""
        role = self.role
        if role.leader != self.node_id and role.leader_epoch == leader_epoch and role.isr != isr:
            self.role = role._replace(isr=isr)

    @property
    def is_leader(self) -> bool:
        """Whether this node leads the partition."""
        return self.role.leader == self.node_id

    @property
    def is_alone(self) -> bool:
        """Whether this node leads the partition and nobody else has a copy: what is written is replicated."""
        return not self._followers and self.role.leader == self.node_id

    @property
    def leader_epoch(self) -> int:
        """The epoch of the leader, -1 before there was one."""
        return self.role.leader_epoch

    @property
    def followers(self) -> Mapping[int, FollowerState]:
        """How far the other replicas are, by node."""
        return self._followers

    def _leader_role(self) -> Role:
        role = self.role
        if role.leader != self.node_id:
            raise NotLeaderOrFollower(f"node {self.node_id} does not lead {self.topic_partition}, {role.leader} does")
        return role

    def check_topic_id(self, topic_id: UUID | None) -> None:
        """Return where a request with this topic id (None: by name) may be answered here; InconsistentTopicId."""
        if topic_id is not None and self.topic_id not in (None, topic_id):
            raise InconsistentTopicId(f"{self.topic_partition} has the topic id {self.topic_id}")

    def check_epoch(self, current_leader_epoch: int, only_leader: bool = True) -> None:
        """Return where a request with this leader epoch (-1: none given) may be answered here (PART-4, PART-5).

        FencedLeaderEpoch below the partition's, UnknownLeaderEpoch above; NotLeaderOrFollower for a leader's business.
        """
        role = self.role
        if current_leader_epoch >= 0:
            if current_leader_epoch < role.leader_epoch:
                raise FencedLeaderEpoch(f"epoch {current_leader_epoch} of {self.topic_partition} has passed")
            if current_leader_epoch > role.leader_epoch:
                raise UnknownLeaderEpoch(f"epoch {current_leader_epoch} of {self.topic_partition} is not known here")
        if only_leader and role.leader != self.node_id:
            self._leader_role()

    # Writing

    @property
    def append_syncs(self) -> bool:
        """Whether an append may wait for the disk: where `flush.messages` says how much may lie unflushed."""
        return self.log.config.flush_messages != MAX_LONG

    def append(
        self,
        batch: Any,
        required_acks: int,
        *,
        origin: Origin = "client",
        table: BatchTable | None = None,
        guard: VerificationGuard | None = None,
        epoch_bumps: bool = False,
    ) -> LogAppendInfo:
        """What was appended by the leader, as `UnifiedLog.append_as_leader` says; `after_append` is to follow.

        NotLeaderOrFollower; NotEnoughReplicas before anything is written, where acks are all and the ISR is too small.
        """
        role = self._leader_role()
        if required_acks == ALL and len(role.isr) < (needed := self._min_isr(role)):
            raise NotEnoughReplicas(
                f"The size of the current ISR {sorted(role.isr)} is insufficient to satisfy the min.isr requirement of "
                f"{needed} for partition {self.topic_partition}"
            )
        return self.log.append_as_leader(
            batch, leader_epoch=role.leader_epoch, origin=origin, table=table, guard=guard, epoch_bumps=epoch_bumps
        )

    def append_as_follower(self, batches: Any, leader_epoch: int, cutting: Cutting = cut_alone) -> LogAppendInfo:
        """What was appended of a leader's batches. A batch that the log start of an empty log lies in begins the log
        anew at its first offset (PART-13), in a `cutting`; UnexpectedAppendOffset for others below the log end."""
        log = self.log
        try:
            return log.append_as_follower(batches, leader_epoch)
        except UnexpectedAppendOffset as error:
            end, first, last = log.log_end_offset, error.first_offset, error.last_offset
            if first is None or last is None or not (log.log_start_offset == end and 0 <= first < end <= last):
                raise
            _LOG.info("%s: empty, it begins anew at %d instead of %d", self.topic_partition, first, end)
            with cutting({self.topic_partition: first}):
                log.truncate_fully_and_start_at(first)
            return log.append_as_follower(batches, leader_epoch)

    def after_append(self) -> bool:
        """True when the high watermark moved since it was last looked at; its listeners have been told."""
        if self._followers:
            self._raise_high_watermark()
        mark = self.log.high_watermark
        if mark == self._told:
            return False
        self._told = mark
        if self._listeners:
            self._tell(lambda listener: listener.on_high_watermark(self.topic_partition, mark))
        return True

    def _raise_high_watermark(self) -> None:
        role = self.role
        if role.leader != self.node_id or self.is_under_min_isr:
            return
        end = self.log.readable_end("log_end")
        mark = next_high_watermark(end, role, self._followers, self._now_ms(), self.lag_max_ms)
        if mark.message_offset >= 0:
            self.log.maybe_increment_high_watermark(mark)

    @property
    def is_under_min_isr(self) -> bool:
        """Whether fewer replicas are in sync than acks=all needs: the high watermark stays then (PART-2)."""
        return len(self.role.isr) < self._min_isr(self.role)

    def _min_isr(self, role: Role) -> int:
        return effective_min_isr(self.log.config.min_insync_replicas, role, self.least_isr)

    def reached(self, required_offset: int) -> tuple[bool, int]:
        """Whether enough replicas have all below `required_offset`, and the error code if so, or never (PART-3)."""
        if not self.is_leader:
            return False, ErrorCode.NOT_LEADER_OR_FOLLOWER
        if self.log.high_watermark < required_offset:
            return False, 0
        return True, ErrorCode.NOT_ENOUGH_REPLICAS_AFTER_APPEND if self.is_under_min_isr else 0

    # Reading

    def read(
        self, params: FetchParams, asked: FetchPartition, max_bytes: int, min_one_message: bool, may_block: bool = True
    ) -> FetchResult:
        """What is there from the offset asked for on, at most `max_bytes` (FLOW-12, FLOW-15).

        A follower's or client's last epoch that ended elsewhere gives (epoch, end offset) instead of records (PART-6).
        NotLeaderOrFollower, FencedLeaderEpoch, UnknownLeaderEpoch, OffsetOutOfRange, CorruptRecord, StorageError;
        MustReadData as `FetchCheck.read`. Threads: any.
        """
        self.check_epoch(asked.current_leader_epoch, params.only_leader)
        log, role = self.log, self.role
        state = log.state
        offset = asked.fetch_offset
        result = FetchResult(
            0, state.high_watermark, state.last_stable_offset, state.log_start_offset, state.log_end_offset
        )
        if asked.last_fetched_epoch >= 0:
            result.diverging_epoch = self._diverging(asked)
        if result.diverging_epoch is None and params.is_from_follower:
            result.diverging_epoch = self._to_begin(asked)
        if result.diverging_epoch is not None:
            result.place = LogOffsetMetadata(offset)
            return result
        if self._check.log is not log:  # it was closed and opened again
            self._check = FetchCheck(log)
        found = self._check.read(offset, max_bytes, params.isolation, min_one_message, may_block=may_block)
        result.place = found.fetch_offset_metadata
        result.records = None if found.first_entry_incomplete else found.records
        if found.aborted_transactions is not None:
            result.aborted = [(one.producer_id, one.first_offset) for one in found.aborted_transactions]
        if not result.size and offset >= result.end_for(params.isolation):
            result.role = role
        return result

    def reads_as(self, result: FetchResult) -> bool:
        """Whether reading again what gave this, which had no records, would give the same: nothing has changed."""
        state = self.log.state
        return (
            result.role is self.role
            and result.log_end_offset == state.log_end_offset
            and result.high_watermark == state.high_watermark
            and result.last_stable_offset == state.last_stable_offset
            and result.log_start_offset == state.log_start_offset
        )

    def _diverging(self, asked: FetchPartition) -> tuple[int, int] | None:
        found = self.log.end_offset_for_epoch(asked.last_fetched_epoch)
        if found is None:
            raise OffsetOutOfRange(
                f"the end of epoch {asked.last_fetched_epoch} is not known", offset=asked.fetch_offset
            )
        if asked.fetch_offset < self.log.log_start_offset:
            raise OffsetOutOfRange("the offset lies before the log start", offset=asked.fetch_offset)
        return found if found[0] < asked.last_fetched_epoch or found[1] < asked.fetch_offset else None

    def _to_begin(self, asked: FetchPartition) -> tuple[int, int] | None:
        """Told as a divergence to a follower that has to begin the leader's epoch before it asks on: an epoch above
        its last one, which begins where its log ends."""
        if asked.last_fetched_epoch >= self.role.leader_epoch:
            return None
        epochs = self.log.leader_epochs
        if not epochs:
            return None
        return epoch_to_begin(epochs[-1], asked.fetch_offset, asked.last_fetched_epoch, asked.log_start_offset)

    def diverges(self, asked: FetchPartition) -> bool:
        """Whether a fetch that waits has to be answered because its last epoch ended elsewhere (FLOW-13)."""
        if asked.last_fetched_epoch < 0:
            return False
        found = self.log.end_offset_for_epoch(asked.last_fetched_epoch)
        return found is None or found[0] < asked.last_fetched_epoch or found[1] < asked.fetch_offset

    def offset_for_time(
        self, timestamp: int, isolation: Isolation | None, current_leader_epoch: int = -1, only_leader: bool = True
    ) -> OffsetAndTimestamp | None:
        """What ListOffsets finds (PART-8 to PART-10); None for no such record.

        `isolation` None is a replica's question, which sees the log to its end. OffsetNotAvailable where a new leader's
        high watermark is still below the begin of its epoch.
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
        if timestamp in _EARLIEST or found is None or timestamp in _TIERED:
            return found
        if found.offset < end:
            return found
        if lags:
            raise self._not_available()
        return None

    def _not_available(self) -> OffsetNotAvailable:
        return OffsetNotAvailable(
            f"the high watermark of {self.topic_partition} has not reached the begin of epoch {self.leader_epoch}"
        )

    def end_offset_for_epoch(self, epoch: int, current_leader_epoch: int, only_leader: bool) -> tuple[int, int]:
        """(epoch, end offset) of the newest epoch up to `epoch`, or (-1, -1); errors as `check_epoch`."""
        self.check_epoch(current_leader_epoch, only_leader)
        return self.log.end_offset_for_epoch(epoch) or (-1, -1)

    # Deleting

    def delete_records(self, offset: int) -> int:
        """The low watermark after giving up what lies below `offset` (-1: the high watermark) (PART-11).

        NotLeaderOrFollower; PolicyViolation for a topic that is only compacted; OffsetOutOfRange.
        """
        self._leader_role()
        log = self.log
        if not log.config.delete:
            raise PolicyViolation(
                f"Records of partition {self.topic_partition} can not be deleted due to the configured policy"
            )
        wanted = log.high_watermark if offset == HIGH_WATERMARK else offset
        if wanted < 0:
            raise OffsetOutOfRange(f"The offset {wanted} for partition {self.topic_partition} is not valid")
        log.maybe_increment_log_start_offset(wanted)
        return self.low_watermark

    @property
    def low_watermark(self) -> int:
        """The lowest log start of all replicas; of one that was not heard of for `lag_max_ms` nothing is waited for."""
        future = None if self.future_log is None else self.future_log.log_start_offset
        now_ms = self._now_ms()
        heard_of = [one for one in tuple(self._followers.values()) if one.is_heard_of(now_ms, self.lag_max_ms)]
        return low_watermark(self.log.log_start_offset, heard_of, future)

    # Followers

    def follower_fetched(self, node_id: int, result: FetchResult, log_start_offset: int, last_epoch: int) -> bool:
        """True when the fetch of a follower moved the high watermark. A fetch that failed or diverged tells nothing of
        where the follower is (FLOW-20), and what it has of earlier epochs counts once it has begun the leader's: its
        `last_epoch` says so (`quorum/decisions.py` says why). NotLeaderOrFollower for a node that is no replica."""
        state = self._followers.get(node_id)
        if state is None:
            raise NotLeaderOrFollower(f"node {node_id} is no follower of {self.topic_partition}")
        if result.error_code or result.diverging_epoch is not None:
            return False
        now_ms = self._now_ms()
        place = result.place if last_epoch >= self.role.leader_epoch else UNKNOWN_PLACE
        state = self._followers[node_id] = state.fetched(place, log_start_offset, now_ms, result.log_end_offset)
        role = self.role
        if self._told == result.log_end_offset == result.place.message_offset and node_id in role.isr:
            return False  # it has all, and so have the others: most fetches of most partitions
        if node_id not in role.isr and may_join(state, self.log.high_watermark, self.leader_epoch_start_offset):
            self.role = with_isr(role, (*role.isr, node_id))
            _LOG.info("%s: node %d is in sync again: %s", self.topic_partition, node_id, self.role.isr)
        return self.after_append()

    def drop_late(self) -> bool:
        """True when followers that have not caught up for `lag_max_ms` are in sync no more."""
        role = self.role
        if not self._followers or role.leader != self.node_id:
            return False
        end = self.log.log_end_offset
        self.role = without_late(role, self._followers, end, self._now_ms(), self.lag_max_ms)
        if self.role is role:
            return False
        _LOG.warning("%s: in sync are only %s", self.topic_partition, self.role.isr)
        self.after_append()
        return True

    # Listeners

    def add_listener(self, listener: Listener) -> bool:
        """False for a partition that was deleted: it has nothing more to tell (PART-16)."""
        if self.is_deleted:
            return False
        self._listeners.append(listener)
        return True

    def deleted(self) -> None:
        """The partition is gone: tell who follows it, once."""
        if not self.is_deleted:
            self.is_deleted = True
            self._tell(lambda listener: listener.on_deleted(self.topic_partition))
            self._listeners = []

    def failed(self) -> None:
        """Its disk failed: tell who follows it."""
        self._tell(lambda listener: listener.on_failed(self.topic_partition))

    def _tell(self, tell: Callable[[Listener], object]) -> None:
        for listener in tuple(self._listeners):
            try:
                tell(listener)
            except Exception:
                _LOG.exception("a listener of %s failed", self.topic_partition)

    @property
    def high_watermark(self) -> int:
        """The offset below which every record is safe."""
        return self.log.high_watermark

    @property
    def last_stable_offset(self) -> int:
        """The offset below which every transaction is decided."""
        return self.log.last_stable_offset

    def __repr__(self) -> str:
        return f"<Partition {self.topic_partition} of {self.role.leader}, epoch {self.role.leader_epoch}, {self.log!r}>"
