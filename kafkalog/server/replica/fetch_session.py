"""Fetch sessions (KIP-227): requests and answers name only the partitions that changed.

The cache is limited by its slots and by the number of partitions in all sessions. A client without a session sends full
requests, as before KIP-227.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final

from kafkalog.server.error_codes import ErrorCode
from kafkalog.server.replica.results import FetchResult

NO_SESSION: Final = 0
FULL: Final = 0
"""Epoch of a full request that asks for a new session."""
FINAL: Final = -1
"""Epoch of a full request that asks for no session."""
EVICTION_MS: Final = 120_000
"""Idle time after which a session may lose its slot to another one."""
MOST_PARTITIONS: Final = 200_000
"""Limit on the partitions of all sessions: about 100 MB."""
_LONGEST_NAME: Final = 249
"""Length limit for topic names; no topic has a longer name, so the cache does not store one."""
_MAX_EPOCH: Final = 2**31 - 1

Key = tuple[str | int | None, int]
"""A partition's key in a session: the topic id's number (in versions before 13, the topic name) and the index."""


def next_epoch(epoch: int) -> int:
    """Return the epoch after this one; 1 follows the largest."""
    if epoch < 0:
        return FINAL
    return 1 if epoch == _MAX_EPOCH else epoch + 1


@dataclass(slots=True, eq=False)
class SessionPartition:
    """A partition of a session: the client's request for it, and the last values sent to the client."""

    topic: str | int | None
    index: int
    fetch_offset: int
    max_bytes: int
    current_leader_epoch: int = -1
    last_fetched_epoch: int = -1
    log_start_offset: int = -1
    sent_high_watermark: int = field(default=-1, init=False)
    sent_log_start_offset: int = field(default=-1, init=False)

    @property
    def key(self) -> Key:
        """Key of the partition in its session."""
        return self.topic, self.index

    def update_request(self, other: SessionPartition) -> None:
        """Copy the request of `other`."""
        self.fetch_offset = other.fetch_offset
        self.max_bytes = other.max_bytes
        self.current_leader_epoch = other.current_leader_epoch
        self.last_fetched_epoch = other.last_fetched_epoch
        self.log_start_offset = other.log_start_offset

    def record(self, answer: FetchResult) -> bool:
        """Record an answer. Return True if the client needs it: for records, an error, or an offset that moved.

        An error resets the recorded high watermark, so that the end of the error is sent too. So does a divergence: a
        follower truncates then, and takes nothing else from the answer.
        """
        has_news = answer.records is not None and answer.records.size > 0
        if self.sent_high_watermark != answer.high_watermark:
            self.sent_high_watermark = answer.high_watermark
            has_news = True
        if self.sent_log_start_offset != answer.log_start_offset:
            self.sent_log_start_offset = answer.log_start_offset
            has_news = True
        if answer.error_code or answer.diverging_epoch is not None:
            self.sent_high_watermark = -1
            has_news = True
        return has_news


@dataclass(slots=True, eq=False)
class FetchSession:
    """One client's partitions in the order of reading; one that returned records goes last, for fairness."""

    id: int
    created_ms: int
    uses_ids: bool
    is_follower: bool
    last_used_ms: int
    epoch: int = 1
    partitions: dict[Key, SessionPartition] = field(default_factory=dict)

    def update(self, rows: Iterable[SessionPartition], forgotten: Iterable[Key]) -> bool:
        """Apply a request's additions, changes and removals. Return True if it adds a partition."""
        has_new = False
        for one in rows:
            key = one.topic, one.index
            known = self.partitions.get(key)
            if known is None:
                self.partitions[key] = one
                has_new = True
            else:
                known.update_request(one)
        for key in forgotten:
            self.partitions.pop(key, None)
        return has_new

    def news(self, answers: Sequence[tuple[Key, FetchResult]]) -> list[tuple[Key, FetchResult]]:
        """Return the answers that the client does not know yet."""
        chosen = []
        for key, answer in answers:
            known = self.partitions.get(key)
            if known is None:
                continue
            if known.record(answer):
                chosen.append((key, answer))
                if answer.records is not None and answer.records.size:
                    self.partitions[key] = self.partitions.pop(key)
        return chosen


class FetchSessions:
    """The sessions of all clients, at most `slots`. The event loop owns it."""

    def __init__(
        self, slots: int, now_ms: Callable[[], int], *, most_partitions: int = MOST_PARTITIONS, seed: int | None = None
    ) -> None:
        self._slots = slots
        self._now_ms = now_ms
        self._most_partitions = most_partitions
        self._random = random.Random(seed)
        self._sessions: dict[int, FetchSession] = {}  # in order of use, the latest last

    def __len__(self) -> int:
        return len(self._sessions)

    @property
    def partitions(self) -> int:
        """Number of partitions in all sessions."""
        return sum(len(session.partitions) for session in self._sessions.values())

    def get(self, session_id: int) -> FetchSession | None:
        """Return the session with this id, or None."""
        return self._sessions.get(session_id)

    def close(self, session_id: int) -> None:
        """Close a session; no effect if it does not exist."""
        self._sessions.pop(session_id, None)

    def resume(
        self,
        session_id: int,
        epoch: int,
        uses_ids: bool,
        rows: Sequence[SessionPartition],
        forgotten: Iterable[Key],
    ) -> FetchSession | ErrorCode:
        """Apply a request to its session and return the session, or an error code.

        FETCH_SESSION_ID_NOT_FOUND, INVALID_FETCH_SESSION_EPOCH. FETCH_SESSION_TOPIC_ID_ERROR if one of request and
        session names topics by id and the other by name.
        """
        session = self._sessions.get(session_id)
        if session is None:
            return ErrorCode.FETCH_SESSION_ID_NOT_FOUND
        if session.epoch != epoch:
            return ErrorCode.INVALID_FETCH_SESSION_EPOCH
        if session.uses_ids != uses_ids:
            return ErrorCode.FETCH_SESSION_TOPIC_ID_ERROR
        has_new = session.update(rows, forgotten)
        is_too_large = has_new and (self.partitions > self._most_partitions or _is_too_long(one.key for one in rows))
        if is_too_large or not session.partitions:
            self.close(session_id)  # the request is answered as one without a session
            session.id = NO_SESSION
            return session
        session.epoch = next_epoch(session.epoch)
        session.last_used_ms = self._now_ms()
        self._sessions[session_id] = self._sessions.pop(session_id)
        return session

    def create(self, rows: Mapping[Key, SessionPartition], uses_ids: bool, is_follower: bool) -> FetchSession | None:
        """Create a session. Return None if there is no room and no session that may be evicted."""
        if self.partitions + len(rows) > self._most_partitions or _is_too_long(rows):
            return None
        now_ms = self._now_ms()
        if len(self._sessions) >= self._slots and not self._evict(is_follower, len(rows), now_ms):
            return None
        session_id = self._random.randrange(1, 2**31)
        while session_id in self._sessions:
            session_id = self._random.randrange(1, 2**31)
        session = self._sessions[session_id] = FetchSession(session_id, now_ms, uses_ids, is_follower, now_ms)
        session.partitions.update(rows)
        return session

    def _evict(self, is_follower: bool, size: int, now_ms: int) -> bool:
        """Evict one session and return True, or return False if none may be evicted.

        The least recently used session is evicted if it has been idle for EVICTION_MS. Otherwise, the lowest-ranked of
        those older than EVICTION_MS is evicted if it ranks below the new one. Consumers rank below followers, then size
        counts.
        """
        if not self._sessions:
            return False
        oldest = next(iter(self._sessions.values()))
        if now_ms - oldest.last_used_ms > EVICTION_MS:
            self.close(oldest.id)
            return True
        evictable = [
            one for one in self._sessions.values()
            if (is_follower or not one.is_follower) and now_ms - one.created_ms > EVICTION_MS
        ]  # fmt: skip
        if not evictable:
            return False
        least = min(evictable, key=lambda one: (one.is_follower, len(one.partitions), one.id))
        if (is_follower, size) <= (least.is_follower, len(least.partitions)):
            return False
        self.close(least.id)
        return True


def _is_too_long(keys: Iterable[Key]) -> bool:
    return any(isinstance(topic, str) and len(topic) > _LONGEST_NAME for topic, _ in keys)
