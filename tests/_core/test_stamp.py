"""A producer's id, epoch and sequences set in place in finished batches."""

import struct

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kafkalog._core.batch.scan import scan
from kafkalog._core.batch.stamp import BadBatch, stamp_producer
from kafkalog.records.packing import pack, parse_compression
from tests.builder import R, batch
from tests.sequences import increment_sequence

LAST = 2**31 - 1


def stamps(data: bytes | bytearray) -> list[tuple[int, int, int, bool]]:
    return [(h.producer_id, h.producer_epoch, h.base_sequence, h.is_valid) for h in scan(data)]


def test_each_batch_continues_where_the_last_one_ended() -> None:
    data = bytearray(batch([R(b"a")] * 3) + batch([R(b"b")]) + batch([R(b"c")] * 2))
    before = bytes(data)
    assert stamp_producer(data, 77, 4, 10) == 16
    assert stamps(data) == [(77, 4, 10, True), (77, 4, 13, True), (77, 4, 14, True)]
    fields = slice(43, 57)  # producer id, epoch, base sequence of the first batch
    assert data[21:43] + data[57:70] == before[21:43] + before[57:70]
    assert data[fields] == struct.pack(">qhi", 77, 4, 10)


def test_zero_follows_the_last_sequence() -> None:
    """REC-13: within a batch and between two."""
    data = bytearray(batch([R()] * 2) + batch([R()] * 5) + batch([R()]))
    assert stamp_producer(data, 1, 0, LAST - 1) == 6
    assert [row[2] for row in stamps(data)] == [LAST - 1, 0, 5]
    inside = bytearray(batch([R()] * 5) + batch([R()]))
    assert stamp_producer(inside, 1, 0, LAST - 1) == 4
    assert [row[2] for row in stamps(inside)] == [LAST - 1, 3]


@given(st.lists(st.integers(1, 4), max_size=6), st.integers(0, LAST))
def test_sequences_are_those_of_the_rule(counts: list[int], first: int) -> None:
    data = bytearray(b"".join(batch([R()] * n) for n in counts))
    expected, sequence = [], first
    for n in counts:
        expected.append(sequence)
        sequence = increment_sequence(sequence, n)
    assert stamp_producer(data, 5, 1, first) == sequence
    assert [row[2] for row in stamps(data)] == expected


def test_compressed_batches_keep_their_records() -> None:
    plain = bytearray(batch([R(b"x" * 500)] * 20))
    packed = bytearray(pack(plain, parse_compression("lz4"), limit_bytes=1 << 20))
    records = bytes(packed[61:])
    assert stamp_producer(packed, 9, 2, 0) == 20
    assert packed[61:] == records
    assert stamps(packed) == [(9, 2, 0, True)]


def damaged(data: bytes, at: int) -> bytearray:
    out = bytearray(data)
    out[at] ^= 1
    return out


FIRST = batch([R(b"whole")])


@pytest.mark.parametrize(
    ("second", "message"),
    [
        (batch([R(b"v")])[:-1], "no whole batch"),
        (batch([R(b"v")])[:40], "no whole batch"),
        (damaged(batch([R(b"v")]), 16), "no whole batch"),
        (struct.pack(">qi", 0, -5) + batch([R(b"v")])[12:], "no whole batch"),
        (struct.pack(">qi", 0, 20) + batch([R(b"v")])[12:], "no whole batch"),
        (damaged(batch([R(b"v")]), -1), "checksum"),
        (batch([R(b"v")], attributes=0x20), "control"),
        (batch([R(b"v")] * 2, last_delta=4), "disagrees"),
        (batch([]), "disagrees"),
    ],
)
def test_what_cannot_be_stamped_is_named_and_nothing_is_changed(second: bytes, message: str) -> None:
    data = bytearray(FIRST + second)
    before = bytes(data)
    with pytest.raises(BadBatch, match=message) as error:
        stamp_producer(data, 1, 0, 0)
    assert error.value.position == len(FIRST)
    assert data == before


def test_misuse() -> None:
    assert stamp_producer(bytearray(), 1, 0, 9) == 9
    for numbers in ((-1, 0, 0), (1, -1, 0), (1, 0, -1)):
        with pytest.raises(ValueError, match="below 0"):
            stamp_producer(bytearray(FIRST), *numbers)
    with pytest.raises((TypeError, BufferError)):
        stamp_producer(FIRST, 1, 0, 0)
