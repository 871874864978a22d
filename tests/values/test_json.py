"""JSON columns against Python's json: types, samples, schemas, wanted fields, bad text, and limits."""

import datetime
import json
import math
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from kafkalog import values
from kafkalog._core.values.builder import Builder
from kafkalog._core.values.decimal_text import to_double, to_int64
from kafkalog._core.values.items import keep_last_keys
from kafkalog.errors import IllegalArgument
from kafkalog.values.json_columns import JsonDecoder
from kafkalog.values.json_sample import sample_type
from kafkalog.values.json_schema import schema_type
from kafkalog.values.json_types import JSON, JsonType
from kafkalog.values.wanted import wanted_fields
from tests.values.protobuf_cases import plain

RELAXED = settings(deadline=None, suppress_health_check=list(HealthCheck), max_examples=200)
TEXT = st.text(max_size=10)
FLOATS = st.floats(allow_nan=False, allow_infinity=False)
SIMPLE = st.one_of(st.none(), st.booleans(), st.integers(-(2**70), 2**70), FLOATS, TEXT)
ANY = st.recursive(
    SIMPLE, lambda inner: st.lists(inner, max_size=4) | st.dictionaries(TEXT, inner, max_size=4), max_leaves=12
)
LEAVES = {
    "bool": st.booleans(), "int64": st.integers(-(2**63), 2**63 - 1), "string": TEXT, "json": ANY,
    "double": FLOATS,
}  # fmt: skip
NAMES = st.text(st.characters(exclude_characters="\x00", codec="utf-8"), min_size=1, max_size=9)


def decode(decoder: values.ValueDecoder, rows: list[Any]) -> tuple[list[Any], list[str | None]]:
    given_rows = [row.encode() if isinstance(row, str) else row for row in rows]
    found = decoder.decode(pa.array(given_rows, pa.binary()))
    found.values.validate(full=True)
    errors = [None] * len(rows) if found.errors is None else found.errors.to_pylist()
    assert found.failed == len(rows) - errors.count(None)
    return [plain(value, found.values.type) for value in found.values.to_pylist()], errors


@st.composite
def types(draw: Any, depth: int = 3) -> JsonType:
    kind = draw(st.sampled_from([*LEAVES, *(["struct", "list", "map"] if depth else [])]))
    if kind == "struct":
        names = draw(st.lists(NAMES, min_size=1, max_size=5, unique=True))
        return JsonType("struct", tuple((name, draw(types(depth - 1))) for name in names))
    if kind in ("list", "map"):
        return JsonType(kind, (("item" if kind == "list" else "value", draw(types(depth - 1))),))
    return JsonType(kind)


def documents(type: JsonType) -> st.SearchStrategy[Any]:
    """Documents of a type, with fields left out, null, and more than the type has."""
    if type.kind == "struct":
        known = {name: documents(one) for name, one in type.children}
        more = st.dictionaries(NAMES.filter(lambda name: name not in known), ANY, max_size=2)
        return st.none() | st.builds(lambda a, b: a | b, st.fixed_dictionaries({}, optional=known), more)
    if type.kind == "list":
        return st.none() | st.lists(documents(type.children[0][1]), max_size=3)
    if type.kind == "map":
        return st.none() | st.dictionaries(TEXT, documents(type.children[0][1]), max_size=3)
    return st.none() | LEAVES[type.kind]


def shown(value: Any, type: JsonType) -> Any:
    """Return a column's value for a document: JSON text is compared as the document it is."""
    if value is None:
        return None
    if type.kind == "struct":
        return {name: shown(value.get(name), one) for name, one in type.children}
    if type.kind == "list":
        return [shown(item, type.children[0][1]) for item in value]
    if type.kind == "map":
        return {key: shown(item, type.children[0][1]) for key, item in value.items()}
    return float(value) if type.kind == "double" else value


def loaded(value: Any, type: JsonType) -> Any:
    if value is None:
        return None
    if type.kind == "json":
        return json.loads(value)
    if type.kind == "struct":
        return {name: loaded(value[name], one) for name, one in type.children}
    if type.kind == "list":
        return [loaded(item, type.children[0][1]) for item in value]
    if type.kind == "map":
        return {key: loaded(item, type.children[0][1]) for key, item in value.items()}
    return value


def of_type(type: JsonType) -> JsonDecoder:
    made = JsonDecoder(fields={"x": "int64"})
    made._settle_as(type)
    return made


@RELAXED
@given(data=st.data())
def test_documents_come_back(data: st.DataObject) -> None:
    type = data.draw(types())
    given_documents = data.draw(st.lists(documents(type), min_size=1, max_size=4))
    rows = [
        json.dumps(one, ensure_ascii=data.draw(st.booleans()), indent=data.draw(st.sampled_from([None, 1, "\t"])))
        for one in given_documents
    ]
    found, errors = decode(of_type(type), rows)
    assert errors == [None] * len(rows)
    assert [loaded(value, type) for value in found] == [shown(one, type) for one in given_documents]


@RELAXED
@given(type=types() | st.sampled_from([JsonType("timestamp"), JsonType("list", (("item", JsonType("date")),))]))
def test_a_type_is_that_of_its_schema(type: JsonType) -> None:
    """Settled columns of a decoder give the same columns in another process or a later run."""
    decoder = of_type(type)
    again = JsonDecoder(**decoder.settled)
    assert again._type == type and again.arrow_type == decoder.arrow_type


@RELAXED
@given(rows=st.lists(ANY, min_size=1, max_size=6))
def test_a_sample_fits_itself(rows: list[Any]) -> None:
    texts = [json.dumps(row) for row in rows]
    decoder = JsonDecoder()
    found, errors = decode(decoder, texts)
    assert errors == [None] * len(rows)
    type = sample_type(texts)
    if type is not None:
        assert decoder.arrow_type == JsonDecoder(sample=texts).arrow_type
        assert [(value is None) for value in found] == [row is None for row in rows]


@RELAXED
@given(text=st.text(st.sampled_from('{}[]",:\\u0019aZeE+-. tfn\n\x01é'), max_size=24) | st.text(max_size=12))
def test_text_is_json_where_python_says_so(text: str) -> None:
    (found,), (error,) = decode(of_type(JSON), [text])
    try:
        wanted = json.loads(text, parse_constant=lambda word: 1 / 0)
        text.encode()
        json.dumps(wanted, ensure_ascii=False).encode()  # half of a surrogate pair
    except (ValueError, ZeroDivisionError):
        assert error is not None and found is None
    else:
        assert error is None
        assert wanted is None and found is None or json.loads(found) == wanted


@RELAXED
@given(row=st.binary(max_size=30))
def test_any_bytes_have_an_answer(row: bytes) -> None:
    decoder = of_type(JsonType("struct", (("a", JsonType("int64")), ("b", JsonType("list", (("item", JSON),))))))
    found, errors = decode(decoder, [row, b'{"a":1}'])
    assert found[1] == {"a": 1, "b": None} and errors[1] is None


@RELAXED
@given(number=st.floats(allow_nan=False, allow_infinity=False), digits=st.integers(1, 30))
def test_doubles_are_the_nearest(number: float, digits: int) -> None:
    for text in (repr(number), f"{number:.{digits}e}"):
        wanted = float(text)
        assert to_double(text.encode()) == (None if math.isinf(wanted) else wanted)


@pytest.mark.parametrize(
    ("text", "number"),
    [
        ("9223372036854775807", 2**63 - 1), ("-9223372036854775808", -(2**63)), ("9223372036854775808", None),
        ("1.0", 1), ("1e3", 1000), ("25e-1", None), ("100e-2", 1), ("-0", 0), ("1e99", None), ("00", None),
        ("1.", None), ("1.00000000000000000000000001", None), ("12345678901234567890123", None),
    ],
)  # fmt: skip
def test_whole_numbers(text: str, number: int | None) -> None:
    assert to_int64(text.encode()) == number


@pytest.mark.parametrize(
    ("row", "words"),
    [
        (b"", "the value is empty, at byte 0"), (b" \n", "the value is empty"), (b'{"a":', "the JSON ends too early"),
        (b'{"a":1}}', "there is more behind the JSON, at byte 7"), (b'{"a":NaN}', "a: this is no JSON, at byte 5"),
        (b'{"a":1,}', "this is no JSON, at byte 7"), (b"{'a':1}", "this is no JSON, at byte 1"),
        (b'{"a":01}', "a: this is no number of JSON"), (b'{"a":1.5}', "a: the number has a fraction, at byte 5"),
        (b'{"a":9223372036854775808}', "a: the number is beyond 64 bits"), (b'{"d":1e999}', "d: the number is beyond"),
        (b'{"a":"1"}', "a: a string where an int64 is expected, at byte 5"), (b"[1]", "an array where an object is"),
        (b'{"s":"\\ud800"}', "s: half of a surrogate pair is alone"), (b'{"s":"\\x"}', "s: JSON does not have this"),
        (b'{"s":"\xff"}', "s: the text is not UTF-8, at byte 6"), (b'{"s":"\n"}', "s: a control character stands in"),
        (b'{"z":"\xed\xa0\x80"}', "the text is not UTF-8"), (b'{"l":[1,"x"]}', "l[]: a string where an int64 is expec"),
        (b'{"t":"2024-02-30T00:00:00Z"}', "t: the text is no time or date"),
        (b'{"d":' + b"1" * 1200 + b".5}", "d: the number has more than 1100"),
        (b'{"z":' + b"[" * 1100, "nested more than 1024 levels deep"), (b"\xef\xbb\xbf{}", "this is no JSON"),
        (b"\x00\x00\x00", "there is no registry's header"), (b'{"m":{"k":true}}', "m{}: a bool where an int64"),
    ],
)  # fmt: skip
def test_what_is_wrong_is_said(row: bytes, words: str) -> None:
    schema = {
        "type": "object",
        "properties": {
            "a": {"type": "integer"}, "d": {"type": "number"}, "s": {"type": "string"},
            "l": {"items": {"type": "integer"}}, "t": {"type": "string", "format": "date-time"},
            "m": {"type": "object", "additionalProperties": {"type": "integer"}},
        },
    }  # fmt: skip
    found, errors = decode(values.decoder("json", schema=schema), [row, b'{"a":5}'])
    assert words in str(errors[0])
    assert found[0] is None and found[1]["a"] == 5


def test_the_last_of_a_name_counts() -> None:
    decoder = values.decoder("json", sample=['{"a": [1], "o": {"x": 1}, "s": "t"}'])
    row = r'{"a":[1,2],"o":{"x":1},"\u0061":[3],"s":"u","o":{},"s":null}'
    assert decode(decoder, [row])[0] == [{"a": [3], "o": {"x": None}, "s": None}]
    keys = of_type(JsonType("map", (("value", JsonType("list", (("item", JsonType("string")),))),)))
    many = ",".join(f'"k{n % 40}":["{n}", null]' for n in range(200))
    found, _ = decode(keys, ['{"a":["x"],"b":[],"a":["y","z"]}', f"{{{many}}}"])
    assert found == [{"b": [], "a": ["y", "z"]}, {f"k{n % 40}": [str(n), None] for n in range(160, 200)}]


def test_keys_of_every_width() -> None:
    for format, size in (("b", 0), ("i", 4), ("l", 8)):
        key = ("key", format, False, (), ())
        tree = ("", "+m", True, (("e", "+s", False, (key, ("value", "u", True, (), ())), ()),), ())
        builder = Builder(tree)
        keys = [n % 2 if format == "b" else (n % 7).to_bytes(size, "little") for n in range(30)]
        for n, one in enumerate(keys):
            assert builder.put((one, None if n % 3 == 0 else b"%d" % n), 1) == 0
        assert keep_last_keys(builder) == 0
        assert builder.put([], 0) == 0
        builder.done()
        array = pa.array(builder.values())
        array.validate(full=True)
        last = dict(zip(keys, [None if n % 3 == 0 else str(n) for n in range(30)], strict=True))
        assert sorted(map(str, last.values())) == sorted(str(value) for _, value in array.to_pylist()[0])


def test_times_and_dates() -> None:
    decoder = values.decoder("json", fields={"t": "timestamp", "d": "date"})
    rows = [
        '{"t":"2024-02-29T23:59:60+01:00","d":"0001-01-01"}', '{"t":"1969-12-31t23:59:59.9999999z","d":"9999-12-31"}',
        '{"t":"2024-01-01 00:00:00.5-00:30"}', '{"t":"2024-01-01T00:00:00"}', '{"d":"2023-2-1"}',
        '{"t":"2024-01-01T24:00:00Z"}',
    ]  # fmt: skip
    found, errors = decode(decoder, rows)
    utc = datetime.UTC
    assert found[:3] == [
        {"t": datetime.datetime(2024, 2, 29, 23, tzinfo=utc), "d": datetime.date(1, 1, 1)},
        {"t": datetime.datetime(1969, 12, 31, 23, 59, 59, 999999, tzinfo=utc), "d": datetime.date(9999, 12, 31)},
        {"t": datetime.datetime(2024, 1, 1, 0, 30, 0, 500000, tzinfo=utc), "d": None},
    ]
    assert [error is None for error in errors] == [True] * 3 + [False] * 3


@RELAXED
@given(moment=st.datetimes(timezones=st.just(datetime.UTC)), minutes=st.integers(-1439, 1439))
def test_times_are_python_s(moment: datetime.datetime, minutes: int) -> None:
    zone = datetime.timezone(datetime.timedelta(minutes=minutes))
    try:
        text = moment.astimezone(zone).isoformat()
    except OverflowError:
        return
    assert decode(values.decoder("json", fields={"t": "timestamp"}), [json.dumps({"t": text})])[0] == [{"t": moment}]


def test_schemas() -> None:
    schema = {
        "$defs": {"money": {"type": ["number", "null"]}, "node": {"properties": {"next": {"$ref": "#/$defs/node"}}}},
        "properties": {
            "a": {"$ref": "#/$defs/money"}, "b": {"anyOf": [{"type": "null"}, {"type": "boolean"}]},
            "c": {"enum": ["x", None]},
            "d": {"type": ["string", "integer"]}, "e": {"$ref": "#/$defs/node"}, "f": True, "g": {"const": 1},
            "h": {"type": "array", "items": {"$ref": "other.json#/definitions/id"}}, "i": {"type": "object"},
            "j": {"oneOf": [{"type": "integer"}, {"type": "number"}]}, "k": {"type": "string", "format": "uuid"},
        },
    }  # fmt: skip
    found = schema_type(schema, {"other.json": {"definitions": {"id": {"type": "integer"}}}})
    kinds = {name: one.kind for name, one in found.children}
    assert kinds == {
        "a": "double", "b": "bool", "c": "string", "d": "json", "e": "struct", "f": "json", "g": "int64", "h": "list",
        "i": "json", "j": "double", "k": "string",
    }  # fmt: skip
    assert dict(found.children)["e"].children == (("next", JSON),)
    assert dict(found.children)["h"].children[0][1].kind == "int64"
    for bad in ({"$ref": "#/nowhere"}, {"type": "integr"}, {"properties": {"a": 3}}, {"properties": [1]}):
        with pytest.raises(IllegalArgument):
            schema_type(bad)
    with pytest.raises(IllegalArgument, match="not a JSON Schema"):
        values.decoder("json", schema="{")


@pytest.mark.parametrize("name", ["\ud800", "a\udfff", "a\0"])
def test_a_schema_with_a_name_that_no_column_can_have(name: str) -> None:
    schema = {"type": "array", "items": {"type": "object", "properties": {name: {"type": "string"}}}}
    some: list[dict[str, Any]] = [{"schema": schema}, {"schema": json.dumps(schema)}]
    for options in (*some, {"fields": {f"a.{name}": "string"}}):
        with pytest.raises(IllegalArgument, match="columns of these values cannot be made") as error:
            values.decoder("json", **options)
        assert str(error.value).encode()


class Stored:
    """A registry's schemas in memory."""

    def by_id(self, number: int) -> values.Schema:
        return values.Schema(b'{"properties": {"n": {"$ref": "n.json"}}}', "JSON", 7, (("n.json", "n", 1),))  # type: ignore[arg-type]

    def by_version(self, subject: str, version: int | None = None) -> values.Schema:
        return values.Schema(b'{"type": "integer"}', "JSON", 8) if subject == "n" else self.by_id(7)


def test_schemas_of_a_registry_and_their_header() -> None:
    decoder = values.decoder("json", schema=7, schemas=Stored(), framing="registry")
    assert decoder.arrow_type == pa.struct([("n", pa.int64())])
    found, errors = decode(decoder, [b'\0\0\0\0\7{"n":1}', b'{"n":1}'])
    assert found == [{"n": 1}, None] and "no registry's header" in str(errors[1])
    assert values.decoder("json", subject="s", schemas=Stored()).arrow_type == decoder.arrow_type
    raw = values.decoder("json", schema=7, schemas=Stored(), framing="raw")
    assert "there is a registry's header" in str(decode(raw, [b'\0\0\0\0\7{"n":1}'])[1][0])


def test_wanted_fields() -> None:
    rows = ['{"a": {"b": 1, "c": "x"}, "l": [{"p": 1.5, "q": 2}], "z": 0}']
    decoder = values.decoder("json", fields=["a.b", "l.p"])
    assert decode(decoder, rows)[0] == [{"a": {"b": 1}, "l": [{"p": 1.5}]}]
    typed = values.decoder("json", fields={"a.b": "double", "no.where": "string"})
    assert decode(typed, rows)[0] == [{"a": {"b": 1.0}, "no": None}]
    absent = values.decoder("json", fields=["a.no"])
    assert decode(absent, rows)[0] == [{"a": {"no": None}}]
    with pytest.raises(IllegalArgument, match=r"no field 'ordr'.*did you mean 'order'"):
        values.decoder("json", schema={"properties": {"order": {"type": "integer"}}}, fields=["ordr"])
    for bad in ([], "a", [""], ["a..b"], {"a": "int"}):
        with pytest.raises(IllegalArgument):
            values.decoder("json", fields=bad)
    assert wanted_fields(["a", "a.b"], typed=False) == {"a": None}


def test_misfits_are_null_if_not_strict() -> None:
    fields = {"a": "int64", "b": "string", "o.t": "timestamp"}
    decoder = values.decoder("json", fields=fields, strict=False)
    rows = [
        '{"a":"x","b":5,"o":{"t":"no"}}', '{"a":1.5,"b":{"c":[1]},"o":[]}', '{"a":1e99,"b":"t","o":{"t":[{}]}}',
        '{"a":"\\x"}', '{"a":[1,}', "[1]", '"\\ud800"',
    ]  # fmt: skip
    found, errors = decode(decoder, rows)
    assert found == [
        {"a": None, "b": None, "o": {"t": None}}, {"a": None, "b": None, "o": None},
        {"a": None, "b": "t", "o": {"t": None}},
        None, None, None, None,
    ]  # fmt: skip
    assert [error is None for error in errors] == [True, True, True, False, False, True, False]


def test_columns_wait_for_the_first_values() -> None:
    decoder = values.decoder("json")
    with pytest.raises(IllegalArgument, match="yet to be seen|first values"):
        _ = decoder.arrow_type
    assert decode(decoder, [None, b"?", b"null"])[0] == [None] * 3
    assert decode(decoder, [b'{"a":1}', b'{"a":"x"}'])[0] == [{"a": "1"}, {"a": '"x"'}]
    assert decoder.arrow_type == pa.struct([("a", pa.string())])
    with pytest.raises(IllegalArgument, match="no JSON value"):
        values.decoder("json", sample=[b"?"])


def test_memory_is_limited() -> None:
    decoder = values.decoder("json", fields={"l": "string"}, most_bytes=1 << 16)
    found, errors = decode(decoder, ['{"l":"a"}', '{"l":"' + "b" * 100_000 + '"}', '{"l":"c"}'])
    assert found == [{"l": "a"}, None, {"l": "c"}] and "limit of memory" in str(errors[1])
    with pytest.raises(IllegalArgument, match="more than 65536 bytes"):
        decode(decoder, ['{"l":"' + "b" * 1000 + '"}'] * 100)
