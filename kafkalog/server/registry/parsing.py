"""Schemas of a registry as it parses them: their stored text, their normal form, and what they are compatible with."""

from __future__ import annotations

import base64
import json
import math
from collections.abc import Sequence
from typing import Any, Final, NamedTuple

from kafkalog.errors import IllegalArgument, MissingPackage
from kafkalog.server.registry.avro_rules import avro_incompatibilities, avro_problems
from kafkalog.server.registry.errors import RestError, invalid_schema
from kafkalog.server.registry.json_rules import Document, json_incompatibilities
from kafkalog.server.registry.protobuf_rules import protobuf_incompatibilities
from kafkalog.values.avro_schema import NAMED, PRIMITIVES, AvroType, parse_avro
from kafkalog.values.json_schema import parse_schema
from kafkalog.values.protobuf_schemas import descriptor_files, import_protobuf
from kafkalog.values.schemas.source import AVRO, JSON, PROTOBUF, Schema, SchemaSource, UnknownSchema, referenced

KINDS: Final = (AVRO, JSON, PROTOBUF)
_AVRO_ORDER: Final = ("type", "name", "namespace", "doc", "fields", "symbols", "items", "values", "size", "default")


class Parsed(NamedTuple):
    """A schema that is one: the text to store, the text with `normalize`, and what its rules compare."""

    kind: str
    text: str
    normal: str
    model: Any


def parsed(source: SchemaSource, kind: str, text: str, references: Sequence[Any] = ()) -> Parsed:
    """Return a schema with its references. RestError 42201 for an invalid schema or a missing reference."""
    schema = Schema(text.encode("utf-8", "surrogatepass"), kind, None, tuple(references))
    try:
        others = referenced(source, schema)
        if kind == AVRO:
            return _avro(text, others)
        if kind == JSON:
            return _json(text, others)
        return _protobuf(text, others)
    except MissingPackage as error:
        raise RestError(50001, f"{error.message} ({error.hint})") from None
    except (UnknownSchema, IllegalArgument) as error:
        raise invalid_schema(error.message) from None
    except (ValueError, RecursionError) as error:  # text that cannot be written as JSON again
        raise invalid_schema(error) from None


def _avro(text: str, others: Sequence[tuple[str, Schema]]) -> Parsed:
    contents = dict.fromkeys(other.content.decode() for _, other in others)  # one may be used by several names
    model = parse_avro(text, list(contents))
    if problems := avro_problems(model):
        raise invalid_schema("; ".join(problems[:5]))
    document = text.strip() if text.strip() in PRIMITIVES else _loaded(text)
    return Parsed(AVRO, _compact(document), _compact(_normal_avro(document, "")), model)


def _loaded(text: str) -> Any:
    def refuse(word: str) -> None:
        raise ValueError(f"{word} is not JSON")

    def finite(digits: str) -> float:
        number = float(digits)
        if math.isinf(number):
            raise ValueError(f"{digits:.60} is beyond the numbers of a double")
        return number

    return json.loads(text, parse_constant=refuse, parse_float=finite)


def _compact(document: object) -> str:
    made = json.dumps(document, separators=(",", ":"), ensure_ascii=False)
    made.encode()  # ValueError for half of a surrogate pair
    return made


def _normal_avro(schema: Any, space: str) -> Any:
    """Return an Avro schema with full names, plain primitives, and attributes in one order."""
    if isinstance(schema, str):
        return schema if schema in PRIMITIVES or "." in schema or not space else f"{space}.{schema}"
    if isinstance(schema, list):
        return [_normal_avro(part, space) for part in schema]
    kind = schema["type"]
    if not isinstance(kind, str) or (set(schema) == {"type"}):
        return _normal_avro(kind, space)
    made = {key: schema[key] for key in _AVRO_ORDER if key in schema}
    made.update({key: schema[key] for key in sorted(schema.keys() - made.keys())})
    if kind in NAMED:
        name, inner = str(schema["name"]), schema.get("namespace", space)
        full = name if "." in name or not inner else f"{inner}.{name}"
        space = full.rpartition(".")[0]
        made["name"] = full
        made.pop("namespace", None)
    elif kind not in PRIMITIVES and kind not in ("array", "map"):
        return _normal_avro(kind, space)
    for key in ("items", "values"):
        if key in made and kind in ("array", "map"):
            made[key] = _normal_avro(made[key], space)
    if "fields" in made and kind in ("record", "error"):
        made["fields"] = [_normal_field(field, space) for field in made["fields"]]
    return made


def _normal_field(field: dict[str, Any], space: str) -> dict[str, Any]:
    rest = {key: field[key] for key in sorted(field.keys() - {"name", "type"})}
    return {"name": field["name"], "type": _normal_avro(field["type"], space), **rest}


def _json(text: str, others: Sequence[tuple[str, Schema]]) -> Parsed:
    schema, document = parse_schema(text), _loaded(text)
    model = Document(schema, {name: parse_schema(other.content) for name, other in others})
    if problems := model.problems():
        raise invalid_schema("; ".join(problems[:5]))
    normal = json.dumps(document, sort_keys=True, separators=(",", ":"), ensure_ascii=False)
    return Parsed(JSON, _compact(document), normal, model)


def _protobuf(text: str, others: Sequence[tuple[str, Schema]]) -> Parsed:
    files = descriptor_files(text.encode(), imports={name: other.content for name, other in others})
    model = import_protobuf("descriptor_pb2").FileDescriptorProto()
    files.file.CopyToProto(model)
    for name in ("name", "source_code_info"):
        model.ClearField(name)
    normal = base64.b64encode(model.SerializeToString(deterministic=True)).decode()
    return Parsed(PROTOBUF, text, normal, model)


def serialized(one: Parsed) -> str:
    """Return a Protobuf schema as base64 of its FileDescriptorProto."""
    return one.normal


def incompatibilities(reader: Parsed, writer: Parsed) -> list[str]:
    """Return the reasons why the reader's schema cannot read values of the writer's; none if it can."""
    if reader.kind != writer.kind:
        return [f"the schema types differ: {writer.kind} is now {reader.kind}"]
    if reader.kind == AVRO:
        ours: AvroType = reader.model
        return avro_incompatibilities(ours, writer.model)
    if reader.kind == JSON:
        return json_incompatibilities(reader.model, writer.model)
    return protobuf_incompatibilities(reader.model, writer.model)
