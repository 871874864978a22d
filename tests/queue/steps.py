"""Records that workers of a queue get, step by step: the same from kafkalog's server and from a broker."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from kafkalog.errors import KafkalogError
from kafkalog.queue import connect

LIMIT_S = 60


def steps(bootstrap: str, topic: str, group: str) -> Iterator[Any]:
    """The records 0 to 5 of a topic of one partition, taken by two workers that finish them in all ways."""
    settings = {"share.record.lock.duration.ms": 20_000}
    with connect(bootstrap, topic, group, settings=settings) as queue:
        items = queue.acquire(4, timeout=LIMIT_S)
        yield [(one.offset, one.delivery_count, one.value) for one in items]
        items[0].ack()
        items[1].release()
        items[2].reject()
        items[3].renew()
        try:
            items[0].ack()
        except KafkalogError as error:
            yield type(error).__name__, error.code
        yield [(one.offset, one.delivery_count) for one in queue.acquire(timeout=LIMIT_S)]
    with connect(bootstrap, topic, group) as queue:
        found: list[Any] = []
        while len(found) < 4:
            found += queue.acquire(timeout=LIMIT_S)
        yield [(one.offset, one.delivery_count) for one in found]
        queue.ack(found)
