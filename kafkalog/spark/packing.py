"""Distribution of work of known sizes over tasks: enough that all cores end together, few enough to cost little."""

from __future__ import annotations

import heapq
from collections.abc import Callable, Sequence
from typing import Final, TypeVar

TASKS_A_CORE: Final = 4
"""Tasks for each core, so that the last ones to end are a small part of the whole."""
MIN_TASK_BYTES: Final = 16 << 20
"""Least size of a task: a smaller one would cost more to start than to run."""

Piece = TypeVar("Piece")


def packed(pieces: Sequence[Piece], size_of: Callable[[Piece], int], cores: int) -> list[list[Piece]]:
    """Return the pieces in lists, one for each task: of sizes as even as possible, the largest list first, none empty.

    A piece is never split. There are at most TASKS_A_CORE lists for each core, and no more than one for each
    MIN_TASK_BYTES, but always one for each core if there are enough pieces.
    """
    if not pieces:
        return []
    total = sum(map(size_of, pieces))
    wanted = max(cores, min(cores * TASKS_A_CORE, total // MIN_TASK_BYTES))
    lists: list[list[Piece]] = [[] for _ in range(max(1, min(wanted, len(pieces))))]
    loads = [(0, 0, number) for number in range(len(lists))]
    for piece in sorted(pieces, key=lambda one: -size_of(one)):
        load, count, number = heapq.heappop(loads)
        lists[number].append(piece)
        heapq.heappush(loads, (load + size_of(piece), count + 1, number))
    return sorted(lists, key=lambda some: -sum(map(size_of, some)))
