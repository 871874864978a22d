"""The asking side of fetch sessions (KIP-227): after the first request only what has changed is said again."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final, NamedTuple

from kafkalog.server.error_codes import ErrorCode
from kafkalog.server.replica.fetch_session import FULL, NO_SESSION, next_epoch
from kafkalog.server.replica.following import Row
from kafkalog.types import TopicPartition

_OWN_ERRORS: Final = frozenset({
    ErrorCode.FETCH_SESSION_ID_NOT_FOUND, ErrorCode.INVALID_FETCH_SESSION_EPOCH, ErrorCode.FETCH_SESSION_TOPIC_ID_ERROR,
})  # fmt: skip


class Ask(NamedTuple):
    """One fetch: which session, what is new in it, and what is no longer asked for."""

    session_id: int
    epoch: int
    rows: Mapping[TopicPartition, Row]
    forgotten: tuple[TopicPartition, ...]


class AskingSession:
    """What the leader remembers of us. `next` is followed by `answered`, or by `lost` where no answer came."""

    def __init__(self) -> None:
        self._id = NO_SESSION
        self._epoch = FULL
        self._known: dict[TopicPartition, Row] = {}

    def next(self, wanted: Mapping[TopicPartition, Row]) -> Ask:
        """How to ask for all that is wanted."""
        if self._epoch == FULL:
            self._known = dict(wanted)
            return Ask(self._id, FULL, self._known, ())
        known = self._known
        rows = {key: row for key, row in wanted.items() if known.get(key) != row}
        forgotten = tuple(key for key in known if key not in wanted)
        self._known = dict(wanted)
        return Ask(self._id, self._epoch, rows, forgotten)

    def answered(self, error_code: int, session_id: int) -> bool:
        """Whether the answer counts: else the next request begins a session anew."""
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
        """No answer came: what the leader remembers is not known. The next request ends that session."""
        self._epoch = FULL
        self._known = {}


def is_of_session(error_code: int) -> bool:
    """Whether an error is about the session alone, and asking anew mends it."""
    return error_code in _OWN_ERRORS
