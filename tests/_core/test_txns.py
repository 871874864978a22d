"""Transactions as batches show them: visible rows, ranges, and the scan that follows markers."""

import random
import struct

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kafkalog._core.batch.scan import BatchTable, scan
from kafkalog._core.log.txns import AbortedRanges, TxnScan, has_transactions, is_plain, visible_rows
from tests.builder import R, batch, frame, message_v1, seal
from tests.transactional import CONTROL, TRANSACTIONAL, marker

RANGES = st.lists(st.tuples(st.integers(0, 3), st.integers(0, 40), st.integers(0, 40)).filter(lambda r: r[1] < r[2]))


def data(base: int, producer_id: int, count: int = 1, attributes: int = TRANSACTIONAL) -> bytes:
    return batch([R(b"v")] * count, base_offset=base, attributes=attributes, producer_id=producer_id, producer_epoch=0)


def table(*parts: bytes) -> tuple[bytes, BatchTable]:
    whole = b"".join(parts)
    return whole, scan(whole, file_mode=True, check_crc=False)


def fed(*parts: bytes, **known: int) -> TxnScan:
    whole, rows = table(*parts)
    followed = TxnScan({int(k[1:]): v for k, v in known.items()})
    followed.feed(rows, lambda position, size: whole[position : position + size])
    return followed


@given(RANGES, st.integers(0, 3), st.integers(0, 40), st.integers(0, 3))
def test_a_batch_is_in_a_range_of_its_producer(
    ranges: list[tuple[int, int, int]], producer_id: int, base: int, count: int
) -> None:
    """The first range that ends at or after the batch decides, as the next marker does in a log."""
    later = sorted(r for r in ranges if r[0] == producer_id and r[2] >= base)
    first = min(later, key=lambda r: (r[2], r[1]), default=None)
    held = AbortedRanges(ranges)
    assert len(held) == len(ranges)
    assert ((producer_id, base, base + count) in held) == (first is not None and first[1] <= base + count)


def bases(rows: BatchTable) -> list[int]:
    return [rows.base_offset(at) for at in range(len(rows))]


def test_rows_leave_out_markers_and_aborted_batches() -> None:
    parts = [data(0, 1), data(1, 2), batch([R(b"p")], base_offset=2), marker(3, 1, 0), marker(4, 2, 1), data(5, 1)]
    _, rows = table(*parts)
    assert bases(visible_rows(rows, 0, 6)) == [0, 1, 2, 5]
    assert bases(visible_rows(rows, 0, 6, AbortedRanges([(1, 0, 3)]))) == [1, 2, 5]
    assert bases(visible_rows(rows, 3, 5)) == []
    assert bases(visible_rows(rows, 1, 4, AbortedRanges([(2, 0, 9), (1, 0, 3)]))) == [2]
    assert visible_rows(rows, 2, 2) is visible_rows(rows, 0, 3) is visible_rows(rows, 5, 6) is rows
    seen = visible_rows(rows, 0, 6)
    assert [seen.position(at) for at in range(4)] == [rows.position(at) for at in (0, 1, 2, 5)]
    assert (seen.first_offset, seen.last_offset, seen.record_count, seen.first_invalid) == (0, 5, 4, -1)
    assert (seen.stop_position, seen.stop_reason, seen.valid_bytes) == (
        rows.stop_position, rows.stop_reason, rows.valid_bytes,
    )  # fmt: skip
    many = [data(at, 1) if at % 2 else marker(at, 2, 0) for at in range(300)]
    assert bases(visible_rows(table(*many)[1], 0, 300)) == list(range(1, 300, 2))
    assert has_transactions(rows, 0, 3) and not has_transactions(rows, 2, 5)


def test_what_is_plain() -> None:
    _, rows = table(data(0, 1), frame(b"zz", count=1, last_delta=0, base_offset=1, attributes=2), message_v1(2, b"v"))
    assert [is_plain(rows, at, at + 1) for at in range(3)] == [True, False, False]
    assert is_plain(rows, 1, 1) and not is_plain(rows, 0, 2)
    _, rows = table(data(0, 1), marker(1, 1, 1), data(2, 1))
    assert is_plain(rows, 0, 3)
    apart = visible_rows(rows, 0, 3)
    assert len(apart) == 2 and not is_plain(apart, 0, 2) and is_plain(apart, 1, 2)


def test_following_markers() -> None:
    """PSM-9: the last stable offset after an abort is the first offset of the next open one, else the marker's next."""
    followed = fed(data(0, 1), data(1, 2), data(2, 1), marker(3, 1, 0), data(4, 1), marker(5, 2, 1), marker(6, 1, 0))
    assert followed.aborted == [(1, 0, 3, 1), (1, 4, 6, 7)]
    assert followed.open == {}
    assert followed.first_markers == {1: (3, True), 2: (5, False)}


def test_open_before_and_after() -> None:
    """LOG-67: a marker without a transaction changes nothing but says that there was none."""
    followed = fed(marker(10, 1, 0), data(11, 2), marker(12, 3, 0), p1=4, p9=2)
    assert followed.open == {9: 2, 2: 11}
    assert followed.aborted == [(1, 4, 10, 2)]
    assert followed.first_markers == {1: (10, True), 3: (12, True)}


def test_many_open_transactions_are_not_gone_through_at_each_marker() -> None:
    """The lowest open offset is known without a look at all of them: a segment may hold a hundred thousand."""
    compared = 0

    class Offset(int):
        def __lt__(self, other: int) -> bool:
            nonlocal compared
            compared += 1
            return int(self) < int(other)

        __hash__ = int.__hash__

        def __eq__(self, other: object) -> bool:
            nonlocal compared
            compared += 1
            return other is self or (isinstance(other, int) and int(self) == int(other))

    count = 500
    followed = TxnScan({producer: Offset(producer) for producer in range(count)})
    whole, rows = table(*[marker(count + n, n, 0) for n in range(count)])
    followed.feed(rows, lambda position, size: whole[position : position + size])
    assert [stable for *_, stable in followed.aborted] == [*range(1, count), 2 * count]
    assert compared < 100 * count


def damaged_markers() -> list[bytes]:
    good = marker(1, 1, 0)
    return [
        good[:77] + b"\x01",  # the checksum does not match
        seal(good[:22] + bytes([CONTROL | 1]) + good[23:]),  # compressed
        batch([R(b"", b"abc")], base_offset=1, attributes=CONTROL, producer_id=1),  # no whole key
        batch([R(b"", struct.pack(">hh", -1, 0))], base_offset=1, attributes=CONTROL, producer_id=1),
        batch([R(b"", None)], base_offset=1, attributes=CONTROL, producer_id=1),
        marker(1, 1, 2),  # a leader change is none
        marker(1, 1, 300),
        frame(b"", count=0, last_delta=0, base_offset=1, attributes=CONTROL, producer_id=1),
        frame(b"\x7f", count=1, last_delta=0, base_offset=1, attributes=CONTROL, producer_id=1),
        batch([R(bytes(70_000), struct.pack(">hh", 0, 0))], base_offset=1, attributes=CONTROL, producer_id=1),
    ]


@pytest.mark.parametrize("bad", damaged_markers(), ids=range(10))
def test_what_is_no_sound_marker_ends_nothing(bad: bytes) -> None:
    followed = fed(data(0, 1), bad)
    assert (followed.open, followed.aborted, followed.first_markers) == ({1: 0}, [], {})


def test_every_changed_byte_of_a_marker() -> None:
    """Each is sound and ends what it names, or ends nothing."""
    good = marker(1, 1, 0)
    rng = random.Random(7)
    for at in range(len(good)):
        made = bytearray(good)
        made[at] ^= 1 << rng.randrange(8)
        for changed in (bytes(made), seal(bytes(made))):
            whole, rows = table(data(0, 1), changed)
            followed = TxnScan()
            followed.feed(rows, lambda position, size, whole=whole: whole[position : position + size])  # type: ignore[misc]
            assert len(followed.open) + len(followed.aborted) <= 2


def test_bytes_that_are_not_those_of_the_batch() -> None:
    """A file that was cut meanwhile gives fewer: no marker then."""
    whole, rows = table(data(0, 1), marker(1, 1, 0))
    for size in (0, 16, 60, 77):
        followed = TxnScan()
        followed.feed(rows, lambda position, _, size=size: whole[position : position + size])  # type: ignore[misc]
        assert followed.open == {1: 0}
    with pytest.raises(TypeError):
        TxnScan().feed(rows, lambda position, size: None)  # type: ignore[arg-type,return-value]


def test_misuse_is_refused() -> None:
    _, rows = table(data(0, 1))
    for call in (has_transactions, is_plain, visible_rows):
        for first, last in ((0, 2), (-1, 1), (1, 0)):
            with pytest.raises(ValueError, match="rows"):
                call(rows, first, last)
    with pytest.raises(TypeError):
        visible_rows(None, 0, 0)  # type: ignore[arg-type]
    with pytest.raises((TypeError, ValueError)):
        AbortedRanges([(1, 2)])  # type: ignore[list-item]
    with pytest.raises(OverflowError):
        AbortedRanges([(1 << 70, 0, 1)])
