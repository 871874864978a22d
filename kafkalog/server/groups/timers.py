"""The timers of groups: at most one of each name for a group."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import asyncio

    from kafkalog.server.node.node import Node


class GroupTimers:
    """Timers by group and name; each calls `on_timer(group id, name)` on the event loop when it expires."""

    __slots__ = ("_handles", "_is_closed", "_node", "_on_timer")

    def __init__(self, node: Node, on_timer: Callable[[str, str], object]) -> None:
        self._node = node
        self._on_timer = on_timer
        self._is_closed = False
        self._handles: dict[str, dict[str, asyncio.TimerHandle]] = {}

    def set(self, group_id: str, name: str, delay_ms: int | None) -> None:
        """Start or restart a timer; None cancels it."""
        handles = self._handles.setdefault(group_id, {})
        old = handles.pop(name, None)
        if old is not None:
            old.cancel()
        if delay_ms is not None and not self._is_closed:
            handles[name] = self._node.later(delay_ms, self._call, group_id, name)
        elif not handles:
            del self._handles[group_id]

    def has(self, group_id: str, name: str) -> bool:
        """Return True if the timer is running."""
        return name in self._handles.get(group_id, ())

    def cancel(self, group_id: str) -> None:
        """Cancel all timers of a group."""
        for handle in self._handles.pop(group_id, {}).values():
            handle.cancel()

    def cancel_all(self) -> None:
        """Cancel all timers."""
        for group_id in list(self._handles):
            self.cancel(group_id)

    def close(self) -> None:
        """Cancel all timers; later ones do not start, such as those of a request that outlives the coordinator."""
        self._is_closed = True
        self.cancel_all()

    def _call(self, group_id: str, name: str) -> None:
        handles = self._handles.get(group_id, {})
        handles.pop(name, None)
        if not handles:
            self._handles.pop(group_id, None)
        self._on_timer(group_id, name)
