"""The worker that gets a new partition."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from heapq import heapify, heappop, heappush

from kafkalog.server.workers.layout import MAIN, OF_MAIN


def spread(topic: str, numbers: Iterable[int], counts: Mapping[int, int]) -> dict[int, list[int]]:
    """Return the new partitions of a topic by worker: each one goes to the worker with the fewest at that point.

    `counts` has the number of partitions of each worker that runs.
    """
    if topic in OF_MAIN:
        return {MAIN: list(numbers)}
    room = [(count, worker) for worker, count in counts.items()]
    heapify(room)
    found: dict[int, list[int]] = {}
    for number in numbers:
        count, worker = heappop(room)
        heappush(room, (count + 1, worker))
        found.setdefault(worker, []).append(number)
    return found
