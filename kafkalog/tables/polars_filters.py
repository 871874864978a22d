"""Translation of a Polars predicate to an Arrow filter that lets through at least as much, to find its bounds."""

from __future__ import annotations

import io
import json
import warnings
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    import polars
    import pyarrow

_COMPARISONS: Final = {"Eq": "equal", "Gt": "greater", "GtEq": "greater_equal", "Lt": "less", "LtEq": "less_equal"}
_MIRRORED: Final = {"Eq": "Eq", "Gt": "Lt", "GtEq": "LtEq", "Lt": "Gt", "LtEq": "GtEq"}
_BETWEEN: Final = {
    "Both": ("GtEq", "LtEq"), "Left": ("GtEq", "Lt"), "Right": ("Gt", "LtEq"), "None": ("Gt", "Lt")
}  # fmt: skip
_BOUNDED: Final = ("offset", "timestamp", "partition")


def arrow_filter(predicate: polars.Expr | None, schema: pyarrow.Schema) -> pyarrow.compute.Expression | None:
    """Return a filter that every row which `predicate` lets through passes; None if nothing is known.

    It uses comparisons of offset, timestamp and partition with constants; anything else lets every row through.

    >>> import polars, pyarrow
    >>> schema = pyarrow.schema([("offset", pyarrow.int64()), ("key", pyarrow.binary())])
    >>> arrow_filter((polars.col("offset") > 5) & (polars.col("key") == b"k"), schema)
    <pyarrow.compute.Expression (offset > 5)>
    """
    if predicate is None:
        return None
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # the form of the text may change: what is not known is not used
            node = json.loads(predicate.meta.serialize(format="json"))
        return _filter(node, schema)
    except Exception:  # whatever an unknown form leads to: all rows are read, and Polars filters them
        return None


def _filter(node: Any, schema: pyarrow.Schema) -> Any:
    match node:
        case {"BinaryExpr": {"left": left, "op": "And", "right": right}}:
            parts = [one for one in (_filter(left, schema), _filter(right, schema)) if one is not None]
            return (parts[0] & parts[1]) if len(parts) == 2 else parts[0] if parts else None
        case {"BinaryExpr": {"left": left, "op": "Or", "right": right}}:
            first, second = _filter(left, schema), _filter(right, schema)
            return None if first is None or second is None else first | second
        case {"BinaryExpr": {"left": {"Column": str(name)}, "op": str(op), "right": value}} if op in _COMPARISONS:
            return _comparison(name, op, value, schema)
        case {"BinaryExpr": {"left": value, "op": str(op), "right": {"Column": str(name)}}} if op in _COMPARISONS:
            return _comparison(name, _MIRRORED[op], value, schema)
        case {
            "Function": {
                "input": [{"Column": str(name)}, low, high],
                "function": {"Boolean": {"IsBetween": {"closed": str(closed)}}},
            }
        }:
            above, below = _BETWEEN[closed]
            first, second = _comparison(name, above, low, schema), _comparison(name, below, high, schema)
            return None if first is None or second is None else first & second
        case {"Function": {"input": [{"Column": str(name)}, values], "function": {"Boolean": {"IsIn": _}}}}:
            return _membership(name, values, schema)
    return None


def _comparison(name: str, op: str, node: Any, schema: pyarrow.Schema) -> Any:
    import pyarrow.compute

    if name not in _BOUNDED or name not in schema.names or (value := _constant(node)) is None:
        return None
    compare = getattr(pyarrow.compute, _COMPARISONS[op])
    return compare(pyarrow.compute.field(name), value)


def _membership(name: str, node: Any, schema: pyarrow.Schema) -> Any:
    import pyarrow.compute

    if name not in _BOUNDED or name not in schema.names or (value := _constant(node)) is None:
        return None
    values = value.values.cast(schema.field(name).type)
    return None if values.null_count else pyarrow.compute.field(name).isin(values)


def _constant(node: Any) -> pyarrow.Scalar | None:
    """Return the value of an expression without columns; None if it is null or no constant."""
    import polars

    text = json.dumps(node)
    if '"Column"' in text or "Literal" not in text:
        return None
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        series = polars.select(polars.Expr.deserialize(io.StringIO(text), format="json")).to_series()
    if len(series) != 1:
        return None
    value = series.to_arrow()[0]
    return value if value.is_valid else None
