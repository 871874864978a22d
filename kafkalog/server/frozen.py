"""Keep logs out of full garbage collections: they hold up every thread, the longer the more objects there are."""

from __future__ import annotations

import gc
from collections.abc import Callable
from typing import Final

AT_ONCE: Final = 512
"""New logs that a full collection may have to look at: some 25,000 objects, ten milliseconds."""


class FrozenLogs:
    """Freezes the objects of a process from time to time, as the number of its logs grows.

    For a process that the server has to itself. A frozen object is freed with its last reference; a cycle of frozen
    objects never is. Threads: one at a time.
    """

    def __init__(self, count: Callable[[], int]) -> None:
        """`count` returns the number of logs there are."""
        self._count = count
        self._frozen = 0

    def freeze(self) -> None:
        """Free what is garbage, then let no collection look at what is left."""
        gc.collect()
        gc.freeze()
        self._frozen = self._count()

    def follow(self) -> None:
        """Call `freeze` where there are many more logs than at the last time."""
        self._frozen = min(self._frozen, self._count())
        if self._count() - self._frozen >= AT_ONCE:
            self.freeze()
