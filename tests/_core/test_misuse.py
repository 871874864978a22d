"""Misuse of the compiled modules from Python: an exception, never a crash, a wrong record or a stray access."""

import array
import copy
import ctypes
import gc
import importlib
import inspect
import pickle
import pkgutil
import sys
import weakref
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest

import kafkalog._core
from kafkalog._core.batch.arena import Arena
from kafkalog._core.batch.decode import RecordTable, decode
from kafkalog._core.batch.encode import BatchBuilder, encode_batch
from kafkalog._core.batch.record import Record, RecordIterator
from kafkalog._core.batch.scan import BatchTable, find_offset, scan
from kafkalog._core.batch.walk import BatchWalk
from kafkalog._core.bytes.buffers import Column, Held
from kafkalog._core.keys.key_pages import KeyPages
from kafkalog._core.keys.key_picker import KeyPicker
from kafkalog._core.keys.key_walk import KeyWalk
from kafkalog._core.log.admit import check_rows, first_to_change
from kafkalog._core.log.assign import assign, stamp_batch
from kafkalog._core.log.index import Entries, OffsetEntries
from kafkalog._core.log.log_fields import LogFields
from kafkalog._core.log.plan import AppendPlan, first_old_format, first_without_epoch, offsets_rise, plan_append
from kafkalog._core.log.roll import RollRules, SegmentTail
from kafkalog._core.log.state import LogState
from kafkalog._core.log.values import LogAppendInfo, LogOffsetMetadata, OffsetPosition, TimestampOffset, _append_info
from kafkalog._core.text.ingest import LineEncoder
from tests.builder import R, batch
from tests.renderers import dump_text

MODULES = [
    importlib.import_module(module.name)
    for module in pkgutil.walk_packages(kafkalog._core.__path__, "kafkalog._core.")
    if not module.ispkg
]
CLASSES = sorted(
    {
        kind
        for module in MODULES
        for kind in vars(module).values()
        if inspect.isclass(kind) and kind.__module__ == module.__name__ and not issubclass(kind, Exception)
    },
    key=lambda kind: kind.__name__,
)
VALUES = {Record, OffsetPosition, TimestampOffset, LogOffsetMetadata, LogAppendInfo}
SMALLEST, LARGEST = -(2**63), 2**63 - 1


def one() -> tuple[bytearray, BatchTable]:
    data = encode_batch([(b"k", b"v" * 10, 5, [("h", b"1")])] * 5, timestamp=9)
    return data, scan(data)


def refused(call: Any, *arguments: Any, **more: Any) -> None:
    """The call is an error of a kind that a caller expects, or gives something: both are fine."""
    try:
        call(*arguments, **more)
    except (TypeError, ValueError, LookupError, OverflowError, RuntimeError, AssertionError, BufferError, OSError):
        pass


@pytest.mark.parametrize("kind", CLASSES, ids=lambda kind: kind.__name__)
def test_an_object_that_was_never_initialised_is_harmless(kind: type) -> None:
    try:
        bare = kind.__new__(kind)
    except TypeError:
        return
    for name in dir(bare):
        if name in ("__class__", "__init_subclass__", "__subclasshook__", "__new__", "__dir__"):
            continue
        try:
            member = getattr(bare, name)
        except (AttributeError, ValueError, TypeError):
            continue
        if callable(member):
            for arguments in ((), (0,), (b"", 0), (0, 0), (None,), (b"x\n", 2, 0), (b"x", b"k", 0), (b"", 0, 0, 0)):
                refused(member, *arguments)
    refused(repr, bare)
    refused(hash, bare)
    refused(memoryview, bare)
    refused(lambda: list(bare))  # type: ignore[call-overload]
    refused(lambda: bare == kind.__new__(kind))


@pytest.mark.parametrize("kind", CLASSES, ids=lambda kind: kind.__name__)
def test_classes_are_final_and_travel_only_as_values(kind: type) -> None:
    # what others are made from: nothing can be final and that
    if kind not in (Entries, BatchWalk, KeyPages, KeyPicker, KeyWalk, LogFields):
        with pytest.raises(TypeError):
            type("Sub", (kind,), {})
    if kind in VALUES:
        return
    try:
        bare = kind.__new__(kind)
    except TypeError:
        return
    for protocol in range(pickle.HIGHEST_PROTOCOL + 1):
        with pytest.raises(TypeError):
            pickle.dumps(bare, protocol)
    with pytest.raises(TypeError):
        copy.copy(bare)


def test_a_pickled_append_info_of_another_shape_is_refused() -> None:
    with pytest.raises(TypeError):
        _append_info(1, 2)


@pytest.mark.parametrize("base", [SMALLEST, LARGEST, 1, -(2**62)])
def test_a_base_position_that_puts_the_batch_elsewhere(base: int) -> None:
    data, table = one()
    for call in (decode, check_rows):
        with pytest.raises(ValueError, match="outside"):
            call(data, table, base_position=base)  # type: ignore[operator]
    before = bytes(data)
    with pytest.raises(ValueError, match="outside"):
        assign(data, table, 0, base_position=base)
    assert data == before


def test_positions_that_wrap_still_name_the_same_bytes() -> None:
    data = encode_batch([b"a"], timestamp=1) + encode_batch([b"b"], timestamp=1)
    table = scan(data, base_position=LARGEST)
    records = decode(data, table, base_position=LARGEST)
    assert [r.value for r in records] == [b"a", b"b"]
    assert [r.timestamp_type for r in records] == [0, 0]
    assert find_offset(data, LARGEST, LARGEST).position == -1


def test_rows_outside_a_table() -> None:
    data, table = one()
    for first in (-1, -100_000, 2, 2**40):
        for call in (
            lambda first=first: assign(data, table, 0, first=first),
            lambda first=first: decode(data, table, first),
            lambda first=first: check_rows(data, table, first),
            lambda first=first: first_to_change(data, table, first),
            lambda first=first: plan_append(table, first, SegmentTail(), RollRules(0, 99, 99, 0, 0), 0, True, True),
        ):
            with pytest.raises((ValueError, IndexError)):
                call()
    for row in (1, -2, 2**40):
        for call in (
            lambda row=row: stamp_batch(data, table, row, append_time_type=True, timestamp=1),
            lambda row=row: table[row],
        ):
            with pytest.raises(IndexError):
                call()
    assert offsets_rise(table, 10**12)
    assert first_without_epoch(table, 10**12) == 0
    assert first_old_format(table, 10**12) == -1


def test_assign_changes_all_or_nothing() -> None:
    """REC-17: offsets that cannot be given leave every byte and every row as it was."""
    bad = [batch([b"x"], last_delta=-1), batch([b"x"], attributes=0)[:16] + b"\1" + batch([b"x"])[17:]]
    for last in bad:
        data = bytearray(batch([b"a", b"b"]) + last)
        table, before = scan(data), bytes(data)
        with pytest.raises(ValueError):
            assign(data, table, 100, 7, 50)
        assert data == before
        assert list(table.base_offsets) == list(scan(before).base_offsets)
    data, table = one()
    for first in (LARGEST - 4, LARGEST, -1, SMALLEST):
        with pytest.raises(ValueError, match="offsets"):
            assign(data, table, first)
    assert assign(data, table, LARGEST - 5) == LARGEST


def test_offsets_and_sequences_at_the_end_of_their_range() -> None:
    """REC-11, REC-13: arithmetic on what a header says wraps as the reference's does."""
    header = scan(batch([b"x", b"y"], base_offset=LARGEST, base_sequence=2**31 - 1, producer_id=1))[0]
    assert (header.last_offset, header.next_offset, header.last_sequence) == (SMALLEST, SMALLEST + 1, 0)
    assert LogOffsetMetadata(LARGEST).offset_diff(LogOffsetMetadata(-1)) == 2**63


def test_a_chunk_overwritten_after_decoding() -> None:
    """Headers are read late; what somebody wrote over them in between must not send the reader astray."""
    data = bytearray(batch([R(b"", None, 5, [("h" * 10, b"1" * 10)])]))
    records = decode(data, scan(data))
    at = data.index(b"h" * 10) - 1
    data[at : at + 5] = b"\xfe\xff\xff\xff\x0f"
    with pytest.raises(ValueError, match="overwritten"):
        records.headers(0)
    assert records.value(0) == b""
    with pytest.raises(BufferError):
        data.clear()


def test_views_count_bytes_whatever_the_items_of_the_chunk() -> None:
    """A chunk of ints or of two dimensions is as good as bytes."""
    data = encode_batch([b"abcdefgh", b"x" * 7, b"", None], timestamp=1)  # type: ignore[list-item]
    data += bytes(-len(data) % 8)
    for chunk in (array.array("q", bytes(data)), np.frombuffer(bytes(data), np.uint8).reshape(2, -1), memoryview(data)):
        got = [r.value_view for r in decode(chunk, scan(chunk))]
        assert [None if v is None else bytes(v) for v in got] == [b"abcdefgh", b"x" * 7, b"", None]


def test_timestamp_type_does_not_depend_on_offsets() -> None:
    parts = [batch([b"a"], attributes=8), batch([R(b"b", delta=9)], last_delta=1), batch([b"c"], attributes=8)]
    data = bytearray(b"".join(parts))
    table = scan(data)
    records = decode(data, table)
    assert [records.timestamp_type(i) for i in range(3)] == [1, 0, 1]
    assign(data, table, 1000)
    assert [r.timestamp_type for r in records] == [1, 0, 1]


def test_a_record_initialised_again_forgets_its_table() -> None:
    data, table = one()
    record = decode(data, table)[0]
    record.__init__(None, b"new")  # type: ignore[misc]
    assert (record.value, record.key, record.headers, record.value_view) == (None, b"new", (), None)


class Appends:
    """Headers that append to the builder they are given to, while that is taking a record."""

    def __init__(self, builder: BatchBuilder) -> None:
        self.builder = builder

    def __iter__(self) -> Iterator[tuple[str, None]]:
        assert self.builder.append(b"inner" * 1000)
        yield ("n", None)


def test_a_builder_called_again_from_the_headers_it_reads() -> None:
    builder = BatchBuilder(1 << 20)
    assert builder.append(b"outer" * 1000, None, 1, Appends(builder))  # type: ignore[arg-type]
    data = builder.build()
    records = decode(data, scan(data))
    assert [(r.value, r.offset) for r in records] == [(b"inner" * 1000, 0), (b"outer" * 1000, 1)]


class Sneaky:
    """A buffer made by code that calls the builder it is given to."""

    def __init__(self, builder: BatchBuilder) -> None:
        self.builder = builder

    def __buffer__(self, flags: int) -> memoryview:
        self.builder.append(b"x" * 100)
        return memoryview(b"key")


@pytest.mark.skipif(sys.version_info < (3, 12), reason="buffers written in Python came with 3.12")
def test_a_builder_called_again_from_a_key_is_refused() -> None:
    builder = BatchBuilder()
    with pytest.raises(RuntimeError, match="taking a record"):
        builder.append(bytearray(b"v" * 100), Sneaky(builder))  # type: ignore[arg-type]
    assert builder.append(b"next")
    assert builder.count == 1


class Shrinks:
    """Headers that empty the list that is being encoded."""

    def __init__(self, records: list[Any]) -> None:
        self.records = records

    def __iter__(self) -> Iterator[tuple[str, None]]:
        self.records.clear()
        gc.collect()
        yield ("n", None)


def test_a_list_that_shrinks_while_it_is_encoded() -> None:
    records: list[Any] = []
    records += [(bytes(1000), bytearray(1000), 1, Shrinks(records)), b"never"]
    data = encode_batch(records, timestamp=1)
    assert list(decode(data, scan(data))) == [Record(bytes(1000), bytes(1000), 1, [("n", None)], 0)]


@pytest.mark.parametrize("pair", [(3, b""), ("n", 7), ("n", "text"), ("n", [1]), (None, b"")])
def test_headers_of_the_wrong_type(pair: Any) -> None:
    """bytes(7) would be seven zeros: numbers are refused."""
    with pytest.raises(TypeError):
        encode_batch([(None, b"v", 1, [pair])], timestamp=1)


def test_offset_deltas_end_where_their_type_does() -> None:
    builder = BatchBuilder()
    builder.append(b"a", offset_delta=2**31 - 1)
    with pytest.raises(ValueError, match="2147483647"):
        builder.append(b"b")
    with pytest.raises(OverflowError):
        BatchBuilder(delete_horizon_ms=2**63)


def test_line_encoder_takes_only_what_it_can_encode() -> None:
    with pytest.raises(TypeError):
        LineEncoder().add("text", None, 0)  # type: ignore[arg-type]
    with pytest.raises(TypeError):
        LineEncoder().add(b"", 5, 0)  # type: ignore[arg-type]
    for bad in (b"", b"\2", b"\0\0", b"\2\1\0", b"\xff\xff\xff\xff\xff"):
        with pytest.raises(ValueError, match="headers"):
            LineEncoder(encoded_headers=bad)
    with pytest.raises(TypeError):
        LineEncoder(delimiter="\n")  # type: ignore[arg-type]


def test_a_long_record_walks_over_many_full_lanes() -> None:
    """Every open batch on the way closes; the walk does not grow the stack."""
    encoder = LineEncoder(50_000, batch_bytes=200)
    for number in range(400_000):
        encoder.add(b"v" * 60, b"%d" % number, 0)
    taken = encoder.add(b"v" * 140, None, 0)
    assert encoder.records(taken) >= 1


def test_columns_with_gaps_are_not_given_as_one_block() -> None:
    """A reader that requires one block gets an error; it would take other fields for values."""
    data, table = one()
    strided, block = scan(data * 3).positions, decode(data, table).offsets
    get, release = ctypes.pythonapi.PyObject_GetBuffer, ctypes.pythonapi.PyBuffer_Release
    for any_order in (0x38, 0x58, 0x98):  # PyBUF_C_CONTIGUOUS, PyBUF_F_CONTIGUOUS, PyBUF_ANY_CONTIGUOUS
        view = (ctypes.c_char * 256)()
        with pytest.raises(BufferError):
            get(ctypes.py_object(strided), view, any_order)
        assert get(ctypes.py_object(block), view, any_order) == 0
        release(view)
    assert list(np.asarray(strided)) == [0, len(data), 2 * len(data)]


def test_objects_without_a_source() -> None:
    with pytest.raises(TypeError):
        memoryview(Held())  # type: ignore[arg-type]
    assert (repr(Column()), list(Column()), bytes(Column())) == ("<Column of 0 b>", [], b"")
    assert list(RecordTable().offsets) == list(RecordTable().key_sizes) == []
    with pytest.raises(TypeError):
        next(RecordIterator.__new__(RecordIterator))
    with pytest.raises(ValueError):
        Entries.__new__(Entries).attach(b"", 0)
    state = LogState((), log_start_offset=0, log_end_offset=0, end_base=0, end_position=0, high_watermark=0)
    with pytest.raises(AssertionError):
        state.appended(AppendPlan.__new__(AppendPlan), True)
    refused(dump_text().render, b"", 0, 1, LARGEST)


def test_targets_that_lie_askew_in_memory() -> None:
    entries = OffsetEntries(b"\0\0\0\1\0\0\0\2", 10, 1)
    targets = memoryview(b"." + (11).to_bytes(8, "little") * 200)[1:].cast("q")
    offsets, positions = entries.lookup_many(targets)
    assert (set(offsets), set(positions)) == ({11}, {2})


@pytest.mark.parametrize("holder", ["table", "record", "entries", "arena", "iterator"])
def test_a_memoryview_in_a_cycle_with_what_reads_it_is_collected(holder: str) -> None:
    """The collector clears a memoryview whose buffer is in use, and Python dies when the buffer is released."""
    data, table = one()

    def make() -> Any:
        view = memoryview(data)
        records = decode(view, table)
        made = {
            "table": lambda: records,
            "record": lambda: records[1],
            "entries": lambda: OffsetEntries(view, 0, 3),
            "arena": lambda: Arena(view, table, 0),
            "iterator": lambda: RecordIterator([records]),
        }[holder]()
        cycle: list[Any] = [view, made]
        cycle.append(cycle)
        return cycle

    gc.collect()
    cycle = make()
    with pytest.raises(BufferError):
        data.append(0)
    del cycle
    gc.collect()
    data.append(0)  # no view holds its bytes now


def test_a_memoryview_let_go_of_early_leaves_its_bytes_readable() -> None:
    data, table = one()
    view = memoryview(data)
    records, entries = decode(view, table), OffsetEntries(view, 0, 3)
    view.release()
    assert records[4].value == bytes(records[4].value_view or b"") == b"v" * 10
    assert entries.lookup(0).offset == 0
    with pytest.raises(BufferError):
        data.clear()
    entries.close()
    del records
    data.clear()


def test_the_collector_is_spared_records_that_are_in_no_cycle() -> None:
    """Millions of records in a list would be looked at again and again."""

    class Chunk(bytearray):
        pass

    data = one()[0]
    for chunk in (data, bytearray(data), memoryview(data)):
        assert not any(gc.is_tracked(record) for record in decode(chunk, scan(chunk)))
    for chunk in (Chunk(data), memoryview(Chunk(data))):
        assert all(gc.is_tracked(record) for record in decode(chunk, scan(chunk)))


def test_a_chunk_in_a_cycle_with_its_records_is_collected() -> None:
    class Chunk(bytearray):
        records: Any

    data = Chunk(one()[0])
    data.records = list(decode(data, scan(data)))
    gone: list[int] = []
    weakref.finalize(data, gone.append, 1)
    del data
    gc.collect()
    assert gone == [1]
