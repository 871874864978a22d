"""Helpers that the operations of all clients share."""

import time
from collections.abc import Callable
from typing import Final

LIMIT_S: Final = 180


class Deadline:
    """A deadline for an operation."""

    def __init__(self, seconds: float = LIMIT_S) -> None:
        self._end = time.monotonic() + seconds

    def left(self) -> float:
        """Seconds that are left; TimeoutError once there are none."""
        left = self._end - time.monotonic()
        if left <= 0:
            raise TimeoutError(f"took longer than {LIMIT_S} s")
        return left


def until(deadline: Deadline, is_so: Callable[[], bool]) -> None:
    """Retry until the condition holds or the deadline passes."""
    while not is_so():
        deadline.left()


def expected_values(count: int) -> set[bytes]:
    """The values of records 0 ... count - 1."""
    return {b"value-%d" % n for n in range(count)}
