"""Shared by both translations of a query engine's conditions into ours, which rule out rows before they are decoded.

A translated condition is true for at least the rows for which the engine's is: rows are left out only where that is
certain, and the engine's own condition is applied to the rest. Comparisons keep SQL's null on both sides. What an
engine compares in its own way (NaN, rounded numbers, cut times) is not translated, or in a form that lets more through.
"""

from __future__ import annotations

import math
from decimal import Decimal
from typing import TYPE_CHECKING, Any, Final

from kafkalog.where import Expression, Field
from kafkalog.where.kinds import EXACT_DOUBLE, Kind, kind_of
from kafkalog.where.nodes import And, Compare, In, IsNull, Like, Literal, Node, Not, Or, Truth

if TYPE_CHECKING:
    import pyarrow

MOST_VALUES: Final = 10_000
"""Longest list of constants that is translated."""
MOST_DEPTH: Final = 50
"""Levels of a condition that are translated; what lies deeper is left to the engine."""
_FIELD_OF: Final = {
    "offset": "offset", "timestamp": "time", "partition": "partition", "topic": "topic", "key": "key", "value": "value",
    "timestampType": "timestampType",
}  # fmt: skip
_TIMES_PER_MS: Final = {"s": Decimal("0.001"), "ms": Decimal(1), "us": Decimal(1000), "ns": Decimal(1_000_000)}
_DAY_MS: Final = 86_400_000
_ESCAPED: Final = str.maketrans({"%": r"\%", "_": r"\_", "\\": r"\\"})


class TableFields:
    """The columns of a table and the fields below them, as fields of conditions. A result None is: not translated."""

    def __init__(self, schema: pyarrow.Schema) -> None:
        self._schema = schema

    def type_of(self, path: tuple[str, ...]) -> pyarrow.DataType | None:
        """Return the type of a field that a path of names through structs leads to."""
        from pyarrow import types

        if path[0] not in _FIELD_OF or self._schema.names.count(path[0]) != 1:
            return None
        found = self._schema.field(path[0]).type
        for name in path[1:]:
            if not types.is_struct(found) or [one.name for one in found].count(name) != 1:
                return None
            found = found.field(name).type
        return found

    def compared(self, path: tuple[str, ...], sign: str, constant: pyarrow.Scalar) -> Node | None:
        """Return `field sign constant`; equal values, order and null are those of Arrow's kernels."""
        literal = self._literal(path, constant)
        if literal is None or (isinstance(literal.value, bool) and sign not in ("==", "!=")):
            return None
        return Compare(sign, _field(path), literal)

    def among(self, path: tuple[str, ...], constants: pyarrow.Array) -> Node | None:
        """Return `field in (constants)`; null for a null. A null among the constants is not translated."""
        if not 0 < len(constants) <= MOST_VALUES or constants.null_count:
            return None
        literals = [literal for one in constants if (literal := self._literal(path, one)) is not None]
        return In(_field(path), tuple(literals)) if len(literals) == len(constants) else None

    def is_null(self, path: tuple[str, ...]) -> Node | None:
        """Return `field is null`."""
        return None if self.type_of(path) is None else IsNull(_field(path))

    def is_true(self, path: tuple[str, ...]) -> Node | None:
        """Return a field of true or false as a condition."""
        type = self.type_of(path)
        return Truth(_field(path)) if type is not None and kind_of(type) is Kind.BOOLEAN else None

    def contains(
        self, path: tuple[str, ...], part: str | bytes, *, at_start: bool = False, at_end: bool = False
    ) -> Node | None:
        """Return if a text or bytes have a part, anywhere, at the start or at the end."""
        type = self.type_of(path)
        if type is None or kind_of(type) is not (Kind.TEXT if isinstance(part, str) else Kind.BYTES):
            return None
        try:
            text = part if isinstance(part, str) else part.decode()
        except UnicodeDecodeError:
            return None
        pattern = text.translate(_ESCAPED)
        return Like(_field(path), f"{'' if at_start else '%'}{pattern}{'' if at_end else '%'}")

    def has_nan(self, path: tuple[str, ...]) -> bool:
        """Return True for a field whose values may be NaN."""
        type = self.type_of(path)
        return type is not None and kind_of(type) is Kind.FLOAT

    def _literal(self, path: tuple[str, ...], constant: pyarrow.Scalar) -> Literal | None:
        type = self.type_of(path)
        if type is None or not constant.is_valid:
            return None
        value = _constant(type, constant)
        return None if value is None else Literal(value)


def _field(path: tuple[str, ...]) -> Field:
    return Field((_FIELD_OF[path[0]], *path[1:]))


def _constant(type: pyarrow.DataType, constant: pyarrow.Scalar) -> Any:
    """Return a constant as that of a condition on a column of `type`; None for one that is not of the same kind."""
    from pyarrow import types

    kind, given = kind_of(type), kind_of(constant.type)
    if kind is Kind.FLOAT and types.is_float64(type) and given in (Kind.FLOAT, Kind.INTEGER):
        number = constant.as_py()
        if given is Kind.INTEGER:
            return number if abs(number) < EXACT_DOUBLE else None
        return Decimal(number) if math.isfinite(number) else None
    if kind is not given or types.is_dictionary(type):
        return None
    if kind is Kind.INTEGER:
        number = constant.as_py()
        # an engine may compare unsigned and signed numbers as fractions
        return number if types.is_signed_integer(type) or abs(number) < EXACT_DOUBLE else None
    if kind is Kind.TIME:
        return _time(type, constant)
    if kind is Kind.DATE:
        return constant.value * (_DAY_MS if types.is_date32(type) else 1) if type == constant.type else None
    return constant.as_py() if kind in (Kind.TEXT, Kind.BYTES, Kind.BOOLEAN) else None


def _time(type: pyarrow.DataType, constant: pyarrow.Scalar) -> Decimal | None:
    """Return a time in ms; None if it lies between two values of the column's type, where an engine may cut it."""
    if (type.tz is None) != (constant.type.tz is None):
        return None
    time = Decimal(constant.value) / _TIMES_PER_MS[constant.type.unit]
    steps = time * _TIMES_PER_MS[type.unit]
    return time if steps == steps.to_integral_value() else None


def negated(part: Node | None) -> Node | None:
    """Return the opposite of a condition that is translated exactly."""
    return None if part is None else Not(part)


def combined(parts: list[Node | None], *, is_and: bool, drops: bool) -> Node | None:
    """Return `and` or `or` of the parts; with `drops` those that are not translated are left out."""
    known = [one for one in parts if one is not None]
    if not known or (len(known) < len(parts) and not drops):
        return None
    kind = And if is_and else Or
    return known[0] if len(known) == 1 else kind(_flat(known, kind))


def _flat(nodes: list[Node], kind: type[And] | type[Or]) -> tuple[Node, ...]:
    """Return the parts of all nodes of this kind, and the others: what is cheap among them is asked first."""
    return tuple(part for node in nodes for part in (node.parts if isinstance(node, kind) else (node,)))


def both(one: Expression | None, other: Expression | None) -> Expression | None:
    """Return the condition that both are true."""
    if one is None or other is None:
        return one or other
    return Expression(And(_flat([one.node, other.node], And)))


def checked(node: Node | None, schema: pyarrow.Schema) -> Expression | None:
    """Return a condition if it fits the columns of the table; None if it does not."""
    from kafkalog.errors import KafkalogError

    if node is None:
        return None
    expression = Expression(node)
    types = {name: schema.field(name).type for name in ("key", "value") if name in schema.names}
    try:
        expression.check(types.get("key"), types.get("value"))
    except KafkalogError:
        return None
    return expression
