"""The inside of a filter that DuckDB hands over: a pyarrow Expression, read from the form in which it is pickled.

That form is a record batch. Its metadata are instructions in the order of the expression: `call` and `end` around the
arguments of a function, `field_ref` and `nested_field_ref`, `literal` and `options` with the number of a column of the
batch. An instruction that is not known here ends the translation, and all rows are read.
"""

from __future__ import annotations

import ctypes
from collections import deque
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from kafkalog.tables.conditions import MOST_DEPTH, TableFields, checked, combined, negated

if TYPE_CHECKING:
    import pyarrow

    from kafkalog.where import Expression
    from kafkalog.where.nodes import Node

_SIGNS: Final = {
    "equal": "==", "not_equal": "!=", "less": "<", "less_equal": "<=", "greater": ">", "greater_equal": ">=",
}  # fmt: skip
_AT_METADATA: Final = 2 * ctypes.sizeof(ctypes.c_void_p)
"""Place of the metadata in the C structure of a schema: behind the format and the name."""


class _Call(NamedTuple):
    """A call of a function of Arrow."""

    name: str
    arguments: list[Any]
    options: dict[str, Any]


class _Unknown(Exception):
    """A form that is not known here."""


def condition_of(filter: pyarrow.compute.Expression | None, schema: pyarrow.Schema) -> Expression | None:
    """Return a condition that is true for every row that passes the filter; None if nothing is known.

    >>> import pyarrow
    >>> from pyarrow.compute import field
    >>> schema = pyarrow.schema([("offset", pyarrow.int64()), ("key", pyarrow.binary())])
    >>> condition_of((field("key") == b"k") & (field("offset") + 2 == 7), schema)
    <Expression key == x'6b'>
    """
    if filter is None:
        return None
    try:
        steps, columns = _instructions(filter)
        tree = _tree(deque(steps), columns)
        return checked(_node(tree, TableFields(schema), True, 0), schema)
    except Exception:  # whatever an unknown form leads to: all rows are read, and the filter is applied to them
        return None


def _instructions(filter: pyarrow.compute.Expression) -> tuple[list[tuple[str, str]], Any]:
    """Return the instructions of a filter in their order, and the record batch with its constants."""
    import pyarrow.ipc

    _, (buffer,) = filter.__reduce__()
    batch = pyarrow.ipc.open_file(buffer).get_batch(0)
    return [*_metadata(batch.schema)], batch


def _metadata(schema: pyarrow.Schema) -> Iterator[tuple[str, str]]:
    """Yield the metadata of a schema in order, each as often as it is there: a dict of pyarrow has each name once."""
    capsule = schema.__arrow_c_schema__()
    # a function of its own: that of ctypes.pythonapi is one for all of the process, and others set its types too
    prototype = ctypes.PYFUNCTYPE(ctypes.c_void_p, ctypes.py_object, ctypes.c_char_p)
    pointer = prototype(("PyCapsule_GetPointer", ctypes.pythonapi))
    at = ctypes.c_void_p.from_address(pointer(capsule, b"arrow_schema") + _AT_METADATA).value
    if at is None:
        return

    def number() -> int:
        nonlocal at
        assert at is not None
        found = ctypes.c_int32.from_address(at).value
        at += 4
        return found

    def text() -> str:
        nonlocal at
        size = number()
        found = ctypes.string_at(at, size).decode()
        at += size
        return found

    for _ in range(number()):
        yield text(), text()


def _tree(steps: deque[tuple[str, str]], batch: pyarrow.RecordBatch) -> Any:
    """Return the next argument, and take its steps away: a path, a constant of Arrow, or a call."""
    word, given = steps.popleft()
    if word == "field_ref":
        return (given,)
    if word == "nested_field_ref":
        names = [steps.popleft() for _ in range(int(given))]
        if any(one != "field_ref" for one, _ in names):
            raise _Unknown
        return tuple(name for _, name in names)
    if word == "literal":
        return batch.column(int(given))[0]
    if word != "call":
        raise _Unknown
    call = _Call(given, [], {})
    while steps[0] != ("end", given):
        if steps[0][0] == "options":
            _, number = steps.popleft()
            call.options.update(batch.column(int(number))[0].items())
        else:
            call.arguments.append(_tree(steps, batch))
    steps.popleft()
    return call


def _node(tree: Any, fields: TableFields, is_positive: bool, depth: int) -> Node | None:
    """Return a condition that is true where the tree is, or, without `is_positive`, false where the tree is."""
    if depth > MOST_DEPTH or not isinstance(tree, _Call):
        return None
    match tree:
        case _Call("and_kleene" | "or_kleene", [left, right], _):
            is_and = tree.name == "and_kleene"
            parts = [_node(one, fields, is_positive, depth + 1) for one in (left, right)]
            return combined(parts, is_and=is_and, drops=is_and == is_positive)
        case _Call("invert", [part], _):
            return negated(_node(part, fields, not is_positive, depth + 1))
        case _Call(name, [tuple() as path, constant], _) if name in _SIGNS and not isinstance(constant, tuple | _Call):
            return fields.compared(path, _SIGNS[name], constant)
        case _Call("is_valid", [tuple() as path], _):
            return negated(fields.is_null(path))
        case _Call("is_null", [tuple() as path], options) if not options["nan_is_null"].as_py():
            return fields.is_null(path)
        case _Call("is_in", [tuple() as path], options) if is_positive:  # false for a null, where ours is null
            return fields.among(path, options["value_set"].values)
        case _Call("if_else", [_Call("is_valid", [one], _), _Call("is_in", [tuple() as path], options), absent], _):
            is_sql = one == path and not isinstance(absent, tuple | _Call) and not absent.is_valid
            return fields.among(path, options["value_set"].values) if is_sql else None
    return None
