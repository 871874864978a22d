"""Compatibility levels: which earlier versions a new one is compared with, and in which direction."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final, TypeVar

from kafkalog.server.registry.parsing import Parsed, incompatibilities

LEVELS: Final = (
    "NONE", "BACKWARD", "BACKWARD_TRANSITIVE", "FORWARD", "FORWARD_TRANSITIVE", "FULL", "FULL_TRANSITIVE",
)  # fmt: skip
_BACKWARD: Final = ("BACKWARD", "FULL")
_FORWARD: Final = ("FORWARD", "FULL")
T = TypeVar("T")


def compared(level: str, earlier: Sequence[T]) -> Sequence[T]:
    """Return those of the earlier versions, the oldest first, that a level compares a new one with.

    The levels without TRANSITIVE compare with the latest of them only.
    """
    if level == "NONE":
        return ()
    return earlier if level.endswith("_TRANSITIVE") else earlier[-1:]


def level_incompatibilities(level: str, new: Parsed, old_ones: Sequence[Parsed]) -> list[str]:
    """Return the reasons why a level forbids a new version after those `compared` with it; none if it does not."""
    direction = level.removesuffix("_TRANSITIVE")
    found: list[str] = []
    for old in reversed(old_ones):
        if direction in _BACKWARD:
            found += [f"{text} (the new schema reads the old)" for text in incompatibilities(new, old)]
        if direction in _FORWARD:
            found += [f"{text} (the old schema reads the new)" for text in incompatibilities(old, new)]
    return found
