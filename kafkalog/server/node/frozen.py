"""Exclude logs from full garbage collections, which pause every thread in proportion to the number of objects."""

from __future__ import annotations

import gc
from collections.abc import Callable
from typing import Final

AT_ONCE: Final = 512
"""New logs that a full collection may have to scan: some 25,000 objects, ten milliseconds."""


class FrozenLogs:
    """Freezes the objects of a process from time to time, as the number of its logs grows.

    For a process that runs only the server. A frozen object is freed with its last reference; a cycle of frozen objects
    is never freed. Threads: one at a time.
    """

    def __init__(self, count: Callable[[], int]) -> None:
        """`count` returns the current number of logs."""
        self._count = count
        self._frozen = 0

    def freeze(self) -> None:
        """Collect garbage, then exclude the remaining objects from collections."""
        gc.collect()
        gc.freeze()
        self._frozen = self._count()

    def follow(self) -> None:
        """Call `freeze` if there are at least AT_ONCE more logs than at the last freeze."""
        self._frozen = min(self._frozen, self._count())
        if self._count() - self._frozen >= AT_ONCE:
            self.freeze()
