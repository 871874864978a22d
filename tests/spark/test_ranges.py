"""A read cut into ranges: all offsets once, along the batches, as many as asked for."""

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

import kafkalog
from kafkalog.exchange.ranges import OffsetRange, cut
from kafkalog.spark.batch_plan import plan_batch
from kafkalog.spark.ranges import at_least, divided
from tests.builder import R, batch
from tests.spark.topics import batch_positions, first_segment, make_topic, offsets_of, source_options

sizes = st.lists(st.integers(1, 200), min_size=1, max_size=6)


def ranges_of(lengths: list[int]) -> list[OffsetRange]:
    return [OffsetRange("t", i, f"/t-{i}", 7, 7 + length) for i, length in enumerate(lengths)]


def covered(ranges: list[OffsetRange]) -> list[tuple[int, int]]:
    return [(one.partition, offset) for one in ranges for offset in range(one.start, one.stop)]


@given(sizes, st.integers(1, 400))
def test_at_least_so_many_where_there_are_so_many_offsets(lengths: list[int], least: int) -> None:
    ranges = ranges_of(lengths)
    found = at_least(ranges, least)
    assert covered(found) == covered(ranges) and all(map(len, found))
    assert len(found) == max(len(lengths), min(least, sum(lengths)))


@given(st.integers(1, 500), st.integers(1, 50))
def test_divided_evenly(length: int, parts: int) -> None:
    (whole,) = ranges_of([length])
    found = divided(whole, parts)
    assert covered(found) == covered([whole]) and len(found) == min(parts, length)
    assert max(map(len, found)) - min(map(len, found)) <= 1


def test_cuts_outside_are_passed_over() -> None:
    (whole,) = ranges_of([10])
    assert [(one.start, one.stop) for one in cut(whole, [3, 7, 9, 17, 20])] == [(7, 9), (9, 17)]


@pytest.fixture
def data(tmp_path: Path) -> Path:
    """100 batches of 50 records in several segments, indexed at every batch."""
    return make_topic(tmp_path, batches=100, records=50, internal_segment_bytes=20_000, index_interval_bytes=0)


def test_ranges_begin_where_batches_begin(data: Path) -> None:
    with kafkalog.open(data / "orders-0") as log:
        size, starts = log.size, {batch.base_offset for batch in log.batches()}
    ranges = plan_batch(source_options(data, maxPartitionBytes=size // 8))
    assert 7 <= len(ranges) <= 9
    assert {one.start for one in ranges} <= starts
    assert covered(ranges) == [(0, offset) for offset in range(5000)]


def test_a_range_spans_segments_where_it_is_large_enough(data: Path) -> None:
    assert len(list((data / "orders-0").glob("*.log"))) > 3
    assert [(one.start, one.stop) for one in plan_batch(source_options(data))] == [(0, 5000)]


def test_min_partitions_along_the_batches(data: Path) -> None:
    with kafkalog.open(data / "orders-0") as log:
        starts = {batch.base_offset for batch in log.batches()}
    ranges = plan_batch(source_options(data, minPartitions=10))
    assert 10 <= len(ranges) <= 12 and len({one.start for one in ranges} - starts) <= 1
    assert offsets_of(source_options(data, minPartitions=10)) == list(range(5000))


def test_min_partitions_inside_a_batch(tmp_path: Path) -> None:
    make_topic(tmp_path, batches=1, records=10)
    assert len(plan_batch(source_options(tmp_path, minPartitions=7))) == 7
    assert len(plan_batch(source_options(tmp_path, minPartitions=70))) == 10
    assert offsets_of(source_options(tmp_path, minPartitions=7)) == list(range(10))


def test_max_records_per_partition(data: Path) -> None:
    ranges = plan_batch(source_options(data, maxRecordsPerPartition=333))
    assert len(ranges) == 16 and max(map(len, ranges)) <= 333
    assert offsets_of(source_options(data, maxRecordsPerPartition=333)) == list(range(5000))


def test_part_of_a_log_is_cut_as_well(data: Path) -> None:
    part = {"startingOffsets": '{"orders":{"0":777}}', "endingOffsets": '{"orders":{"0":3333}}'}
    ranges = plan_batch(source_options(data, maxPartitionBytes=10_000, **part))
    assert len(ranges) > 3 and covered(ranges) == [(0, offset) for offset in range(777, 3333)]
    assert offsets_of(source_options(data, maxPartitionBytes=10_000, **part)) == list(range(777, 3333))


def test_without_an_index_a_segment_is_not_cut(data: Path) -> None:
    for index in (data / "orders-0").glob("*.index"):
        index.unlink()
    ranges = plan_batch(source_options(data, maxPartitionBytes=1))
    assert len(ranges) == len(list((data / "orders-0").glob("*.log")))
    assert covered(ranges) == [(0, offset) for offset in range(5000)]


def test_an_empty_partition_has_no_range(tmp_path: Path) -> None:
    kafkalog.open(tmp_path / "orders-0", "a").close()
    assert plan_batch(source_options(tmp_path)) == []


def test_damage_does_not_keep_a_read_that_skips_it_from_being_planned(tmp_path: Path) -> None:
    make_topic(tmp_path, batches=8)
    path = first_segment(tmp_path)
    later = tmp_path / "orders-0" / f"{200:020d}.log"
    later.write_bytes(batch([R(value=b"v")] * 5, base_offset=200))
    content = bytearray(path.read_bytes())
    place = batch_positions(path)[2][0]
    content[place + 8 : place + 12] = bytes(4)  # no batch has this size
    path.write_bytes(content)
    limits = {"startingOffsets": '{"orders":{"0":80}}', "endingOffsets": '{"orders":{"0":150}}'}
    options = source_options(tmp_path, onDamage="skip", minPartitions=3, **limits)
    assert offsets_of(options) == list(range(80, 150))
