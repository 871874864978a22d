"""The part of `Log` that has work queues."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Final, Never

from kafkalog.errors import IllegalState
from kafkalog.util.keywords import unknown_keyword

if TYPE_CHECKING:
    from kafkalog.log.log import Log
    from kafkalog.queue.queue import WorkQueue

_OPTIONS: Final = ("name", "start", "settings")


def queue(
    log: Log,
    name: str,
    *,
    start: str | None = "earliest",
    settings: Mapping[str, object] | None = None,
    **unknown: Never,
) -> WorkQueue:
    """Open the queue called `name` on this partition alone; see `TopicLogs.queue`.

    The log is one of `open_dirs` in mode "a": IllegalState for a log that was opened by itself.

    >>> topic = dirs.create_topic("tasks", 2)
    >>> info = dirs["tasks", 1].append([b"resize 1"])
    >>> with dirs["tasks", 1].queue("workers") as queue:
    ...     for item in queue.acquire(max_records=10):
    ...         print(item.value)
    ...         item.ack()
    b'resize 1'
    """
    if unknown:
        raise unknown_keyword("queue", unknown, _OPTIONS)
    from kafkalog.log.writable import StoreLog  # not needed to read
    from kafkalog.queue.opening import open_queue

    opened = log.opened_for_append()
    if not isinstance(opened, StoreLog):
        raise IllegalState(
            f"log {log.name} was opened by itself: a queue keeps its state in another topic of the data directory",
            hint="open the directory with kafkalog.open_dirs(DIR, 'a')",
        )
    return open_queue(opened.manager, log.topic, name, partition=log.partition, start=start, settings=settings)
