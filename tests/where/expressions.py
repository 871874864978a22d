"""Random records and expressions, and a plain evaluator of an expression for one record: the oracle of the masks."""

import math
import re
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from typing import Any

import pyarrow as pa
from hypothesis import strategies as st

from kafkalog.where.nodes import And, Compare, Field, In, IsNull, Like, Literal, Matches, Node, Not, Or, Truth

EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
HEADERS = pa.list_(pa.struct([("key", pa.string()), ("value", pa.binary())]))
VALUE = pa.struct([
    ("n", pa.int32()), ("u", pa.uint64()), ("f", pa.float64()), ("s", pa.string()), ("ok", pa.bool_()),
    ("d", pa.decimal128(6, 2)), ("t", pa.timestamp("us", "UTC")), ("day", pa.date32()), ("raw", pa.binary()),
    ("in", pa.struct([("x", pa.int8())])), ("m", pa.map_(pa.string(), pa.int64())), ("nothing", pa.null()),
])  # fmt: skip
SCHEMA = pa.schema([
    ("key", pa.binary()), ("value", VALUE), ("topic", pa.string()), ("partition", pa.int32()), ("offset", pa.int64()),
    ("timestamp", pa.timestamp("ms", "UTC")), ("timestampType", pa.int32()), ("headers", HEADERS), ("size", pa.int32()),
])  # fmt: skip

TEXTS = st.sampled_from(["", "a", "b", "ab", "eu-1", "eu-22", "ü", "üb", "a%b", "a_b", "a\nb", "it's", "日本"])
BYTES = st.one_of(TEXTS.map(str.encode), st.sampled_from([b"\xff", b"\xffa", b"a\xc3", b"\x00", b"\xed\xa0\x80"]))
SMALL = st.integers(-3, 3)
NUMBERS = st.one_of(
    SMALL, st.sampled_from([127, 128, 2**31, 2**53 + 1, 2**63 - 1, 2**63, -(2**63), 2**64, 10**40]),
    st.sampled_from([Decimal("0.5"), Decimal("-1.25"), Decimal("2.505"), Decimal("1e300"), Decimal("-1e-300")]),
)  # fmt: skip
MOMENTS = st.integers(-3, 12).map(lambda hours: EPOCH + timedelta(hours=hours * 7, milliseconds=hours))
TIMES = st.one_of(
    MOMENTS.map(lambda time: time.isoformat()), st.integers(-2, 200_000_000),
    st.sampled_from(["1970-01-02", "25200001"]),
)  # fmt: skip


def maybe(strategy: st.SearchStrategy[Any]) -> st.SearchStrategy[Any]:
    return st.one_of(st.none(), strategy)


RECORDS = st.fixed_dictionaries({
    "key": maybe(BYTES),
    "value": maybe(st.fixed_dictionaries({
        "n": maybe(st.one_of(SMALL, st.sampled_from([2**31 - 1, 127, 128]))),
        "u": maybe(st.sampled_from([0, 1, 2, 2**53 + 1, 2**63, 2**64 - 1])),
        "f": maybe(st.sampled_from([0.0, -0.0, 0.5, -1.25, 1.0, 3.0, 2.0**53, 2.0**64, 1e300, math.inf, math.nan])),
        "s": maybe(TEXTS), "ok": maybe(st.booleans()),
        "d": maybe(st.sampled_from([Decimal("0.50"), Decimal("1.00"), Decimal("-1.25"), Decimal("2.51")])),
        "t": maybe(MOMENTS), "day": maybe(MOMENTS.map(datetime.date)), "raw": maybe(BYTES),
        "in": maybe(st.fixed_dictionaries({"x": maybe(SMALL)})),
        "m": maybe(st.lists(st.tuples(st.sampled_from("ab"), maybe(SMALL)), max_size=2, unique_by=lambda p: p[0])),
    })),
    "topic": TEXTS, "partition": SMALL, "offset": st.integers(0, 5), "timestamp": MOMENTS, "timestampType": SMALL,
    "headers": st.lists(st.tuples(st.sampled_from(["trace", "a.b", "x"]), maybe(BYTES)), max_size=3),
    "size": maybe(SMALL),
})  # fmt: skip

INTEGERS = [("offset",), ("partition",), ("size",), ("key_size",), ("timestampType",), ("value", "n"),
            ("value", "in", "x"), ("value", "u"), ("value", "m", "a")]  # fmt: skip
OTHER_NUMBERS = [("value", "f"), ("value", "d")]
MOMENT_FIELDS = [("time",), ("value", "t"), ("value", "day")]
BYTE_FIELDS = [("key",), ("header", "trace"), ("header", "a.b"), ("value", "raw")]
TEXT_FIELDS = [("topic",), ("value", "s")]
SIGNS = st.sampled_from(["==", "!=", "<", "<=", ">", ">="])
FAMILIES = [
    (INTEGERS + OTHER_NUMBERS, NUMBERS), (MOMENT_FIELDS, TIMES), (BYTE_FIELDS + TEXT_FIELDS, st.one_of(TEXTS, BYTES)),
]  # fmt: skip
PATTERNS = st.sampled_from(["a", "^a", "b$", "^eu-[0-9]+$", "a.b", "(?i)EU", "[ab]{2}", "ü", "^.$"])
LIKES = st.sampled_from(["%", "", "a", "a%", "%b", "%u%", "_", "__", "eu-_%", r"a\%b", r"a\_b", "ü_", "_\n%", r"\\"])


def fields(paths: list[tuple[str, ...]]) -> st.SearchStrategy[Field]:
    return st.sampled_from(paths).map(Field)


def compared(family: tuple[list[tuple[str, ...]], st.SearchStrategy[Any]]) -> st.SearchStrategy[Node]:
    paths, values = family
    literals = values.map(Literal)
    ordered = st.builds(Compare, SIGNS, fields(paths), st.one_of(literals, fields(paths)))
    among = st.builds(
        In, fields(paths), st.lists(st.one_of(literals, st.just(Literal(None))), min_size=1, max_size=4).map(tuple)
    )
    return st.one_of(ordered, among, st.builds(IsNull, fields(paths)))


TERMS = st.one_of(
    *map(compared, FAMILIES),
    st.builds(Like, fields(BYTE_FIELDS + TEXT_FIELDS), LIKES),
    st.builds(Matches, fields(BYTE_FIELDS + TEXT_FIELDS), PATTERNS),
    st.builds(Truth, fields([("value", "ok")])),
    st.builds(Compare, st.sampled_from(["==", "!="]), fields([("value", "ok")]), st.booleans().map(Literal)),
    st.builds(IsNull, fields([("value",), ("value", "in"), ("value", "nothing")])),
    st.builds(Compare, SIGNS, fields([("value", "nothing")]), NUMBERS.map(Literal)),
)
NODES: st.SearchStrategy[Node] = st.recursive(
    TERMS,
    lambda inner: st.one_of(
        st.builds(Not, inner),
        st.lists(inner, min_size=2, max_size=4).map(tuple).map(And),
        st.lists(inner, min_size=2, max_size=4).map(tuple).map(Or),
    ),
    max_leaves=8,
)


def batch_of(records: list[dict[str, Any]]) -> pa.RecordBatch:
    return pa.RecordBatch.from_pylist(records, SCHEMA)


def got(record: dict[str, Any], field: Field) -> Any:
    """The value of a field, None where there is none."""
    root = field.root
    if root == "time":
        return record["timestamp"]
    if root == "key_size":
        return None if record["key"] is None else len(record["key"])
    if root == "header":
        return next((value for name, value in reversed(record["headers"]) if name == field.path[1]), None)
    found = record.get(root)
    for name in field.path[1:]:
        if found is not None:
            found = dict(found).get(name)
    return found


def evaluate(node: Node, record: dict[str, Any]) -> bool | None:
    """True, false or None as SQL has it."""
    if isinstance(node, (And, Or)):
        parts = [evaluate(part, record) for part in node.parts]
        decisive = isinstance(node, Or)
        return decisive if decisive in parts else None if None in parts else not decisive
    if isinstance(node, Not):
        part = evaluate(node.part, record)
        return None if part is None else not part
    if isinstance(node, Compare):
        left = got(record, node.left)
        if isinstance(node.right, Field):
            return compare(node.operator, left, got(record, node.right))
        return compare(node.operator, left, constant(left, node.right.value))
    value = got(record, node.field)
    if isinstance(node, IsNull):
        return value is None
    if value is None:
        return None
    if isinstance(node, In):
        found = [compare("==", value, constant(value, one.value)) for one in node.values]
        return True if True in found else None if None in found else False
    if isinstance(node, Truth):
        return bool(value)
    text = as_text(value)
    if isinstance(node, Like):
        return re.fullmatch(like_pattern(node.pattern, value), text, re.DOTALL) is not None
    pattern = node.pattern if text_of(value) is not None else node.pattern.encode().decode("latin-1")
    return re.search(pattern.replace("$", r"\Z"), text) is not None


def constant(left: Any, value: Any) -> Any:
    """A constant as the value on its left is compared with it."""
    if isinstance(left, datetime):
        if isinstance(value, str) and not re.fullmatch("-?[0-9]+", value):
            time = datetime.fromisoformat(value)
            return time if time.tzinfo else time.replace(tzinfo=UTC)
        return None if value is None else EPOCH + timedelta(milliseconds=int(value))
    if hasattr(left, "toordinal"):
        return constant(datetime.now(UTC), value)
    if isinstance(left, float) and isinstance(value, Decimal):
        return float(value)
    return value


def compare(sign: str, left: Any, right: Any) -> bool | None:
    if left is None or right is None:
        return None
    left, right = comparable(left), comparable(right)
    if {type(left), type(right)} == {float, Decimal}:
        left, right = float(left), float(right)
    outcomes = {
        "==": left == right, "!=": left != right, "<": left < right, "<=": left <= right, ">": left > right,
        ">=": left >= right,
    }  # fmt: skip
    return outcomes[sign]


def comparable(value: Any) -> Any:
    if isinstance(value, str):
        return value.encode()
    if hasattr(value, "toordinal") and not isinstance(value, datetime):
        return datetime(value.year, value.month, value.day, tzinfo=UTC)
    return value


def text_of(value: bytes | str) -> str | None:
    if isinstance(value, str):
        return value
    try:
        return value.decode()
    except UnicodeDecodeError:
        return None


def as_text(value: bytes | str) -> str:
    """Text; bytes that are not UTF-8 as a character each."""
    found = text_of(value)
    return value.decode("latin-1") if found is None and isinstance(value, bytes) else found or ""


def like_pattern(pattern: str, value: bytes | str) -> str:
    if text_of(value) is None:
        pattern = pattern.encode().decode("latin-1")
    out, is_escaped = "", False
    for character in pattern:
        if is_escaped or character not in "\\%_":
            out += re.escape(character)
            is_escaped = False
        elif character == "\\":
            is_escaped = True
        else:
            out += ".*" if character == "%" else "."
    return out
