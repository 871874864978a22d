"""Values of JSON that have the types of a table's columns: beside them, the types of new values fit the table."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from kafkalog.where import parse_field
from kafkalog.where.nodes import Step

if TYPE_CHECKING:
    import pyarrow


def typical_values(given: Mapping[str, Any], have: pyarrow.Schema) -> dict[str, bytes]:
    """Return a value for each of "key" and "value" that is JSON without a schema, with the types of a table's columns.

    `given` are the keywords of a typed scan. A column of a type that JSON does not have gives a null.

    >>> import pyarrow
    >>> have = pyarrow.schema([("id", pyarrow.int64()), ("price", pyarrow.float64())])
    >>> typical_values({"value": "json", "project": {"price": "value.order.price", "id": "offset"}}, have)
    {'value': b'{"order": {"price": 0.5}}'}
    """
    roots = [root for root in ("value", "key") if given.get(root) is not None]
    has_schema = any(given.get(name) is not None for name in ("schema", "subject"))
    project = given.get("project")
    found: dict[str, Any] = {}
    for root in roots:
        if given[root] != "json" or (has_schema and root == roots[0]):
            continue
        paths = {root: root} if project is None else project
        for name, path in (paths if isinstance(paths, Mapping) else dict(zip(paths, paths, strict=True))).items():
            field = parse_field(path)
            if field.root == root and name in have.names and not any(isinstance(one, Step) for one in field.path):
                found[root] = _put(found.get(root), field.path[1:], _typical(have.field(name).type))
    return {root: json.dumps(value).encode() for root, value in found.items()}


def _put(value: Any, path: tuple[str, ...], part: Any) -> Any:
    """Return a value with a part at a path; one that lies in another part, or is no object, stays as it is."""
    if not path:
        return part if value is None else value
    fields = {} if value is None else value
    if isinstance(fields, dict):
        fields[path[0]] = _put(fields.get(path[0]), path[1:], part)
    return fields


def _typical(type: pyarrow.DataType) -> Any:
    import pyarrow as pa

    types = pa.types
    if types.is_struct(type):
        return {one.name: _typical(one.type) for one in type}
    if types.is_list(type) or types.is_large_list(type):
        return [_typical(type.value_type)]
    tests = (
        (types.is_boolean, True), (types.is_int64, 0), (types.is_float64, 0.5), (types.is_string, ""),
        (types.is_large_string, ""),
    )  # fmt: skip
    return next((value for test, value in tests if test(type)), None)
