"""Functions that are told what happens in the logs of this process: `kafkalog.hooks.on("roll", function)`."""

from __future__ import annotations

from kafkalog.util.events import EVENTS, Event, Function, Hook, add

__all__ = ["EVENTS", "Event", "Hook", "on"]


def on(event: str, function: Function) -> Hook:
    """The hook by which `function` is called with each `Event` of that name, until its `remove()`; `EVENTS` has them.

    It is called in the thread that did what it is told of, after the log's lock is released: what takes long belongs
    into a queue. What it raises is logged and counted (`kafkalog_hook_failures_total`), and harms nothing. What it does
    to logs itself is not told. IllegalArgument for an event that there is not.

    >>> with on("append", lambda event: print(event.name, event.values["last_offset"])):
    ...     info = log.append([(b"u-3", b"third")])
    append 2
    """
    return add(event, function)
