"""An expression compiled for the types of some columns: each condition is a call of Arrow's kernels on whole columns.

Three-valued logic as in SQL: a comparison with null is null, and `and`, `or` and `not` are Kleene's.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Final, NamedTuple

import pyarrow as pa
import pyarrow.compute as pc

from kafkalog.errors import IllegalArgument
from kafkalog.where.columns import Rows, field_type
from kafkalog.where.comparing import compare_fields, comparison, membership
from kafkalog.where.fields import COLUMN_OF
from kafkalog.where.kinds import Kind, check_literal, check_operand, check_order, kind_of, misfit
from kafkalog.where.nodes import (
    And,
    Compare,
    Field,
    In,
    IsNull,
    Like,
    Literal,
    Matches,
    Node,
    Not,
    Or,
    Truth,
    fields_of,
)
from kafkalog.where.texts import like, matches

Term = Callable[[Rows], pa.Array]
_COSTS: Final = {"offset": 1, "time": 1, "partition": 1, "timestampType": 1, "size": 2, "key_size": 2, "topic": 2,
                 "key": 3, "value": 3, "header": 20}  # fmt: skip
"""Rough cost of a row's comparison; a term that costs COSTLY or more sees only the rows that the cheaper ones leave."""
_COSTLY: Final = 10
_FEW: Final = 4
"""The costly terms get a selection of the rows if it is at most one in so many."""


class _Costed(NamedTuple):
    """A compiled term, its cost, and the columns that it is computed from."""

    term: Term
    cost: int
    columns: frozenset[str]


class Compiled:
    """An expression for keys and values of certain types (None: binary)."""

    __slots__ = ("_key", "_term", "_value")

    def __init__(self, node: Node, key: pa.DataType | None, value: pa.DataType | None) -> None:
        self._key = pa.binary() if key is None else key
        self._value = pa.binary() if value is None else value
        self._term = self._compile(node).term

    def mask(self, batch: pa.RecordBatch) -> pa.BooleanArray:
        """Return true, false or null for each row."""
        return self._term(Rows(batch))

    def _type(self, field: Field) -> pa.DataType:
        return field_type(field, self._key, self._value)

    def _kind(self, field: Field) -> Kind:
        return kind_of(self._type(field))

    def _compile(self, node: Node) -> _Costed:
        if isinstance(node, (And, Or)):
            parts = sorted(map(self._compile, node.parts), key=lambda one: one.cost)  # stable: the order of the text
            columns = frozenset().union(*(one.columns for one in parts))
            return _Costed(partial(_combined, parts, isinstance(node, And)), sum(one.cost for one in parts), columns)
        if isinstance(node, Not):
            part = self._compile(node.part)
            return _Costed(lambda rows: pc.invert(part.term(rows)), part.cost, part.columns)
        found = list(fields_of(node))
        cost = sum(_COSTS[one.root] + len(one.path) - 1 for one in found)
        if isinstance(node, (Like, Matches)):
            cost *= 4 if isinstance(node, Like) else 8
        return _Costed(self._condition(node), cost, frozenset(COLUMN_OF[one.root] for one in found))

    def _condition(self, node: Node) -> Term:
        if isinstance(node, Compare):
            return self._comparison(node)
        assert isinstance(node, (In, Like, Matches, IsNull, Truth))
        field = node.field
        kind = self._kind(field)
        if isinstance(node, IsNull):
            return _tested(field, pc.is_null)
        if isinstance(node, In):
            for value in node.values:
                check_literal(field, kind, value)
            return _tested(field, membership(self._type(field), kind, node.values))
        check_operand(node, kind)
        if isinstance(node, Truth) or kind is Kind.NULL:
            return _tested(field, lambda column: pc.cast(column, pa.bool_()))
        return _tested(field, like(node) if isinstance(node, Like) else matches(node))

    def _comparison(self, node: Compare) -> Term:
        left, right = node.left, node.right
        kind = self._kind(left)
        check_order(left, kind, node.operator)
        if isinstance(right, Literal):
            check_literal(left, kind, right)
            return _tested(left, comparison(self._type(left), kind, node.operator, right))
        for one in (left, right):
            if one.has_each:
                raise misfit(one, self._kind(one), "there are many of it", "[*] goes with constants: write [0] for one")
        other = self._kind(right)
        try:
            both = compare_fields(self._type(left), kind, node.operator, self._type(right), other)
        except IllegalArgument:
            raise misfit(left, kind, f"{right} is {other.value}", "compare fields of one kind") from None
        return lambda rows: both(rows.field(left), rows.field(right))


def _tested(field: Field, test: Callable[[pa.Array], pa.BooleanArray]) -> Term:
    """Return the term that tests a field: true for a record if it is true for any element that the path leads to."""
    if not field.has_each:
        return lambda rows: test(rows.field(field))

    def any_element(rows: Rows) -> pa.BooleanArray:
        found = rows.elements(field)
        return found.any(test(found.values))

    return any_element


def _combined(parts: list[_Costed], is_and: bool, rows: Rows) -> pa.BooleanArray:
    """Return `and` or `or` of the parts, cheapest first; parts after those that decide all rows are left out."""
    combine = pc.and_kleene if is_and else pc.or_kleene
    found: pa.BooleanArray = parts[0].term(rows)
    for n, part in enumerate(parts[1:], 1):
        undecided = pc.fill_null(found, is_and)  # a null may become what decides
        if not is_and:
            undecided = pc.invert(undecided)
        left = undecided.true_count
        if not left:
            break
        if part.cost >= _COSTLY and left * _FEW <= len(found):
            columns = frozenset().union(*(one.columns for one in parts[n:]))
            rest = _combined(parts[n:], is_and, rows.selected(undecided, columns))
            return pc.replace_with_mask(found, undecided, combine(pc.filter(found, undecided), rest))
        found = combine(found, part.term(rows))
    return found
