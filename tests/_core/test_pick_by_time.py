"""One record of one batch found by time."""

import pytest

from kafkalog._core.batch.pick import NOT_HERE, NOT_READABLE, find_record_by_time
from tests.builder import R, batch, message_v1

TIMES = [50, 90, 20, 90]
BATCH = batch([R(timestamp=t) for t in TIMES], base_offset=7, leader_epoch=3)


@pytest.mark.parametrize(
    ("time", "start", "offset", "found"),
    [(0, 0, 7, 50), (51, 0, 8, 90), (20, 9, 9, 20), (21, 9, 10, 90), (90, 9, 10, 90)],
)
def test_first_record_at_or_after_time_and_offset(time: int, start: int, offset: int, found: int) -> None:
    assert find_record_by_time(b"xx" + BATCH + b"yy", 2, time, start) == (offset, found, 3)


@pytest.mark.parametrize(("time", "start"), [(91, 0), (0, 11)])
def test_no_such_record(time: int, start: int) -> None:
    assert find_record_by_time(BATCH, 0, time, start)[0] == NOT_HERE


def test_a_stamped_batch_has_one_time() -> None:
    stamped = batch([R(timestamp=t) for t in TIMES], base_offset=7, attributes=8)
    assert find_record_by_time(stamped, 0, 90, 9) == (9, 90, -1)


@pytest.mark.parametrize("cut", range(0, len(BATCH), 7))
def test_a_batch_cut_anywhere_is_not_readable(cut: int) -> None:
    assert find_record_by_time(BATCH[:cut], 0, 0, 0)[0] == NOT_READABLE


@pytest.mark.parametrize("start", [-1, len(BATCH), 10**9])
def test_places_outside_the_buffer(start: int) -> None:
    assert find_record_by_time(BATCH, start, 0, 0)[0] == NOT_READABLE


def test_what_it_does_not_read() -> None:
    """Compressed, v1, and records that break their batch: the caller words the error."""
    assert find_record_by_time(batch([b"v"], attributes=1), 0, 0, 0)[0] == NOT_READABLE
    assert find_record_by_time(message_v1(5, b"v" * 60), 0, 0, 0)[0] == NOT_READABLE
    torn = bytearray(BATCH)
    torn[61] = 0x7F
    assert find_record_by_time(torn, 0, 0, 0)[0] == NOT_READABLE


def test_a_large_batch_is_read_without_the_gil() -> None:
    large = batch([R(b"v" * 1000, timestamp=t) for t in range(40)])
    assert find_record_by_time(large, 0, 39, 0) == (39, 39, -1)
