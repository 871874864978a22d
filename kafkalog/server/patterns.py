"""Patterns of strangers, matched with names: a thread does what takes long, and its cost has a limit."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Final

from kafkalog.util.safe_pattern import PatternError, matching

if TYPE_CHECKING:
    from kafkalog.server.node import Node

QUICK: Final = 2000
"""The loop itself does what has no more than so many characters of names times characters of the pattern."""
MAX_REMEMBERED: Final = 200


async def matching_names(node: Node, pattern: str, names: Sequence[str]) -> frozenset[str]:
    """Those of the names that the pattern matches as a whole. PatternError for what is none, or costs too much."""
    if len(pattern) * sum(map(len, names)) <= QUICK and "{" not in pattern:
        return matching(pattern, names)
    async with node.large:
        return await node.run(matching, pattern, names)


class TopicPatterns:
    """What patterns stand for among the topics that there are; remembered until there are others.

    Every heartbeat of a group asks for all of its patterns.
    """

    def __init__(self, node: Node) -> None:
        self._node = node
        self._names: list[str] = []
        self._found: OrderedDict[str, frozenset[str] | PatternError] = OrderedDict()

    async def of(self, patterns: Iterable[str]) -> dict[str, frozenset[str] | PatternError]:
        """The topics that each pattern stands for, or what is wrong with it."""
        result = {}
        for pattern in patterns:
            names = self._node.topics.names()
            if names != self._names:
                self._names = names
                self._found.clear()
            found = self._found.get(pattern)
            if found is None:
                try:
                    found = await matching_names(self._node, pattern, names)
                except PatternError as error:
                    found = PatternError(str(error))  # without what it was raised in
                if names == self._names:  # else they are others by now
                    self._remember(pattern, found)
            else:
                self._found.move_to_end(pattern)
            result[pattern] = found
        return result

    def _remember(self, pattern: str, found: frozenset[str] | PatternError) -> None:
        self._found[pattern] = found
        self._found.move_to_end(pattern)
        if len(self._found) > MAX_REMEMBERED:
            self._found.popitem(last=False)
