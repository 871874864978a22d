"""Client side of fetch sessions (KIP-227): requests after the first one send only changes."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final, NamedTuple

from kafkalog.server.error_codes import ErrorCode
from kafkalog.server.replica.fetch_session import FULL, NO_SESSION, next_epoch
from kafkalog.server.replica.following import Row
from kafkalog.types import TopicPartition

SESSION_ERRORS: Final = frozenset({
    ErrorCode.FETCH_SESSION_ID_NOT_FOUND, ErrorCode.INVALID_FETCH_SESSION_EPOCH, ErrorCode.FETCH_SESSION_TOPIC_ID_ERROR,
})  # fmt: skip
"""Errors that concern the session alone, so that a new session solves them."""


class SessionRequest(NamedTuple):
    """One fetch: the session, the new or changed partitions, and the removed ones."""

    session_id: int
    epoch: int
    rows: Mapping[TopicPartition, Row]
    forgotten: tuple[TopicPartition, ...]


class FollowerSession:
    """The leader's view of this follower's session. After `next`, call `answered`, or `lost` if no answer arrived."""

    def __init__(self) -> None:
        self._id = NO_SESSION
        self._epoch = FULL
        self._known: dict[TopicPartition, Row] = {}

    def next(self, requested: Mapping[TopicPartition, Row]) -> SessionRequest:
        """Return the next request, which covers everything in `requested`."""
        if self._epoch == FULL:
            self._known = dict(requested)
            return SessionRequest(self._id, FULL, self._known, ())
        known = self._known
        rows = {key: row for key, row in requested.items() if known.get(key) != row}
        forgotten = tuple(key for key in known if key not in requested)
        self._known = dict(requested)
        return SessionRequest(self._id, self._epoch, rows, forgotten)

    def answered(self, error_code: int, session_id: int) -> bool:
        """Record an answer. Return False if it is an error: the next request then starts a new session."""
        if error_code:
            self.lost()
            if error_code == ErrorCode.FETCH_SESSION_ID_NOT_FOUND:
                self._id = NO_SESSION
            return False
        if session_id == NO_SESSION or (self._epoch != FULL and session_id != self._id):
            self._id, self._epoch = NO_SESSION, FULL
        else:
            self._id, self._epoch = session_id, next_epoch(self._epoch)
        return True

    def lost(self) -> None:
        """Record that no answer arrived: the leader's view is unknown, and the next request ends that session."""
        self._epoch = FULL
        self._known = {}
