"""The tree of an expression. Nodes are immutable; `str` of a node is text that parses to the same node."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from dataclasses import field as attribute
from decimal import Decimal
from typing import Final

Constant = int | Decimal | str | bytes | bool | None
MAX_NUMBER: Final = 60
"""Most characters of a number."""
_PLAIN_NAME: Final = re.compile(r"[^\W\d][\w$@-]*")
OPPOSITE: Final = {"==": "!=", "!=": "==", "<": ">=", ">=": "<", ">": "<=", "<=": ">"}
"""Comparisons that are true where the given one is false."""
MIRRORED: Final = {"==": "==", "!=": "!=", "<": ">", ">": "<", "<=": ">=", ">=": "<="}
"""Comparisons with both sides exchanged."""


class Step(str):
    """A part of a path that goes into a list: `[0]` and `[-1]` to one element, `[*]` to each of them.

    It equals no name, also not a field that is called so.
    """

    __slots__ = ("element",)
    element: int | None
    """Number of the element, from the end if it is negative; None for each."""

    def __new__(cls, element: int | None) -> Step:
        """Return the step to an element."""
        made = super().__new__(cls, "[*]" if element is None else f"[{element}]")
        made.element = element
        return made

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Step) and self.element == other.element

    def __ne__(self, other: object) -> bool:
        return not self == other

    def __hash__(self) -> int:
        return hash((Step, self.element))

    def __reduce__(self) -> tuple[object, ...]:
        return Step, (self.element,)


@dataclass(frozen=True, slots=True)
class Field:
    """A field of a record: `("offset",)`, `("header", "trace")`, `("value", "order", "total")`.

    A path into a list has a `Step`: `value.items[0].sku`.

    >>> from kafkalog import where
    >>> field = where.parse_field('header."a b"')
    >>> field.path, field.root, str(field)
    (('header', 'a b'), 'header', 'header."a b"')
    """

    path: tuple[str, ...]
    position: int = attribute(default=0, compare=False)

    @property
    def root(self) -> str:
        """Name of the part of the record."""
        return self.path[0]

    @property
    def has_each(self) -> bool:
        """True if the path leads to each element of a list, and so to any number of values of a record."""
        return any(isinstance(one, Step) and one.element is None for one in self.path)

    def __str__(self) -> str:
        return self.root + "".join(one if isinstance(one, Step) else f".{_name(one)}" for one in self.path[1:])


@dataclass(frozen=True, slots=True)
class Literal:
    """A constant."""

    value: Constant
    position: int = attribute(default=0, compare=False)

    def __str__(self) -> str:
        value = self.value
        if value is None or isinstance(value, bool):
            return {None: "null", True: "true", False: "false"}[value]
        if isinstance(value, bytes):
            return f"x'{value.hex()}'"
        if isinstance(value, str):
            return _quoted(value)
        return _number(value) if isinstance(value, Decimal) else str(value)


@dataclass(frozen=True, slots=True)
class Compare:
    """`left operator right`; the left side is a field."""

    operator: str
    left: Field
    right: Field | Literal

    def __str__(self) -> str:
        return f"{self.left} {self.operator} {self.right}"


@dataclass(frozen=True, slots=True)
class In:
    """`field in (…)`."""

    field: Field
    values: tuple[Literal, ...]

    def __str__(self) -> str:
        return f"{self.field} in ({', '.join(map(str, self.values))})"


@dataclass(frozen=True, slots=True)
class Like:
    """`field like 'pattern'`, with % for any text and _ for one character."""

    field: Field
    pattern: str
    position: int = attribute(default=0, compare=False)

    def __str__(self) -> str:
        return f"{self.field} like {_quoted(self.pattern)}"


@dataclass(frozen=True, slots=True)
class Matches:
    """`field matches 'pattern'`: the regular expression is found somewhere in the text."""

    field: Field
    pattern: str
    position: int = attribute(default=0, compare=False)

    def __str__(self) -> str:
        return f"{self.field} matches {_quoted(self.pattern)}"


@dataclass(frozen=True, slots=True)
class IsNull:
    """`field is null`."""

    field: Field

    def __str__(self) -> str:
        return f"{self.field} is null"


@dataclass(frozen=True, slots=True)
class Truth:
    """A boolean field alone."""

    field: Field

    def __str__(self) -> str:
        return str(self.field)


@dataclass(frozen=True, slots=True)
class Not:
    """`not part`."""

    part: Node

    def __str__(self) -> str:
        part = self.part
        if isinstance(part, IsNull):
            return f"{part.field} is not null"
        return f"not ({part})" if isinstance(part, (And, Or)) else f"not {part}"


@dataclass(frozen=True, slots=True)
class And:
    """All parts."""

    parts: tuple[Node, ...]

    def __str__(self) -> str:
        return " and ".join(f"({part})" if isinstance(part, (And, Or)) else str(part) for part in self.parts)


@dataclass(frozen=True, slots=True)
class Or:
    """Any of the parts."""

    parts: tuple[Node, ...]

    def __str__(self) -> str:
        return " or ".join(f"({part})" if isinstance(part, Or) else str(part) for part in self.parts)


Condition = Compare | In | Like | Matches | IsNull | Truth
Node = And | Or | Not | Condition


def conditions_of(node: Node) -> Iterator[Condition]:
    """Yield the conditions that `and`, `or` and `not` join, in the order of the text."""
    if isinstance(node, (And, Or)):
        for part in node.parts:
            yield from conditions_of(part)
    elif isinstance(node, Not):
        yield from conditions_of(node.part)
    else:
        yield node


def fields_of(node: Node) -> Iterator[Field]:
    """Yield the fields in the order of the text, each as often as it occurs."""
    for one in conditions_of(node):
        if isinstance(one, Compare):
            yield one.left
            if isinstance(one.right, Field):
                yield one.right
        else:
            yield one.field


def _name(text: str) -> str:
    return text if _PLAIN_NAME.fullmatch(text) else '"' + text.replace('"', '""') + '"'


def _quoted(text: str) -> str:
    return "'" + text.replace("'", "''") + "'"


def _number(value: Decimal) -> str:
    """Return a number as text; a long one in its shortest form, which is no longer than what it was read from."""
    text = str(value)
    if len(text) <= MAX_NUMBER:
        return text
    sign, digits, exponent = value.as_tuple()
    whole = f"{'-' * sign}{''.join(map(str, digits))}e{exponent}"
    return min(whole, re.sub(r"^(-?)0\.", r"\1.", text), key=len)
