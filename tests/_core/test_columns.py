"""Batches made into columns: the same records as decoded one by one, in pieces of bounded size; damage at its place."""

import struct
import threading
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kafkalog._core.arrow.column_builder import STATUS_TEXT, ColumnBuilder
from kafkalog._core.arrow.columns import KIND_NAMES, Columns, gathered
from kafkalog._core.arrow.memory import MOST_KEPT_BYTES, kept_bytes
from kafkalog._core.batch.decode import decode
from kafkalog._core.batch.encode import encode_batch
from kafkalog._core.batch.legacy import MessageSet
from kafkalog._core.batch.scan import scan
from tests.arrow_readers import ALL, Given, Stream, as_tuples, checked, columns_of, pieces_of, records_of
from tests.builder import R, batch, frame, seal

T = 1_700_000_000_000
KEY, VALUE, TOPIC, PARTITION, OFFSET, TIMESTAMP, TYPE, HEADERS = range(8)
payloads = st.none() | st.binary(max_size=40)
headers = st.lists(st.tuples(st.text(max_size=6), payloads), max_size=3)
rows = st.builds(R, payloads, payloads, st.integers(0, 2**45), headers, st.none())
batches = st.lists(st.lists(rows, min_size=1, max_size=12), min_size=1, max_size=4)


def laid(lists: list[list[R]], attributes: int = 0) -> bytes:
    """One batch for each list, offsets one after the other."""
    data, base = b"", 0
    for records in lists:
        data += batch(records, base_offset=base, attributes=attributes)
        base += len(records)
    return data


def plain(columns: Columns) -> dict[str, list[Any]]:
    return {KIND_NAMES[kind]: columns.values(kind, 0, len(columns)) for kind in columns.kinds}


def rows_of(columns: Columns) -> list[tuple[Any, ...]]:
    got = plain(columns)
    return list(zip(*(got[name] for name in ("offset", "timestamp", "key", "value", "headers")), strict=True))


@given(batches, st.integers(1, 15), st.integers(1, 200))
@settings(deadline=None, max_examples=50)
def test_columns_hold_what_the_records_hold(lists: list[list[R]], most_rows: int, most_bytes: int) -> None:
    data = laid(lists)
    pieces = pieces_of(data, topic=b"t", partition=7, most_rows=most_rows, most_bytes=most_bytes)
    columns = gathered(pieces, ALL)
    wanted = as_tuples(decode(data, scan(data)))
    got = plain(columns)
    assert rows_of(columns) == wanted
    assert records_of(checked(Stream(columns))) == wanted
    assert set(got["topic"]) == {"t"} and set(got["partition"]) == {7} and set(got["timestampType"]) == {0}
    for piece in pieces:
        assert len(piece) <= most_rows
        assert len(piece) == 1 or bytes_in(piece) <= most_bytes


@given(batches, st.sets(st.integers(0, 11), max_size=4), st.integers(1, 15), st.integers(1, 200), st.booleans())
@settings(deadline=None, max_examples=50)
def test_only_values_beside_chosen_keys_are_copied(
    lists: list[list[R]], numbers: set[int], most_rows: int, most_bytes: int, has_headers: bool
) -> None:
    """Whatever the pieces; null stays null."""
    if not has_headers:  # the sweep takes these
        lists = [[record._replace(headers=[]) for record in records] for records in lists]
    data = laid(lists)
    records = decode(data, scan(data))
    some = {b"", *(record.key for n, record in enumerate(records) if n in numbers and record.key is not None)}
    builder = ColumnBuilder(ALL, topic=b"t", most_rows=most_rows, most_bytes=most_bytes, chosen=(*some,))
    table, row, pieces = scan(data), 0, []
    while row < len(table):
        row = builder.feed(data, table, row)
        if builder.full:
            pieces.append(builder.take())
    pieces.append(builder.take())
    wanted = [
        (offset, time, key, value if key in some or value is None else b"", headers)
        for offset, time, key, value, headers in as_tuples(records)
    ]
    assert rows_of(gathered(pieces, ALL)) == wanted
    alone = ColumnBuilder(bytes([VALUE]), chosen=(*some,))
    alone.feed(data, table)
    assert alone.take().values(VALUE, 0, len(wanted)) == [row[3] for row in wanted]
    with pytest.raises(TypeError):
        ColumnBuilder(ALL, chosen=("text",))  # type: ignore[arg-type]


def bytes_in(piece: Columns) -> int:
    found = plain(piece)
    sizes = [len(v or b"") for v in (*found["key"], *found["value"])]
    return sum(sizes) + sum(len(k.encode()) + len(v or b"") for row in found["headers"] for k, v in row)


@given(batches, st.sets(st.integers(0, 7), min_size=1))
@settings(deadline=None, max_examples=50)
def test_some_columns_are_the_same_as_those_of_all(lists: list[list[R]], some: set[int]) -> None:
    """Without keys, values and headers another path reads the records: it must agree."""
    data = laid(lists)
    kinds = bytes(sorted(some, reverse=True))
    whole = plain(columns_of(data, topic=b"t"))
    assert plain(columns_of(data, kinds, topic=b"t")) == {KIND_NAMES[kind]: whole[KIND_NAMES[kind]] for kind in kinds}


@given(batches, st.integers(-1, 50), st.integers(-1, 50), st.integers(1, 9))
@settings(deadline=None, max_examples=50)
def test_offsets_bound_the_records(lists: list[list[R]], start: int, stop: int, most_rows: int) -> None:
    data = laid(lists)
    for kinds in (ALL, bytes([OFFSET])):
        builder = ColumnBuilder(kinds, start_offset=start, stop_offset=stop, most_rows=most_rows)
        table, got, row = scan(data), [], 0
        while row < len(table) and not builder.ended:
            row = builder.feed(data, table, row)
            if builder.full or builder.ended or row == len(table):
                got += offsets_of(builder.take())
        count = sum(map(len, lists))
        assert got == [n for n in range(count) if start <= n < stop]
        assert builder.ended == (max(start, stop) < count)


def offsets_of(columns: Columns) -> list[int]:
    return columns.values(OFFSET, 0, len(columns))


def test_what_was_given_already_is_passed_over() -> None:
    """A log that was truncated and rewritten may show offsets again that a reader has had."""
    data = laid([[R(b"a"), R(b"b")]])
    builder = ColumnBuilder(bytes([OFFSET, VALUE]))
    for _ in range(3):
        assert builder.feed(data, scan(data)) == 1
    more = batch([R(b"b2", delta=0), R(b"c", delta=1)], base_offset=1)
    builder.feed(more, scan(more))
    assert plain(builder.take()) == {"offset": [0, 1, 2], "value": [b"a", b"b", b"c"]}
    every = ColumnBuilder(bytes([VALUE]), every=True)
    every.feed(data + more, scan(data + more))
    assert plain(every.take()) == {"value": [b"a", b"b", b"b2", b"c"]}


def test_log_append_time_and_formats() -> None:
    """REC-19, REC-38: LogAppendTime is the batch's time, v0 has none, v1 its own; each is in timestampType."""
    old, older = MessageSet(1), MessageSet(0)
    old.append(2, T + 1, b"k", b"v")
    older.append(3, -1, None, b"v0")
    data = batch([R(b"a", timestamp=T)], attributes=8, max_timestamp=T + 9) + batch([R(b"b")], base_offset=1)
    data += bytes(old.build()) + bytes(older.build())
    got = plain(columns_of(data))
    assert got["timestamp"] == [T + 9, T, T + 1, -1]
    assert got["timestampType"] == [1, 0, 0, -1]
    assert got["key"] == [None, None, b"k", None] and got["value"] == [b"a", b"b", b"v", b"v0"]


def test_null_and_empty_and_huge() -> None:
    """REC-1; a value longer than a piece may have makes a piece of its own."""
    data = laid([[R(None, None), R(b"", b""), R(b"x" * 5000, b"k"), R(b"y", b"k")]])
    pieces = pieces_of(data, most_bytes=100)
    assert [len(piece) for piece in pieces] == [2, 1, 1]
    got = checked(Stream(gathered(pieces, ALL)))
    assert got["key"].to_pylist() == [None, b"", b"k", b"k"]
    assert got["value"].to_pylist() == [None, b"", b"x" * 5000, b"y"]
    assert got["value"].null_count == 1


def test_many_rows_make_more_room_and_nulls_stay_where_they_are() -> None:
    """More rows than a builder makes room for at first, nulls before and after it grows."""
    values = [None if i % 7 == 3 else b"v%d" % i for i in range(3000)]
    lists = [[R(value, None if i % 11 else b"k")] for i, value in enumerate(values)]
    data = laid(lists)
    builder = ColumnBuilder(ALL)
    table = scan(data)
    for row in range(len(table)):
        builder.feed(data, table, row, row + 1)
    columns = builder.take()
    assert plain(columns)["value"] == values
    assert checked(Stream(columns))["value"].to_pylist() == values


def test_header_names_that_are_no_utf8_become_text() -> None:
    """Arrow text must be UTF-8: what is malformed is U+FFFD, as the reference shows it."""
    bad = b"\0" + b"\0\0" + b"\x01\x01" + b"\x02" + b"\x06\xff\xfea" + b"\x02b"
    data = frame(bytes([len(bad) * 2]) + bad, count=1, last_delta=0)
    columns = columns_of(data)
    assert plain(columns)["headers"] == [(("\ufffd\ufffda", b"b"),)]
    assert checked(Stream(columns))["headers"].to_pylist() == [[{"key": "\ufffd\ufffda", "value": b"b"}]]


def damaged() -> list[bytes]:
    """Batches with a right checksum and something wrong in their records."""
    good = batch([R(b"v" * 5, b"k", T, [("h", b"x")])] * 3)
    found = []
    for at in range(61, len(good)):
        for change in (1, 0x7F, 0x80, 0xFF):
            data = bytearray(good)
            data[at] ^= change
            found.append(bytes(seal(bytes(data))))
    for count in (2, 4, -1, 2**31 - 1):
        data = bytearray(good)
        data[57:61] = struct.pack(">i", count)
        found.append(bytes(seal(bytes(data))))
    return found


def test_damage_is_found_where_decoding_finds_it() -> None:
    """REC-4 to REC-9: the same status, place and records in front of it as the record table."""
    seen = set()
    for data in damaged():
        table = decode(data, scan(data))
        builder = ColumnBuilder(ALL, every=True)
        builder.feed(data, scan(data))
        assert (builder.status, builder.error_text) == (table.status, table.error_text)
        if table.status:
            assert builder.error_batch == table.error_batch
            assert builder.error_position == table.error_position
            assert builder.error_record == table.error_record
        seen.add(table.status)
        columns = builder.take()
        assert rows_of(columns) == as_tuples(table)
        if len(columns):
            checked(Stream(columns))
        narrow = ColumnBuilder(bytes([OFFSET, TIMESTAMP]), every=True)
        narrow.feed(data, scan(data))
        assert len(narrow.take()) >= len(columns)
    assert len(seen) > 6


def test_compressed_batches_and_unknown_formats_are_refused() -> None:
    for data, text in ((batch([b"a"], attributes=1), "compressed"), (bytes(frame(b"", count=0, last_delta=0)), None)):
        builder = ColumnBuilder(ALL)
        builder.feed(data, scan(data))
        assert (builder.status != 0) == (text is not None)
        assert text is None or text in builder.error_text


def test_a_table_of_another_buffer_is_misuse() -> None:
    data = laid([[R(b"a")] * 5])
    builder = ColumnBuilder(ALL)
    for wrong in (data[:-1], b"", data[61:]):
        with pytest.raises(ValueError, match="outside"):
            builder.feed(wrong, scan(data))
    for base in (1, -1, 2**62, -(2**63)):
        with pytest.raises(ValueError, match="outside"):
            builder.feed(data, scan(data), base_position=base)
    for first, last in ((-1, 1), (2, 1), (5, 9)):
        with pytest.raises(ValueError, match="rows"):
            builder.feed(data, scan(data), first, last)
    assert builder.feed(data, scan(data, base_position=99), base_position=99) == 1
    assert len(builder.take()) == 5


@pytest.mark.parametrize(
    ("kinds", "options"),
    [
        (b"\x08", {}),
        (b"\xff", {}),
        (b"\1\1", {}),
        (ALL, {"most_rows": 0}),
        (ALL, {"most_rows": 2**31}),
        (ALL, {"most_bytes": 0}),
        (ALL, {"most_bytes": 2**31}),
    ],
)
def test_a_builder_that_cannot_be(kinds: bytes, options: dict[str, int]) -> None:
    with pytest.raises(ValueError):
        ColumnBuilder(kinds, **options)


def test_a_long_topic_bounds_the_rows() -> None:
    """The ends of the topic column are 32 bits wide, too."""
    data = laid([[R(b"a")]])
    builder = ColumnBuilder(ALL, topic=b"t" * 2**20, most_rows=2**31 - 2)
    builder.feed(data, scan(data))
    assert builder.take().values(TOPIC, 0, 1) == ["t" * 2**20]


def test_numbers_are_views_of_the_same_memory() -> None:
    data = laid([[R(b"a")] * 10] * 10)
    columns = gathered(pieces_of(data, most_rows=30), ALL)
    offsets = np.asarray(columns.fixed(OFFSET))
    assert offsets.tolist() == list(range(100)) and not offsets.flags.writeable
    assert np.shares_memory(offsets, np.asarray(columns.fixed(OFFSET)))
    assert np.asarray(columns.fixed(TYPE)).dtype == np.int32
    read = checked(Stream(columns))["offset"]
    assert read.to_pylist() == list(range(100))
    addresses = [chunk.buffers()[1].address + 8 * chunk.offset for chunk in read.chunks]
    assert addresses == [offsets.ctypes.data + 8 * n for n in (0, 30, 60, 90)]
    with pytest.raises(ValueError):
        columns.fixed(VALUE)
    del columns
    assert offsets.tolist() == list(range(100))


def test_pieces_read_before_the_numbers_were_made_contiguous_stay() -> None:
    data = laid([[R(b"a")] * 10] * 10)
    columns = gathered(pieces_of(data, most_rows=30), ALL)
    first, stream = columns.piece(1), Stream(columns).__arrow_c_stream__()
    columns.fixed(OFFSET)
    assert first.values(OFFSET, 0, 30) == list(range(30, 60))
    assert checked(Given(stream))["offset"].to_pylist() == list(range(100))


def test_columns_of_nothing() -> None:
    for columns in (gathered([], ALL), ColumnBuilder(ALL).take(), gathered([ColumnBuilder(ALL).take()], ALL)):
        assert len(columns) == 0 and columns.piece_ends == () and columns.nbytes == 0
        assert np.asarray(columns.fixed(OFFSET)).tolist() == []
        assert checked(Stream(columns)).num_rows == 0


def test_rows_and_columns_that_are_not_there() -> None:
    columns = columns_of(laid([[R(b"a")] * 3]), bytes([VALUE, OFFSET]))
    for start, stop in ((-1, 1), (2, 1), (0, 4)):
        with pytest.raises(IndexError):
            columns.values(VALUE, start, stop)
    for call in (
        lambda: columns.values(KEY, 0, 1),
        lambda: columns.fixed(TIMESTAMP),
        lambda: columns.chosen(bytes([KEY])),
        lambda: columns.chosen(bytes([VALUE, VALUE])),
        lambda: gathered([columns], ALL),
    ):
        with pytest.raises(ValueError):
            call()
    for number in (-1, 1):
        with pytest.raises(IndexError):
            columns.piece(number)
    assert plain(columns.chosen(bytes([OFFSET]))) == {"offset": [0, 1, 2]}


def test_two_threads_in_one_builder_are_refused() -> None:
    data = laid([[R(b"v" * 50)] * 500] * 40)
    table = scan(data)
    builder = ColumnBuilder(ALL, every=True)
    refused, done = [], []

    def work() -> None:
        for _ in range(60):
            try:
                builder.feed(data, table)
                done.append(len(builder.take()))
            except RuntimeError as error:
                refused.append(str(error))

    threads = [threading.Thread(target=work) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert all("another thread" in text for text in refused)
    assert done


def test_memory_kept_for_the_next_piece_is_bounded() -> None:
    data = bytes(encode_batch([b"v" * 1000] * 20_000, timestamp=T))
    kept = [columns_of(data, bytes([VALUE]), most_bytes=2 << 20) for _ in range(10)]
    del kept
    assert 0 < kept_bytes() <= MOST_KEPT_BYTES


def test_every_status_has_a_text() -> None:
    assert all(isinstance(text, str) and text for text in STATUS_TEXT.values())


common = st.builds(
    R, st.none() | st.binary(max_size=140), st.binary(max_size=300), st.integers(T, T + 8000), st.just([]), st.none()
)


@given(st.lists(st.lists(common | rows, min_size=1, max_size=90), min_size=1, max_size=4), st.data())
@settings(deadline=None, max_examples=80)
def test_common_records_and_others_in_turn(lists: list[list[R]], data: st.DataObject) -> None:
    """Runs of common records are taken in steps, whatever stands between them and wherever a range ends."""
    raw = laid(lists)
    count = sum(map(len, lists))
    start = data.draw(st.integers(0, count), label="start")
    stop = data.draw(st.integers(start, count), label="stop")
    most_rows = data.draw(st.sampled_from([1, 7, 64, 65, 1000]), label="most_rows")
    most_bytes = data.draw(st.sampled_from([1, 300, 5000, 1 << 20]), label="most_bytes")
    builder = ColumnBuilder(ALL, start_offset=start, stop_offset=stop, most_rows=most_rows, most_bytes=most_bytes)
    got: list[tuple[Any, ...]] = []
    table, row = scan(raw), 0
    while row < len(table) and not builder.ended:
        row = builder.feed(raw, table, row)
        if builder.full or builder.ended or row == len(table):
            got += rows_of(builder.take())
    assert got == [one for one in as_tuples(decode(raw, scan(raw))) if start <= one[0] < stop]
