"""Matching of untrusted patterns with names: long work runs in a thread, and its cost is limited."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Final

from kafkalog.util.safe_pattern import PatternError, matching

if TYPE_CHECKING:
    from kafkalog.server.node.node import Node

QUICK: Final = 2000
"""Limit for matching in the loop itself: characters of all names times characters of the pattern."""
MAX_REMEMBERED: Final = 200


async def matching_names(node: Node, pattern: str, names: Sequence[str]) -> frozenset[str]:
    """Return the names that the whole pattern matches. Raise PatternError for an invalid or too costly pattern."""
    if len(pattern) * sum(map(len, names)) <= QUICK and "{" not in pattern:
        return matching(pattern, names)
    async with node.large:
        return await node.run(matching, pattern, names)


class TopicPatterns:
    """Topics that patterns match, cached until topics are created or deleted.

    Every heartbeat of a group looks up all of its patterns.
    """

    def __init__(self, node: Node) -> None:
        self._node = node
        self._names: list[str] = []
        self._found: OrderedDict[str, frozenset[str] | PatternError] = OrderedDict()

    async def of(self, patterns: Iterable[str]) -> dict[str, frozenset[str] | PatternError]:
        """Return the topics that each pattern matches, or its error."""
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
                    found = PatternError(str(error))  # without the traceback
                if names == self._names:  # else the topics changed meanwhile
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
