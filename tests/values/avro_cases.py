"""Random Avro schemas, values of them, and what the columns of a value are as Python objects."""

import datetime
import io
import struct
import uuid
from decimal import Decimal
from typing import Any

import fastavro
from hypothesis import strategies as st

EPOCH = datetime.date(1970, 1, 1)
UTC = datetime.UTC
NAMES = st.text("abcdefgh", min_size=1, max_size=4)
PRIMITIVE = {
    "null": st.none(),
    "boolean": st.booleans(),
    "int": st.integers(-(2**31), 2**31 - 1),
    "long": st.integers(-(2**63), 2**63 - 1),
    "float": st.floats(width=32, allow_nan=False),
    "double": st.floats(allow_nan=False),
    "bytes": st.binary(max_size=20),
    "string": st.text(max_size=20),
}
MOMENTS = st.datetimes(datetime.datetime(1950, 1, 1), datetime.datetime(2100, 1, 1))
LOGICAL = {
    ("int", "date"): st.dates(datetime.date(1600, 1, 1)),
    ("int", "time-millis"): st.times().map(lambda t: t.replace(microsecond=t.microsecond // 1000 * 1000)),
    ("long", "time-micros"): st.times(),
    ("long", "timestamp-millis"): MOMENTS.map(
        lambda t: t.replace(microsecond=t.microsecond // 1000 * 1000, tzinfo=UTC)
    ),
    ("long", "timestamp-micros"): MOMENTS.map(lambda t: t.replace(tzinfo=UTC)),
    ("long", "local-timestamp-micros"): MOMENTS,
    ("string", "uuid"): st.uuids(),
}


class Case:
    """A schema, and a strategy of its values as fastavro writes them."""

    def __init__(self, schema: Any, values: st.SearchStrategy[Any]) -> None:
        self.schema = schema
        self.values = values


class Namer:
    """Names that no other type of the schema has."""

    def __init__(self) -> None:
        self.count = 0

    def __call__(self, kind: str) -> str:
        self.count += 1
        return f"{kind}{self.count}"


@st.composite
def cases(draw: Any, depth: int = 3, namer: Namer | None = None, unions: bool = True) -> Case:
    """A random schema; `unions` also those of more branches than null and another."""
    namer = namer or Namer()
    kinds = ["primitive", "logical", "enum", "fixed", "decimal"]
    if depth > 0:
        kinds += ["array", "map", "optional", "record", "record"] + (["union"] if unions else [])
    kind = draw(st.sampled_from(kinds))
    if kind == "primitive":
        name = draw(st.sampled_from(sorted(PRIMITIVE)))
        return Case(name, PRIMITIVE[name])
    if kind == "logical":
        base, logical = draw(st.sampled_from(sorted(LOGICAL)))
        return Case({"type": base, "logicalType": logical}, LOGICAL[base, logical])
    if kind == "enum":
        symbols = draw(st.lists(NAMES, min_size=1, max_size=4, unique=True))
        return Case({"type": "enum", "name": namer("E"), "symbols": symbols}, st.sampled_from(symbols))
    if kind == "fixed":
        size = draw(st.integers(1, 9))
        return Case({"type": "fixed", "name": namer("F"), "size": size}, st.binary(min_size=size, max_size=size))
    if kind == "decimal":
        return draw(decimals(namer))
    inner = cases(depth=depth - 1, namer=namer, unions=unions)
    if kind == "array":
        item = draw(inner)
        return Case({"type": "array", "items": item.schema}, st.lists(item.values, max_size=4))
    if kind == "map":
        value = draw(inner)
        pairs = st.dictionaries(st.text(max_size=3), value.values, max_size=3)
        return Case({"type": "map", "values": value.schema}, pairs)
    if kind == "record":
        return draw(records(depth=depth - 1, namer=namer, unions=unions))
    if kind == "optional":
        some = draw(inner.filter(lambda case: case.schema != "null" and not isinstance(case.schema, list)))
        branches = draw(st.permutations(["null", some.schema]))
        return Case(branches, st.none() | some.values.map(lambda v: (branch_name(some.schema), v)))
    return draw(unions_of(inner))


@st.composite
def decimals(draw: Any, namer: Namer) -> Case:
    digits = draw(st.integers(1, 18))
    scale = draw(st.integers(0, digits))
    schema: dict[str, Any] = {"type": "bytes", "logicalType": "decimal", "precision": digits, "scale": scale}
    if draw(st.booleans()):
        schema |= {"type": "fixed", "name": namer("D"), "size": draw(st.integers(9, 20))}
    most = 10**digits - 1
    return Case(schema, st.integers(-most, most).map(lambda n: Decimal(n).scaleb(-scale)))


@st.composite
def records(draw: Any, depth: int = 2, namer: Namer | None = None, unions: bool = True) -> Case:
    """A record of up to four fields."""
    namer = namer or Namer()
    name = namer("R")
    names = draw(st.lists(NAMES, max_size=4, unique=True))
    fields = {one: draw(cases(depth=depth, namer=namer, unions=unions)) for one in names}
    schema = {
        "type": "record", "name": name, "fields": [{"name": n, "type": case.schema} for n, case in fields.items()]
    }  # fmt: skip
    return Case(schema, st.fixed_dictionaries({n: case.values for n, case in fields.items()}))


@st.composite
def unions_of(draw: Any, inner: st.SearchStrategy[Case]) -> Case:
    found = [case for case in draw(st.lists(inner, min_size=1, max_size=4)) if not isinstance(case.schema, list)]
    branches: dict[str, Case] = {}
    for case in found:
        branches.setdefault(branch_name(case.schema), case)
    values = [case.values.map(lambda v, name=name: (name, v)) for name, case in branches.items()]
    if not values:
        return Case("int", PRIMITIVE["int"])
    return Case([case.schema for case in branches.values()], st.one_of(values))


def branch_name(schema: Any) -> str:
    """Return fastavro's name for a branch of a union."""
    if isinstance(schema, str):
        return schema
    return str(schema.get("name", schema["type"]))


def encoded(schema: Any, value: Any) -> bytes:
    """The value as fastavro writes it."""
    out = io.BytesIO()
    fastavro.schemaless_writer(out, fastavro.parse_schema(schema), value)
    return out.getvalue()


def column_value(schema: Any, value: Any) -> Any:
    """Return the `to_pylist` value of one that fastavro wrote, or that it read where unions are only optional."""
    if isinstance(schema, list):
        return _union_value(schema, value)
    kind = schema if isinstance(schema, str) else schema["type"]
    if kind == "array":
        return [column_value(schema["items"], item) for item in value]
    if kind == "map":
        return [(key, column_value(schema["values"], item)) for key, item in value.items()]
    if kind == "record":
        return {one["name"]: column_value(one["type"], value[one["name"]]) for one in schema["fields"]}
    if isinstance(value, uuid.UUID):
        return str(value)
    if kind == "float":
        return struct.unpack("f", struct.pack("f", value))[0]
    return value


def _union_value(schema: list[Any], value: Any) -> Any:
    branches = [one for one in schema if one != "null"]
    name, inner = value if isinstance(value, tuple) else (None, value)
    if len(branches) == 1:
        return None if inner is None else column_value(branches[0], inner)
    if not branches or inner is None:
        return None
    return {
        branch_name(one): column_value(one, inner) if branch_name(one) == name else None for one in branches
    }  # fmt: skip
