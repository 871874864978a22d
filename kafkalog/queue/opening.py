"""Opening a queue. What runs it, the server's share partitions, lies above this package: it is imported by name."""

from __future__ import annotations

from collections.abc import Mapping
from importlib import import_module
from typing import TYPE_CHECKING, Any, Final

from kafkalog.errors import IllegalArgument
from kafkalog.queue.queue import WorkQueue
from kafkalog.queue.worker import EARLIEST

if TYPE_CHECKING:
    from kafkalog.manager.log_manager import LogManager

_MOST_BYTES: Final = 2**15 - 1
_WORKERS: Final = "kafkalog.sharing.workers"


def check_name(name: str) -> None:
    """Raise IllegalArgument unless Kafka's protocol has room for the name of a group."""
    try:
        size = len(name.encode())
    except (UnicodeEncodeError, AttributeError):
        raise IllegalArgument(f"the name of a queue is text, not {name!r:.40}") from None
    if not 0 < size <= _MOST_BYTES:
        raise IllegalArgument(f"the name of a queue has 1 to {_MOST_BYTES} bytes of UTF-8, not {size}")


def _workers() -> Any:
    return import_module(_WORKERS)


def open_queue(
    manager: LogManager,
    topic: str,
    name: str,
    *,
    partition: int | None = None,
    start: str | None = EARLIEST,
    settings: Mapping[str, object] | None = None,
) -> WorkQueue:
    """Open a queue on a topic of open data directories, or on one partition. Errors as for `TopicLogs.queue`."""
    check_name(name)
    return WorkQueue(name, topic, _workers().local_worker(manager, topic, name, partition, start, settings or {}))


def connect(
    bootstrap: str,
    topic: str,
    name: str,
    *,
    start: str | None = EARLIEST,
    settings: Mapping[str, object] | None = None,
    properties: Mapping[str, str] | None = None,
) -> WorkQueue:
    """Open a queue on a topic of a server or a broker (Kafka 4.1 or later) at "HOST:PORT", or several with commas.

    `start` is where a new queue begins, "earliest", "latest" or "by_duration:..."; None leaves it to the server.
    `settings` are settings of the group by Kafka's names; they are kept for all its workers. `properties` are a
    client's: `security.protocol`, `sasl.mechanism`, `sasl.jaas.config`, `ssl.truststore.location` and so on.

    Raises UnknownTopicOrPartition, ConfigError, errors of authorization, MissingPackage without the extra `server`, and
    `ConnectionError` if no server answers.

    >>> from kafkalog.testing import kafka_server
    >>> with kafka_server(topics="tasks") as server:
    ...     with kafkalog.queue.connect(server.bootstrap, "tasks", "workers") as queue:
    ...         queue.acquire()
    []
    """
    check_name(name)
    worker = _workers().remote_worker(bootstrap, topic, name, start, settings or {}, properties or {})
    return WorkQueue(name, topic, worker)
