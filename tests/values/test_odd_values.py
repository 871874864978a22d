"""Values that are rare and right: huge exponents, keys that come twice, defaults of many items, text as bytes."""

import struct
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kafkalog import values
from kafkalog._core.values.decimal_text import to_double, to_int64
from kafkalog.errors import IllegalArgument
from kafkalog.values.avro_default import long_bytes


@pytest.mark.parametrize(
    ("text", "number"),
    [
        (b"0." + b"0" * 999_999 + b"1e1000000", 1.0), (b"1" + b"0" * 1_000_000 + b"e-1000000", 1.0),
        (b"-0." + b"0" * 100_001 + b"25e+100004", -250.0), (b"5e-1000000", 0.0), (b"5e1000000", None),
        (b"5e-" + b"9" * 400, 0.0), (b"-5e" + b"9" * 400, None), (b"0e" + b"9" * 400, 0.0),
        (b"1e" + b"0" * 1000 + b"2", 100.0),
    ],
)  # fmt: skip
def test_exponents_of_many_digits(text: bytes, number: float | None) -> None:
    assert to_double(text) == number
    whole = None if number is None or text.startswith(b"5") else int(number)
    assert to_int64(text) == whole


ROWS = st.lists(st.lists(st.tuples(st.sampled_from("abc"), st.integers(-9, 9)), max_size=20), max_size=5)


@settings(deadline=None)
@given(ROWS, st.integers(1, 20))
def test_of_an_avro_map_s_keys_the_last_counts(rows: list[list[tuple[str, int]]], block: int) -> None:
    def written(pairs: list[tuple[str, int]]) -> bytes:
        made = b""
        for start in range(0, len(pairs), block):
            part = pairs[start : start + block]
            made += long_bytes(len(part))
            made += b"".join(long_bytes(1) + key.encode() + long_bytes(value) for key, value in part)
        return made + b"\0"

    decoder = values.decoder("avro", schema={"type": "map", "values": "long"})
    found = decoder.decode(pa.array([written(pairs) for pairs in rows], pa.binary()))
    found.values.validate(full=True)
    assert [dict(one) for one in found.values.to_pylist()] == [dict(pairs) for pairs in rows]
    assert [len(one) for one in found.values.to_pylist()] == [len(dict(pairs)) for pairs in rows]


def test_an_avro_map_with_the_same_key_twice() -> None:
    decoder = values.decoder("avro", schema={"type": "map", "values": "long"})
    found = decoder.decode(pa.array([bytes.fromhex("04026102 02610400".replace(" ", ""))]))
    assert found.values.to_pylist() == [[("a", 2)]]


def record(*fields: dict[str, Any]) -> dict[str, Any]:
    return {"type": "record", "name": "I", "fields": list(fields)}


def test_items_of_a_default_are_not_those_of_the_value() -> None:
    nulls = {"type": "array", "items": "null"}
    a, d = {"name": "a", "type": nulls}, {"name": "d", "type": nulls, "default": [None] * 3}
    schema = {"type": "array", "items": record(a, d)}
    decoder = values.decoder("avro", schema=schema, writer={"type": "array", "items": record(a)}, most_items=2)
    row = long_bytes(100) + b"\0" * 100 + b"\0"
    found = decoder.decode(pa.array([row, b"\4\2\0\2\0\0", b"\4\2\0\4\0\0"]))
    assert found.values[0].as_py() == [{"a": [], "d": [None] * 3}] * 100
    assert found.values[1].as_py() == [{"a": [None], "d": [None] * 3}] * 2
    assert found.failed == 1 and found.errors is not None and "limit for items" in found.errors[2].as_py()


@pytest.mark.parametrize("kind", [pa.string(), pa.large_string(), pa.string_view(), pa.binary(), pa.large_binary()])
def test_records_of_internal_topics_in_columns_of_text(kind: pa.DataType) -> None:
    rows = pa.array([b"abc", None, b"\0\0\0\3app"]).cast(kind)
    found = values.decoder("transaction", part="key").decode(rows)
    assert found.values.to_pylist()[2] == {"TransactionLogKey": {"transactionalId": "app"}}
    assert found.failed == 1 and found.values.null_count == 2
    keys = pa.array([b"\0\0" + struct.pack(">h", 3) + b"app"]).cast(kind)
    single = values.decoder("transaction").decode(pa.array([b"a"]).cast(kind), keys)
    assert single.failed == 1
    with pytest.raises(IllegalArgument, match="needs the keys"):
        values.decoder("transaction").decode(rows)
