"""Capsules of the Arrow C interfaces: what they hold, who owns it, who releases it and when."""

import ctypes
import gc
import threading
from collections.abc import Iterator
from typing import Any

import polars as pl
import pyarrow as pa
import pytest

from kafkalog._core.arrow import capsules as arrow
from kafkalog._core.arrow.columns import Columns
from kafkalog._core.batch.encode import encode_batch
from tests.arrow_readers import ALL, SCHEMA, Given, Stream, checked, columns_of, pieces_of, records_of
from tests.builder import R, batch

T = 1_700_000_000_000
ROWS = [
    (b"k%d" % i if i % 3 else None, None if i % 5 == 0 else b"v" * i, T + i, [("h", b"x"), ("é", None)][: i % 3])
    for i in range(100)
]
DATA = bytes(encode_batch(ROWS, timestamp=T))


def some(most_rows: int = 33, kinds: bytes = ALL) -> Columns:
    return columns_of(DATA, kinds, topic=b"orders", partition=3, most_rows=most_rows)


class Schema:
    def __init__(self, capsule: Any) -> None:
        self.capsule = capsule

    def __arrow_c_schema__(self) -> Any:
        return self.capsule


class Array:
    def __init__(self, capsules: Any) -> None:
        self.capsules = capsules

    def __arrow_c_array__(self, requested_schema: Any = None) -> Any:
        return self.capsules


class Reading:
    """A stream over an iterator."""

    def __init__(self, source: Any, kinds: bytes = ALL) -> None:
        self.arguments = source, kinds

    def __arrow_c_stream__(self, requested_schema: Any = None) -> Any:
        return arrow.stream_from(*self.arguments, requested_schema)


def resident() -> int:
    """Bytes of this process in memory."""
    with open("/proc/self/statm", encoding="ascii") as file:
        return int(file.read().split()[1]) * 4096


def test_the_schema_is_that_of_spark_s_kafka_source() -> None:
    """Names, order, types; every column nullable, no dictionary."""
    schema = pa.schema(Schema(arrow.schema_of(ALL)))
    assert schema.equals(SCHEMA, check_metadata=True)
    assert checked(Stream(some())).schema.equals(SCHEMA)
    assert all(field.nullable for field in schema)
    assert schema.field("headers").type.value_field.name == "item"
    assert pa.field(Schema(arrow.schema_of(ALL[1:2], True))).equals(pa.field("value", pa.binary()))


@pytest.mark.parametrize("most_rows", [1, 7, 33, 1000])
@pytest.mark.parametrize(("first", "last"), [(0, 100), (0, 1), (99, 100), (10, 77), (33, 66), (34, 34), (100, 100)])
def test_rows_of_a_stream(most_rows: int, first: int, last: int) -> None:
    """Any range of rows, wherever the record batches begin and end; validity is a bit map that begins at the piece."""
    table = checked(Stream(some(most_rows), first, last))
    assert records_of(table) == [(i, t, k, v, tuple(h)) for i, (k, v, t, h) in enumerate(ROWS)][first:last]
    assert set(table["topic"].to_pylist()) <= {"orders"} and set(table["partition"].to_pylist()) <= {3}
    assert pl.DataFrame(Stream(some(most_rows), first, last)).select("offset", "key", "value").rows() == [
        (i, k, v) for i, (k, v, _, _) in enumerate(ROWS)
    ][first:last]


def test_one_column_alone() -> None:
    columns = some(kinds=ALL[7:])
    capsule = arrow.stream_of(columns, 5, 90, alone=True)
    array = pa.chunked_array(Given(capsule))
    array.validate(full=True)
    assert array.type == SCHEMA.field("headers").type
    assert [[(h["key"], h["value"]) for h in row] for row in array.to_pylist()] == [list(row[3]) for row in ROWS[5:90]]


def test_a_record_batch_as_an_array() -> None:
    piece = some().piece(1)
    batch = pa.record_batch(Array(arrow.array_of(piece, 3, 20)))
    batch.validate(full=True)
    assert batch["offset"].to_pylist() == list(range(36, 53))
    with pytest.raises(ValueError, match="4 record batches"):
        arrow.array_of(some(), 0, 1)
    with pytest.raises(ValueError, match="no records"):
        arrow.array_of(columns_of(b""), 0, 0)


def test_rows_that_are_not_there() -> None:
    for first, last in ((-1, 1), (2, 1), (0, 101)):
        with pytest.raises(IndexError):
            arrow.stream_of(some(), first, last)
        with pytest.raises(IndexError):
            arrow.array_of(some(1000), first, last)


WISHES = {
    "large": {"key": pa.large_binary(), "value": pa.large_binary(), "topic": pa.large_string()},
    "views": {"key": pa.binary_view(), "value": pa.binary_view(), "topic": pa.string_view()},
    "times": {"timestamp": pa.timestamp("us", "Europe/Paris")},
    "zone": {"timestamp": pa.timestamp("ms", "+05:30")},
}


@pytest.mark.parametrize("wish", WISHES)
@pytest.mark.parametrize(("first", "last"), [(0, 100), (10, 77), (40, 41)])
def test_a_consumer_is_given_the_form_it_asks_for(wish: str, first: int, last: int) -> None:
    """`requested_schema`: other forms of the same values."""
    fields = [pa.field(field.name, WISHES[wish].get(field.name, field.type)) for field in SCHEMA]
    plain = checked(Stream(some(), first, last))
    table = checked(Stream(some(), first, last), pa.schema(fields))
    assert table.schema.equals(pa.schema(fields))
    assert table.cast(SCHEMA).equals(plain)
    assert records_of(table.cast(SCHEMA)) == records_of(plain)


def test_a_form_that_is_not_the_same_values_is_passed_over() -> None:
    """The interface leaves it to the producer: what it cannot give, it gives as it is."""
    wishes = {"key": pa.string(), "offset": pa.int32(), "timestamp": pa.timestamp("ms"), "topic": pa.binary()}
    asked = pa.schema([(field.name, wishes.get(field.name, field.type)) for field in SCHEMA])
    capsule = arrow.stream_of(some(), 0, 100, asked.__arrow_c_schema__())
    assert pa.RecordBatchReader.from_stream(Given(capsule)).schema.equals(SCHEMA)


@pytest.mark.parametrize(
    "asked",
    [
        pa.schema([]),
        pa.schema(list(SCHEMA)[:3]),
        pa.schema(list(SCHEMA)[::-1]),
        pa.schema([*SCHEMA, pa.field("more", pa.int8())]),
    ],
)
def test_a_schema_with_other_columns_is_refused(asked: pa.Schema) -> None:
    for call in (
        lambda: arrow.stream_of(some(), 0, 1, asked.__arrow_c_schema__()),
        lambda: arrow.array_of(some(1000), 0, 1, asked.__arrow_c_schema__()),
        lambda: arrow.stream_from([], ALL, asked.__arrow_c_schema__()),
    ):
        with pytest.raises(ValueError, match="requested schema"):
            call()


def test_a_requested_schema_that_is_none() -> None:
    for wrong in (1, "schema", object(), arrow.stream_of(some(), 0, 1)):
        with pytest.raises(TypeError):
            arrow.stream_of(some(), 0, 1, wrong)
    used = arrow.schema_of(ALL)
    pa.schema(Schema(used))
    with pytest.raises(ValueError, match="released"):
        arrow.stream_of(some(), 0, 1, used)


def test_a_requested_schema_that_was_not_finished() -> None:
    """A schema has no type until its producer sets it; a column without one asks for nothing."""
    pointer_of = ctypes.pythonapi.PyCapsule_GetPointer
    pointer_of.restype, pointer_of.argtypes = ctypes.c_void_p, (ctypes.py_object, ctypes.c_char_p)
    asked = arrow.schema_of(ALL)
    schema = pointer_of(asked, b"arrow_schema")
    first_child = ctypes.POINTER(ctypes.c_void_p).from_address(schema + 40)[0]
    ctypes.c_void_p.from_address(first_child).value = None
    capsule = arrow.stream_of(some(), 0, 100, asked)
    assert pa.RecordBatchReader.from_stream(Given(capsule)).schema.equals(SCHEMA)
    ctypes.c_void_p.from_address(schema).value = None
    with pytest.raises(ValueError, match="requested schema has no type"):
        arrow.stream_of(some(), 0, 100, asked)
    alone = arrow.schema_of(ALL[:1], True)
    ctypes.c_void_p.from_address(pointer_of(alone, b"arrow_schema")).value = None
    with pytest.raises(ValueError, match="requested schema has no type"):
        arrow.stream_of(some(1000, ALL[:1]), 0, 1, alone, alone=True)


def test_a_capsule_is_consumed_once() -> None:
    capsule = arrow.stream_of(some(), 0, 100)
    assert checked(Given(capsule)).num_rows == 100
    with pytest.raises((ValueError, pa.ArrowInvalid)):
        pa.RecordBatchReader.from_stream(Given(capsule))
    pair = arrow.array_of(some(1000), 0, 100)
    assert pa.record_batch(Array(pair)).num_rows == 100
    with pytest.raises((ValueError, pa.ArrowInvalid)):
        pa.record_batch(Array(pair))


def test_arrays_outlive_all_that_made_them() -> None:
    """A column, moved out of its record batch, alone keeps what it shows."""
    columns = some()
    table = checked(Stream(columns))
    value, headers = table["value"].chunk(2), table["headers"].chunk(1)
    del columns, table
    gc.collect()
    assert value.to_pylist() == [row[1] for row in ROWS[66:99]]
    assert [[(h["key"], h["value"]) for h in row] for row in headers.to_pylist()] == [list(r[3]) for r in ROWS[33:66]]


def test_released_in_other_threads() -> None:
    """Nothing of finished columns needs the GIL: readers in several threads take and drop them at once."""
    columns, wrong = some(7), []

    def work() -> None:
        for _ in range(100):
            table = checked(Stream(columns, 3, 96))
            if table["offset"].to_pylist() != list(range(3, 96)):
                wrong.append(table)

    threads = [threading.Thread(target=work) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not wrong


def test_nothing_is_left_behind() -> None:
    """Unconsumed capsules, abandoned streams, dropped columns: memory does not grow."""
    data = bytes(encode_batch([b"v" * 1000] * 1000, timestamp=T))

    def once() -> None:
        columns = columns_of(data, most_rows=300)
        arrow.schema_of(ALL)
        arrow.stream_of(columns, 0, 1000)
        arrow.array_of(columns.piece(0), 0, 10)
        next(iter(pa.RecordBatchReader.from_stream(Stream(columns))))
        next(iter(pa.RecordBatchReader.from_stream(Reading(iter(pieces_of(data, most_rows=300))))))
        checked(Stream(columns), pa.schema([(f.name, WISHES["views"].get(f.name, f.type)) for f in SCHEMA]))

    for _ in range(20):
        once()
    gc.collect()
    before = resident()
    for _ in range(200):
        once()
    gc.collect()
    assert resident() - before < 40 << 20  # one round takes more than a megabyte


def test_a_stream_that_reads_as_it_goes() -> None:
    asked = []

    def source() -> Iterator[Columns]:
        for number, piece in enumerate(pieces_of(DATA, most_rows=33, topic=b"orders", partition=3)):
            asked.append(number)
            yield piece

    reader = pa.RecordBatchReader.from_stream(Reading(source()))
    assert asked == []
    assert reader.schema.equals(SCHEMA)
    assert next(reader).num_rows == 33 and asked == [0]
    rest = reader.read_all()
    assert rest["offset"].to_pylist() == list(range(33, 100))
    assert asked == [0, 1, 2, 3]
    whole = Reading([some(33)])  # Columns of several pieces, and empty ones, are as good
    assert checked(whole).equals(checked(Stream(some(33))))
    assert checked(Reading([columns_of(b"", ALL)])).num_rows == 0
    assert checked(Reading([])).num_rows == 0


def test_errors_of_the_iterator_are_those_of_the_stream() -> None:
    """Their type and text; an end, then, not the same error again."""

    def failing(error: BaseException) -> Iterator[Columns]:
        yield some(1000)
        raise error

    kinds = ((ValueError("at 17"), pa.ArrowInvalid), (OSError("disk"), OSError), (MemoryError(), MemoryError))
    for error, kind in kinds:
        reader = pa.RecordBatchReader.from_stream(Reading(failing(error)))
        assert next(reader).num_rows == 100
        with pytest.raises(kind) as caught:
            next(reader)
        assert type(error).__name__ in str(caught.value) and str(error) in str(caught.value)
        with pytest.raises(StopIteration):
            next(reader)


def test_an_iterator_of_other_things() -> None:
    for wrong in ([1], ["x"], [some(kinds=ALL[:2])]):
        with pytest.raises(Exception, match="Error"):
            checked(Reading(wrong))
    with pytest.raises(TypeError):
        arrow.stream_from(1, ALL)


def test_ctrl_c_while_a_consumer_reads() -> None:
    """The consumer sees an error, and the main thread the interrupt."""

    def interrupted() -> Iterator[Columns]:
        yield some(1000)
        raise KeyboardInterrupt

    reader = pa.RecordBatchReader.from_stream(Reading(interrupted()))
    next(reader)
    with pytest.raises((KeyboardInterrupt, OSError, pa.ArrowException)):
        try:
            next(reader)
        finally:
            with pytest.raises(KeyboardInterrupt):
                for _ in range(10**6):
                    pass


def test_the_iterator_is_dropped_with_the_stream() -> None:
    closed = threading.Event()

    def source() -> Iterator[Columns]:
        try:
            while True:
                yield some(1000)
        finally:
            closed.set()

    capsule = arrow.stream_from(source(), ALL)
    del capsule  # never begun: nothing to close
    reader = pa.RecordBatchReader.from_stream(Reading(source()))
    next(reader)
    assert not closed.is_set()
    del reader
    gc.collect()
    assert closed.is_set()


def test_a_stream_dropped_in_another_thread() -> None:
    readers = [pa.RecordBatchReader.from_stream(Reading(iter(pieces_of(DATA, most_rows=5)))) for _ in range(50)]
    for reader in readers:
        next(reader)
    thread = threading.Thread(target=readers.clear)
    thread.start()
    thread.join()
    assert readers == []


def test_shapes_that_cannot_be() -> None:
    for kinds, alone in ((ALL, True), (ALL + ALL, False), (b"", True), (b"\x08", False)):
        with pytest.raises(ValueError):
            arrow.schema_of(kinds, alone)
    with pytest.raises(ValueError):
        arrow.stream_of(some(), 0, 1, alone=True)


@pytest.mark.parametrize("time", [2**62, -(2**62), 2**63 - 1, 9223372036854776])
def test_a_time_that_microseconds_cannot_say_is_an_error(time: int) -> None:
    """Multiplied, it would be another time: a damaged or hostile one may be any number."""
    asked = pa.schema([(field.name, WISHES["times"].get(field.name, field.type)) for field in SCHEMA])
    columns = columns_of(batch([R(b"v", timestamp=1), R(b"w", timestamp=time)]))
    assert checked(Stream(columns, 0, 2))["timestamp"].cast(pa.int64()).to_pylist() == [1, time]
    assert checked(Stream(columns, 0, 1), asked)["timestamp"].cast(pa.int64()).to_pylist() == [1000]
    for capsule in (
        arrow.stream_of(columns, 0, 2, asked.__arrow_c_schema__()),
        arrow.stream_from(iter([columns]), columns.kinds, asked.__arrow_c_schema__()),
    ):
        with pytest.raises((pa.ArrowInvalid, OSError), match="does not fit the unit"):
            pa.RecordBatchReader._import_from_c_capsule(capsule).read_all()
    with pytest.raises(ValueError, match="does not fit the unit"):
        arrow.array_of(columns, 0, 2, asked.__arrow_c_schema__())
