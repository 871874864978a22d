"""The streaming reader, asked as Spark asks it, without Spark's JVM."""

import json
import pickle
import shutil
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import kafkalog
from kafkalog.errors import CorruptRecord, IllegalArgument, OffsetOutOfRange, UnknownTopicOrPartition
from tests.mock_time import MockClock
from tests.spark.topics import TIME, batch_positions, first_segment, flip, make_topic
from tests.transactional import Log, made

pytest.importorskip("pyspark", reason="PySpark is not installed")

from pyspark.sql.streaming.datasource import ReadAllAvailable, ReadMaxRows, ReadMinRows

from kafkalog.spark.damage import DataLoss
from kafkalog.spark.options import SourceOptions
from kafkalog.spark.ranges import TINY_BYTES
from kafkalog.spark.stream import StreamReader

Offsets = dict[str, dict[str, int]]


def reader(*paths: Path, clock: MockClock | None = None, **given: Any) -> StreamReader:
    """A reader of these paths; `subscribe` is orders unless something else is subscribed to."""
    options = {"paths": json.dumps([str(path) for path in paths])}
    options |= {name: str(value) for name, value in ({"startingOffsets": "earliest"} | given).items()}
    if not {"subscribePattern", "assign", "subscribe"} & set(given):
        options["subscribe"] = "orders"
    parsed = SourceOptions.parse(options, streaming=True)
    return StreamReader(parsed, parsed.columns, clock=clock or MockClock())


def latest(stream: StreamReader, start: Offsets) -> Offsets:
    """Return the end of the next batch, requested as Spark does: offsets go through JSON, with its own limit."""
    end = stream.latestOffset(json.loads(json.dumps(start)), stream.getDefaultReadLimit())
    return json.loads(json.dumps(end))


def read(stream: StreamReader, start: Offsets, end: Offsets) -> list[tuple[int, int]]:
    """(partition, offset) of all records of a batch, each task with a copy of the reader."""
    copies = [(pickle.loads(pickle.dumps(stream)), part) for part in stream.partitions(start, end)]
    rows = [row for copy, part in copies for batch in copy.read(part) for row in batch.to_pylist()]
    return [(row["partition"], row["offset"]) for row in rows]


def append(data: Path, records: int, partition: int = 0, topic: str = "orders") -> None:
    with kafkalog.open(data / f"{topic}-{partition}", "a") as log:
        log.append([b"more"] * records)


class TestWhereItBegins:
    def test_at_the_latest_offsets_unless_told_otherwise(self, tmp_path: Path) -> None:
        make_topic(tmp_path, partitions=11, batches=1)
        options = SourceOptions.parse({"path": str(tmp_path), "subscribe": "orders"}, streaming=True)
        assert StreamReader(options, options.columns).initialOffset() == {"orders": {str(n): 25 for n in range(11)}}

    def test_at_offsets_times_and_ends(self, tmp_path: Path) -> None:
        make_topic(tmp_path, partitions=2)
        given = json.dumps({"orders": {"0": 7, "1": -1}})
        assert reader(tmp_path, startingOffsets=given).initialOffset() == {"orders": {"0": 7, "1": 100}}
        given = json.dumps({"orders": {"0": -2, "1": 9}})
        assert reader(tmp_path, startingOffsets=given).initialOffset() == {"orders": {"0": 0, "1": 9}}
        assert reader(tmp_path, startingTimestamp=TIME + 30).initialOffset() == {"orders": {"0": 30, "1": 30}}
        late = {"startingTimestamp": TIME + 500, "startingOffsetsByTimestampStrategy": "latest"}
        assert reader(tmp_path, **late).initialOffset() == {"orders": {"0": 100, "1": 100}}

    def test_offsets_that_are_not_there_fail_or_the_nearest_ones_count(self, tmp_path: Path) -> None:
        make_topic(tmp_path)
        given = json.dumps({"orders": {"0": 101}})
        with pytest.raises(OffsetOutOfRange, match="starting offset 101 of orders-0 does not exist: it has 0 to 100"):
            reader(tmp_path, startingOffsets=given).initialOffset()
        with pytest.warns(DataLoss, match="starting offset 101"):
            begin = reader(tmp_path, startingOffsets=given, failOnDataLoss="false").initialOffset()
        assert begin == {"orders": {"0": 100}}

    def test_a_topic_that_never_was_is_a_mistake_whatever_may_be_lost(self, tmp_path: Path) -> None:
        make_topic(tmp_path)
        with pytest.raises(UnknownTopicOrPartition, match="there is no topic order"):
            reader(tmp_path, subscribe="orders,order", failOnDataLoss="false").initialOffset()

    def test_a_pattern_that_nothing_matches_yet_begins_nowhere(self, tmp_path: Path) -> None:
        make_topic(tmp_path)
        stream = reader(tmp_path, subscribePattern="new.*")
        begin = stream.initialOffset()
        assert begin == {} and latest(stream, begin) == {} and stream.reportLatestOffset() is None
        make_topic(tmp_path, "newer", batches=1)
        stream._clock.advance(1000)  # type: ignore[attr-defined]
        assert latest(stream, begin) == {"newer": {"0": 25}}

    @pytest.mark.parametrize("name", ["endingOffsets", "endingTimestamp", "endingOffsetsByTimestamp"])
    def test_a_stream_has_no_end(self, tmp_path: Path, name: str) -> None:
        with pytest.raises(IllegalArgument, match=f"{name} does not apply to streams"):
            reader(tmp_path, **{name: "latest"})


    def test_a_topic_in_the_making_is_not_there_yet(self, tmp_path: Path) -> None:
        make_topic(tmp_path)
        stream = reader(tmp_path, subscribePattern="orders|new.*")
        begin = stream.initialOffset()
        (tmp_path / "newer-0").mkdir()
        stream._clock.advance(1000)  # type: ignore[attr-defined]
        assert latest(stream, begin) == {"orders": {"0": 100}}
        make_topic(tmp_path, "newer", batches=1)
        assert latest(stream, begin) == {"orders": {"0": 100}, "newer": {"0": 25}}


class TestTriggers:
    def test_each_record_is_read_once_in_batches_of_the_limit(self, tmp_path: Path) -> None:
        make_topic(tmp_path, partitions=2)
        stream = reader(tmp_path, maxOffsetsPerTrigger=60)
        begin, got, ends = stream.initialOffset(), [], []
        while (end := latest(stream, begin)) != begin:
            got += read(stream, begin, end)
            ends.append(end["orders"])
            begin = end
        assert sorted(got) == [(p, n) for p in range(2) for n in range(100)]
        assert ends == [{"0": n, "1": n} for n in (30, 60, 90, 100)]
        assert stream.reportLatestOffset() == begin

    def test_the_limit_of_the_engine_goes_before_the_options(self, tmp_path: Path) -> None:
        make_topic(tmp_path)
        stream = reader(tmp_path, maxOffsetsPerTrigger=30, minOffsetsPerTrigger=20)
        assert stream.latestOffset(stream.initialOffset(), ReadAllAvailable()) == {"orders": {"0": 100}}

    def test_what_spark_is_told_of_the_limits(self, tmp_path: Path) -> None:
        assert reader(tmp_path).getDefaultReadLimit() == ReadAllAvailable()
        assert reader(tmp_path, maxOffsetsPerTrigger=7).getDefaultReadLimit() == ReadMaxRows(7)
        assert reader(tmp_path, minOffsetsPerTrigger=7).getDefaultReadLimit() == ReadMinRows(7)
        both = reader(tmp_path, minOffsetsPerTrigger=7, maxOffsetsPerTrigger=9)
        assert both.getDefaultReadLimit() == ReadMaxRows(9)

    def test_a_small_batch_waits_until_there_is_enough_or_time_is_up(self, tmp_path: Path) -> None:
        make_topic(tmp_path, batches=1)
        clock = MockClock()
        stream = reader(tmp_path, minOffsetsPerTrigger=10, maxOffsetsPerTrigger=12, maxTriggerDelay="30s", clock=clock)
        begin = latest(stream, stream.initialOffset())
        assert begin == {"orders": {"0": 12}}
        begin = latest(stream, begin)
        assert begin == {"orders": {"0": 24}}
        assert latest(stream, begin) == begin, "one is too few"
        clock.advance(29_999)
        assert latest(stream, begin) == begin
        clock.advance(1)
        assert latest(stream, begin) == {"orders": {"0": 25}}
        append(tmp_path, 9)
        assert latest(stream, {"orders": {"0": 25}}) == {"orders": {"0": 25}}
        append(tmp_path, 1)
        assert latest(stream, {"orders": {"0": 25}}) == {"orders": {"0": 35}}

    def test_new_partitions_are_read_from_their_beginning(self, tmp_path: Path) -> None:
        make_topic(tmp_path, batches=1)
        stream = reader(tmp_path, startingOffsets="latest")
        begin = stream.initialOffset()
        append(tmp_path, 3, partition=1)
        stream._clock.advance(1000)  # type: ignore[attr-defined]
        end = latest(stream, begin)
        assert end == {"orders": {"0": 25, "1": 3}} and read(stream, begin, end) == [(1, 0), (1, 1), (1, 2)]

    def test_partitions_in_several_directories_and_one_that_moves(self, tmp_path: Path) -> None:
        one, two = tmp_path / "one", tmp_path / "two"
        make_topic(one, partitions=2, batches=1)
        make_topic(two, "other")
        stream = reader(one, two)
        begin = stream.initialOffset()
        end = latest(stream, begin)
        shutil.move(one / "orders-1", two / "orders-1")
        append(two, 5, partition=1)
        stream._clock.advance(1000)  # type: ignore[attr-defined]
        assert latest(stream, end) == {"orders": {"0": 25, "1": 30}}
        assert read(stream, end, {"orders": {"0": 25, "1": 30}}) == [(1, n) for n in range(25, 30)]


class TestAvailableNow:
    def test_it_ends_with_what_was_there_at_its_start(self, tmp_path: Path) -> None:
        make_topic(tmp_path, batches=2)
        stream = reader(tmp_path, maxOffsetsPerTrigger=30)
        stream.prepareForTriggerAvailableNow()
        begin = stream.initialOffset()
        append(tmp_path, 100)
        append(tmp_path, 1, partition=1)
        assert (end := latest(stream, begin)) == {"orders": {"0": 30}}
        assert (last := latest(stream, end)) == {"orders": {"0": 50}}
        assert latest(stream, last) == last

    def test_the_lower_limit_leaves_nothing_behind(self, tmp_path: Path) -> None:
        make_topic(tmp_path, batches=2)
        stream = reader(tmp_path, maxOffsetsPerTrigger=30, minOffsetsPerTrigger=25)
        stream.prepareForTriggerAvailableNow()
        end = latest(stream, latest(stream, stream.initialOffset()))
        assert end == {"orders": {"0": 50}} and latest(stream, end) == end

    def test_a_partition_that_goes_meanwhile_is_a_loss(self, tmp_path: Path) -> None:
        make_topic(tmp_path, partitions=2, batches=1)
        stream = reader(tmp_path, failOnDataLoss="false")
        stream.prepareForTriggerAvailableNow()
        shutil.rmtree(tmp_path / "orders-1")
        with pytest.warns(DataLoss, match="orders-1 is missing"):
            end = latest(stream, {"orders": {"0": 0, "1": 0}})
        assert end == {"orders": {"0": 25}} and latest(stream, end) == end


def after_loss(make: Callable[..., StreamReader], start: Offsets, match: str) -> tuple[StreamReader, Offsets]:
    """Return the restart offsets of a stream that may lose data; one that may not fails with the same words."""
    with pytest.raises(OffsetOutOfRange, match=match) as raised:
        latest(make(failOnDataLoss="true"), start)
    assert raised.value.hint is not None and "failOnDataLoss" in raised.value.hint
    stream = make(failOnDataLoss="false")
    with pytest.warns(DataLoss, match=match):
        return stream, latest(stream, start)


class TestLoss:
    def test_retention_that_overtakes_the_reader(self, tmp_path: Path) -> None:
        make_topic(tmp_path)
        with kafkalog.open(tmp_path / "orders-0", "a") as log:
            log.delete_before(60)
        start = {"orders": {"0": 40}}
        match = "offsets 40 to 59 of orders-0 were deleted before they were read"
        stream, end = after_loss(lambda **given: reader(tmp_path, **given), start, match)
        assert end == {"orders": {"0": 100}}
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", DataLoss)
            assert read(stream, start, end) == [(0, n) for n in range(60, 100)]
        with pytest.raises(OffsetOutOfRange, match=match):  # the batch was planned, then the query was stopped
            reader(tmp_path).partitions(start, end)

    def test_a_limit_counts_what_is_there(self, tmp_path: Path) -> None:
        make_topic(tmp_path)
        with kafkalog.open(tmp_path / "orders-0", "a") as log:
            log.delete_before(60)
        stream = reader(tmp_path, failOnDataLoss="false", maxOffsetsPerTrigger=10)
        with pytest.warns(DataLoss):
            assert latest(stream, {"orders": {"0": 40}}) == {"orders": {"0": 70}}

    def test_a_partition_that_disappears_and_comes_back(self, tmp_path: Path) -> None:
        make_topic(tmp_path, partitions=2, batches=1)
        shutil.rmtree(tmp_path / "orders-1")
        start = {"orders": {"0": 10, "1": 20}}
        stream, end = after_loss(lambda **given: reader(tmp_path, **given), start, "orders-1 is missing.*read up to 20")
        assert end == {"orders": {"0": 25}}
        append(tmp_path, 3, partition=1)
        stream._clock.advance(1000)  # type: ignore[attr-defined]
        assert latest(stream, end) == {"orders": {"0": 25, "1": 3}}

    def test_a_topic_that_disappears_ends_no_query_that_may_lose_data(self, tmp_path: Path) -> None:
        make_topic(tmp_path, batches=1)
        make_topic(tmp_path, "other", batches=1)
        stream = reader(tmp_path, subscribe="orders,other", failOnDataLoss="false")
        end = latest(stream, stream.initialOffset())
        shutil.rmtree(tmp_path / "other-0")
        with pytest.warns(DataLoss, match="other-0 is missing"):
            end = latest(stream, end)
        append(tmp_path, 1)
        assert latest(stream, end) == {"orders": {"0": 26}}
        shutil.rmtree(tmp_path / "orders-0")
        with pytest.warns(DataLoss, match="orders-0 is missing"):
            assert latest(stream, {"orders": {"0": 26}}) == {"orders": {"0": 26}}, "with nothing left it stays"

    def test_a_topic_that_is_named_and_absent_is_told(self, tmp_path: Path) -> None:
        make_topic(tmp_path, batches=1)
        stream = reader(tmp_path, subscribe="orders,later")
        with pytest.raises(UnknownTopicOrPartition, match="there is no topic later"):
            latest(stream, {"orders": {"0": 0}})
        stream = reader(tmp_path, assign='{"orders":[0,1]}')
        with pytest.raises(UnknownTopicOrPartition, match="topic orders has no partition 1"):
            latest(stream, {"orders": {"0": 0}})

    def test_a_log_that_was_cut_goes_on_at_its_end(self, tmp_path: Path) -> None:
        make_topic(tmp_path)
        with kafkalog.open(tmp_path / "orders-0", "a") as log:
            log.truncate_to(75)
        match = "orders-0 was read up to 100 but now ends at 75: reading continues at 75"
        stream, end = after_loss(lambda **given: reader(tmp_path, **given), {"orders": {"0": 100}}, match)
        assert end == {"orders": {"0": 75}} and read(stream, {"orders": {"0": 75}}, end) == []
        append(tmp_path, 2)
        assert read(stream, end, latest(stream, end)) == [(0, 75), (0, 76)]

    @pytest.mark.parametrize("records", [20, 70])
    def test_a_topic_made_anew_while_the_stream_runs_is_read_from_its_beginning(
        self, tmp_path: Path, records: int
    ) -> None:
        def recreate() -> None:
            with kafkalog.open_dirs([tmp_path], "a") as dirs:
                dirs.create_topic("orders", partitions=1)

        recreate()
        append(tmp_path, 50)
        stream = reader(tmp_path, failOnDataLoss="false")
        end = latest(stream, stream.initialOffset())
        shutil.rmtree(tmp_path / "orders-0")
        (tmp_path / "kafkalog.topics.json").unlink()
        recreate()
        append(tmp_path, records)
        stream._clock.advance(1000)  # type: ignore[attr-defined]
        match = "orders-0 was deleted and created again after it was read up to 50: reading continues at 0"
        with pytest.warns(DataLoss, match=match):
            begin = latest(stream, end)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", DataLoss)
            assert read(stream, end, begin) == []
        end = latest(stream, begin)
        assert read(stream, begin, end) == [(0, n) for n in range(records)]

    def test_a_partition_that_is_away_for_a_moment_is_not_lost(self, tmp_path: Path) -> None:
        make_topic(tmp_path, partitions=2, batches=1)
        away = tmp_path / "elsewhere"

        class Moving(MockClock):
            def sleep(self, ms: float) -> None:
                super().sleep(ms)
                away.rename(tmp_path / "orders-1")

        stream = reader(tmp_path, clock=Moving())
        start = stream.initialOffset()
        (tmp_path / "orders-1").rename(away)
        stream._clock.advance(1000)  # type: ignore[attr-defined]
        assert latest(stream, start) == {"orders": {"0": 25, "1": 25}}

    def test_a_batch_whose_end_is_gone(self, tmp_path: Path) -> None:
        make_topic(tmp_path)
        start, end = {"orders": {"0": 90}}, {"orders": {"0": 120}}
        with pytest.raises(OffsetOutOfRange, match="orders-0 ends at 100, but was to be read up to 120"):
            reader(tmp_path).partitions(start, end)
        with pytest.warns(DataLoss, match="ends at 100"):
            stream = reader(tmp_path, failOnDataLoss="false")
            assert read(stream, start, end) == [(0, n) for n in range(90, 100)]

    def test_a_directory_that_is_gone_is_an_error_whatever_may_be_lost(self, tmp_path: Path) -> None:
        make_topic(tmp_path / "disk")
        stream = reader(tmp_path / "disk", failOnDataLoss="false")
        start = stream.initialOffset()
        shutil.rmtree(tmp_path / "disk")
        with pytest.raises(UnknownTopicOrPartition, match="no such directory"):
            latest(stream, start)


class TestBatches:
    def test_a_batch_of_nothing_has_no_partitions(self, tmp_path: Path) -> None:
        make_topic(tmp_path)
        stream = reader(tmp_path)
        assert stream.partitions({"orders": {"0": 7}}, {"orders": {"0": 7}}) == []
        assert stream.partitions({"gone": {"0": 7}}, {"gone": {"0": 7}}) == [], "Spark asks so on a restart"

    def test_a_batch_that_is_planned_again_has_the_same_records(self, tmp_path: Path) -> None:
        make_topic(tmp_path, partitions=2)
        first = reader(tmp_path, maxOffsetsPerTrigger=70)
        start = first.initialOffset()
        end = latest(first, start)
        got = read(first, start, end)
        append(tmp_path, 50)
        assert read(reader(tmp_path, maxOffsetsPerTrigger=7), start, end) == got and len(got) == 70

    def test_batches_are_divided_as_the_options_say(self, tmp_path: Path) -> None:
        make_topic(tmp_path, partitions=2)
        start, end = {"orders": {"0": 0, "1": 0}}, {"orders": {"0": 100, "1": 100}}
        assert len(reader(tmp_path).partitions(start, end)) == 1, "a task that starts costs more than so few rows"
        assert len(reader(tmp_path, minPartitions=2).partitions(start, end)) == 2
        assert len(reader(tmp_path, minPartitions=5).partitions(start, end)) >= 5
        assert len(reader(tmp_path, maxRecordsPerPartition=40).partitions(start, end)) == 6

    def test_many_small_ranges_are_read_by_few_tasks(self, tmp_path: Path) -> None:
        make_topic(tmp_path, partitions=20, batches=1, records=3)
        start, end = ({"orders": {str(n): offset for n in range(20)}} for offset in (0, 3))
        stream = reader(tmp_path)
        assert len(stream.partitions(start, end)) == 1
        assert len(reader(tmp_path, minPartitions=1).partitions(start, end)) == 20
        assert sorted(read(stream, start, end)) == [(p, n) for p in range(20) for n in range(3)]

    def test_few_ranges_share_a_task_only_if_they_are_tiny(self, tmp_path: Path) -> None:
        make_topic(tmp_path, partitions=3, batches=1, records=3)
        with kafkalog.open(tmp_path / "orders-1", "a") as log:
            log.append([bytes(TINY_BYTES)])
        start, end = ({"orders": {str(n): offset for n in range(3)}} for offset in (0, 3))
        assert len(reader(tmp_path).partitions(start, end)) == 1
        end["orders"]["1"] = 4
        parts = reader(tmp_path).partitions(start, end)
        assert [[one.partition for one in part.value] for part in parts] == [[0], [1], [2]]

    def test_offsets_that_are_no_offsets_are_told(self, tmp_path: Path) -> None:
        make_topic(tmp_path)
        with pytest.raises(IllegalArgument, match="the checkpoint is damaged, or belongs to another source"):
            latest(reader(tmp_path), {"logOffset": 7})  # type: ignore[dict-item]

    def test_columns_and_headers(self, tmp_path: Path) -> None:
        with kafkalog.open(tmp_path / "orders-0", "a") as log:
            log.append([{"value": b"v", "headers": [("h", b"1")]}, b"w"])
        stream = reader(tmp_path, includeHeaders="true", columns="value,headers")
        part, = stream.partitions({"orders": {"0": 0}}, {"orders": {"0": 2}})
        rows = [row for batch in stream.read(part) for row in batch.to_pylist()]
        assert rows == [{"value": b"v", "headers": [{"key": "h", "value": b"1"}]}, {"value": b"w", "headers": None}]

    def test_damage_ends_a_query_or_is_left_out_by_the_option(self, tmp_path: Path) -> None:
        make_topic(tmp_path, batches=4)
        path = first_segment(tmp_path)
        flip(path, batch_positions(path)[1][0] + 70)
        start, end = {"orders": {"0": 0}}, {"orders": {"0": 100}}
        with pytest.raises(CorruptRecord, match="set onDamage to skip"):
            read(reader(tmp_path), start, end)
        report = tmp_path.with_suffix(".report")
        found = read(reader(tmp_path, onDamage="skip", corruptReport=report), start, end)
        assert found == [(0, offset) for offset in (*range(25), *range(50, 100))]
        assert [json.loads(one.read_text())["offset"] for one in report.iterdir()] == [25]

    def test_damage_at_the_end_where_a_query_begins_is_reported(self, tmp_path: Path) -> None:
        make_topic(tmp_path, batches=1)
        flip(first_segment(tmp_path), 70)
        with pytest.raises(CorruptRecord, match="set onDamage to skip"):
            reader(tmp_path).initialOffset()
        report = tmp_path.with_suffix(".report")
        assert reader(tmp_path, onDamage="skip", corruptReport=report).initialOffset() == {"orders": {"0": 0}}
        assert len([*report.iterdir()]) == 1

    def test_stopping_gives_up_the_files_and_may_come_first(self, tmp_path: Path) -> None:
        make_topic(tmp_path)
        reader(tmp_path).stop()
        stream = reader(tmp_path)
        start = stream.initialOffset()
        stream.stop()
        assert latest(stream, start) == {"orders": {"0": 100}}, "one that is asked again looks again"


class TestCommitted:
    def log(self, path: Path, *events: tuple[str, int, int]) -> Log:
        log = made(list(events))
        log.write(path)
        return log

    def test_it_ends_at_the_last_stable_offset_and_leaves_out_what_was_aborted(self, tmp_path: Path) -> None:
        directory = tmp_path / "orders-0"
        directory.mkdir()
        begun = [("plain", 0, 3), ("data", 1, 4), ("data", 2, 5), ("abort", 2, 0)]
        log = self.log(directory, *begun)
        stream = reader(tmp_path, isolationLevel="read_committed")
        start = stream.initialOffset()
        end = latest(stream, start)
        assert end == {"orders": {"0": log.stable}} == {"orders": {"0": 3}}
        got = read(stream, start, end)
        log = self.log(directory, *begun, ("commit", 1, 0), ("plain", 0, 2))
        last = latest(stream, end)
        assert last == {"orders": {"0": log.end}}
        assert got + read(stream, end, last) == [(0, n) for n in log.committed()]

    def test_to_begin_behind_what_is_decided_is_no_loss(self, tmp_path: Path) -> None:
        directory = tmp_path / "orders-0"
        directory.mkdir()
        self.log(directory, ("plain", 0, 3), ("data", 1, 4))
        given = json.dumps({"orders": {"0": 6}})
        stream = reader(tmp_path, isolationLevel="read_committed", startingOffsets=given)
        begin = stream.initialOffset()
        assert begin == {"orders": {"0": 6}} == latest(stream, begin)

    def test_going_over_to_committed_records_waits_for_the_decision(self, tmp_path: Path) -> None:
        directory = tmp_path / "orders-0"
        directory.mkdir()
        self.log(directory, ("plain", 0, 3), ("data", 1, 4))
        read_already = {"orders": {"0": 7}}
        stream = reader(tmp_path, isolationLevel="read_committed")
        assert latest(stream, read_already) == read_already
        self.log(directory, ("plain", 0, 3), ("data", 1, 4), ("commit", 1, 0), ("plain", 0, 2))
        assert read(stream, read_already, latest(stream, read_already)) == [(0, 8), (0, 9)]


@pytest.mark.parametrize(
    ("given", "is_refused"), [({"value": "json"}, True), ({"value": "string"}, False), ({}, False)]
)
def test_a_topic_that_appears_later_may_have_other_types(
    tmp_path: Path, given: dict[str, str], is_refused: bool
) -> None:
    make_topic(tmp_path, batches=1, records=3)
    stream = reader(tmp_path, subscribePattern="^orders", **given)
    start = stream.initialOffset()
    end = latest(stream, start)
    assert end == {"orders": {"0": 3}}
    make_topic(tmp_path, topic="orders2", batches=1, records=2)
    if is_refused:
        with pytest.raises(IllegalArgument, match="2 topics, which may have types of their own: orders, orders2"):
            latest(stream, end)
    else:
        assert latest(stream, end) == {"orders": {"0": 3}, "orders2": {"0": 2}}
