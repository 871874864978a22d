"""Avro data and schemas that are wrong, hostile or unusual: each an error of its row, or of the call, and no crash."""

import json
import re
import struct
import threading
import time
from typing import Any

import pytest

from kafkalog import values
from kafkalog._core.values.avro import FRAMINGS
from kafkalog._core.values.builder import Builder
from kafkalog.errors import IllegalArgument, StorageError
from kafkalog.values import avro_program
from kafkalog.values.avro import fingerprint
from kafkalog.values.avro_default import BadDefault, encoded_default, long_bytes
from kafkalog.values.avro_schema import AvroType, parse_avro

pa = pytest.importorskip("pyarrow", reason="the extra `arrow` is not installed")


def record(*fields: Any, name: str = "R") -> dict[str, Any]:
    made = [{"name": one[0], "type": one[1], **({"default": one[2]} if len(one) > 2 else {})} for one in fields]
    return {"type": "record", "name": name, "fields": made}


def array(items: Any) -> dict[str, Any]:
    return {"type": "array", "items": items}


def mapped(kind: Any) -> dict[str, Any]:
    return {"type": "map", "values": kind}


def decode(schema: Any, *rows: bytes | None, **options: Any) -> values.Decoded:
    found = values.decoder("avro", schema=schema, **options).decode(pa.array(rows, pa.binary()))
    found.values.validate(full=True)
    return found


def error_of(schema: Any, row: bytes, **options: Any) -> str:
    """The text for a row, which stands between two good ones of the same column where the schema has an empty value."""
    found = decode(schema, row, **options)
    assert found.failed == 1 and found.values.null_count == 1 and found.errors is not None
    text = found.errors[0].as_py()
    assert isinstance(text, str)
    return text


INT, LONG = {"type": "int"}, {"type": "long"}


@pytest.mark.parametrize(
    ("schema", "row", "text"),
    [
        ("int", b"", "it ends inside a value, at byte 0"),
        ("long", b"\xff" * 11, "a number has more than 64 bits"),
        ("long", b"\xff" * 9 + b"\x02", "a number has more than 64 bits"),
        ("int", long_bytes(2**31), "2147483648 is beyond an int"),
        ("int", long_bytes(-(2**31) - 1), "is beyond an int"),
        ("boolean", b"\2", "there is no boolean 2"),
        ("string", long_bytes(-1), "a length of -1"),
        ("string", long_bytes(2**62), "a length of 4611686018427387904 at byte 10, where 0 are left"),
        ("string", b"\2\xff", "the string is not UTF-8"),
        ("string", b"\6\xed\xa0\x80", "the string is not UTF-8"),
        ("string", b"\2ab", "1 bytes follow the Avro value"),
        ("double", bytes(7), "it ends inside a value"),
        (["null", "int"], b"\4", "there is no branch 2"),
        (["null", "int"], b"\1", "there is no branch -1"),
        (array("int"), long_bytes(10) + bytes(3), "a block of 10 items at byte 1, more than the bytes"),
        (array("int"), long_bytes(-(2**63)), "a block of"),
        (array("int"), long_bytes(-1) + long_bytes(-1), "a length of -1"),
        (array("null"), long_bytes(2**62) + b"\0", "more than the limit for items without bytes"),
        (array("null"), (long_bytes(1 << 19) * 3) + b"\0", "more than the limit for items without bytes"),
        ({"type": "map", "values": "null"}, b"\2\2\xff\0", "the string is not UTF-8"),
        ({"type": "enum", "name": "E", "symbols": ["A"]}, b"\2", "there is no symbol 1"),
        ({"type": "int", "logicalType": "time-millis"}, long_bytes(86_400_000), "beyond the time of a day"),
        ({"type": "long", "logicalType": "time-micros"}, long_bytes(-1), "beyond the time of a day"),
        ({"type": "bytes", "logicalType": "decimal", "precision": 2, "scale": 1}, b"\2\x64", "more digits"),
        ({"type": "bytes", "logicalType": "decimal", "precision": 38}, b"\x22\x7f" + b"\xff" * 16, "more digits"),
    ],
)
def test_wrong_bytes_say_what_is_wrong(schema: Any, row: bytes, text: str) -> None:
    wrapped = record(("a", record(("b", schema), name="S")))
    for one, prefix in ((schema, ""), (wrapped, "field a.b")):
        found = error_of(json.dumps(one), row)
        assert text in found
        assert found.startswith(prefix) or "follow" in text


def test_decimals_of_every_length() -> None:
    from decimal import Decimal

    schema = {"type": "bytes", "logicalType": "decimal", "precision": 38, "scale": 2}
    numbers = [0, 1, -1, 255, -256, 10**38 - 1, -(10**38) + 1]
    rows = [long_bytes(size) + n.to_bytes(size, "big", signed=True) for n in numbers for size in (16, 17, 40)]
    found = decode(schema, *rows, b"\0")
    assert found.failed == 0
    assert found.values.to_pylist() == [Decimal(f"{n}e-2") for n in numbers for _ in range(3)] + [Decimal("0.00")]
    large = {"type": "bytes", "logicalType": "decimal", "precision": 39}
    assert decode(large, b"\2\1").values.to_pylist() == [b"\1"], "more digits than a decimal column has"


def test_unions_of_several_types_are_a_struct() -> None:
    schema = ["null", "int", record(("x", "string")), array("long")]
    found = decode(schema, b"\0", b"\2\4", b"\4\2a", b"\6\2\2\0")
    assert found.values.to_pylist() == [
        None, {"int": 2, "R": None, "array": None}, {"int": None, "R": {"x": "a"}, "array": None},
        {"int": None, "R": None, "array": [1]},
    ]  # fmt: skip


def test_a_writers_branch_without_a_place_fails_its_rows_alone() -> None:
    found = decode("int", b"\0\2", b"\2\2a", writer=["int", "string"])
    assert found.values.to_pylist() == [1, None]
    assert found.errors is not None and found.errors[1].as_py() == "string, and int is wanted"
    with pytest.raises(IllegalArgument, match="field x is string, and int is wanted"):
        decode(record(("x", "int")), writer=record(("x", "string")))
    with pytest.raises(IllegalArgument, match="field y is not in the writer's schema, and has no default"):
        decode(record(("y", "int")), writer=record(("x", "int")))
    with pytest.raises(IllegalArgument, match="does not fit its type"):
        decode(record(("y", "int", "no")), writer=record(("x", "int")))
    with pytest.raises(IllegalArgument, match=r"decimal\(4, 1\), and decimal\(4, 2\) is wanted"):
        kind = {"type": "bytes", "logicalType": "decimal", "precision": 4}
        decode({**kind, "scale": 2}, writer={**kind, "scale": 1})


def test_a_record_goes_into_the_first_branch_that_it_fits() -> None:
    """Steps of a branch that did not fit are gone: those of the next one lie where they would without it."""
    inner = record(("z", "int"), name="I")
    nearer = record(("x", "int"), ("i", inner), ("y", "int"), name="W")
    fitting = record(("i", "I"), ("x", "int"), name="B")
    writer = record(("x", "int"), ("i", inner), name="W")
    found = decode(["null", nearer, "string", fitting], b"\2\4", writer=writer)
    assert found.values.to_pylist() == [{"W": None, "string": None, "B": {"i": {"z": 2}, "x": 1}}]
    with pytest.raises(IllegalArgument, match="does not fit the reader's: W fits no branch of the reader's union"):
        decode(["string", nearer], writer=writer)
    with pytest.raises(IllegalArgument, match="null is no branch of the reader's union"):
        decode(["int", "string"], writer="null")


def test_types_that_contain_themselves() -> None:
    tree = record(("value", "int"), ("next", ["null", "R"]))
    with pytest.raises(IllegalArgument, match="R contains itself, at next"):
        decode(tree)
    chain = b"\0\0"
    for _ in range(50):
        chain = b"\0\2" + chain
    assert decode(record(("value", "int")), chain, writer=tree).values.to_pylist() == [{"value": 0}]
    for _ in range(1000):
        chain = b"\0\2" + chain
    assert "nested more than 200 levels" in error_of(record(("value", "int")), chain, writer=tree)


def test_schemas_that_are_wrong() -> None:
    for wrong in (
        "{", "[]", '{"type": "record", "name": "R"}', '{"type": "enum", "name": "E", "symbols": []}', '["int", "int"]',
        '{"type": "fixed", "name": "F", "size": -1}', '{"type": "fixed", "name": "F", "size": 1e99}', '"nothing"',
        '{"type": "array"}', '{"type": 5}', '{"name": "x"}', '[["null"]]', "[" * 100_000, "[" * 500 + "]" * 500,
        '{"type": "record", "name": "R", "fields": [{"name": "a", "type": "int"}, {"name": "a", "type": "int"}]}',
        '{"type": "record", "name": "R", "fields": [5]}', '{"type": "record", "name": "R", "fields": "x"}',
        '{"type": "record", "name": "R", "fields": [{"name": "a", "type": "int", "aliases": "x"}]}',
        '{"type": "enum", "name": "E", "symbols": ["A"], "default": "B"}',
        '{"type": "record", "name": "R", "aliases": 5, "fields": []}',
    ):  # fmt: skip
        with pytest.raises(IllegalArgument, match="not valid"):
            values.decoder("avro", schema=wrong)
    with pytest.raises(StorageError):
        values.decoder("avro", schema="nowhere.avsc")


def test_schemas_that_grow_beyond_measure() -> None:
    bomb: Any = record(("a", "int"), name="R0")
    for level in range(1, 40):
        bomb = record(("a", bomb), ("b", f"R{level - 1}"), name=f"R{level}")
    begin = time.monotonic()
    with pytest.raises(IllegalArgument, match="more than 65536 columns"):
        values.decoder("avro", schema=json.dumps(bomb))
    small = values.decoder("avro", schema=record(("c", "int", 1)), writer=bomb)
    assert small.arrow_type.num_fields == 1
    default: Any = record(("a", "int", 1), name="R0")
    for level in range(1, 40):
        default = record(("a", default, {}), ("b", f"R{level - 1}", {}), name=f"R{level}")
    with pytest.raises(BadDefault, match="more than 65536 values"):
        encoded_default(parse_avro(default), {})
    deep: Any = "int"
    for _ in range(80):
        deep = array(deep)
    with pytest.raises(IllegalArgument, match="64 levels"):
        values.decoder("avro", schema=deep)
    unions: Any = record(("x", "string"), name="S0")
    for level in range(1, 18):
        both = [unions, record(("y", "int"), name=f"T{level}")]
        unions = record(("u", both), ("v", [f"S{level - 1}", f"T{level}"]), name=f"S{level}")
    with pytest.raises(IllegalArgument, match="more than"):
        values.decoder("avro", schema=unions)
    assert time.monotonic() - begin < 60


def test_the_limit_of_pairs_of_types(monkeypatch: pytest.MonkeyPatch) -> None:
    """A record and its field are two; a branch of a union that does not fit counts too."""
    for writer, pairs in ((record(("x", "int")), 2), ([record(("x", "string"), name="S"), record(("x", "int"))], 5)):
        monkeypatch.setattr(avro_program, "MOST_OPS", pairs)
        assert decode(record(("x", "int")), writer=writer).failed == 0
        monkeypatch.setattr(avro_program, "MOST_OPS", pairs - 1)
        with pytest.raises(IllegalArgument, match=f"more than {pairs - 1} pairs of types"):
            decode(record(("x", "int")), writer=writer)


def test_a_branch_that_does_not_fit_names_its_field_once() -> None:
    inner = record(("x", "string"), name="S")
    cases: list[tuple[Any, Any, bytes, str]] = [
        (["int", "string"], "int", b"\2\2a", "field b is string, and int is wanted"),
        (["int", "string"], ["int", "boolean"], b"\2\2a", "field b: string fits no branch of the reader's union"),
        (["null", "int"], ["int", "long"], b"\0", "field b: null is no branch of the reader's union"),
        (["int", inner], record(("x", "int"), name="S"), b"\2\2a", "field b.x is string, and int is wanted"),
        (["int", record(name="S")], inner, b"\2", "field b.x is not in the writer's schema, and has no default"),
    ]
    for writer, reader, data, text in cases:
        found = decode(record(("b", reader)), data, writer=record(("b", writer)))
        assert found.errors is not None and found.errors.to_pylist() == [text]
    with pytest.raises(IllegalArgument, match="the reader's: field b: W fits no branch of the reader's union"):
        decode(record(("b", ["int", "long"])), b"", writer=record(("b", record(name="W"))))


def test_branches_that_do_not_fit_leave_no_steps_and_are_named() -> None:
    """Those of the writer's union: a field that was looked at before is passed over, and errors have the own path."""
    wrong, right = record(("y", "int"), ("x", "string"), name="S"), record(("y", "int"), ("x", "int"))
    found = decode(record(("x", "int")), b"\0\2\2a", b"\2\2\4", writer=[wrong, right])
    assert found.values.to_pylist() == [None, {"x": 2}]
    assert found.errors is not None and found.errors[0].as_py() == "field x is string, and int is wanted"
    byte = {"type": "fixed", "name": "F", "size": 1}
    writer = record(("a", [record(("x", "string"), name="S"), byte]), ("b", ["F", "S"]), ("c", "int"))
    reader = record(("a", byte), ("b", "F"), ("c", "int"))
    found = decode(reader, b"\2a\0a\4", b"\2a\2\2a\4", b"\0\2a\0a\4", writer=writer, fields=["c"])
    assert found.values.to_pylist() == [{"c": 2}, None, None]
    assert found.errors is not None
    assert [one and one.partition(" is ")[0] for one in found.errors.to_pylist()] == [None, "field b", "field a"]


def test_the_nearest_branch_is_found() -> None:
    """The same type comes before a promotion, and the full name or an alias before the name without namespace."""
    assert decode(["double", "long"], b"\4", writer="long").values.to_pylist() == [{"double": None, "long": 2}]
    other, short, alias = (record(("x", "int"), name=name) for name in ("b.X", "b.W", "c.Y"))
    alias["aliases"] = ["a.W"]
    for union, wanted in (([other, short], "W"), ([short, other, alias], "Y"), ([other, short, "string"], "W")):
        found = decode(union, b"\2", writer=record(("x", "int"), name="a.W")).values[0].as_py()
        assert [name for name, value in found.items() if value is not None] == [wanted]
    assert decode([other], b"\2", writer=record(("x", "int"), name="a.W")).values.to_pylist() == [{"x": 1}]


def test_blocks_have_as_many_items_as_their_bytes_may_hold() -> None:
    """Also of values that are passed over: an item of each type has its least size."""
    for kind, item in (("double", bytes(8)), ("float", bytes(4)), (["int", "string"], b"\0\2")):
        assert len(decode(array(kind), b"\4" + item * 2 + b"\0").values[0]) == 2
        assert "a block of 3 items at byte 1" in error_of(array(kind), b"\6" + item * 2 + b"\0" * (len(item) - 1))
    for skipped, sound, hostile in (
        (array("null"), b"\6\0", None), (mapped("null"), b"\6\0\0\0\0", b"\4\0"),
        (array("double"), b"\4" + bytes(17), b"\4" + bytes(15)),
    ):  # fmt: skip
        writer = record(("a", skipped), ("c", "int"))
        assert decode(record(("c", "int")), sound + b"\2", writer=writer).values.to_pylist() == [{"c": 1}]
        if hostile is not None:
            assert "a block of 2 items" in error_of(record(("c", "int")), hostile, writer=writer)


def test_fixed_decimals_of_another_scale_do_not_fit() -> None:
    kind = {"type": "fixed", "name": "F", "size": 4, "logicalType": "decimal", "precision": 4}
    with pytest.raises(IllegalArgument, match=r"decimal\(4, 1\), and decimal\(4, 2\) is wanted"):
        decode(kind | {"scale": 2}, writer=kind | {"scale": 1})
    with pytest.raises(IllegalArgument, match=r"decimal\(4, 2\), and decimal\(4, 1\) is wanted"):
        decode(kind | {"scale": 1}, writer=kind | {"scale": 2})


def test_a_branch_is_found_by_an_alias() -> None:
    named = record(("x", "int"), name="B") | {"aliases": ["W"]}
    found = decode([record(("x", "int"), name="A"), named], b"\2", writer=record(("x", "int"), name="W"))
    assert found.values.to_pylist() == [{"A": None, "B": {"x": 1}}]


def test_items_and_values_are_promoted_and_named() -> None:
    for kind, wanted in ((array, [1.0]), (mapped, [("k", 1.0)])):
        row = b"\2" + (b"\2k" if kind is mapped else b"") + b"\2\0"
        assert decode(kind("double"), row, writer=kind("int")).values.to_pylist() == [wanted]
        place = "x{}" if kind is mapped else "x[]"
        with pytest.raises(IllegalArgument, match=re.escape(f"field {place} is string, and int is wanted")):
            decode(record(("x", kind("int"))), writer=record(("x", kind("string"))))
    assert decode(mapped("null"), b"\6\0\0\0\0").values.to_pylist() == [[("", None)]], "of one key"
    assert "a block of 2 items at byte 1" in error_of(mapped("int"), b"\4\0\0\0")
    skipped = record(("a", record(("b", "boolean"), name="I")), ("c", "int"))
    assert error_of(record(("c", "int")), b"\2\2", writer=skipped).startswith("field a.b: ")


def test_only_the_readers_aliases_count() -> None:
    enum = {"type": "enum", "name": "E", "symbols": ["A"]}
    fixed = {"type": "fixed", "name": "E", "size": 16}
    for kind, more, row, value in (
        (enum, {}, b"\0", "A"), (fixed, {"logicalType": "uuid"}, bytes(16), "00000000-0000-0000-0000-000000000000"),
    ):  # fmt: skip
        assert decode(kind | more | {"name": "F", "aliases": ["E"]}, row, writer=kind).values.to_pylist() == [value]
        with pytest.raises(IllegalArgument, match=f"{kind['type']} E, and {kind['type']} F is wanted"):
            decode(kind | {"name": "F"}, writer=kind | {"aliases": ["F"]})


def test_the_limit_of_memory_stops_a_row_or_the_call() -> None:
    options = {"most_bytes": 1 << 20}
    schema = record(("a", array(["null", "double"])))
    bomb = long_bytes(400_000) + bytes(400_000) + b"\0"
    good = long_bytes(1) + b"\0" + b"\0"
    found = decode(schema, good, bomb, good, bomb, good, **options)
    assert found.values.to_pylist() == [{"a": [None]}, None, {"a": [None]}, None, {"a": [None]}]
    assert found.errors is not None and "more memory than the limit" in found.errors[1].as_py()
    with pytest.raises(IllegalArgument, match="more than 1048576 bytes"):
        decode(schema, *[bomb] * 65, **options)
    with pytest.raises(IllegalArgument, match="more than 1048576 bytes"):
        decode("string", *[long_bytes(1000) + b"x" * 1000] * 2000, **options)
    assert decode(array("null"), long_bytes(99) + b"\0", most_items=100).values[0].as_py() == [None] * 99
    assert "limit" in error_of(array("null"), long_bytes(101) + b"\0", most_items=100)


def test_framings() -> None:
    schema, row = '"string"', b"\4hi"
    assert decode(schema, b"\6" + row, b"\4" + row, framing="length").values.to_pylist() == ["hi", None]
    assert "says 2 bytes, and there are 3" in error_of(schema, b"\4" + row, framing="length")
    number = fingerprint(parse_avro(schema))
    single = b"\xc3\1" + struct.pack("<q", number) + row
    assert decode(schema, single, framing="single-object").values.to_pylist() == ["hi"]
    assert "fingerprint is 0000000000000000" in error_of(schema, b"\xc3\1" + bytes(8) + row, framing="single-object")
    assert "fingerprint" in error_of(schema, b"\xc3\2" + single[2:], framing="single-object")
    with pytest.raises(IllegalArgument, match=", ".join(FRAMINGS)):
        decode(schema, framing="none")
    with pytest.raises(IllegalArgument, match="needs schemas"):
        decode(schema, framing="registry")
    with pytest.raises(IllegalArgument, match="need a schema"):
        values.decoder("avro")


def test_fingerprints_are_those_of_fastavro() -> None:
    schema = pytest.importorskip("fastavro").schema
    for one in ("int", array(record(("x", ["null", {"type": "enum", "name": "n.E", "symbols": ["A"]}]), ("y", "n.E")))):
        canonical = schema.to_parsing_canonical_form(one)
        wanted = bytes.fromhex(schema.fingerprint(canonical, "CRC-64-AVRO"))
        assert struct.pack("<q", fingerprint(parse_avro(one))) == wanted


def test_enums_are_text_or_dictionaries() -> None:
    schema = {"type": "enum", "name": "E", "symbols": ["A", "Bü"]}
    writer = {**schema, "symbols": ["Bü", "X", "A"]}
    for dictionaries in (False, True):
        found = decode(schema, b"\0", b"\2", b"\4", None, writer=writer, dictionaries=dictionaries)
        assert found.values.to_pylist() == ["Bü", None, "A", None]
        assert found.errors is not None and "in the reader's schema" in found.errors[1].as_py()
        assert pa.types.is_dictionary(found.values.type) == dictionaries
    assert decode({**schema, "default": "A"}, b"\2", writer=writer).values.to_pylist() == ["A"]


def test_uuids_of_sixteen_bytes_are_text() -> None:
    schema = {"type": "fixed", "name": "U", "size": 16, "logicalType": "uuid"}
    assert decode(schema, bytes(range(16))).values.to_pylist() == ["00010203-0405-0607-0809-0a0b0c0d0e0f"]


def test_threads_share_a_decoder() -> None:
    decoder = values.decoder("avro", schema=record(("a", "string"), ("b", array("long"))))
    column = pa.array([b"\4hi" + long_bytes(2) + b"\2\4\0"] * 20_000)
    found: list[values.Decoded] = []
    threads = [threading.Thread(target=lambda: found.append(decoder.decode(column))) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert all(one.values == found[0].values and one.failed == 0 for one in found) and len(found) == 4


def test_trees_that_no_builder_has() -> None:
    leaf = ("", "i", True, (), ())
    for wrong in (
        ("", "?", True, (), ()), ("", "+l", True, (), ()), ("", "i", True, (leaf,), ()), ("", "l", True, (), ("a",)),
        ("", "+m", True, (leaf,), ()), ("a\0", "i", True, (), ()), ("", "w:99999999", True, (), ()),
    ):  # fmt: skip
        with pytest.raises(ValueError):
            Builder(wrong)
    builder = Builder(leaf)
    builder.values()
    with pytest.raises(ValueError, match="taken already"):
        builder.values()


def test_defaults_that_are_no_values() -> None:
    for schema, value in (
        ("int", 2**31), ("int", True), ("boolean", 1), ("float", 1e300), ("string", "\ud800"), ("bytes", "\u0100"),
        ({"type": "fixed", "name": "F", "size": 2}, "a"), (array("int"), "x"), ({"type": "map", "values": "int"}, []),
        (["null", "int"], "x"), (record(("a", "int")), {}), (record(("a", "int")), 5), ("null", 0),
    ):  # fmt: skip
        with pytest.raises(BadDefault):
            encoded_default(parse_avro(schema), value)
    assert encoded_default(AvroType("double"), 1).hex() == "000000000000f03f"
