"""Varints, one value at a time: round trips, every cut, every overlong form."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kafkalog._core.bytes.varint import (
    decode_uvarint,
    decode_varint,
    decode_varlong,
    encode_uvarint,
    encode_varint,
    encode_varlong,
    size_of_uvarint,
    size_of_varint,
    size_of_varlong,
)

INT32 = st.integers(-(2**31), 2**31 - 1)
INT64 = st.integers(-(2**63), 2**63 - 1)
SMALL = (encode_varint, size_of_varint, decode_varint, 5)
UNSIGNED = (encode_uvarint, size_of_uvarint, decode_uvarint, 5)
LONG = (encode_varlong, size_of_varlong, decode_varlong, 10)


@pytest.mark.parametrize(("encode", "size_of", "decode", "longest"), [SMALL, UNSIGNED])
@given(value=INT32)
def test_32_bit_values_come_back(encode, size_of, decode, longest, value) -> None:
    data = encode(value)
    assert len(data) == size_of(value) <= longest
    assert decode(data) == (value, len(data))


@given(value=INT64)
def test_64_bit_values_come_back(value: int) -> None:
    data = encode_varlong(value)
    assert len(data) == size_of_varlong(value) <= 10
    assert decode_varlong(data) == (value, len(data))


@given(value=INT32)
def test_a_varint_is_a_varlong_of_the_same_value(value: int) -> None:
    assert encode_varint(value) == encode_varlong(value)


@pytest.mark.parametrize(
    ("value", "data"),
    [(0, "00"), (-1, "01"), (1, "02"), (63, "7e"), (-64, "7f"), (64, "8001"), (-65, "8101")],
)
def test_zigzag_puts_small_magnitudes_in_one_byte(value: int, data: str) -> None:
    assert encode_varint(value).hex() == data


@pytest.mark.parametrize(("encode", "size_of", "decode", "longest"), [SMALL, UNSIGNED, LONG])
def test_one_that_never_ends_is_refused(encode, size_of, decode, longest) -> None:
    """REC-8: the byte after the longest legal form is not read, whatever it is."""
    for tail in (b"", b"\x00", b"\xff" * 20):
        with pytest.raises(ValueError, match=f"longer than {longest} bytes"):
            decode(b"\x80" * longest + tail)


@pytest.mark.parametrize(("encode", "size_of", "decode", "longest"), [SMALL, UNSIGNED, LONG])
def test_one_cut_off_at_any_byte_is_refused(encode, size_of, decode, longest) -> None:
    whole = encode(-(2**31))
    assert len(whole) == 5
    for length in range(5):
        with pytest.raises(EOFError, match="position 3"):
            decode(b"\x00\x00\x00" + whole[:length], 3)


def test_decoding_starts_at_a_position_and_tells_the_next() -> None:
    data = bytearray(encode_varint(300) + encode_varlong(-(2**40)) + encode_uvarint(7))
    first, at = decode_varint(data)
    second, at = decode_varlong(memoryview(data), at)
    third, at = decode_uvarint(data, at)
    assert (first, second, third, at) == (300, -(2**40), 7, len(data))


@pytest.mark.parametrize("position", [-1, 3, 2**62])
def test_a_position_outside_the_data_is_refused(position: int) -> None:
    with pytest.raises(ValueError, match="outside the 2 bytes"):
        decode_varint(b"\x00\x00", position)


@pytest.mark.parametrize(("encode", "size_of", "decode", "longest"), [SMALL, UNSIGNED, LONG])
def test_values_too_wide_and_things_that_are_no_numbers_are_refused(encode, size_of, decode, longest) -> None:
    limit = 2**63 if longest == 10 else 2**31
    for value in (limit, -limit - 1, 2**100):
        with pytest.raises(OverflowError):
            encode(value)
        with pytest.raises(OverflowError):
            size_of(value)
    with pytest.raises(TypeError):
        encode("1")
    with pytest.raises(TypeError):
        decode("1")
