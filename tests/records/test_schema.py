"""Messages by schema table: the notation, the formats of KIP-482, and what damaged bytes give (DUMP-4)."""

import struct
from random import Random
from typing import Any

import pytest

from kafkalog.records.message import MessageError, Source
from kafkalog.records.schema import Message, Schema, schemas
from kafkalog.records.schemas import consumer_protocol, control, groups, metadata, remote_log, share_state, transactions
from tests.builder import uvarint
from tests.messages import cut_and_changed, message

TABLE = """
    # a comment
struct Pair
    left i8
    right i16
Thing 7 0-3 flexible 2+
    id i32
    name string
    label string? 1+
    pair Pair
    pairs [Pair]     # many
    maybe {}? 2+
        on bool
    data bytes?
    old u16 1
    far i64 2+ tag 0 = -1
    lists [i32]? 3+ tag 2 = null
    inner {}? 2+ tag 5
        n u32
    late string 3+ tag 1
"""
THING = schemas(TABLE)["Thing"]
ALL = [
    *groups.KEYS.values(),
    *groups.VALUES.values(),
    *transactions.VALUES.values(),
    *share_state.VALUES.values(),
    *metadata.RECORDS.values(),
    *remote_log.RECORDS.values(),
    *control.VALUES.values(),
    consumer_protocol.SUBSCRIPTION,
    consumer_protocol.ASSIGNMENT,
]


def read(data: bytes, version: int, schema: Schema = THING) -> Message:
    source = Source(data)
    found = schema.read(source, version)
    assert source.left == 0
    return found


def text16(value: bytes | None) -> bytes:
    return b"\xff\xff" if value is None else struct.pack(">h", len(value)) + value


FIXED = struct.pack(">i", 5) + text16(b"n")
PAIR = b"\x01\x00\x02"


def test_versions_before_the_flexible_ones() -> None:
    pairs = struct.pack(">i", 2) + PAIR * 2
    expected: Message = {"id": 5, "name": "n", "pair": {"left": 1, "right": 2}, "pairs": [{"left": 1, "right": 2}] * 2}
    assert read(FIXED + PAIR + pairs + struct.pack(">i", -1), 0) == expected | {"data": None}
    first = read(FIXED + text16(None) + PAIR + struct.pack(">i", 0) + struct.pack(">i", 1) + b"x\xff\xff", 1)
    assert first == expected | {"label": None, "pairs": [], "data": b"x", "old": 65535}
    assert list(first) == ["id", "name", "label", "pair", "pairs", "data", "old"]


FLEXIBLE = struct.pack(">i", 5) + b"\x02n" + b"\0" + PAIR + b"\0" + b"\x01" + b"\xff" + b"\0"


def test_flexible_versions() -> None:
    plain = {"id": 5, "name": "n", "label": None, "pair": {"left": 1, "right": 2}, "pairs": []}
    assert read(FLEXIBLE + b"\0", 2) == plain | {"maybe": None, "data": None}
    tags = [
        (0, struct.pack(">q", 9)),
        (2, b"\x02" + struct.pack(">i", 4)),
        (5, uvarint(6) + struct.pack(">I", 2**32 - 1) + b"\0"),
        (1, b"\x05late"),
        (77, b"unknown"),
    ]
    data = FLEXIBLE + uvarint(len(tags)) + b"".join(uvarint(t) + uvarint(len(v)) + v for t, v in tags)
    found = read(data, 3)
    tagged = {"far": 9, "lists": [4], "inner": {"n": 2**32 - 1}, "late": "late"}
    assert found == plain | {"maybe": None, "data": None} | tagged
    assert list(found)[-4:] == ["far", "lists", "inner", "late"], "in the order of the table, not of the tags"


@pytest.mark.parametrize("there", [0, 1])
def test_a_struct_that_may_be_null_is_there_behind_a_byte_that_is_not_below_zero(there: int) -> None:
    data = FLEXIBLE[:-2] + struct.pack(">b", there) + b"\1\0" + FLEXIBLE[-1:]
    assert read(data + b"\0", 2)["maybe"] == {"on": True}


@pytest.mark.parametrize(
    ("tag", "value", "given"),
    [
        (0, struct.pack(">q", -1), None),
        (2, b"\0", None),
        (2, b"\x01", ("lists", [])),
        (5, b"\0", ("inner", None)),
        (5, uvarint(6) + struct.pack(">I", 0) + b"\0", None),
        (1, b"\x01", None),
    ],
)
def test_tagged_fields_with_their_default_are_left_out(tag: int, value: bytes, given: tuple[str, Any] | None) -> None:
    found = read(FLEXIBLE + b"\x01" + uvarint(tag) + uvarint(len(value)) + value, 3)
    extra = {name: found[name] for name in ("far", "lists", "inner", "late") if name in found}
    assert extra == (dict([given]) if given else {})


def test_a_tag_of_another_version_is_refused() -> None:
    with pytest.raises(MessageError, match="Tag 1 is not valid for version 2"):
        read(FLEXIBLE + b"\x01\x01\x01\x01", 2)


@pytest.mark.parametrize(
    ("data", "version", "message"),
    [
        (FIXED, 0, "null"),
        (struct.pack(">ih", 5, -1), 0, "non-nullable field name was serialized as null"),
        (struct.pack(">ih", 5, 9) + b"ab", 0, "Error reading byte array of 9 byte(s): only 2 byte(s) available"),
        (
            FIXED + PAIR + struct.pack(">i", 2**31 - 1),
            0,
            "Tried to allocate a collection of size 2147483647, but there are only 0 bytes remaining.",
        ),
        (FIXED + PAIR + struct.pack(">i", -1), 0, "non-nullable field pairs was serialized as null"),
        (struct.pack(">i", 5) + uvarint(0x8001) + bytes(0x8000), 2, "string field name had invalid length 32768"),
        (
            struct.pack(">i", 5) + b"\xff" * 6,
            2,
            "Varint is too long, the most significant bit in the 5th byte is set, converted value: ffffffff",
        ),
        (FLEXIBLE + b"\x01\x4d" + b"\xff\xff\xff\xff\x0f", 2, "-1"),
    ],
)
def test_damage_is_told_in_the_words_of_the_reference(data: bytes, version: int, message: str) -> None:
    with pytest.raises(MessageError) as caught:
        read(data, version)
    assert caught.value.message == message


def test_malformed_text_is_replaced_as_java_does() -> None:
    name = text16(b"\xed\xa0\x80\xff")
    assert read(struct.pack(">i", 5) + name + PAIR + bytes(4) + b"\xff" * 4, 0)["name"] == "\ufffd\ufffd"


def test_other_versions_than_those_known() -> None:
    plain = FLEXIBLE.replace(PAIR + b"\0\x01", PAIR + b"\0\x01") + b"\0"
    assert read(FIXED + PAIR + bytes(4) + b"\xff" * 4, -1) == read(FIXED + PAIR + bytes(4) + b"\xff" * 4, 0)
    with pytest.raises(MessageError, match="a struct of a newer version"):
        read(plain, 4)


@pytest.mark.parametrize("line", ["Thing 7", "Thing 7 0\n    x", "Thing 7 0\n    x no_such_type", "Thing 7 0\n  a [i8"])
def test_a_table_that_says_nothing_is_a_mistake(line: str) -> None:
    with pytest.raises(ValueError):
        schemas(line)


@pytest.mark.parametrize("schema", ALL, ids=lambda schema: schema.name)
def test_every_table_reads_what_it_describes(schema: Schema) -> None:
    random = Random(schema.name)
    for version in range(schema.lowest, schema.highest + 1):
        for _ in range(20):
            found = read(message(schema, version, random), version, schema)
            here = [f.name for f in schema.fields if f.first <= version <= f.last]
            assert [name for name in here if name in found] == list(found)
            assert {f.name for f in schema.fields if f.tag is None and f.name in here} <= set(found)


@pytest.mark.parametrize("schema", ALL, ids=lambda schema: schema.name)
def test_damaged_messages_are_read_or_refused(schema: Schema) -> None:
    random = Random(schema.name)
    for _ in range(60):
        version = random.randint(schema.lowest, schema.highest)
        data = cut_and_changed(message(schema, version, random), random)
        try:
            schema.read(Source(data), version)
        except MessageError:
            continue


def test_numbers_of_the_tables_are_theirs() -> None:
    for family in (groups, transactions, share_state):
        assert family.KEYS.keys() == family.VALUES.keys()
        assert all(key.flexible_from > 100 for key in family.KEYS.values()), "keys are never flexible"
    for records in (metadata.RECORDS, remote_log.RECORDS):
        assert all(schema.flexible_from == 0 for schema in records.values())


def test_a_tagged_field_of_a_later_version_is_refused() -> None:
    schema = schemas("Late 0 0-2 flexible 1+\n    count i16 2+ tag 2 = 4\n")["Late"]
    data = b"\1\2\2\0\7"
    assert schema.read(Source(data), 2) == {"count": 7}
    with pytest.raises(MessageError, match="Tag 2 is not valid for version 1"):
        schema.read(Source(data), 1)
