"""Untrusted regular expressions, in the syntax of RE2, matched in time proportional to pattern times text.

Python's own matcher backtracks, which a short pattern can make take for ever, and holds the GIL meanwhile. This one
follows all paths through the pattern at once. It rejects unsupported syntax, as RE2 rejects back references: classes of
Unicode properties (`\\pL`) and octal numbers.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final, NamedTuple

from kafkalog.util.pattern_syntax import (
    Alternatives,
    Assertion,
    AssertionKind,
    CharacterSet,
    Node,
    PatternError,
    Repeated,
    Sequence,
    parse,
)

__all__ = ["PatternError", "SafePattern", "matching"]

MAX_STEPS: Final = 2000
"""Most steps of a pattern, with its counted repetitions expanded."""
MAX_CACHED: Final = 50_000
"""Most steps in the cached sets of a pattern."""
MAX_WORK: Final = 1_000_000
"""Most steps that `matching` examines: about a second."""
_CONSUME, _SPLIT, _ASSERT, _MATCH = range(4)


class _Step(NamedTuple):
    """One step: consume a character and go to `first`; or go to `first` and `second`; or check an assertion."""

    kind: int
    first: int = -1
    second: int = -1
    characters: CharacterSet | None = None
    assertion: AssertionKind | None = None


class SafePattern:
    """A compiled pattern; raises PatternError for an invalid one. Threads: one at a time."""

    __slots__ = ("_cached", "_cached_steps", "_looks_around", "_start", "_steps", "text", "work")

    def __init__(self, text: str) -> None:
        self.text = text
        self.work = 0  # steps examined, in all texts
        self._steps: list[_Step] = []
        end = self._add(_Step(_MATCH))
        self._start = self._compile(parse(text), end)
        self._looks_around = any(step.kind == _ASSERT for step in self._steps)
        self._cached: dict[tuple[frozenset[int], str], frozenset[int]] = {}
        self._cached_steps = 0

    def matches(self, text: str) -> bool:
        """Return True if the pattern matches all of `text`."""
        states = self._closure({self._start}, text, 0)
        for index, character in enumerate(text):
            if not states:
                return False
            self.work += 1
            states = self._advance(states, character, text, index)
        return any(self._steps[number].kind == _MATCH for number in states)

    def _advance(self, states: frozenset[int], character: str, text: str, index: int) -> frozenset[int]:
        if self._looks_around:
            return self._closure(self._consume(states, character), text, index + 1)
        after = self._cached.get((states, character))
        if after is None:
            if self._cached_steps >= MAX_CACHED:
                self._cached.clear()
                self._cached_steps = 0
            after = self._cached[states, character] = self._closure(self._consume(states, character), text, index + 1)
            self._cached_steps += len(after) + 1
        return after

    def _consume(self, states: frozenset[int], character: str) -> set[int]:
        found = set()
        for step in [self._steps[number] for number in states]:
            if step.characters is not None:
                self.work += 1 + len(step.characters.ranges) // 8
                if step.characters.has(character):
                    found.add(step.first)
        return found

    def _closure(self, entries: set[int], text: str, index: int) -> frozenset[int]:
        """Return the consuming and final steps that are reachable from `entries` without consuming a character."""
        seen: set[int] = set()
        found: set[int] = set()
        pending = list(entries)
        while pending:
            number = pending.pop()
            if number in seen:
                continue
            seen.add(number)
            step = self._steps[number]
            if step.kind in (_CONSUME, _MATCH):
                found.add(number)
            elif step.kind == _SPLIT:
                pending += (step.first, step.second)
            elif step.assertion is not None and _is_true_at(step.assertion, text, index):
                pending.append(step.first)
        self.work += len(seen)
        return frozenset(found)

    # Compiling: each part needs the step after it, so the last part comes first

    def _add(self, step: _Step) -> int:
        if len(self._steps) >= MAX_STEPS:
            raise PatternError(f"the pattern has more than {MAX_STEPS} steps")
        self._steps.append(step)
        return len(self._steps) - 1

    def _compile(self, node: Node, after: int) -> int:
        if isinstance(node, CharacterSet):
            return self._add(_Step(_CONSUME, after, characters=node))
        if isinstance(node, Assertion):
            return self._add(_Step(_ASSERT, after, assertion=node.kind))
        if isinstance(node, Sequence):
            for part in reversed(node.parts):
                after = self._compile(part, after)
            return after
        if isinstance(node, Alternatives):
            entry = self._compile(node.parts[-1], after)
            for part in reversed(node.parts[:-1]):
                entry = self._add(_Step(_SPLIT, self._compile(part, after), entry))
            return entry
        return self._compile_repeated(node, after)

    def _compile_repeated(self, node: Repeated, after: int) -> int:
        if node.most is None:
            loop = self._add(_Step(_SPLIT, -1, after))
            self._steps[loop] = _Step(_SPLIT, self._compile(node.part, loop), after)
            entry = loop
        else:
            entry = after
            for _ in range(node.most - node.least):
                entry = self._add(_Step(_SPLIT, self._compile(node.part, entry), after))
        for _ in range(node.least):
            before = len(self._steps)
            entry = self._compile(node.part, entry)
            if len(self._steps) == before:
                break  # an empty part, repeated: nested repetitions would take for ever
        return entry


def matching(pattern: str, names: Iterable[str], most_work: int = MAX_WORK) -> frozenset[str]:
    """Return the names that a pattern matches as a whole; raise PatternError if it is invalid or costs too much."""
    compiled = SafePattern(pattern)
    found = set()
    for name in names:
        if compiled.matches(name):
            found.add(name)
        if compiled.work > most_work:
            raise PatternError(f"the pattern costs more than {most_work} steps to match")
    return frozenset(found)


def _is_word(text: str, index: int) -> bool:
    return 0 <= index < len(text) and text[index].isascii() and (text[index].isalnum() or text[index] == "_")


def _is_true_at(kind: AssertionKind, text: str, index: int) -> bool:
    if kind == AssertionKind.TEXT_START:
        return index == 0
    if kind == AssertionKind.TEXT_END:
        return index == len(text)
    if kind == AssertionKind.LINE_START:
        return index == 0 or text[index - 1] == "\n"
    if kind == AssertionKind.LINE_END:
        return index == len(text) or text[index] == "\n"
    is_edge = _is_word(text, index - 1) != _is_word(text, index)
    return is_edge == (kind == AssertionKind.WORD_EDGE)
