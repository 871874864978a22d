"""Hooks: functions called on events in the logs of this process: `kafkalog.hooks.on("roll", function)`."""

from __future__ import annotations

from kafkalog.util.events import EVENTS, Event, Function, Hook, add

__all__ = ["EVENTS", "Event", "Hook", "on"]


def on(event: str, function: Function) -> Hook:
    """Call `function` with each `Event` of that name until `remove()` of the returned hook; `EVENTS` lists the names.

    `function` runs in the thread that caused the event, after the log's lock is released: pass long work to a queue.
    Its errors are logged and counted (`kafkalog_hook_failures_total`), and not raised. Its own calls on logs cause no
    events. Raises IllegalArgument for an unknown event.

    >>> with on("append", lambda event: print(event.name, event.values["last_offset"])):
    ...     info = log.append([(b"u-3", b"third")])
    append 2
    """
    return add(event, function)
