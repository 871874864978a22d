"""Bounds that follow from an expression: the offsets, times and partitions that it can be true for."""

from __future__ import annotations

from decimal import ROUND_CEILING, ROUND_FLOOR, Decimal
from typing import Final, NamedTuple

from kafkalog.where.literals import milliseconds
from kafkalog.where.nodes import OPPOSITE, And, Compare, In, IsNull, Literal, Node, Not, Or

MIN: Final = -(2**63)
MAX: Final = 2**63  # a range ends before it, and the largest number is one less
Spans = tuple[tuple[int, int], ...]
"""Whole numbers as half-open ranges [start, stop), rising and apart from each other."""
EVERY: Final[Spans] = ((MIN, MAX),)
NONE: Final[Spans] = ()


class Bounds(NamedTuple):
    """Offsets, times in ms and partitions outside of which an expression is never true.

    Each is a tuple of half-open ranges; an empty one means that no record matches.

    >>> from kafkalog import where
    >>> where.parse("offset < 10 or offset in (90, 91)").bounds().offsets
    ((-9223372036854775808, 10), (90, 92))
    """

    offsets: Spans
    times: Spans
    partitions: Spans

    @property
    def nothing(self) -> bool:
        """True if no record can match."""
        return not (self.offsets and self.times and self.partitions)


_EVERYTHING: Final = Bounds(EVERY, EVERY, EVERY)
_NOTHING: Final = Bounds(NONE, NONE, NONE)
_ROOTS: Final = {"offset": 0, "time": 1, "partition": 2}


def bounds_of(node: Node, wanted: bool = True) -> Bounds:
    """Return the bounds of the records for which `node` is true; with `wanted` False, of those for which it is false.

    Null is neither, so both may leave out the same record.
    """
    if isinstance(node, Not):
        return bounds_of(node.part, not wanted)
    if isinstance(node, (And, Or)):
        parts = [bounds_of(part, wanted) for part in node.parts]
        found = parts[0]
        for one in parts[1:]:
            found = _both(found, one) if isinstance(node, And) == wanted else _either(found, one)
        return found
    if isinstance(node, IsNull) and node.field.root in _ROOTS:
        return _NOTHING if wanted else _EVERYTHING
    if isinstance(node, Compare) and node.left.root in _ROOTS and isinstance(node.right, Literal):
        spans = _compared(node.operator if wanted else OPPOSITE[node.operator], _number(node.left.root, node.right))
        return _bounds(node.left.root, spans)
    if isinstance(node, In) and node.field.root in _ROOTS and wanted:
        spans = NONE
        for value in node.values:
            if value.value is not None:
                spans = joined(spans, _compared("==", _number(node.field.root, value)))
        return _bounds(node.field.root, spans)
    return _EVERYTHING


def _bounds(root: str, spans: Spans) -> Bounds:
    if not spans:
        return _NOTHING
    every = [EVERY, EVERY, EVERY]
    every[_ROOTS[root]] = spans
    return Bounds(*every)


def _number(root: str, literal: Literal) -> Decimal:
    if root == "time":
        return milliseconds(literal)
    return Decimal(literal.value) if isinstance(literal.value, (int, Decimal)) else Decimal(0)


def _compared(operator: str, value: Decimal) -> Spans:
    """Return the whole numbers that compare with `value` so."""
    low = int(value.to_integral_value(ROUND_CEILING)) if abs(value) < MAX else MAX if value > 0 else MIN
    high = int(value.to_integral_value(ROUND_FLOOR)) if abs(value) < MAX else MAX if value > 0 else MIN
    is_whole = low == high
    if operator == "==":
        return _span(low, low + 1) if is_whole else NONE
    if operator == "!=":
        return joined(_span(MIN, low), _span(low + 1, MAX)) if is_whole else EVERY
    if operator == "<":
        return _span(MIN, low)
    if operator == "<=":
        return _span(MIN, high + 1)
    return _span(high + 1, MAX) if operator == ">" else _span(low, MAX)


def _span(start: int, stop: int) -> Spans:
    start, stop = max(start, MIN), min(stop, MAX)
    return ((start, stop),) if start < stop else NONE


def joined(one: Spans, other: Spans) -> Spans:
    """Return the numbers that are in one of two sets."""
    found: list[tuple[int, int]] = []
    for start, stop in sorted(one + other):
        if found and start <= found[-1][1]:
            found[-1] = (found[-1][0], max(found[-1][1], stop))
        else:
            found.append((start, stop))
    return tuple(found)


def shared(one: Spans, other: Spans) -> Spans:
    """Return the numbers that are in both sets."""
    found: list[tuple[int, int]] = []
    i = j = 0
    while i < len(one) and j < len(other):
        start, stop = max(one[i][0], other[j][0]), min(one[i][1], other[j][1])
        if start < stop:
            found.append((start, stop))
        if one[i][1] < other[j][1]:
            i += 1
        else:
            j += 1
    return tuple(found)


def _both(one: Bounds, other: Bounds) -> Bounds:
    found = Bounds(*map(shared, one, other))
    return _NOTHING if found.nothing else found


def _either(one: Bounds, other: Bounds) -> Bounds:
    if one.nothing or other.nothing:
        return other if one.nothing else one
    return Bounds(*map(joined, one, other))


KEY: tuple[str, ...] = ("key",)


def keys_of(node: Node, wanted: bool = True) -> frozenset[bytes] | None:
    """Return the only keys of the records for which `node` is true, with `wanted` False for which it is false.

    Keys are the bytes of whole keys, in which texts are UTF-8. None is any key, and a record without one.

    >>> from kafkalog import where
    >>> expression = where.parse("key in ('a', x'62') and offset > 5 and not key == 'a'")
    >>> sorted(keys_of(expression.node)), keys_of(where.parse("key == 'a' or size > 5").node)
    ([b'a', b'b'], None)
    """
    if isinstance(node, Not):
        return keys_of(node.part, not wanted)
    if isinstance(node, (And, Or)):
        parts = [keys_of(part, wanted) for part in node.parts]
        known = [one for one in parts if one is not None]
        if isinstance(node, And) == wanted:
            return frozenset.intersection(*known) if known else None
        return frozenset.union(*known) if len(known) == len(parts) else None
    if isinstance(node, Compare) and node.left.path == KEY and node.operator == ("==" if wanted else "!="):
        return None if not isinstance(node.right, Literal) else _keys([node.right])
    if isinstance(node, In) and node.field.path == KEY and wanted:
        return _keys(node.values)
    return None


def _keys(literals: list[Literal] | tuple[Literal, ...]) -> frozenset[bytes] | None:
    """Return the keys that equal one of these constants; a null equals none."""
    found = set()
    for literal in literals:
        value = literal.value
        if isinstance(value, (str, bytes)):
            found.add(value.encode() if isinstance(value, str) else value)
        elif value is not None:
            return None
    return frozenset(found)
