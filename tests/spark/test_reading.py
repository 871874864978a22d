"""A task's reads: Spark's own types, damage and loss by the options' rules, memory that stays flat."""

import json
import logging
import subprocess
import sys
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

import kafkalog
from kafkalog.errors import CorruptRecord, InvalidRecord, InvalidTimestamp, OffsetOutOfRange, PartitionNotFound
from kafkalog.spark.batch_plan import plan_batch
from kafkalog.spark.damage import DataLoss
from kafkalog.spark.range_scan import RangeScan
from kafkalog.spark.reading import BATCH_ROWS, arrow_batches
from kafkalog.spark.row_schema import TYPES, arrow_schema
from tests.builder import R, batch, frame
from tests.spark.topics import batch_positions, first_segment, flip, make_topic, offsets_of, rows_of, source_options

ROOT = Path(__file__).parents[2]
HINT = "a replica or a backup"


def test_batches_have_spark_s_types(tmp_path: Path) -> None:
    with kafkalog.open(tmp_path / "orders-0", "a") as log:
        headers = [("h", b"1"), ("h", None)]
        log.append([{"key": b"k", "value": None, "timestamp": 5, "headers": headers}, (None, b"v", 6)])
    options = source_options(tmp_path, includeHeaders="true")
    (wanted,) = plan_batch(options)
    (found,) = arrow_batches(wanted, options.columns, options)
    assert found.schema.equals(arrow_schema(TYPES))
    assert found.schema.field("timestamp").type == pa.timestamp("us", "UTC")
    first, second = found.to_pylist()
    assert first["headers"] == [{"key": "h", "value": b"1"}, {"key": "h", "value": None}] and first["value"] is None
    assert second["headers"] is None and second["key"] is None
    assert found.column("timestamp").cast("int64").to_pylist() == [5000, 6000]


def test_only_the_columns_wanted(tmp_path: Path) -> None:
    options = source_options(make_topic(tmp_path), columns="timestampType,offset")
    assert rows_of(options)[99] == {"timestampType": 0, "offset": 99}


def test_a_time_that_spark_cannot_say(tmp_path: Path) -> None:
    directory = tmp_path / "orders-0"
    directory.mkdir()
    (directory / "00000000000000000000.log").write_bytes(batch([R(timestamp=2**62)]))
    with pytest.raises(InvalidTimestamp, match="offsets 0 to 0.*set columns to read all but timestamp") as caught:
        rows_of(source_options(tmp_path))
    assert caught.value.path == str(directory)
    assert offsets_of(source_options(tmp_path, columns="offset")) == [0]


def test_batches_are_bounded(tmp_path: Path) -> None:
    options = source_options(make_topic(tmp_path, batches=25, records=1000))
    (wanted,) = plan_batch(options)
    sizes = [found.num_rows for found in arrow_batches(wanted, options.columns, options)]
    assert max(sizes) <= BATCH_ROWS and sum(sizes) == 25_000 and len(sizes) == 3


def test_nothing_is_read_before_it_is_asked_for(tmp_path: Path) -> None:
    options = source_options(make_topic(tmp_path))
    (wanted,) = plan_batch(options)
    batches = arrow_batches(wanted, options.columns, options)
    for file in (tmp_path / "orders-0").iterdir():
        file.unlink()
    (tmp_path / "orders-0").rmdir()
    with pytest.raises(PartitionNotFound, match="failOnDataLoss"):
        next(batches)


# Damage


def damage_batches(data: Path, *rows: int, at: int = 70) -> tuple[Path, int, int]:
    """The segment file with a byte of these batches changed, the first one's position and size."""
    path = first_segment(data)
    places = batch_positions(path)
    for row in rows:
        flip(path, places[row][0] + at)
    return path, *places[rows[0]]


def test_a_corrupt_batch_in_the_middle_fails_with_file_and_position(tmp_path: Path) -> None:
    make_topic(tmp_path, batches=6, index_interval_bytes=0)
    path, position, _ = damage_batches(tmp_path, 2)
    with pytest.raises(CorruptRecord, match=HINT) as caught:
        offsets_of(source_options(tmp_path))
    assert (caught.value.path, caught.value.position, caught.value.offset) == (str(path), position, 50)
    assert str(path) in str(caught.value) and f"position {position}" in str(caught.value)


def test_without_an_index_behind_it_the_damage_is_no_end_of_the_log(tmp_path: Path) -> None:
    """A batch must not end there as if nothing were lost."""
    make_topic(tmp_path, batches=6)
    path, position, _ = damage_batches(tmp_path, 2)
    with pytest.raises(CorruptRecord, match="set onDamage to skip") as caught:
        offsets_of(source_options(tmp_path))
    assert (caught.value.path, caught.value.position) == (str(path), position)


@pytest.mark.parametrize("index", [0, 4096])
@pytest.mark.parametrize("at", [70, 10, 16], ids=["value", "size", "magic"])
def test_a_corrupt_batch_in_the_middle_is_skipped_and_counted(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, index: int, at: int
) -> None:
    make_topic(tmp_path, batches=6, index_interval_bytes=index)
    path, position, size = damage_batches(tmp_path, 2, at=at)
    options = source_options(tmp_path, onDamage="skip", corruptReport=str(tmp_path.with_suffix(".report")))
    with caplog.at_level(logging.WARNING, "kafkalog.spark"):
        assert offsets_of(options) == [*range(50), *range(75, 150)]
    (report,) = tmp_path.with_suffix(".report").iterdir()
    (line,) = report.read_text().splitlines()
    reported = json.loads(line)
    assert reported.pop("reason")
    assert reported == {
        "topic": "orders", "partition": 0, "file": str(path), "position": position, "bytes": size, "offset": 50,
        "next_offset": 75,
    }  # fmt: skip
    assert f"skipped {size} damaged bytes of {path} from position {position}, offsets 50 to 74" in caplog.text


def test_log_without_a_sound_batch_raises_or_reports(tmp_path: Path) -> None:
    """No task reads anything of such a log, so the plan looks at it."""
    make_topic(tmp_path, batches=1)
    path, position, size = damage_batches(tmp_path, 0)
    with pytest.raises(CorruptRecord, match="set onDamage to skip") as caught:
        plan_batch(source_options(tmp_path))
    assert (caught.value.path, caught.value.position) == (str(path), position)
    options = source_options(tmp_path, onDamage="skip", corruptReport=str(tmp_path.with_suffix(".report")))
    assert plan_batch(options) == []
    (report,) = tmp_path.with_suffix(".report").iterdir()
    reported = json.loads(report.read_text())
    assert (reported["file"], reported["position"], reported["bytes"]) == (str(path), position, size)


def test_damage_in_several_segments_is_skipped(tmp_path: Path) -> None:
    make_topic(tmp_path, batches=12, internal_segment_bytes=2000)
    segments = sorted((tmp_path / "orders-0").glob("*.log"))
    assert len(segments) >= 3
    bases = [int(path.name[:20]) for path in segments]
    for path in segments:
        flip(path, 70)  # the first batch of each
    found = offsets_of(source_options(tmp_path, onDamage="skip"))
    lost = {offset for base in bases for offset in range(base, base + 25)}
    assert found == [offset for offset in range(300) if offset not in lost]
    with pytest.raises(CorruptRecord):
        offsets_of(source_options(tmp_path))


def test_several_batches_in_a_row_are_one_piece(tmp_path: Path) -> None:
    make_topic(tmp_path, batches=8)
    damage_batches(tmp_path, 2, 3, 4)
    report = tmp_path.with_suffix(".report")
    found = offsets_of(source_options(tmp_path, onDamage="skip", corruptReport=str(report)))
    assert found == [*range(50), *range(125, 200)]
    reported = [json.loads(line) for file in report.iterdir() for line in file.read_text().splitlines()]
    assert [(one["offset"], one["next_offset"]) for one in reported] == [(50, 125)]


def test_a_batch_that_quotes_another_log_is_skipped_whole(tmp_path: Path) -> None:
    """A value may hold sound batches: those are no part of this log."""
    inner = batch([R(value=b"inner")], base_offset=60)
    with kafkalog.open(tmp_path / "orders-0", "a") as log:
        log.append([b"a"] * 50)
        log.append([b"x" * 30 + bytes(inner) + b"y"] * 2)
        log.append([b"z"] * 50)
    damage_batches(tmp_path, 1)
    rows = rows_of(source_options(tmp_path, onDamage="skip"))
    assert [row["offset"] for row in rows] == [*range(50), *range(52, 102)]


def offsets_between(first: int, stop: int) -> dict[str, str]:
    return {"startingOffsets": f'{{"orders":{{"0":{first}}}}}', "endingOffsets": f'{{"orders":{{"0":{stop}}}}}'}


@pytest.mark.parametrize("index", [0, 4096])
@pytest.mark.parametrize("rolled", [False, True])
def test_a_range_that_begins_within_a_batch_behind_damage(tmp_path: Path, index: int, rolled: bool) -> None:
    """At any start of a range: a sound batch across its start is given, and only lost offsets are reported."""
    make_topic(tmp_path, batches=6, index_interval_bytes=index)
    damage_batches(tmp_path, 2)
    if rolled:
        later = batch([R(value=b"v")] * 5, base_offset=150)
        (tmp_path / "orders-0" / f"{150:020d}.log").write_bytes(later)
    there = [*range(50), *range(75, 150)]
    for first in (40, 60, 75, 80, 99, 100, 110):
        options = source_options(tmp_path, onDamage="skip", **offsets_between(first, 150))
        assert offsets_of(options) == [n for n in there if n >= first], first
    report = tmp_path.with_suffix(".report")
    options = source_options(tmp_path, onDamage="skip", corruptReport=str(report), maxRecordsPerPartition=30)
    assert offsets_of(options) == there + [*range(150, 155)] * rolled
    reported = [json.loads(line) for file in report.iterdir() for line in file.read_text().splitlines()]
    assert sorted((one["offset"], one["next_offset"]) for one in reported)[0][0] == 50
    assert max(one["next_offset"] for one in reported) == 75


def test_a_range_behind_two_places_of_damage(tmp_path: Path) -> None:
    make_topic(tmp_path, batches=8)
    damage_batches(tmp_path, 1, 4)
    for first, expected in ((60, [*range(60, 100), *range(125, 200)]), (130, [*range(130, 200)])):
        options = source_options(tmp_path, onDamage="skip", **offsets_between(first, 200))
        assert offsets_of(options) == expected


@pytest.mark.parametrize("stop", [75, 100, 150])
def test_a_base_offset_that_is_too_high_hides_nothing_behind_it(tmp_path: Path, stop: int) -> None:
    make_topic(tmp_path, batches=6)
    path = first_segment(tmp_path)
    place, _ = batch_positions(path)[2]
    content = bytearray(path.read_bytes())
    content[place : place + 8] = (10**9).to_bytes(8, "big")
    path.write_bytes(content)
    with pytest.raises(CorruptRecord):
        offsets_of(source_options(tmp_path, **offsets_between(0, stop)))  # the last segment: it ends there for its view
    (tmp_path / "orders-0" / f"{150:020d}.log").write_bytes(batch([R(value=b"v")] * 5, base_offset=150))
    with pytest.raises(CorruptRecord):
        offsets_of(source_options(tmp_path, **offsets_between(0, stop)))
    skipping = source_options(tmp_path, onDamage="skip", **offsets_between(0, stop))
    assert offsets_of(skipping) == [*range(50), *range(75, stop)]


def pause_reading(data: Path, stop: int) -> tuple[kafkalog.Log, Any]:
    """A view of a partition as it is now, and the chunks of its offsets up to `stop`, the first given."""
    log = kafkalog.open(data / "orders-0")
    options = source_options(data, onDamage="skip")
    sized = {"batch_rows": 100, "batch_bytes": 1 << 20}
    chunks = RangeScan(log, 0, stop, ("offset",), options, [], **sized)._chunks()
    return log, (next(chunks), chunks)


def batch_ends(first: Any, rest: Any) -> list[int]:
    return [chunk.batches.last_offset_of(n) + 1 for chunk in (first, *rest) for n in range(chunk.first, chunk.last)]


def test_what_is_written_while_a_range_is_read_is_no_gap(tmp_path: Path) -> None:
    """The view ended in the middle of a batch, and its owner goes on writing while it is read."""
    make_topic(tmp_path, batches=6)
    path = first_segment(tmp_path)
    whole, places = path.read_bytes(), batch_positions(path)
    path.write_bytes(whole[: places[3][0] + 80])
    log, given = pause_reading(tmp_path, 150)
    path.write_bytes(whole)
    with log:
        log._source.refresh()
        assert batch_ends(*given) == [25, 50, 75, 100, 125, 150]


def test_what_lies_behind_a_damaged_segment_that_gets_another_name(tmp_path: Path) -> None:
    make_topic(tmp_path, batches=6, index_interval_bytes=0)
    path, _, _ = damage_batches(tmp_path, 2)
    (tmp_path / "orders-0" / f"{150:020d}.log").write_bytes(batch([R(value=b"v")] * 5, base_offset=150))
    swap = path.with_name(path.name + ".swap")
    path.rename(swap)
    log, given = pause_reading(tmp_path, 155)
    swap.rename(path)
    with log:
        log._source.refresh()
        assert batch_ends(*given) == [25, 50, 100, 125, 150, 155]


def test_a_torn_end_is_the_end_of_the_log(tmp_path: Path) -> None:
    make_topic(tmp_path)
    path = first_segment(tmp_path)
    with path.open("ab") as file:
        file.write(path.read_bytes()[:150])
    with pytest.raises(CorruptRecord, match="ends in the middle of a batch"):
        offsets_of(source_options(tmp_path))
    (tmp_path / ".kafka_cleanshutdown").unlink()  # else it was closed well, and no write was torn
    assert offsets_of(source_options(tmp_path)) == list(range(100))


def test_a_checksum_may_be_taken_on_trust(tmp_path: Path) -> None:
    make_topic(tmp_path, batches=3, index_interval_bytes=0)
    damage_batches(tmp_path, 1, at=17)  # the checksum itself
    with pytest.raises(CorruptRecord):
        rows_of(source_options(tmp_path))
    assert offsets_of(source_options(tmp_path, verifyCrc="false")) == list(range(75))


def test_damage_inside_a_batch_whose_checksum_holds(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    parts = [batch([R(value=b"%d" % n) for n in range(first, first + 5)], base_offset=first) for first in (0, 5, 10)]
    broken = frame(b"\x7f" * 40, count=5, last_delta=4, base_offset=5, max_timestamp=5)
    directory = tmp_path / "orders-0"
    directory.mkdir()
    (directory / "00000000000000000000.log").write_bytes(parts[0] + broken + parts[2])
    with pytest.raises(InvalidRecord) as caught:
        offsets_of(source_options(tmp_path))
    assert caught.value.path == str(directory / "00000000000000000000.log")
    assert offsets_of(source_options(tmp_path, onDamage="skip")) == [*range(5), *range(10, 15)]
    assert f"skipped {len(broken)} damaged bytes" in caplog.text
    (tmp_path / "log-start-offset-checkpoint").write_text("0\n1\norders 0 7\n")  # the log begins inside the batch
    assert offsets_of(source_options(tmp_path, onDamage="skip")) == [*range(10, 15)]


@pytest.mark.parametrize("trusted", [False, True])
def test_damage_inside_a_batch_that_is_behind_other_damage(tmp_path: Path, trusted: bool) -> None:
    """Found again behind the end of the log's view, or with a checksum that is wrong and not asked for."""
    firsts = (0, 5, 10, 15)
    parts = [batch([R(value=b"%d" % n) for n in range(first, first + 5)], base_offset=first) for first in firsts]
    parts[2] = frame(b"\x7f" * 40, count=5, last_delta=4, base_offset=10, max_timestamp=5)
    spoiled_row = 2 if trusted else 1
    data = bytearray(parts[spoiled_row])
    data[17] ^= 1
    parts[spoiled_row] = bytes(data)
    directory = tmp_path / "orders-0"
    directory.mkdir()
    (directory / "00000000000000000000.log").write_bytes(b"".join(parts))
    later = batch([R(value=b"v")] * 5, base_offset=20)
    if trusted:
        (directory / f"{20:020d}.log").write_bytes(later)
    report = tmp_path.with_suffix(".report")
    options = source_options(
        tmp_path, onDamage="skip", corruptReport=str(report), verifyCrc=str(not trusted).lower(),
        startingOffsets='{"orders":{"0":2}}', maxRecordsPerPartition=11,
    )  # fmt: skip
    expected = [2, 3, 4, *range(5, 10), *range(15, 25)] if trusted else [2, 3, 4, *range(15, 20)]
    assert offsets_of(options) == expected
    lines = [json.loads(line) for one in report.iterdir() for line in one.read_text().splitlines()]
    reported = {(one["offset"], one["next_offset"]) for one in lines}
    starts = [one.start for one in plan_batch(options)]
    assert all(first >= min(starts) for first, _ in reported) and max(end for _, end in reported) == 15


# Loss


def segments_of(data: Path) -> list[Path]:
    return sorted((data / "orders-0").glob("*.log"))


def plan_segments(tmp_path: Path, **options: Any) -> tuple[Any, Any]:
    make_topic(tmp_path, batches=12, internal_segment_bytes=2000)
    chosen = source_options(tmp_path, **options)
    (wanted,) = plan_batch(chosen)
    return wanted, chosen


def read(wanted: Any, options: Any) -> list[int]:
    return [offset for one in arrow_batches(wanted, ("offset",), options) for offset in one.column(0).to_pylist()]


def test_a_segment_deleted_after_planning_is_data_loss(tmp_path: Path) -> None:
    wanted, options = plan_segments(tmp_path)
    segments_of(tmp_path)[0].unlink()
    with pytest.raises(OffsetOutOfRange, match="set failOnDataLoss to false"):
        read(wanted, options)


def test_or_it_is_passed_over_with_a_warning(tmp_path: Path) -> None:
    wanted, options = plan_segments(tmp_path, failOnDataLoss="false")
    first, second, *_ = segments_of(tmp_path)
    first.unlink()
    with pytest.warns(DataLoss, match=f"data loss in orders-0: offsets 0 to {int(second.name[:20]) - 1} are missing"):
        assert read(wanted, options) == list(range(int(second.name[:20]), 300))


def test_all_gone_is_passed_over_as_well(tmp_path: Path) -> None:
    wanted, options = plan_segments(tmp_path, failOnDataLoss="false")
    (tmp_path / "orders-0").rename(tmp_path / "orders-0.abc-delete")
    reason = "offsets 0 to 299 are missing: the partition directory does not exist"
    with pytest.warns(DataLoss, match=f"data loss in orders-0: {reason}"):
        assert read(wanted, options) == []


def test_a_node_without_the_data_directory_fails(tmp_path: Path) -> None:
    wanted, options = plan_segments(tmp_path, failOnDataLoss="false")
    tmp_path.rename(tmp_path.with_name("elsewhere"))  # as if it were not mounted
    with pytest.raises(PartitionNotFound, match="the partition directory does not exist"):
        read(wanted, options)


@pytest.mark.parametrize("fail", ["true", "false"])
def test_a_log_cut_short_after_planning(tmp_path: Path, fail: str) -> None:
    wanted, options = plan_segments(tmp_path, failOnDataLoss=fail)
    with kafkalog.open(tmp_path / "orders-0", "a") as log:
        log.truncate_to(150)
    if fail == "true":
        with pytest.raises(OffsetOutOfRange, match="cut.*failOnDataLoss"):
            read(wanted, options)
    else:
        with pytest.warns(DataLoss, match="offsets 150 to 299 are missing.*truncated to 150"):
            assert read(wanted, options) == list(range(150))


def test_a_segment_deleted_while_it_is_read_is_read_to_its_end(tmp_path: Path) -> None:
    """Of what is open nothing is lost; what comes next is, where retention took it."""
    wanted, options = plan_segments(tmp_path)
    batches = arrow_batches(wanted, ("offset",), options)
    first = next(batches).column(0).to_pylist()
    for path in segments_of(tmp_path):
        path.unlink()
    assert first + [n for one in batches for n in one.column(0).to_pylist()] == list(range(300))


def test_gaps_that_compaction_left_are_no_loss(tmp_path: Path) -> None:
    directory = tmp_path / "orders-0"
    directory.mkdir()
    parts = [batch([R(value=b"v")] * 5, base_offset=first) for first in (0, 1000, 2000)]
    (directory / "00000000000000000000.log").write_bytes(b"".join(parts))
    expected = [*range(5), *range(1000, 1005), *range(2000, 2005)]
    assert offsets_of(source_options(tmp_path)) == expected
    assert offsets_of(source_options(tmp_path, minPartitions=7)) == expected
    options = {"startingOffsets": '{"orders":{"0":500}}', "endingOffsets": '{"orders":{"0":1500}}'}
    assert offsets_of(source_options(tmp_path, **options)) == list(range(1000, 1005))


MEMORY = """
import resource, sys
from kafkalog.spark.batch_plan import plan_batch
from kafkalog.spark.reading import arrow_batches
from tests.spark.topics import source_options

def peak():
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss

options = source_options(sys.argv[1])
(wanted,) = plan_batch(options)
batches = arrow_batches(wanted, options.columns, options)
for _ in range(10):
    next(batches)
before = peak()
rows = sum(one.num_rows for one in batches)
print(rows, peak() - before)
"""


@pytest.mark.parametrize("codec", ["none", "zstd"])
def test_memory_stays_flat_as_the_topic_grows(tmp_path: Path, codec: str) -> None:
    """Sixty megabytes in one range, of which a task holds a batch or two at a time; kilobytes."""
    with kafkalog.open(tmp_path / "orders-0", "a") as log:
        for n in range(600):
            log.append([bytes([n % 251]) * 1000] * 100, compression=codec)
    command = [sys.executable, "-c", MEMORY, str(tmp_path)]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True)
    rows, grown = map(int, done.stdout.split())
    assert rows > 10_000 and grown < 24_000


@pytest.mark.parametrize("level", ["read_uncommitted", "read_committed"])
def test_damage_among_compressed_batches_is_skipped(tmp_path: Path, level: str) -> None:
    with kafkalog.open(tmp_path / "orders-0", "a", index_interval_bytes=0) as log:
        for first in range(0, 200, 20):
            log.append([b"v%d" % n * 20 for n in range(first, first + 20)], compression="zstd")
    damage_batches(tmp_path, 3, 7)
    options = source_options(tmp_path, onDamage="skip", isolationLevel=level)
    assert offsets_of(options) == [*range(60), *range(80, 140), *range(160, 200)]
    with pytest.raises(CorruptRecord, match="offset 60"):
        offsets_of(source_options(tmp_path, isolationLevel=level))
