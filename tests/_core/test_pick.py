"""One record out of a chunk, by offset or by time: it is as decoded; whatever is wrong gives none."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kafkalog._core.batch.decode import decode
from kafkalog._core.batch.pick import pick, pick_by_time
from kafkalog._core.batch.scan import scan
from tests.builder import R, batch, message_v1

ROWS = [
    R(b"v0", b"k0", 100), R(None, b"k1", 90, delta=3), R(b"", None, 300, (("h", b"x"), ("h", None))),
    R(b"v3" * 50, b"", 200),
]  # fmt: skip
CHUNK = batch(ROWS, base_offset=10, leader_epoch=7) + batch([R(b"w", timestamp=400)], base_offset=20)
OFFSETS = (10, 13, 14, 15, 20)


def test_every_record_is_as_decoded() -> None:
    table = decode(CHUNK, scan(CHUNK))
    assert tuple(table.offsets) == OFFSETS
    for row, offset in enumerate(OFFSETS):
        record = pick(CHUNK, offset, True)
        assert record == table[row]
        assert record is not None
        assert (record.value_view is None) == (record.value is None)
        assert record.timestamp_type == 0


def test_record_keeps_only_its_own_bytes() -> None:
    record = pick(CHUNK, 13)
    assert record is not None and record.key_view is not None
    assert len(record.key_view.obj) < 20


@pytest.mark.parametrize("offset", [-1, 0, 9, 11, 12, 16, 19, 21, 2**63 - 1, -(2**63)])
def test_offsets_without_a_record(offset: int) -> None:
    assert pick(CHUNK, offset) is None


def test_log_append_time() -> None:
    chunk = batch(ROWS, base_offset=10, attributes=8, max_timestamp=999)
    record = pick(chunk, 14, True)
    assert record is not None
    assert (record.timestamp, record.timestamp_type) == (999, 1)
    assert pick_by_time(chunk, 15, 999, 999, 14, True) == (14, 999, -1)


@pytest.mark.parametrize(
    "chunk",
    [
        b"", bytes(100), CHUNK[:60], CHUNK[:-1][: len(CHUNK) - 80], batch(ROWS, base_offset=10, attributes=1),
        batch(ROWS, base_offset=10, attributes=0x20), message_v1(10, b"v"), batch(ROWS, base_offset=10, count=-1),
        batch(ROWS, base_offset=11),
    ],
    ids=["empty", "zeros", "short", "cut", "gzip", "control", "v1", "no count", "other offsets"],
)  # fmt: skip
def test_what_cannot_be_read_gives_none(chunk: bytes) -> None:
    assert pick(chunk, 10) is None


@pytest.mark.parametrize(
    ("asked", "found"),
    [(300, (14, 300, 7)), (301, (20, 400, -1)), (400, (20, 400, -1)), (401, (-1, -1, -1))],
)
def test_time_from_a_known_entry(asked: int, found: tuple[int, int, int]) -> None:
    """SEG-18: the entry (300, 15) names the first batch; from there the first record at or after the time."""
    offset, timestamp, epoch = pick_by_time(CHUNK, 15, 300, asked, 0, True)
    assert offset == found[0]
    if offset >= 0:
        assert (timestamp, epoch) == found[1:]


@pytest.mark.parametrize(("offset", "timestamp"), [(15, 299), (15, 301), (9, 300), (16, 300), (20, 300)])
def test_entry_that_the_batch_does_not_bear_out(offset: int, timestamp: int) -> None:
    assert pick_by_time(CHUNK, offset, timestamp, 300, 0)[0] == -1


def test_time_above_a_start_offset() -> None:
    assert pick_by_time(CHUNK, 15, 300, 150, 0)[0] == 14
    assert pick_by_time(CHUNK, 15, 300, 150, 15)[0] == 15
    assert pick_by_time(CHUNK, 15, 300, 300, 15)[0] == -1


@given(st.integers(0, len(CHUNK) - 1), st.integers(1, 255), st.integers(0, len(CHUNK)))
def test_damage_and_cuts_never_give_a_wrong_record(at: int, flip: int, cut: int) -> None:
    data = bytearray(CHUNK)
    data[at] ^= flip
    table = decode(CHUNK, scan(CHUNK))
    good = {table.offsets[row]: table[row] for row in range(len(table))}
    for chunk in (bytes(data), CHUNK[:cut]):
        for offset in OFFSETS:
            record = pick(chunk, offset)
            in_first, in_second = at < 8, len(CHUNK) - 71 <= at
            if record is not None and not in_first and not in_second:
                assert record == good[offset]
        found = pick_by_time(chunk, 15, 300, 200, 0)
        assert found[0] in (-1, 14) or at < 8
