"""Pieces of work of known sizes put into tasks: enough tasks that all cores end together, few enough to cost little."""

from __future__ import annotations

import heapq
from collections.abc import Callable, Sequence
from typing import Final, TypeVar

TASKS_A_CORE: Final = 4
"""Tasks for each core: the last ones to end are then a small part of the whole."""
LEAST_TASK_BYTES: Final = 16 << 20
"""A task of less would cost more to start than to do."""

Piece = TypeVar("Piece")


def packed(pieces: Sequence[Piece], size_of: Callable[[Piece], int], cores: int) -> list[list[Piece]]:
    """The pieces in lists, one a task: of sizes as even as they can be, the largest list first, none empty.

    A piece is never split. There are at most TASKS_A_CORE lists for each core, and no more than LEAST_TASK_BYTES call
    for, but always one for each core where there are pieces enough.
    """
    if not pieces:
        return []
    total = sum(map(size_of, pieces))
    wanted = max(cores, min(cores * TASKS_A_CORE, total // LEAST_TASK_BYTES))
    lists: list[list[Piece]] = [[] for _ in range(max(1, min(wanted, len(pieces))))]
    loads = [(0, 0, number) for number in range(len(lists))]
    for piece in sorted(pieces, key=lambda one: -size_of(one)):
        load, count, number = heapq.heappop(loads)
        lists[number].append(piece)
        heapq.heappush(loads, (load + size_of(piece), count + 1, number))
    return sorted(lists, key=lambda some: -sum(map(size_of, some)))
