"""What happens in a log, told to whoever asked: a small registry of functions by the name of an event.

A hook runs in the thread that did what it is told of, after the log's lock is released. One that raises is logged and
counted, and harms nothing. What a hook does to a log itself is not told again, so that no hook can call itself.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import Any, Final, NamedTuple

from kafkalog.errors import IllegalArgument
from kafkalog.types import TopicPartition
from kafkalog.util.guards import guard

EVENTS: Final[Mapping[str, str]] = MappingProxyType(
    {
        "open": "a log was opened for writing: `duration_ms`, `recovered`, `log_start_offset`, `log_end_offset`",
        "append": "batches were written: `first_offset`, `last_offset`, `size` in bytes",
        "roll": "a new active segment: `base_offset`",
        "flush": "data was forced to disk: `offset` (all before it), `duration_ms`",
        "flush_error": "that failed, and the log takes no more writes: `error`",
        "truncate": "the log's end was cut: `offset`, `log_end_offset` before",
        "delete": "segments were given up: `base_offsets`, `size` in bytes, `reason` (log_start, size, time)",
        "close": "the log was closed: `log_end_offset`",
    }
)
"""Every event, with what its `values` are."""

_LOG: Final = logging.getLogger(__name__)


class Event(NamedTuple):
    """Something that happened to the log in the directory `path`; `EVENTS` says what the values of each are."""

    name: str
    path: str
    topic_partition: TopicPartition
    values: Mapping[str, Any]


Function = Callable[[Event], object]


class Hook:
    """A function that is told of an event, until `remove()`; a context manager does that at its end.

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
        """Tell it no more. A second call does nothing."""
        with _lock:
            left = tuple(hook for hook in _hooks.get(self.event, ()) if hook is not self)
            _set(self.event, left)

    def __enter__(self) -> Hook:
        return self

    def __exit__(self, *exc: object) -> None:
        self.remove()

    def __repr__(self) -> str:
        return f"<Hook on {self.event}: {self.function!r}>"


class _Telling(threading.local):
    """Whether this thread is inside a hook."""

    now = False


_lock: Final = guard()
_hooks: dict[str, tuple[Hook, ...]] = {}  # replaced under _lock, read without
_telling: Final = _Telling()
appends_wanted = False
"""True while someone wants to know of appends: their path asks this and no more."""
_failures = 0


def add(event: str, function: Function) -> Hook:
    """The hook by which `function(event)` is called from now on; IllegalArgument for an event that there is not."""
    if event not in EVENTS:
        raise IllegalArgument(f"there is no event {event!r}", hint="there are " + ", ".join(EVENTS))
    if not callable(function):
        raise TypeError(f"a hook is called with an event: {function!r} cannot be called")
    hook = Hook(event, function)
    with _lock:
        _set(event, (*_hooks.get(event, ()), hook))
    return hook


def _set(event: str, hooks: tuple[Hook, ...]) -> None:
    global appends_wanted
    _hooks[event] = hooks
    appends_wanted = bool(_hooks.get("append"))


def wanted(event: str) -> bool:
    """Whether anyone wants to know."""
    return bool(_hooks.get(event))


def emit(name: str, path: str, topic_partition: TopicPartition, **values: Any) -> None:
    """Tells everyone who wants to know; never raises for what a hook does (but lets a Ctrl-C through)."""
    hooks = _hooks.get(name)
    if not hooks or _telling.now:
        return
    event = Event(name, path, topic_partition, MappingProxyType(values))
    _telling.now = True
    try:
        for hook in hooks:
            try:
                hook.function(event)
            except KeyboardInterrupt:
                raise
            except BaseException:
                _note_failure(hook)
    finally:
        _telling.now = False


def _note_failure(hook: Hook) -> None:
    global _failures
    with _lock:
        _failures += 1
    _LOG.exception("%r failed", hook)


def failures() -> int:
    """How many calls of hooks raised."""
    return _failures
