"""Rewritten records: any format to any, with kept or fresh offsets, and fields that a format cannot hold."""

from typing import Any

import pytest

from kafkalog._core.batch.decode import decode
from kafkalog._core.batch.legacy import MessageSet
from kafkalog._core.batch.rewrite import (
    STATUS_HEADERS,
    STATUS_NEGATIVE_TIME,
    STATUS_OFFSETS,
    Rewritten,
    message_run,
    rewrite,
)
from kafkalog._core.batch.scan import scan
from tests.builder import R, batch

T = 1_700_000_000_000
ROWS = [R(b"a", b"k", T), R(None, b"", T + 300), R(b"", None, T - 5), R(b"x" * 200, b"y" * 70, -1)]


def messages(magic: int, rows: list[R], first: int = 0) -> bytes:
    out = MessageSet(magic)
    for offset, row in enumerate(rows, first):
        out.append(offset, row.timestamp, row.key, row.value)
    return bytes(out.build())


def source(magic: int) -> bytes:
    return batch(ROWS, base_offset=7) if magic == 2 else messages(magic, ROWS, 7)


def made(data: bytes, **options: Any) -> Rewritten:
    return rewrite(data, scan(data), **options)


def records(data: bytes | bytearray | None) -> list[tuple[int, int, bytes | None, bytes | None]]:
    assert data is not None
    table = scan(data)
    assert table.first_invalid == -1
    return [(r.offset, r.timestamp, r.key, r.value) for r in decode(data, table)]


@pytest.mark.parametrize("to", [0, 1, 2])
@pytest.mark.parametrize("magic", [0, 1, 2])
def test_every_format_from_every_other(magic: int, to: int) -> None:
    """VAL-9, VAL-19: keys and values stay; v0 has no times."""
    times = [-1 if 0 in (magic, to) else row.timestamp for row in ROWS]
    expected = [(time, row.key, row.value) for time, row in zip(times, ROWS, strict=True)]
    kept = made(source(magic), magic=to)
    assert records(kept.data) == [(at, *row) for at, row in enumerate(expected, 7)]
    assert (kept.status, kept.count, kept.base_offset, kept.last_offset) == (0, 4, 7, 10)
    fresh = made(source(magic), magic=to, first_offset=1_234_567)
    assert records(fresh.data) == [(at, *row) for at, row in enumerate(expected, 1_234_567)]
    assert (fresh.max_timestamp, fresh.offset_of_max_timestamp) == (
        (-1, -1) if 0 in (magic, to) else (T + 300, 1_234_568)
    )


def test_the_header_of_a_batch_that_was_written_anew() -> None:
    """VAL-8, VAL-20: producer and flags stay, the epoch is the leader's, offsets restart."""
    data = batch(
        [R(timestamp=T, headers=(("h", b"1"), ("n", None)), delta=0), R(timestamp=T + 4, delta=5)],
        base_offset=40, producer_id=9, producer_epoch=2, base_sequence=11, attributes=0x10,
    )  # fmt: skip
    out = made(data, first_offset=0, leader_epoch=6)
    assert out.data is not None
    header = scan(out.data)[0]
    assert (header.producer_id, header.producer_epoch, header.base_sequence, header.leader_epoch) == (9, 2, 11, 6)
    assert (header.is_transactional, header.is_control, header.count, header.last_offset) == (True, False, 2, 1)
    assert (header.base_timestamp, header.max_timestamp) == (T, T + 4)
    assert decode(out.data, scan(out.data)).headers(0) == (("h", b"1"), ("n", None))
    assert scan(made(data).data or b"")[0].last_offset == 45


def test_a_batch_that_the_log_stamps() -> None:
    """VAL-11: the base timestamp stays the first record's."""
    out = made(batch([R(timestamp=T), R(timestamp=T + 4)]), append_time=T + 90)
    assert out.data is not None
    header = scan(out.data)[0]
    assert (header.timestamp_type, header.base_timestamp, header.max_timestamp) == (1, T, T + 90)
    stamped = made(source(0), magic=1, append_time=T)
    assert [row[1] for row in records(stamped.data)] == [T] * 4


def test_compacted_batches_of_any_kind() -> None:
    """A delete horizon is no base timestamp; records below an offset may be left out."""
    data = batch([R(timestamp=T, delta=1), R(timestamp=T + 4, delta=9)], attributes=0x40, base_timestamp=5)
    assert [row[:2] for row in records(made(data).data)] == [(1, T), (9, T + 4)]
    assert [row[0] for row in records(made(data, magic=1, from_offset=2).data)] == [9]
    nothing = made(data, from_offset=10)
    assert (nothing.count, nothing.data) == (0, b"")
    assert made(batch([], count=0, last_delta=3)).count == 0


def test_what_a_format_cannot_take() -> None:
    headed = batch([R(), R(headers=(("h", b""),))])
    out = made(headed, magic=1)
    assert (out.status, out.record, out.data) == (STATUS_HEADERS, 1, None)
    assert made(headed, magic=0, drop_headers=True).count == 2
    assert made(batch([R(timestamp=-2)])).status == STATUS_NEGATIVE_TIME
    assert made(batch([R(delta=3), R(delta=3)])).status == STATUS_OFFSETS
    far = messages(1, [R()]) + messages(1, [R()], 2**31)
    assert made(far).status == STATUS_OFFSETS
    assert made(far, first_offset=5).count == 2
    assert made(batch([R()], count=2, last_delta=1)).status != 0
    assert made(batch([R()], attributes=1)).status != 0


def test_more_room_is_made_where_records_grow() -> None:
    """Offsets 0, 1, 2 in one byte become five bytes each, times too."""
    rows = [R(b"", None, T + (at % 2) * 2**40, delta=at) for at in range(5000)]
    out = made(batch(rows, base_timestamp=T + 2**40))
    assert [row[:2] for row in records(out.data)] == [(r.delta, r.timestamp) for r in rows]
    tiny = messages(0, [R(None)] * 3000)
    assert len(records(made(tiny, magic=1).data)) == 3000


def test_runs_of_messages() -> None:
    one = len(messages(1, [R()]))
    data = messages(1, [R()] * 6) + messages(0, [R()], 6) + messages(0, [R()], 6) + batch([R()])
    table = scan(data)
    assert [message_run(table, row, 9, 10**6) for row in (0, 5, 6, 7, 8)] == [6, 6, 7, 8, 9]
    assert [message_run(table, 0, 9, size) for size in (0, one, 3 * one - 1, 3 * one)] == [1, 1, 2, 3]
    assert message_run(table, 0, 4, 10**6) == 4
    with pytest.raises(IndexError):
        message_run(table, 9, 9, 100)


def test_misuse() -> None:
    data = batch([R()])
    table = scan(data)
    for call in (lambda: rewrite(b"", table), lambda: rewrite(data, table, 1), lambda: rewrite(data, table, magic=3)):
        with pytest.raises(ValueError):
            call()
