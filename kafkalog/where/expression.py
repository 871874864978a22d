"""`Expression`: a parsed predicate, its bounds, and its value for each row of Arrow columns."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from kafkalog.errors import MissingPackage
from kafkalog.where.bounds import Bounds, bounds_of
from kafkalog.where.fields import COLUMN_OF
from kafkalog.where.grammar import parse_field_text, parse_text
from kafkalog.where.nodes import And, Field, Node, fields_of

if TYPE_CHECKING:
    import pyarrow

    from kafkalog.where.compiled import Compiled
    from kafkalog.where.kinds import Kind


class Names(NamedTuple):
    """Columns, paths and headers of records that an expression needs.

    `columns` are names of a scan's columns; `key` and `value` are the paths into them, `()` for the whole key or value;
    `headers` are names of headers.
    """

    columns: tuple[str, ...]
    key: tuple[tuple[str, ...], ...]
    value: tuple[tuple[str, ...], ...]
    headers: tuple[str, ...]


class Expression:
    """A predicate on records. `mask` evaluates it on columns, `bounds` is what follows from it without a record.

    An expression is immutable, equal to one with the same tree, and may be used by any thread.

    >>> from kafkalog import where
    >>> expression = where.parse("value.order.total > 100 AND header.trace is not null")
    >>> expression
    <Expression value.order.total > 100 and header.trace is not null>
    >>> expression.names.value, expression.names.headers, expression.columns
    ((('order', 'total'),), ('trace',), ('value', 'headers'))
    >>> where.Expression(expression.node) == expression
    True
    """

    __slots__ = ("_compiled", "node")

    def __init__(self, node: Node) -> None:
        self.node = node
        self._compiled: dict[tuple[str, ...], Compiled] = {}

    @property
    def names(self) -> Names:
        """Columns, paths and headers that the expression needs."""
        fields = list(dict.fromkeys(fields_of(self.node)))

        def paths(root: str) -> tuple[tuple[str, ...], ...]:
            return tuple(one.path[1:] for one in fields if one.root == root)

        return Names(self.columns, paths("key"), paths("value"), tuple(path[0] for path in paths("header")))

    @property
    def columns(self) -> tuple[str, ...]:
        """Names of the columns of a scan that the expression is computed from."""
        return tuple(dict.fromkeys(COLUMN_OF[one.root] for one in fields_of(self.node)))

    @property
    def typed_roots(self) -> frozenset[str]:
        """"key" and "value", if the expression looks at more of them than their sizes.

        >>> from kafkalog import where
        >>> where.parse("key == 'a' and size > 5").typed_roots
        frozenset({'key'})
        """
        return frozenset(one.root for one in fields_of(self.node)) & {"key", "value"}

    @property
    def hints(self) -> dict[str, dict[tuple[str, ...], Kind | None]]:
        """The paths into "key" and "value", each with the kind that its constants have; None if that is unknown.

        >>> from kafkalog import where
        >>> hints = where.parse("value.a > 1 and value.b == 'x'").hints["value"]
        >>> {".".join(path): kind.value for path, kind in hints.items()}
        {'a': 'a whole number', 'b': 'text'}
        """
        from kafkalog.where.kinds import implied_kinds

        return implied_kinds(self.node)

    @property
    def beyond_doubles(self) -> frozenset[Field]:
        """Fields beside whole numbers that 64 bits hold, but doubles not all: values next to them are to be exact.

        >>> from kafkalog import where
        >>> [str(one) for one in where.parse("value.a > 5 and value.b in (-9007199254740992, 1.5)").beyond_doubles]
        ['value.b']
        """
        from kafkalog.where.kinds import fields_beyond_doubles

        return frozenset(fields_beyond_doubles(self.node))

    def bounds(self) -> Bounds:
        """Return the offsets, times and partitions outside of which no record matches.

        >>> from kafkalog import where
        >>> where.parse("time >= '1970-01-01T00:00:01Z' and not offset < 7").bounds()[:2]
        (((7, 9223372036854775808),), ((1000, 9223372036854775808),))
        """
        return bounds_of(self.node)

    def split(self, roots: frozenset[str]) -> tuple[Expression | None, Expression | None]:
        """Return the expression as two that both must be true: one that does not look at `roots`, and the rest.

        >>> from kafkalog import where
        >>> where.parse("value.a == 1 and offset > 5 and key == 'k'").split(frozenset({"value"}))
        (<Expression offset > 5 and key == 'k'>, <Expression value.a == 1>)
        """
        parts = self.node.parts if isinstance(self.node, And) else (self.node,)
        rest = [one for one in parts if {field.root for field in fields_of(one)} & roots]
        first = [one for one in parts if one not in rest]
        return _all(first), _all(rest)

    def check(self, key: pyarrow.DataType | None = None, value: pyarrow.DataType | None = None) -> None:
        """Raise IllegalArgument if the expression does not fit the types of keys and values; None is binary.

        >>> from kafkalog import where
        >>> where.parse("key > 5").check()
        Traceback (most recent call last):
        kafkalog.errors.IllegalArgument: key is bytes and 5 is a whole number...
        """
        self._for(key, value)

    def mask(self, batch: pyarrow.RecordBatch) -> pyarrow.BooleanArray:
        """Return the value of the expression for each row: true, false or null.

        `batch` has the columns of a scan that `columns` names; key and value may be of any type. Raises IllegalArgument
        for a field that does not fit its column.

        >>> import pyarrow
        >>> from kafkalog import where
        >>> batch = pyarrow.record_batch({"key": pyarrow.array([b"eu-1", b"us-2", None])})
        >>> where.parse("key like 'eu-%'").mask(batch).to_pylist()
        [True, False, None]
        """
        types = {one.name: one.type for one in batch.schema if one.name in ("key", "value")}
        return self._for(types.get("key"), types.get("value")).mask(batch)

    def _for(self, key: pyarrow.DataType | None, value: pyarrow.DataType | None) -> Compiled:
        """Return the expression compiled for these types of keys and values."""
        names = str(key), str(value)
        found = self._compiled.get(names)
        if found is None:
            try:
                from kafkalog.where.compiled import Compiled
            except ImportError as error:
                raise MissingPackage(
                    f"conditions need pyarrow ({error})", hint="pip install 'kafkalog[arrow]'"
                ) from None
            found = self._compiled[names] = Compiled(self.node, key, value)
        return found

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Expression) and self.node == other.node

    def __hash__(self) -> int:
        return hash(self.node)

    def __reduce__(self) -> tuple[object, ...]:
        return parse, (str(self),)

    def __str__(self) -> str:
        return str(self.node)

    def __repr__(self) -> str:
        return f"<Expression {self}>"


def parse(text: str) -> Expression:
    """Return the expression of a text; raise IllegalArgument, with the position, for one that is wrong.

    >>> from kafkalog import where
    >>> where.parse("ofset > 5")
    Traceback (most recent call last):
    kafkalog.errors.IllegalArgument: there is no field 'ofset', at character 1 of the expression. Hint: did you mean...
    """
    from kafkalog.where.kinds import check_fixed

    node = parse_text(text)
    check_fixed(node)
    return Expression(node)


def parse_field(text: str) -> Field:
    """Return the field that a text names, such as `value.order.total` or `header.trace`; raise IllegalArgument.

    >>> from kafkalog import where
    >>> where.parse_field("value.order.total").path
    ('value', 'order', 'total')
    """
    return parse_field_text(text)


def _all(parts: list[Node]) -> Expression | None:
    if not parts:
        return None
    return Expression(parts[0] if len(parts) == 1 else And(tuple(parts)))
