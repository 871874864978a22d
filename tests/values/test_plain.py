"""Text, UUIDs, booleans and numbers as Kafka's serializers write them."""

import struct
import uuid

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kafkalog import values
from kafkalog.decoders import DecodeError, decoder
from kafkalog.errors import IllegalArgument

pa = pytest.importorskip("pyarrow", reason="the extra `arrow` is not installed")

CODES = {
    "int8": "b", "int16": "h", "int32": "i", "int64": "q", "uint8": "B", "uint16": "H", "uint32": "I", "uint64": "Q",
    "float": "f", "double": "d", "boolean": "?",
}  # fmt: skip


@pytest.mark.parametrize("name", [*CODES, "uuid"])
@given(row=st.binary(max_size=9) | st.uuids().map(lambda one: str(one).encode()))
def test_a_single_value_decodes_as_a_column_of_it(name: str, row: bytes) -> None:
    found = values.decoder(name).decode(pa.array([row]))
    try:
        assert repr(decoder(name)(row)) == repr(found.values[0].as_py())
        assert found.failed == 0
    except DecodeError as error:
        assert found.errors is not None and found.errors[0].as_py() == error.message


@pytest.mark.parametrize("name", CODES)
@given(data=st.data())
def test_a_number_is_big_endian_and_exactly_its_size(name: str, data: st.DataObject) -> None:
    size = struct.calcsize(f">{CODES[name]}")
    some = st.binary(min_size=size, max_size=size)
    if name == "boolean":
        some = st.sampled_from([b"\0", b"\1"])
    rows = data.draw(st.lists(st.none() | some | st.binary(max_size=9).filter(lambda b: len(b) != size), max_size=20))
    found = values.decoder(name).decode(pa.array(rows, pa.binary()))
    found.values.validate(full=True)
    wanted = [struct.unpack(f">{CODES[name]}", row)[0] if row and len(row) == size else None for row in rows]
    assert list(map(repr, found.values.to_pylist())) == list(map(repr, wanted))
    bad = [row is not None and len(row) != size for row in rows]
    errors = [None] * len(rows) if found.errors is None else found.errors.to_pylist()
    assert [error is not None for error in errors] == bad
    assert found.failed == sum(bad)
    for row, error in zip(rows, errors, strict=True):
        assert error is None or error == f"it takes {size} bytes, and there are {len(row or b'')}"


@given(st.lists(st.none() | st.binary(max_size=40) | st.text(max_size=20).map(str.encode), max_size=20))
def test_text_is_checked_as_python_does(rows: list[bytes | None]) -> None:
    found = values.decoder("string").decode(pa.array(rows, pa.binary()))
    found.values.validate(full=True)

    def text(row: bytes | None) -> str | None:
        try:
            return None if row is None else row.decode()
        except UnicodeDecodeError:
            return None

    assert found.values.to_pylist() == list(map(text, rows))
    assert found.failed == sum(row is not None and text(row) is None for row in rows)


def test_uuids_are_text_of_36_characters() -> None:
    good = uuid.UUID(int=0xABCDEF0123456789ABCDEF0123456789)
    rows = [str(good).encode(), str(good).upper().encode(), None, good.hex.encode(), b"g" + str(good).encode()[1:], b""]
    found = values.decoder("uuid").decode(pa.array(rows, pa.binary()))
    assert found.values.to_pylist() == [str(good), str(good).upper(), None, None, None, None]
    assert found.errors is not None and found.errors[5].as_py() == "it is not a UUID of 36 characters"


@pytest.mark.parametrize("kind", [pa.binary(), pa.large_binary(), pa.binary_view(), pa.string(), pa.string_view()])
def test_every_layout_of_bytes_is_read(kind: "pa.DataType") -> None:
    rows = ["ab", None, "a longer value that lies outside of its view", ""]
    column = pa.array([row if row is None or pa.types.is_string(kind) else row for row in rows], pa.string()).cast(kind)
    found = values.decoder("string").decode(column.slice(1))
    assert found.values.to_pylist() == rows[1:]


def test_bytes_are_the_column_itself() -> None:
    column = pa.array([b"a", None])
    found = values.decoder("bytes").decode(column)
    assert found.values.equals(column) and found.errors is None and found.failed == 0


def test_what_is_no_column_of_bytes_is_refused() -> None:
    for column in (pa.array([1]), pa.array([["a"]]), [b"a"], pa.array(["a"]).dictionary_encode()):
        with pytest.raises(IllegalArgument, match="cannot be decoded"):
            values.decoder("string").decode(column)
    with pytest.raises(IllegalArgument, match="the decoders are"):
        values.decoder("strin")
    with pytest.raises(IllegalArgument, match="schema"):
        values.decoder("string", schema="x")


def test_a_column_larger_than_the_limit_is_refused() -> None:
    column = pa.array([b"x" * 1000] * 100)
    with pytest.raises(IllegalArgument, match="more than 65536 bytes"):
        values.decoder("string", most_bytes=65536).decode(column)
    found = values.decoder("string", most_bytes=65536).decode(pa.array([b"a", b"x" * 100_000, b"b"]))
    assert found.values.to_pylist() == ["a", None, "b"]
    assert found.failed == 1


def test_options_that_a_decoder_does_not_take() -> None:
    for name in ("bytes", "int64"):
        with pytest.raises(IllegalArgument, match=f"the decoder {name} does not take that"):
            values.decoder(name, schema="{}")
