"""Kinds of values, and which constants and operators go with each; errors for those that do not."""

from __future__ import annotations

from collections.abc import Iterator
from decimal import Decimal
from enum import Enum
from typing import TYPE_CHECKING, Final

from kafkalog.errors import IllegalArgument
from kafkalog.where.literals import milliseconds
from kafkalog.where.nodes import Compare, Field, In, Like, Literal, Matches, Node, Truth, conditions_of

if TYPE_CHECKING:
    import pyarrow


class Kind(Enum):
    """Kinds of values that compare alike; the value of each is its name in a message."""

    BYTES = "bytes"
    TEXT = "text"
    INTEGER = "a whole number"
    FLOAT = "a number"
    DECIMAL = "a decimal number"
    BOOLEAN = "true or false"
    TIME = "a time"
    DATE = "a date"
    UUID = "a UUID"
    NULL = "null"
    NESTED = "a record, list or map"
    OTHER = "of a type that is not compared"


NUMBERS: Final = frozenset({Kind.INTEGER, Kind.FLOAT, Kind.DECIMAL})
EXACT_DOUBLE: Final = 2**53
"""Whole numbers below this one have a double each."""
STRINGS: Final = frozenset({Kind.BYTES, Kind.TEXT})
TIMES: Final = frozenset({Kind.TIME, Kind.DATE})
FIXED: Final = {
    "offset": Kind.INTEGER, "time": Kind.TIME, "header": Kind.BYTES, "partition": Kind.INTEGER, "topic": Kind.TEXT,
    "size": Kind.INTEGER, "key_size": Kind.INTEGER, "timestampType": Kind.INTEGER,
}  # fmt: skip
"""Kinds of the fields whose type does not depend on a decoder."""


def kind_of(type: pyarrow.DataType) -> Kind:
    """Return the kind of an Arrow type."""
    from pyarrow import types

    name = str(type)
    if name in ("extension<arrow.uuid>", "fixed_size_binary[16]"):
        return Kind.UUID
    tests = (
        (types.is_integer, Kind.INTEGER), (types.is_floating, Kind.FLOAT), (types.is_decimal, Kind.DECIMAL),
        (types.is_boolean, Kind.BOOLEAN), (types.is_timestamp, Kind.TIME), (types.is_date, Kind.DATE),
        (types.is_null, Kind.NULL), (types.is_nested, Kind.NESTED),
    )  # fmt: skip
    if name in ("string", "large_string", "string_view"):
        return Kind.TEXT
    if name in ("binary", "large_binary", "binary_view") or types.is_fixed_size_binary(type):
        return Kind.BYTES
    return next((kind for test, kind in tests if test(type)), Kind.OTHER)


def storage_type(type: pyarrow.DataType) -> pyarrow.DataType:
    """Return the type of the values behind a dictionary or an extension; other types unchanged."""
    from pyarrow import types

    while True:
        if types.is_dictionary(type):
            type = type.value_type
        elif hasattr(type, "storage_type") and str(type) != "extension<arrow.uuid>":
            type = type.storage_type
        else:
            return type


def kind_of_literal(literal: Literal) -> Kind:
    """Return the kind of a constant as it is written."""
    value = literal.value
    if value is None:
        return Kind.NULL
    if isinstance(value, bool):
        return Kind.BOOLEAN
    if isinstance(value, (int, Decimal)):
        return Kind.INTEGER if isinstance(value, int) else Kind.FLOAT
    return Kind.TEXT if isinstance(value, str) else Kind.BYTES


def check_literal(field: Field, kind: Kind, literal: Literal) -> None:
    """Raise IllegalArgument, with the position, if values of `kind` are not compared with the constant."""
    given = kind_of_literal(literal)
    if kind in TIMES:
        try:
            if literal.value is not None:
                milliseconds(literal)
        except IllegalArgument as error:
            at = f"{field} is {kind.value}, at character {field.position + 1} of the expression"
            raise IllegalArgument(f"{error.message}, but {at}", hint=error.hint) from None
        return
    fits = (
        given is Kind.NULL or kind is Kind.NULL or given is kind or (kind in NUMBERS and given in NUMBERS)
        or (kind in STRINGS and given in STRINGS) or (kind is Kind.UUID and given in STRINGS)
    )  # fmt: skip
    if not fits or kind in (Kind.NESTED, Kind.OTHER):
        raise misfit(field, kind, f"{literal} is {given.value}", _hint(field, kind, given, literal))


def check_order(field: Field, kind: Kind, operator: str) -> None:
    """Raise IllegalArgument for an order between values that have none."""
    if kind is Kind.BOOLEAN and operator not in ("==", "!="):
        raise misfit(field, kind, f"{operator} needs an order", "write == or !=")


def misfit(field: Field, kind: Kind, other: str, hint: str | None) -> IllegalArgument:
    """Return the error for a field whose kind does not fit the rest of its condition."""
    at = f"at character {field.position + 1} of the expression"
    return IllegalArgument(f"{field} is {kind.value} and {other}, {at}", hint=hint)


def _hint(field: Field, kind: Kind, given: Kind, literal: Literal) -> str | None:
    if kind is Kind.NESTED:
        return f"write a path into it, such as {field}.name; lists are not compared"
    if kind in STRINGS and given in NUMBERS | {Kind.BOOLEAN}:
        decode = ""
        if field.root in ("key", "value"):
            is_part = len(field.path) > 1
            types = "give a schema in which it is another type"
            decode = f", or {types}" if is_part else f", or decode it, as with {field.root}='int64' or 'json'"
        return f"write '{literal}'{decode}"
    if kind in NUMBERS and given in STRINGS:
        return "write a number, without quotes"
    return None


def check_fixed(node: Node) -> None:
    """Raise IllegalArgument for a condition on a field of a fixed kind that it does not fit."""
    for one in conditions_of(node):
        kind = FIXED.get((one.left if isinstance(one, Compare) else one.field).root)
        if kind is None:
            continue
        if isinstance(one, Compare) and isinstance(one.right, Literal):
            check_literal(one.left, kind, one.right)
        elif isinstance(one, In):
            for value in one.values:
                check_literal(one.field, kind, value)
        elif isinstance(one, (Like, Matches, Truth)):
            check_operand(one, kind)


def check_operand(node: Like | Matches | Truth, kind: Kind) -> None:
    """Raise IllegalArgument if `like`, `matches` or a field alone does not go with the kind of its field."""
    if isinstance(node, Truth):
        if kind not in (Kind.BOOLEAN, Kind.NULL):
            raise misfit(node.field, kind, "stands alone", "compare it: only a true or false field is a condition")
    elif kind not in STRINGS | {Kind.NULL}:
        name = "like" if isinstance(node, Like) else "matches"
        raise misfit(node.field, kind, f"{name} needs text", "compare it with ==, < or in")


def implied_kinds(node: Node) -> dict[str, dict[tuple[str, ...], Kind | None]]:
    """Return the paths into key and value, with the kind that the constants beside each imply, None if they do not.

    `()` is the whole key or value. Null goes with constants of each kind. Whole numbers beside fractions are numbers,
    and bytes beside texts are texts; other constants of different kinds imply nothing.
    """
    found: dict[str, dict[tuple[str, ...], Kind | None]] = {"key": {}, "value": {}}
    unclear: set[Field] = set()

    def note(field: Field, kind: Kind | None) -> None:
        if field.root not in found:
            return
        kinds = found[field.root]
        path = field.path[1:]
        before = kinds.setdefault(path, kind)
        if field in unclear or kind in (before, Kind.NULL) or (kind is None and before is not Kind.NULL):
            return
        if before in (None, Kind.NULL):
            kinds[path] = kind
        elif {before, kind} <= NUMBERS:
            kinds[path] = Kind.FLOAT
        elif {before, kind} <= STRINGS:
            kinds[path] = Kind.TEXT
        else:
            kinds[path] = None
            unclear.add(field)

    for one in conditions_of(node):
        if isinstance(one, Compare):
            if isinstance(one.right, Literal):
                note(one.left, kind_of_literal(one.right))
            else:
                note(one.left, None)
                note(one.right, None)
        elif isinstance(one, In):
            for value in one.values:
                note(one.field, kind_of_literal(value))
        else:
            is_text = isinstance(one, (Like, Matches))
            note(one.field, Kind.TEXT if is_text else Kind.BOOLEAN if isinstance(one, Truth) else Kind.NULL)
    return found


def fields_beyond_doubles(node: Node) -> Iterator[Field]:
    """Yield the fields beside whole numbers of 64 bits from 2^53 on, next to which doubles leave out some."""
    for condition in conditions_of(node):
        if isinstance(condition, Compare):
            field, others = condition.left, [condition.right]
        elif isinstance(condition, In):
            field, others = condition.field, [*condition.values]
        else:
            continue
        values = [one.value for one in others if isinstance(one, Literal)]
        if any(isinstance(one, int) and EXACT_DOUBLE <= abs(one) < 1 << 63 for one in values):
            yield field
