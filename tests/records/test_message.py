"""The bytes of a message: numbers of any length, sizes next to their limits, the words of what is wrong."""

import base64
import struct

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kafkalog.records.message import MAX_STRING_BYTES, MessageError, Source
from kafkalog.records.schema import schemas
from tests.builder import uvarint

NUMBERS = schemas("""\
Numbers - 0
    a i8
    b bool
    c i16
    d u16
    e i32
    f u32
    g i64
    h f64
""")["Numbers"]
NAMED = schemas("Named - 0-1 flexible 1+\n    data bytes\n    f string\n    id uuid\n")["Named"]
ID = bytes(range(100, 116))


def encode_named(data: bytes, text: bytes, version: int = 1) -> Source:
    if version == 0:
        return Source(struct.pack(">i", len(data)) + data + struct.pack(">h", len(text)) + text + ID)
    return Source(uvarint(len(data) + 1) + data + uvarint(len(text) + 1) + text + ID + b"\0")


def test_numbers_follow_each_other() -> None:
    data = struct.pack(">b?hHiIqd", -2, True, -3, 2**16 - 1, -4, 2**32 - 1, -5, 0.5)
    source = Source(b"--" + data, 2)
    assert list(NUMBERS.read(source, 0).values()) == [-2, True, -3, 2**16 - 1, -4, 2**32 - 1, -5, 0.5]
    assert source.left == 0
    for byte, expected in ((0, False), (1, True), (2, True)):
        assert NUMBERS.read(Source(data[:1] + bytes([byte]) + data[2:]), 0)["b"] is expected
    for end in range(len(data)):
        with pytest.raises(MessageError, match="^null"):
            NUMBERS.read(Source(data[:end]), 0)
    with pytest.raises(struct.error):
        source.i16()


@given(st.integers(0, 2**32 - 1), st.binary(max_size=3))
def test_an_unsigned_varint_is_a_signed_number_of_32_bits(number: int, behind: bytes) -> None:
    data = uvarint(number)
    source = Source(data + behind)
    assert source.uvarint() == (number if number < 2**31 else number - 2**32)
    assert (source.at, source.left) == (len(data), len(behind))


@pytest.mark.parametrize(
    ("data", "number"),
    [
        (b"\x80\x80\x80\x80\0", 0),
        (b"\x81\x80\0", 1),
        (b"\x80\x80\x80\x80\x01", 1 << 28),
        (b"\x80\x80\x80\x80\x08", -(2**31)),
        (b"\xff\xff\xff\xff\x7f", -1),
    ],
)
def test_a_varint_may_be_longer_than_it_needs_to_be(data: bytes, number: int) -> None:
    """And bits above the 32nd do not count, as in the reference."""
    assert Source(data).uvarint() == number


def test_a_varint_of_six_bytes_is_refused() -> None:
    what = "Varint is too long, the most significant bit in the 5th byte is set, converted value: 1fffffff"
    with pytest.raises(MessageError, match=f"^{what}$"):
        Source(b"\xff\xff\xff\xff\x81\x01").uvarint()


@pytest.mark.parametrize("version", [0, 1])
def test_what_is_taken_may_be_all_that_is_left_and_no_more(version: int) -> None:
    source = encode_named(b"cde", b"", version)
    assert NAMED.read(source, version)["data"] == b"cde" and source.left == 0
    assert NAMED.read(encode_named(b"", b"b", version), version)["data"] == b""
    head = struct.pack(">i", 2) if version == 0 else uvarint(3)
    with pytest.raises(MessageError, match=r"^Error reading byte array of 2 byte\(s\): only 1 byte\(s\) available"):
        NAMED.read(Source(head + b"c"), version)


@pytest.mark.parametrize("version", [0, 1])
def test_a_text_has_32767_bytes_at_most(version: int) -> None:
    assert NAMED.read(encode_named(b"", b"x" * MAX_STRING_BYTES, version), version)["f"] == "x" * 32767
    assert NAMED.read(encode_named(b"", b"a\xffb", version), version)["f"] == "a\ufffdb"
    assert NAMED.read(encode_named(b"", "téa π€🎉".encode(), version), version)["f"] == "téa π€🎉"
    with pytest.raises(MessageError, match="^string field f had invalid length 32768"):
        NAMED.read(encode_named(b"", b"x" * (MAX_STRING_BYTES + 1), 1), 1)


def test_a_uuid_is_16_bytes_in_22_characters() -> None:
    source = encode_named(b"", b"")
    text = NAMED.read(source, 1)["id"]
    assert (base64.urlsafe_b64decode(text + "=="), len(text), source.left) == (ID, 22, 0)
    with pytest.raises(MessageError, match="^null"):
        NAMED.read(Source(b"\1\1" + ID[:15]), 1)


def test_an_array_may_have_more_items_than_a_request() -> None:
    schema = schemas("Many - 0\n    values [i8]\n")["Many"]
    found = schema.read(Source(struct.pack(">i", 100_000) + bytes(100_000)), 0)
    assert found == {"values": [0] * 100_000}
