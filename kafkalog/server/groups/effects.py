"""What has to be done after a group has changed: the state machines return these, and the coordinator does them.

A group's rules have no clock, no log and no socket, so that each of them can be tried by itself.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Final, NamedTuple

JOIN_TIMER: Final = "join"
SYNC_TIMER: Final = "sync"
MEMBER_TIMER: Final = "member "
"""Before a member's id: its session."""


class Reply(NamedTuple):
    """Answers a request that waits; `waiter` is what came with it."""

    waiter: Any
    answer: Any


class Wake(NamedTuple):
    """Starts a timer of the group anew; `delay_ms` None ends it."""

    name: str
    delay_ms: int | None


class Write(NamedTuple):
    """Writes the group's record with these fields, then asks what is to be done: `then` takes the error code."""

    fields: Mapping[str, Any]
    then: Callable[[int], list[Any]]


Effect = Reply | Wake | Write
