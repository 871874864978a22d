"""Fetch sessions (KIP-227): what a consumer has asked for is remembered, so that it names only what changes, and is
answered only with what changed.

The cache is bounded by its slots and by the partitions in all sessions together; who gets no session asks for
everything each time, as before there were any.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Final
from uuid import UUID

from kafkalog.server.error_codes import ErrorCode
from kafkalog.server.wire.fetch_response import FetchedPartition

NO_SESSION: Final = 0
FULL: Final = 0
"""The epoch of a request that asks for everything and wants a session."""
FINAL: Final = -1
"""The epoch of a request that asks for everything and wants none."""
EVICTION_MS: Final = 120_000
"""A session that was not used for so long gives its slot to another one."""
MOST_PARTITIONS: Final = 200_000
"""Of all sessions together: about 100 MB."""
_LONGEST_NAME: Final = 249
"""A longer one is no topic's, and is not kept."""
_MAX_EPOCH: Final = 2**31 - 1

Key = tuple[str | UUID | None, int]
"""A partition as a session names it: by the id of its topic, in versions before 13 by the name."""


def next_epoch(epoch: int) -> int:
    """The epoch after this one; behind the largest comes 1."""
    if epoch < 0:
        return FINAL
    return 1 if epoch == _MAX_EPOCH else epoch + 1


class SessionPartition:
    """A partition of a session: what is asked of it, and what the client was last told."""

    __slots__ = (
        "current_leader_epoch", "fetch_offset", "high_watermark", "index", "last_fetched_epoch", "log_start_offset",
        "max_bytes", "told_log_start_offset", "topic",
    )  # fmt: skip

    def __init__(
        self,
        topic: str | UUID | None,
        index: int,
        fetch_offset: int,
        max_bytes: int,
        current_leader_epoch: int = -1,
        last_fetched_epoch: int = -1,
        log_start_offset: int = -1,
    ) -> None:
        self.topic = topic
        self.index = index
        self.fetch_offset = fetch_offset
        self.max_bytes = max_bytes
        self.current_leader_epoch = current_leader_epoch
        self.last_fetched_epoch = last_fetched_epoch
        self.log_start_offset = log_start_offset
        self.high_watermark = -1
        self.told_log_start_offset = -1

    @property
    def key(self) -> Key:
        """What it is known by."""
        return self.topic, self.index

    def asks_as(self, other: SessionPartition) -> None:
        """Ask for what the other one asks for."""
        self.fetch_offset = other.fetch_offset
        self.max_bytes = other.max_bytes
        self.current_leader_epoch = other.current_leader_epoch
        self.last_fetched_epoch = other.last_fetched_epoch
        self.log_start_offset = other.log_start_offset

    def told(self, answer: FetchedPartition) -> bool:
        """Note what is answered; True when there is something to tell: records, an error, a place that has moved.

        An error forgets the high watermark, so that its end is told too.
        """
        has_news = answer.records is not None and answer.records.size > 0
        if self.high_watermark != answer.high_watermark:
            self.high_watermark = answer.high_watermark
            has_news = True
        if self.told_log_start_offset != answer.log_start_offset:
            self.told_log_start_offset = answer.log_start_offset
            has_news = True
        if answer.error_code:
            self.high_watermark = -1
            has_news = True
        return has_news or answer.diverging_epoch is not None or answer.preferred_read_replica >= 0


class FetchSession:
    """What one client asks for, in the order in which it is read: what gave records goes to the end, so that all
    partitions have their turn."""

    __slots__ = ("created_ms", "epoch", "id", "is_follower", "last_used_ms", "partitions", "uses_ids")

    def __init__(self, id: int, now_ms: int, uses_ids: bool, is_follower: bool) -> None:
        self.id = id
        self.epoch = 1
        self.created_ms = now_ms
        self.last_used_ms = now_ms
        self.uses_ids = uses_ids
        self.is_follower = is_follower
        self.partitions: dict[Key, SessionPartition] = {}

    def update(self, asked: Iterable[SessionPartition], forgotten: Iterable[Key]) -> None:
        """Take in what a request adds, changes and takes back."""
        for one in asked:
            known = self.partitions.get(one.key)
            if known is None:
                self.partitions[one.key] = one
            else:
                known.asks_as(one)
        for key in forgotten:
            self.partitions.pop(key, None)

    def news(self, answers: Sequence[tuple[Key, FetchedPartition]]) -> list[tuple[Key, FetchedPartition]]:
        """What of the answers the client does not know yet."""
        chosen = []
        for key, answer in answers:
            known = self.partitions.get(key)
            if known is None:
                continue
            if known.told(answer):
                chosen.append((key, answer))
                if answer.records is not None and answer.records.size:
                    self.partitions[key] = self.partitions.pop(key)
        return chosen


class FetchSessions:
    """The sessions of all clients, at most `slots`. Belongs to the loop."""

    def __init__(
        self, slots: int, now_ms: Callable[[], int], *, most_partitions: int = MOST_PARTITIONS, seed: int | None = None
    ) -> None:
        self._slots = slots
        self._now_ms = now_ms
        self._most_partitions = most_partitions
        self._random = random.Random(seed)
        self._sessions: dict[int, FetchSession] = {}  # the one that was used last stands last
        self.evictions = 0

    def __len__(self) -> int:
        return len(self._sessions)

    @property
    def partitions(self) -> int:
        """The partitions in all sessions."""
        return sum(len(session.partitions) for session in self._sessions.values())

    def get(self, session_id: int) -> FetchSession | None:
        """The session with this id."""
        return self._sessions.get(session_id)

    def close(self, session_id: int) -> None:
        """End a session; nothing where there is none."""
        self._sessions.pop(session_id, None)

    def resume(
        self,
        session_id: int,
        epoch: int,
        uses_ids: bool,
        asked: Sequence[SessionPartition],
        forgotten: Iterable[Key],
    ) -> FetchSession | ErrorCode:
        """The session with what this request changed in it, or why there is none.

        FETCH_SESSION_ID_NOT_FOUND, INVALID_FETCH_SESSION_EPOCH, FETCH_SESSION_TOPIC_ID_ERROR where a request names
        topics by ids and the session by names, or the other way round.
        """
        session = self._sessions.get(session_id)
        if session is None:
            return ErrorCode.FETCH_SESSION_ID_NOT_FOUND
        if session.epoch != epoch:
            return ErrorCode.INVALID_FETCH_SESSION_EPOCH
        if session.uses_ids != uses_ids:
            return ErrorCode.FETCH_SESSION_TOPIC_ID_ERROR
        session.update(asked, forgotten)
        if not session.partitions:
            self.close(session_id)
            session.id = NO_SESSION
            return session
        if len(asked) and (self.partitions > self._most_partitions or _is_too_long(one.key for one in asked)):
            self.close(session_id)  # what it asks for is answered, as one that asks without a session
            session.id = NO_SESSION
            return session
        session.epoch = next_epoch(session.epoch)
        session.last_used_ms = self._now_ms()
        self._sessions[session_id] = self._sessions.pop(session_id)
        return session

    def create(self, asked: Mapping[Key, SessionPartition], uses_ids: bool, is_follower: bool) -> FetchSession | None:
        """A new session; None where there is no room and nobody's is worth less."""
        if not asked or self.partitions + len(asked) > self._most_partitions or _is_too_long(asked):
            return None
        now_ms = self._now_ms()
        if len(self._sessions) >= self._slots and not self._evict(is_follower, len(asked), now_ms):
            return None
        session_id = self._random.randrange(1, 2**31)
        while session_id in self._sessions:
            session_id = self._random.randrange(1, 2**31)
        session = self._sessions[session_id] = FetchSession(session_id, now_ms, uses_ids, is_follower)
        session.partitions.update(asked)
        return session

    def _evict(self, is_follower: bool, size: int, now_ms: int) -> bool:
        """Make room: the one not used for the longest time, where that is long; else the smallest of those that have
        been there for a while, if it is smaller than what comes. A follower's goes for a follower's only."""
        if not self._sessions:
            return False
        oldest = next(iter(self._sessions.values()))
        if now_ms - oldest.last_used_ms > EVICTION_MS:
            return self._evicted(oldest)
        settled = [
            one for one in self._sessions.values()
            if (is_follower or not one.is_follower) and now_ms - one.created_ms > EVICTION_MS
        ]  # fmt: skip
        if not settled:
            return False
        least = min(settled, key=lambda one: (one.is_follower, len(one.partitions), one.id))
        if (is_follower, size) <= (least.is_follower, len(least.partitions)):
            return False
        return self._evicted(least)

    def _evicted(self, session: FetchSession) -> bool:
        self.close(session.id)
        self.evictions += 1
        return True


def _is_too_long(keys: Iterable[Key]) -> bool:
    return any(isinstance(topic, str) and len(topic) > _LONGEST_NAME for topic, _ in keys)
