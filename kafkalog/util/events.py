"""Registry of hooks: functions called on events of logs, by the name of the event.

A hook runs in the thread that caused the event, after the log's lock is released. An error of a hook is logged and
counted, and not raised. Calls of a hook on a log cause no events, so that no hook can call itself.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import Final, NamedTuple

from kafkalog.errors import IllegalArgument
from kafkalog.types import TopicPartition
from kafkalog.util.guards import guard

EVENTS: Final[Mapping[str, str]] = MappingProxyType(
    {
        "open": "a log was opened for writing: `duration_ms`, `recovered`, `log_start_offset`, `log_end_offset`",
        "append": "batches were written: `first_offset`, `last_offset`, `size` in bytes",
        "roll": "a new active segment: `base_offset`",
        "flush": "data was forced to disk: `offset` (all before it), `duration_ms`",
        "flush_error": "a flush failed, and the log accepts no more writes: `error`",
        "truncate": "the log was truncated: `offset`, `log_end_offset` before",
        "delete": "segments were deleted: `base_offsets`, `size` in bytes, `reason` (log_start, size, time)",
        "close": "the log was closed: `log_end_offset`",
    }
)
"""Every event, with a description of its `values`."""

_LOG: Final = logging.getLogger(__name__)


class Event(NamedTuple):
    """An event of the log in the directory `path`; `EVENTS` describes the values of each."""

    name: str
    path: str
    topic_partition: TopicPartition
    values: Mapping[str, object]


Function = Callable[[Event], object]


class Hook:
    """A function called on an event until `remove()`; also a context manager, which removes it at its end.

    >>> seen = []
    >>> hook = kafkalog.hooks.on("roll", seen.append)
    >>> log.roll(), seen[0].values["base_offset"], hook.event
    (2, 2, 'roll')
    >>> hook.remove()
    """

    def __init__(self, event: str, function: Function) -> None:
        self.event = event
        self.function = function

    def remove(self) -> None:
        """Stop calling the function. A second call does nothing."""
        with _lock:
            left = tuple(hook for hook in HOOKS.get(self.event, ()) if hook is not self)
            _set(self.event, left)

    def __enter__(self) -> Hook:
        return self

    def __exit__(self, *exc: object) -> None:
        self.remove()

    def __repr__(self) -> str:
        return f"<Hook on {self.event}: {self.function!r}>"


class _HookState(threading.local):
    """State of a thread: `in_hook` is True while it is inside a hook."""

    in_hook = False


_lock: Final = guard()
HOOKS: Final[dict[str, tuple[Hook, ...]]] = {}
"""Hooks by event; an event without hooks has no entry. Changed under `_lock`, read without."""
_hook_state: Final = _HookState()
_failures = 0


def add(event: str, function: Function) -> Hook:
    """Call `function(event)` from now on and return its hook; raise IllegalArgument for an unknown event."""
    if event not in EVENTS:
        raise IllegalArgument(f"there is no event {event!r}", hint="events are " + ", ".join(EVENTS))
    if not callable(function):
        raise TypeError(f"a hook must be callable: {function!r} is not")
    hook = Hook(event, function)
    with _lock:
        _set(event, (*HOOKS.get(event, ()), hook))
    return hook


def _set(event: str, hooks: tuple[Hook, ...]) -> None:
    if hooks:
        HOOKS[event] = hooks
    else:
        HOOKS.pop(event, None)


def has_hooks(event: str) -> bool:
    """Return True if the event has a hook."""
    return event in HOOKS


def emit(name: str, path: str, topic_partition: TopicPartition, **values: object) -> None:
    """Call the hooks of the event; never raise the error of a hook, except for a Ctrl-C."""
    hooks = HOOKS.get(name)
    if not hooks or _hook_state.in_hook:
        return
    event = Event(name, path, topic_partition, MappingProxyType(values))
    _hook_state.in_hook = True
    try:
        for hook in hooks:
            try:
                hook.function(event)
            except KeyboardInterrupt:
                raise
            except BaseException:
                _note_failure(hook)
    finally:
        _hook_state.in_hook = False


def _note_failure(hook: Hook) -> None:
    global _failures
    with _lock:
        _failures += 1
    _LOG.exception("%r failed", hook)


def failures() -> int:
    """Return the number of failed calls of hooks."""
    return _failures
