"""Text of an Avro schema from its tree, with everything that reading by it depends on."""

from __future__ import annotations

import json
from typing import Any, Final

from kafkalog.values.avro_schema import MISSING, AvroType

_PART: Final = {"array": "items", "map": "values"}


def schema_text(schema: AvroType) -> str:
    """Return the JSON of a schema in one piece, with the types that it takes from others.

    >>> from kafkalog.values.avro_schema import parse_avro
    >>> tree = parse_avro('{"type": "fixed", "name": "Id", "namespace": "a", "size": 16, "doc": "?"}')
    >>> schema_text(tree)
    '{"name": "a.Id", "type": "fixed", "size": 16}'
    """
    return json.dumps(_document(schema, set()))


def _document(schema: AvroType, known: set[str]) -> Any:
    if schema.kind == "union":
        return [_document(part, known) for part in schema.parts]
    if schema.kind in _PART:
        return {"type": schema.kind, _PART[schema.kind]: _document(schema.parts[0], known)}
    if not schema.name:
        return {"type": schema.kind, **_logical(schema)} if schema.logical else schema.kind
    if schema.name in known:
        return schema.name
    known.add(schema.name)
    found: dict[str, Any] = {"name": schema.name, "type": schema.kind}
    if "." not in schema.name:
        found["namespace"] = ""
    if schema.aliases:
        found["aliases"] = list(schema.aliases)
    if schema.kind == "fixed":
        return found | {"size": schema.size} | _logical(schema)
    if schema.kind == "enum":
        default = {} if schema.default is None else {"default": schema.default}
        return found | {"symbols": list(schema.symbols)} | default
    fields = []
    for one in schema.fields:
        field: dict[str, Any] = {"name": one.name, "type": _document(one.type, known)}
        if one.aliases:
            field["aliases"] = list(one.aliases)
        if one.default is not MISSING:
            field["default"] = one.default
        fields.append(field)
    return found | {"fields": fields}


def _logical(schema: AvroType) -> dict[str, Any]:
    if not schema.logical:
        return {}
    decimal = {"precision": schema.precision, "scale": schema.scale} if schema.logical == "decimal" else {}
    return {"logicalType": schema.logical, **decimal}
