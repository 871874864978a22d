"""Records of a batch as columns, and every way in which a batch can be broken."""

import ctypes
import struct

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kafkalog._core.batch.decode import decode
from kafkalog._core.batch.scan import scan
from tests.builder import R, batch, frame, record_body, seal, varint

T = 1_700_000_000_000
payloads = st.none() | st.binary(max_size=40)
headers = st.lists(st.tuples(st.text(max_size=6), payloads), max_size=3)
rows = st.builds(R, payloads, payloads, st.integers(0, 2**45), headers, st.none())


def table_of(data: bytes):
    return decode(data, scan(data))


def broken(records: bytes, count: int = 1) -> str:
    table = table_of(frame(records, count=count, last_delta=max(count - 1, 0), base_timestamp=T, max_timestamp=T))
    assert table.status != 0
    return table.error_text


def record(body: bytes, length: int | None = None) -> bytes:
    return varint(len(body) if length is None else length) + body


@given(st.lists(rows, min_size=1, max_size=20), st.integers(0, 2**50))
def test_round_trip_with_the_plain_encoder(records: list[R], base: int) -> None:
    data = batch(records, base_offset=base)
    table = table_of(data)
    assert table.status == 0
    assert list(table.offsets) == [base + i for i in range(len(records))]
    assert list(table.timestamps) == [r.timestamp for r in records]
    for i, r in enumerate(records):
        assert (table.key(i), table.value(i), table.headers(i)) == (r.key, r.value, tuple(r.headers))
        assert (table[i].key, table[i].value, table[i].headers) == (r.key, r.value, tuple(r.headers))


def test_null_is_not_empty() -> None:
    """REC-1: null key and value read back as null, with no headers."""
    table = table_of(batch([R(None, None), R(b"", b"")]))
    assert (table.key(0), table.value(0), table.headers(0)) == (None, None, ())
    assert list(table.key_sizes) == [-1, 0]
    assert list(table.value_sizes) == [-1, 0]
    assert (table.key(1), table.value(1)) == (b"", b"")


def test_headers_keep_null_empty_duplicates_and_order() -> None:
    """REC-2."""
    wanted = (("a", None), ("b", b""), ("a", b"1"), ("a", None))
    assert table_of(batch([R(b"v", headers=wanted)])).headers(0) == wanted


def test_header_key_of_negative_length() -> None:
    """REC-3."""
    body = b"\0" + varint(0) + varint(0) + varint(-1) + varint(-1) + varint(1) + varint(-1) + varint(-1)
    assert "header key" in broken(record(body))


def test_length_beyond_the_buffer() -> None:
    """REC-4."""
    good = record_body(R(b"v"), T, 0)
    assert "length" in broken(record(good, len(good) + 1))
    assert "length" in broken(record(good, 2**31 - 1))
    assert "length" in broken(record(good, -1))


def test_length_that_the_fields_do_not_fill() -> None:
    """REC-5."""
    good = record_body(R(b"v"), T, 0)
    assert broken(record(good + b"\0", len(good) + 1)) == "a record's fields do not fill its length"
    assert broken(record(good, len(good) - 1) + b"")


@pytest.mark.parametrize("count", [-1, 1000, 2**31 - 1])
def test_header_count(count: int) -> None:
    """REC-6: negative, or more than the bytes left; nothing of that size is allocated."""
    body = b"\0" + varint(0) + varint(0) + varint(-1) + varint(-1) + varint(count)
    assert "header count" in broken(record(body))


@pytest.mark.parametrize("field", ["key", "value", "header value"])
def test_lengths_past_the_end(field: str) -> None:
    """REC-7."""
    head = b"\0" + varint(0) + varint(0)
    body = {
        "key": head + varint(100) + b"k",
        "value": head + varint(-1) + varint(100) + b"v",
        "header value": head + varint(-1) + varint(-1) + varint(1) + varint(1) + b"h" + varint(100),
    }[field]
    assert field in broken(record(body))


def test_endless_varint() -> None:
    """REC-8."""
    assert "variable-length" in broken(b"\x80" * 30)
    assert "variable-length" in broken(record(b"\0" + b"\x80" * 11 + b"\0" * 8))
    assert broken(b"\x80\x80\x80")


def test_declared_count() -> None:
    """REC-9: fewer records than declared, and more."""
    records = record(record_body(R(), T, 0)) + record(record_body(R(), T, 1))
    assert "left after" in broken(records, count=1)
    assert "more records" in broken(records, count=3)
    assert "more records" in broken(records, count=2**31 - 1)
    assert "negative" in broken(records, count=-1)


def test_records_before_the_damage_are_there() -> None:
    data = bytearray(batch([R(b"a"), R(b"b"), R(b"c")]))
    at = data.rindex(b"\x02c\0")
    data[at - 5] = 0x7F  # the length of the last record
    data = seal(bytes(data))
    table = table_of(data)
    assert [r.value for r in table] == [b"a", b"b"]
    assert (table.status != 0, table.error_batch, table.error_record) == (True, 0, 2)
    assert data[table.error_position] == 0x7F


def test_log_append_time_reports_max_timestamp() -> None:
    """REC-18, LOG-77: every record reports it, whatever its delta says."""
    table = table_of(batch([R(timestamp=T), R(timestamp=T + 5)], attributes=8, max_timestamp=T + 99))
    assert list(table.timestamps) == [T + 99, T + 99]
    assert table[0].timestamp_type == 1


def test_delete_horizon_deltas() -> None:
    """REC-20: deltas relative to the horizon may be hugely negative."""
    table = table_of(batch([R(timestamp=5), R(timestamp=7)], attributes=0x40, base_timestamp=2**62))
    assert list(table.timestamps) == [5, 7]


def test_gaps_of_a_compacted_batch() -> None:
    table = table_of(batch([R(b"a", delta=1), R(b"b", delta=5)], base_offset=100, last_delta=9))
    assert list(table.offsets) == [101, 105]
    assert [table.find(n) for n in (100, 101, 102, 105, 106)] == [0, 0, 1, 1, 2]


def test_empty_batch() -> None:
    assert len(table_of(frame(b"", count=0, last_delta=3))) == 0


def test_refused_by_name() -> None:
    assert table_of(batch([R()], attributes=4)).error_text == "the batch is compressed"
    with pytest.raises(ValueError, match="outside"):
        decode(b"", scan(batch([R()])))
    with pytest.raises(IndexError):
        table_of(batch([R()]))[1]


def test_find_timestamp() -> None:
    table = table_of(batch([R(timestamp=t) for t in (5, 9, 7, 9)], base_offset=40))
    assert [table.find_timestamp(t, 0) for t in (0, 5, 6, 9, 10)] == [0, 0, 1, 1, -1]
    assert table.find_timestamp(6, 42) == 2


@settings(max_examples=300)
@given(st.data())
def test_any_change_of_a_sealed_batch_never_crashes(data: st.DataObject) -> None:
    raw = bytearray(batch([R(b"abc", b"k", headers=(("h", b"1"),)), R(None), R(b"x" * 70)]))
    for _ in range(data.draw(st.integers(1, 4))):
        raw[data.draw(st.integers(21, len(raw) - 1))] = data.draw(st.integers(0, 255))
    cut = data.draw(st.integers(61, len(raw)))
    raw = raw[:cut]
    raw[8:12] = struct.pack(">i", cut - 12)
    table = table_of(bytes(seal(bytes(raw))))
    for i in range(len(table)):
        table.key(i), table.value(i), table.headers(i)


def test_memory_of_no_object_is_decoded() -> None:
    """C code makes such views, which have no object that they refer to."""
    data = bytearray(batch([R(b"v")]))
    make_view = ctypes.pythonapi.PyMemoryView_FromMemory
    make_view.restype, make_view.argtypes = ctypes.py_object, (ctypes.c_void_p, ctypes.c_ssize_t, ctypes.c_int)
    held = (ctypes.c_char * len(data)).from_buffer(data)
    view = make_view(ctypes.addressof(held), len(data), 0x100)
    assert [record.value for record in decode(view, scan(view))] == [b"v"]
