"""Counts from batch headers: by hour and codec, with what is torn, reserved, damaged or gone."""

from pathlib import Path

import pytest

import kafkalog
from kafkalog.spark.header_survey import HOUR_MS, MAX_MS, NO_HOUR, Counts, Group, merged, survey_segment
from kafkalog.types import TopicPartition
from tests.builder import R, batch
from tests.tools.test_verify_damage import ABORT, LOG, txn_batch

T0 = 1_700_000_000_000 // HOUR_MS * HOUR_MS
WHERE = TopicPartition("t", 3)


def write(path: Path, *parts: bytes) -> str:
    path.write_bytes(b"".join(parts))
    return str(path)


def batch_at(base: int, count: int, timestamp: int) -> bytes:
    return batch([R(b"v" * 10, timestamp=timestamp) for _ in range(count)], base_offset=base)


def test_batch_cut_off_in_an_earlier_segment_is_a_problem(tmp_path: Path) -> None:
    path = write(tmp_path / LOG, batch_at(0, 3, T0), batch_at(3, 2, T0)[:-7])
    last, earlier = (survey_segment(path, WHERE, is_last=is_last) for is_last in (True, False))
    assert last.problem is None and earlier.problem is not None and "an incomplete batch" in earlier.problem
    assert last.rows == earlier.rows


def test_batches_are_counted_by_the_hour_of_their_largest_timestamp(tmp_path: Path) -> None:
    parts = [batch_at(0, 3, T0), batch_at(3, 2, T0 + HOUR_MS - 1), batch_at(5, 4, T0 + HOUR_MS), batch_at(9, 1, T0 + 7)]
    rows, problem = survey_segment(write(tmp_path / LOG, *parts), WHERE)
    sizes = [len(part) for part in parts]
    assert problem is None
    assert rows == {
        Group("t", 3, T0, "none"): Counts(3, 6, sizes[0] + sizes[1] + sizes[3], 0, 0, T0, T0 + HOUR_MS - 1),
        Group("t", 3, T0 + HOUR_MS, "none"): Counts(1, 4, sizes[2], 0, 0, T0 + HOUR_MS, T0 + HOUR_MS),
    }


@pytest.mark.parametrize("timestamp", [-1, MAX_MS + 1, 2**63 - 1])
def test_what_is_no_time_has_no_hour(tmp_path: Path, timestamp: int) -> None:
    rows, _ = survey_segment(write(tmp_path / LOG, batch_at(0, 1, timestamp)), WHERE)
    ((group, counts),) = rows.items()
    assert group.hour_ms == NO_HOUR and (counts.first_ms, counts.last_ms) == (-1, -1)
    assert counts.ratio is None and counts.records_a_second is None and counts.bytes_a_second is None


@pytest.mark.parametrize("codec", ["gzip", "snappy", "lz4", "zstd"])
def test_the_ratio_is_that_of_the_records(tmp_path: Path, codec: str) -> None:
    with kafkalog.open(tmp_path / "t-3", "a", compression_type=codec) as log:
        for n in range(20):
            log.append([(b"k", b"same again " * 50, T0 + n) for _ in range(20)])
    path = str(tmp_path / "t-3" / LOG)
    (some,), (every,) = (survey_segment(path, WHERE, exact=exact).rows.values() for exact in (False, True))
    assert some.batches == every.batches == 20 and some.records == 400 and some.bytes == every.bytes
    assert 0 < some.packed_bytes < every.packed_bytes == every.bytes - 20 * 61
    assert some.ratio is not None and every.ratio is not None and every.ratio > 5
    assert some.ratio == pytest.approx(every.ratio, rel=0.2)
    plain = 400 * (1 + 1 + 1 + 1 + 1 + 1 + 2 + 550 + 1)  # a record of the batch: lengths, deltas, key, value, headers
    assert every.plain_bytes == pytest.approx(plain, rel=0.02)


def test_markers_of_transactions_are_bytes_and_no_records(tmp_path: Path) -> None:
    parts = [txn_batch(0, 9), txn_batch(1, 9, marker=ABORT)]
    rows, problem = survey_segment(write(tmp_path / LOG, *parts), WHERE)
    total = Counts()
    for counts in rows.values():
        total.add(counts)
    assert problem is None and (total.batches, total.records) == (1, 1)
    assert total.bytes == len(parts[0]) + len(parts[1])


def test_a_torn_end_reserved_room_and_a_segment_that_is_gone_are_no_problem(tmp_path: Path) -> None:
    one, two = batch_at(0, 3, T0), batch_at(3, 3, T0)
    for name, tail in (("torn", two[:-5]), ("reserved", bytes(5000)), ("empty", b"")):
        rows, problem = survey_segment(write(tmp_path / name, one, tail), WHERE)
        assert problem is None and next(iter(rows.values())).records == 3, name
    assert survey_segment(str(tmp_path / "gone"), WHERE) == ({}, None)


def test_damage_is_told_with_its_place_and_what_lies_before_it_counts(tmp_path: Path) -> None:
    one = batch_at(0, 3, T0)
    bad = bytearray(batch_at(3, 3, T0))
    bad[8:12] = (5).to_bytes(4, "big")
    rows, problem = survey_segment(write(tmp_path / LOG, one, bytes(bad), batch_at(6, 3, T0)), WHERE)
    assert next(iter(rows.values())).records == 3
    assert problem is not None and LOG in problem and f"position {len(one)}" in problem
    assert survey_segment(str(tmp_path), WHERE).problem is not None


def test_sums_are_those_of_the_parts(tmp_path: Path) -> None:
    first = survey_segment(write(tmp_path / "1", batch_at(0, 3, T0 + 5)), WHERE).rows
    second = survey_segment(write(tmp_path / "2", batch_at(3, 2, T0 + 1005)), WHERE).rows
    (counts,) = merged([first, second, {}]).values()
    assert (counts.batches, counts.records, counts.first_ms, counts.last_ms) == (2, 5, T0 + 5, T0 + 1005)
    assert counts.records_a_second == 5.0 and counts.bytes_a_second == counts.bytes
