"""The batches that a share fetch finds by their headers."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kafkalog.errors import CorruptRecord
from kafkalog.server.share.batches import LogBatch, aborted_ranges, read_batches, without
from kafkalog.server.share.window import AcquiredRows
from kafkalog.storage.file_slice import FileSlice
from tests.builder import message_v1
from tests.counting import Counting
from tests.raw_batches import batch

SIZES = [1, 1, 3_000, 10, 100_000, 5, 600, 600, 40_000, *[1] * 2_000, 300_000, 2]


def slice_of(path: Path, data: bytes, fs: Counting | None = None) -> FileSlice:
    (path / "f").write_bytes(data)
    return FileSlice((fs or Counting()).open_file(path / "f", "r"), 0, len(data))


def mixed() -> bytes:
    """Return batches of one record each, at offsets 0, 1, 2, ..."""
    return b"".join(batch(offset, [bytes(size)]) for offset, size in enumerate(SIZES))


def offsets_of(records: FileSlice, begin: int = 0, most: int = 1 << 30) -> list[int]:
    return [one.first for one in read_batches(records, begin, most)]


def test_all_batches_are_found_with_their_places(tmp_path: Path) -> None:
    records = slice_of(tmp_path, mixed())
    found = [(one.first, one.last, one.position, one.size) for one in read_batches(records, 0, 1 << 30)]
    assert found == [(one.base_offset, one.last_offset, one.position, one.size) for one in records.batches()]
    assert len(found) == len(SIZES)


def test_batches_are_found_from_an_offset_on_up_to_a_number_of_offsets(tmp_path: Path) -> None:
    assert offsets_of(slice_of(tmp_path, mixed()), 4, 3) == [4, 5, 6, 7]


@pytest.mark.parametrize("cut", [1, 61, 100_000, 299_999])
def test_an_incomplete_batch_is_left_out(tmp_path: Path, cut: int) -> None:
    assert offsets_of(slice_of(tmp_path, batch(0, [b"v"]) + batch(1, [bytes(300_000)])[:-cut])) == [0]


def test_the_records_of_long_batches_are_not_read(tmp_path: Path) -> None:
    counting = Counting()
    records = slice_of(tmp_path, b"".join(batch(offset, [bytes(500_000)]) for offset in range(4)), counting)
    assert offsets_of(records) == [0, 1, 2, 3]
    assert sum(counting.reads) < 10_000


def test_messages_of_an_older_format_are_found(tmp_path: Path) -> None:
    parts = [message_v1(offset, bytes(size)) for offset, size in enumerate([1, 9_000, 1, 80_000, 2, 70_000])]
    assert offsets_of(slice_of(tmp_path, b"".join(parts))) == [0, 1, 2, 3, 4, 5]
    assert offsets_of(slice_of(tmp_path, b"".join(parts)[:-1])) == [0, 1, 2, 3, 4]
    large = message_v1(0, bytes(900_000))
    assert [offsets_of(slice_of(tmp_path, data)) for data in (large, large[:-1])] == [[0], []]


def test_a_size_below_all_is_an_error_with_its_place(tmp_path: Path) -> None:
    first, second = batch(0, [b"v"]), batch(1, [b"w"])
    records = slice_of(tmp_path, first + second[:8] + (13).to_bytes(4, "big") + second[12:])
    with pytest.raises(CorruptRecord, match="size field is 13") as error:
        offsets_of(records)
    assert (error.value.path, error.value.position) == (str(tmp_path / "f"), len(first))
    assert offsets_of(records, 0, 0) == [0], "the offsets that are asked for come before it"


def test_batches_behind_the_end_of_the_slice_are_not_found(tmp_path: Path) -> None:
    parts = [batch(offset, [bytes(100)]) for offset in range(4)]
    whole = slice_of(tmp_path, b"".join(parts))
    inner = FileSlice(whole.file, len(parts[0]), len(parts[1]) + len(parts[2]))
    assert offsets_of(inner) == [1, 2]
    assert offsets_of(FileSlice(whole.file, inner.position, inner.size - 1)) == [1]


def test_batches_of_transactions_have_their_producers(tmp_path: Path) -> None:
    """One of an idempotent producer without a transaction has none: it is never aborted."""
    parts = [(0, 2, 0x10, 7), (3, 4, 0, 7), (5, 5, 0x30, 7), (6, 9, 0x10, 0)]
    data = bytearray()
    for first, last, attributes, producer_id in parts:
        one = bytearray(batch(first, [b"v"] * (last - first + 1), attributes=attributes))
        one[43:51] = producer_id.to_bytes(8, "big")
        data += one
    found = [(*one[:2], *one[4:]) for one in read_batches(slice_of(tmp_path, bytes(data)), 0, 100)]
    assert found == [(0, 2, 7, False), (3, 4, -1, False), (5, 5, 7, True), (6, 9, 0, False)]


@given(st.lists(st.tuples(st.sampled_from("dca"), st.integers(0, 2), st.integers(1, 3)), max_size=12))
def test_batches_of_aborted_transactions(events: list[tuple[str, int, int]]) -> None:
    """Data of up to three producers, and markers that commit or abort what each has open."""
    batches: list[LogBatch] = []
    aborted: list[tuple[int, int]] = []
    expected: set[tuple[int, int]] = set()
    open_ones: dict[int, list[tuple[int, int]]] = {}
    at = 0
    for kind, producer_id, count in events:
        last = at + count - 1 if kind == "d" else at
        batches.append(LogBatch(at, last, 0, 0, producer_id, kind != "d"))
        if kind == "d":
            open_ones.setdefault(producer_id, []).append((at, last))
        else:
            ended = open_ones.pop(producer_id, [])
            if kind == "a" and ended:
                aborted.append((producer_id, ended[0][0]))
                expected |= set(ended)
        at = last + 1
    assert aborted_ranges(batches, aborted) == sorted(expected)
    assert aborted_ranges(batches[1:], aborted) == sorted(expected - {(one.first, one.last) for one in batches[:1]})


SIZES_OF_RUNS = st.lists(st.tuples(st.integers(0, 2), st.integers(1, 4)), max_size=6)


@given(SIZES_OF_RUNS, SIZES_OF_RUNS)
def test_rows_without_ranges(rows: list[tuple[int, int]], ranges: list[tuple[int, int]]) -> None:
    def placed(runs: list[tuple[int, int]]) -> Iterator[tuple[int, int]]:
        at = 0
        for gap, size in runs:
            yield at + gap, at + gap + size - 1
            at += gap + size

    given_rows = [AcquiredRows(*one, number) for number, one in enumerate(placed(rows))]
    gone = {offset for first, last in placed(ranges) for offset in range(first, last + 1)}
    found = without(given_rows, placed(ranges))
    assert all(row.first <= row.last for row in found)
    assert [(n, row.deliveries) for row in found for n in range(row.first, row.last + 1)] == [
        (n, row.deliveries) for row in given_rows for n in range(row.first, row.last + 1) if n not in gone
    ]
    assert len(found) <= len(rows) + len(ranges)
