"""Share sessions: which partitions each member of a share group fetches, and the number of its next request."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Final
from uuid import UUID

from kafkalog.server.error_codes import ErrorCode, Refused
from kafkalog.server.requests.cooperative_yield import CooperativeYield

INITIAL: Final = 0
FINAL: Final = -1
MOST_PARTITIONS: Final = 200_000
"""Limit of the partitions in all sessions."""
_LAST_EPOCH: Final = 2**31 - 1
Place = tuple[UUID, int]
"""Topic id and partition number."""
SessionKey = tuple[str, str]
"""Group id and member id."""


@dataclass(slots=True, eq=False)
class ShareSession:
    """A member's session; `epoch` is that of the next request."""

    key: SessionKey
    connection: int
    epoch: int = 1
    partitions: dict[Place, None] = field(default_factory=dict)


class ShareSessions:
    """The sessions of a node, `most` at once. Not thread-safe."""

    def __init__(self, most: int) -> None:
        self._most = most
        self._sessions: dict[SessionKey, ShareSession] = {}

    def __len__(self) -> int:
        return len(self._sessions)

    async def open(self, key: SessionKey, connection: int, places: Iterable[Place]) -> ShareSession:
        """Open a session, in place of the member's present one, and return it. Refused if there are too many.

        The loop serves others while the partitions are collected; then everything changes at once.
        """
        session = ShareSession(key, connection)
        new = await _collected(session, places)
        self._sessions.pop(key, None)
        if len(self._sessions) >= self._most or not self._put(session, new):
            raise Refused(ErrorCode.SHARE_SESSION_LIMIT_REACHED)
        self._sessions[key] = session
        return session

    async def add(self, session: ShareSession, places: Iterable[Place]) -> None:
        """Add partitions to a session. Refused, with nothing done, if there would be too many in all."""
        if not self._put(session, await _collected(session, places)):
            raise Refused(ErrorCode.SHARE_SESSION_LIMIT_REACHED)

    def _put(self, session: ShareSession, new: dict[Place, None]) -> bool:
        if new and len(new) + sum(len(one.partitions) for one in self._sessions.values()) > MOST_PARTITIONS:
            return False
        session.partitions |= new  # without computing hashes again
        return True

    def resume(self, key: SessionKey, epoch: int) -> ShareSession:
        """Return the session of a later or last request; a later one counts. Refused for another request."""
        session = self._sessions.get(key)
        if session is None:
            raise Refused(ErrorCode.SHARE_SESSION_NOT_FOUND)
        if epoch == FINAL:
            return session
        if epoch != session.epoch:
            raise Refused(ErrorCode.INVALID_SHARE_SESSION_EPOCH)
        session.epoch = 1 if epoch == _LAST_EPOCH else epoch + 1
        return session

    def get(self, key: SessionKey) -> ShareSession | None:
        """Return the member's open session, or None."""
        return self._sessions.get(key)

    def close(self, key: SessionKey) -> ShareSession | None:
        """Remove a session and return it, or None."""
        return self._sessions.pop(key, None)

    def of_connection(self, connection: int) -> list[SessionKey]:
        """Return the sessions of a connection that was closed."""
        return [key for key, one in self._sessions.items() if one.connection == connection]


async def _collected(session: ShareSession, places: Iterable[Place]) -> dict[Place, None]:
    """Return the partitions that are not in the session, no more of them than are too many."""
    found: dict[Place, None] = {}
    turns = CooperativeYield()
    for place in places:
        if place not in session.partitions:
            found[place] = None
            if len(found) > MOST_PARTITIONS:
                break
        await turns.row()
    return found
