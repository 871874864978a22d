"""Translation of a Polars predicate to conditions that let through at least as much, to read and decode less."""

from __future__ import annotations

import io
import json
import warnings
from typing import TYPE_CHECKING, Any, Final

from kafkalog.tables.conditions import MOST_DEPTH, TableFields, checked, combined, negated
from kafkalog.where.nodes import MIRRORED, And, Compare, In, Literal, Node, Or

if TYPE_CHECKING:
    import polars
    import pyarrow

    from kafkalog.where import Expression

_SIGNS: Final = {"Eq": "==", "NotEq": "!=", "Gt": ">", "GtEq": ">=", "Lt": "<", "LtEq": "<="}
_KERNELS: Final = {"==": "equal", ">": "greater", ">=": "greater_equal", "<": "less", "<=": "less_equal"}
_BETWEEN: Final = {
    "Both": (">=", "<="), "Left": (">=", "<"), "Right": (">", "<="), "None": (">", "<")
}  # fmt: skip
_BOUNDED: Final = {"offset": "offset", "time": "timestamp", "partition": "partition"}


def condition_of(predicate: polars.Expr | None, schema: pyarrow.Schema) -> Expression | None:
    """Return a condition that is true for every row which `predicate` lets through; None if nothing is known.

    >>> import polars, pyarrow
    >>> schema = pyarrow.schema([("offset", pyarrow.int64()), ("key", pyarrow.binary())])
    >>> condition_of((polars.col("offset") % 2 == 0) & polars.col("key").bin.starts_with(b"eu-"), schema)
    <Expression key like 'eu-%'>
    """
    if predicate is None:
        return None
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # the form of the text may change: what is not known is not used
            tree = json.loads(predicate.meta.serialize(format="json"))
        return checked(_node(tree, TableFields(schema), True, 0), schema)
    except Exception:  # whatever an unknown form leads to: all rows are read, and Polars filters them
        return None


def arrow_filter(condition: Expression | None, schema: pyarrow.Schema) -> pyarrow.compute.Expression | None:
    """Return a filter that every row for which `condition` is true passes; None if nothing is known.

    It uses comparisons of offset, timestamp and partition with constants; anything else lets every row through.
    """
    return None if condition is None else _filter(condition.node, schema)


def _node(tree: Any, fields: TableFields, is_positive: bool, depth: int) -> Node | None:
    """Return a condition that is true where the tree is, or, without `is_positive`, false where the tree is."""
    if depth > MOST_DEPTH:
        return None
    match tree:
        case {"BinaryExpr": {"left": left, "op": "And" | "Or" as op, "right": right}}:
            parts = [_node(one, fields, is_positive, depth + 1) for one in (left, right)]
            return combined(parts, is_and=op == "And", drops=(op == "And") == is_positive)
        case {"BinaryExpr": {"left": left, "op": str(op), "right": right}} if op in _SIGNS:
            return _comparison(left, _SIGNS[op], right, fields)
        case {"Function": {"input": [part], "function": {"Boolean": "Not"}}}:
            return negated(_node(part, fields, not is_positive, depth + 1))
        case {"Function": {"input": [column], "function": {"Boolean": "IsNull" | "IsNotNull" as name}}}:
            found = None if (path := _path(column)) is None else fields.is_null(path)
            return found if name == "IsNull" else negated(found)
        case {
            "Function": {"input": [column, low, high], "function": {"Boolean": {"IsBetween": {"closed": str(closed)}}}}
        }:
            above, below = _BETWEEN[closed]
            ends = [_comparison(column, above, low, fields), _comparison(column, below, high, fields)]
            return combined(ends, is_and=True, drops=is_positive)
        case {"Function": {"input": [column, given], "function": {"Boolean": {"IsIn": {"nulls_equal": False}}}}}:
            path, constants = _path(column), getattr(_constant(given), "values", None)
            return None if path is None or constants is None else fields.among(path, constants)
        case {"Function": {"input": [column, part], "function": {"StringExpr": function} | {"BinaryExpr": function}}}:
            return _contained(column, part, function, fields)
    return None if (path := _path(tree)) is None else fields.is_true(path)


def _path(tree: Any) -> tuple[str, ...] | None:
    """Return the names of a column and of the fields below it; None for anything else."""
    match tree:
        case {"Column": str(name)}:
            return (name,)
        case {"Function": {"input": [inner], "function": {"StructExpr": {"FieldByName": str(name)}}}}:
            above = _path(inner)
            return None if above is None else (*above, name)
    return None


def _comparison(left: Any, sign: str, right: Any, fields: TableFields) -> Node | None:
    path, other = _path(left), right
    if path is None:
        path, other, sign = _path(right), left, MIRRORED[sign]
    constant = _constant(other)
    if path is None or constant is None or (found := fields.compared(path, sign, constant)) is None:
        return None
    if sign in (">", ">=") and fields.has_nan(path):  # for Polars, NaN is above all numbers
        assert isinstance(found, Compare)
        return Or((found, Compare("!=", found.left, found.left)))
    return found


def _contained(column: Any, given: Any, function: Any, fields: TableFields) -> Node | None:
    path, part = _path(column), _constant(given)
    if path is None or part is None or not isinstance(part.as_py(), str | bytes):
        return None
    match function:
        case "StartsWith":
            return fields.contains(path, part.as_py(), at_start=True)
        case "EndsWith":
            return fields.contains(path, part.as_py(), at_end=True)
        case "Contains" | {"Contains": {"literal": True}}:
            return fields.contains(path, part.as_py())
    return None


def _constant(tree: Any) -> pyarrow.Scalar | None:
    """Return the value of an expression without columns; None if it is null or no constant."""
    import polars

    text = json.dumps(tree)
    if '"Column"' in text or "Literal" not in text:
        return None
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        series = polars.select(polars.Expr.deserialize(io.StringIO(text), format="json")).to_series()
    if len(series) != 1:
        return None
    value = series.to_arrow()[0]
    return value if value.is_valid else None


def _filter(node: Node, schema: pyarrow.Schema) -> Any:
    import pyarrow.compute

    if isinstance(node, And | Or):
        parts = [_filter(part, schema) for part in node.parts]
        known = [one for one in parts if one is not None]
        if not known or (isinstance(node, Or) and len(known) < len(parts)):
            return None
        found = known[0]
        for one in known[1:]:
            found = found & one if isinstance(node, And) else found | one
        return found
    if isinstance(node, In) and node.field.root in _BOUNDED:
        name = _BOUNDED[node.field.root]
        values = _constants(schema.field(name).type, node.values)
        return None if values is None else pyarrow.compute.field(name).isin(values)
    if isinstance(node, Compare) and isinstance(node.right, Literal) and node.operator in _KERNELS:
        name = _BOUNDED.get(node.left.root, "")
        values = _constants(schema.field(name).type, (node.right,)) if name else None
        compare = getattr(pyarrow.compute, _KERNELS[node.operator])
        return None if values is None else compare(pyarrow.compute.field(name), values[0])
    return None


def _constants(type: pyarrow.DataType, literals: tuple[Literal, ...]) -> pyarrow.Array | None:
    """Return constants beside a column as its values; None if one is beyond its type."""
    import pyarrow

    try:
        return pyarrow.array([int(one.value) for one in literals], type)  # type: ignore[arg-type]  # whole numbers
    except (pyarrow.ArrowInvalid, OverflowError):
        return None
