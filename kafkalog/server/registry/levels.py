"""Compatibility levels: which earlier versions a new one is compared with, and in which direction."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from kafkalog.server.registry.parsing import Parsed, incompatibilities

LEVELS: Final = (
    "NONE", "BACKWARD", "BACKWARD_TRANSITIVE", "FORWARD", "FORWARD_TRANSITIVE", "FULL", "FULL_TRANSITIVE",
)  # fmt: skip
_BACKWARD: Final = ("BACKWARD", "FULL")
_FORWARD: Final = ("FORWARD", "FULL")


def level_incompatibilities(level: str, new: Parsed, earlier: Sequence[Parsed]) -> list[str]:
    """Return the reasons why a level forbids a new version after earlier ones, the oldest first; none if it does not.

    The levels without TRANSITIVE compare with the latest of them only.
    """
    direction = level.removesuffix("_TRANSITIVE")
    compared = earlier if level.endswith("_TRANSITIVE") else earlier[-1:]
    found: list[str] = []
    for old in reversed(compared):
        if direction in _BACKWARD:
            found += [f"{text} (the new schema reads the old)" for text in incompatibilities(new, old)]
        if direction in _FORWARD:
            found += [f"{text} (the old schema reads the new)" for text in incompatibilities(old, new)]
    return found
