"""Effects of a change of a group: the state machine returns them and the coordinator carries them out.

The state machine has no clock, log or socket, so that each rule can be tested by itself.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping
from typing import Final, NamedTuple

from kafkalog.server.groups.values import Joined, Synced

JOIN_TIMER: Final = "join"
SYNC_TIMER: Final = "sync"
MEMBER_TIMER: Final = "member "
"""Prefix of the name of a member's session timer; the member's id follows."""
Waiter = asyncio.Future[Joined | Synced]
"""A request that waits for its answer."""


class Reply(NamedTuple):
    """Answer a pending request; `waiter` is the object passed with it."""

    waiter: Waiter
    answer: Joined | Synced


class Wake(NamedTuple):
    """Start or restart a timer of the group; None for `delay_ms` cancels it."""

    name: str
    delay_ms: int | None


class Write(NamedTuple):
    """Write the group's record with these fields; `then` takes the error code and returns further effects."""

    fields: Mapping[str, object]
    then: Callable[[int], list[Effect]]


Effect = Reply | Wake | Write
