"""Messages written by schema: what a reader gives is written again, and what does not fit is refused by name."""

from random import Random
from typing import Any

import pytest

from kafkalog.errors import IllegalArgument
from kafkalog.records.encoder import encoded
from kafkalog.records.message import Source
from kafkalog.records.schema import Schema, schemas
from kafkalog.records.schemas import consumer_protocol, control, groups, metadata, remote_log, share_state, transactions
from tests.messages import message

FAMILIES = (
    groups.KEYS, groups.VALUES, transactions.KEYS, transactions.VALUES, share_state.KEYS, share_state.VALUES,
    metadata.RECORDS, remote_log.RECORDS, control.VALUES,
)  # fmt: skip
SCHEMAS = [
    *(schema for family in FAMILIES for schema in family.values()),
    consumer_protocol.SUBSCRIPTION,
    consumer_protocol.ASSIGNMENT,
]
ODD = schemas("""\
Odd 0 0-2 flexible 1+
    flag bool
    ratio f64
    note string?
    data bytes?
    both {}? 1+
        one i8
    late u32 2+
    tail {}? 1+ tag 3 = null
        one i8
    count i16 1+ tag 1 = 4
""")["Odd"]
SOUND: dict[str, Any] = {"flag": True, "ratio": 0.5, "note": None, "data": b"\0", "both": None, "late": 2**32 - 1}


@pytest.mark.parametrize("schema", SCHEMAS, ids=lambda schema: schema.name)
def test_what_was_read_is_written_again(schema: Schema) -> None:
    """Once defaults and unknown tags are gone, to the byte."""
    random = Random(schema.name)
    for version in range(schema.lowest, schema.highest + 1):
        for _ in range(20):
            found = schema.read(Source(message(schema, version, random)), version)
            data = encoded(schema, found, version)
            source = Source(data)
            again = schema.read(source, version)
            assert repr(again) == repr(found)  # as text: NaN differs from itself
            assert source.left == 0
            assert encoded(schema, again, version) == data


@pytest.mark.parametrize("more", [{}, {"both": {"one": -1}}, {"tail": {"one": 5}}, {"count": 5, "tail": {"one": 0}}])
def test_structs_that_may_be_null_and_tags(more: dict[str, Any]) -> None:
    given = SOUND | more
    assert ODD.read(Source(encoded(ODD, given, 2)), 2) == given


def test_bytes() -> None:
    """Sizes plus one, tags in their order, a tagged field with its default left out (KIP-482)."""
    given = {**SOUND, "note": "é", "both": {"one": 1}, "count": 4, "tail": {"one": 2}}
    assert encoded(ODD, given, 2) == bytes.fromhex("01 3fe0000000000000 03c3a9 0200 010100 ffffffff 01 03 03 030200")
    plain = {"flag": False, "ratio": 0, "note": "n", "data": None}
    assert encoded(ODD, plain, 0) == bytes.fromhex("00 0000000000000000 0001 6e ffffffff")


@pytest.mark.parametrize(
    ("change", "version", "words"),
    [
        ({}, 3, "no version 3"),
        ({}, 1, "no field 'late' in version 1"),
        ({"nope": 1}, 2, "no field 'nope'"),
        ({"ratio": None}, 2, "ratio cannot be null"),
        ({"ratio": "1"}, 2, "ratio is a str: give a number"),
        ({"late": 1.5}, 2, "late is a float: give a number"),
        ({"late": -1}, 2, "late is -1, which does not fit the type u32"),
        ({"note": b"n"}, 2, "note is a bytes: give a str"),
        ({"note": "x" * 32768}, 2, "note has 32768 bytes"),
        ({"data": "d"}, 2, "data is a str: give bytes"),
        ({"both": {}}, 2, "both needs the field 'one'"),
        ({"tail": {"one": 128}}, 2, "one is 128, which does not fit"),
    ],
)
def test_what_does_not_fit(change: dict[str, Any], version: int, words: str) -> None:
    with pytest.raises(IllegalArgument, match=words):
        encoded(ODD, SOUND | change, version)


def test_a_field_that_is_missing() -> None:
    with pytest.raises(IllegalArgument, match="Odd needs the field 'late'"):
        encoded(ODD, {name: value for name, value in SOUND.items() if name != "late"}, 2)


def test_arrays_that_are_null() -> None:
    schema = schemas("Many 0 0-1 flexible 1+\n    values [i32]?\n")["Many"]
    assert encoded(schema, {"values": None}, 0) == b"\xff" * 4
    assert encoded(schema, {"values": None}, 1) == b"\0\0"
