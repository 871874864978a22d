"""`log.stats()`: the figures that the real Kafka's dump has, from headers alone; samples of large logs; damage."""

import json
import re
from collections import Counter
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import kafkalog
from kafkalog._core.batch.scan import scan
from kafkalog._core.bytes.crc import crc32c
from kafkalog.errors import IllegalArgument, LogClosed
from kafkalog.inspect.series import rates
from kafkalog.tools.report import make_report, total_bytes
from tests.builder import R
from tests.builder import batch as built
from tests.golden_cases import Case, each_partition
from tests.raw_batches import batch, batches, write_segment

BATCH = re.compile(
    r"^baseOffset: \d+ lastOffset: \d+ count: (?P<count>\d+) .*?isControl: (?P<control>true|false) .*?"
    r"CreateTime: (?P<time>-?\d+) size: (?P<size>\d+) magic: (?P<magic>\d+) compresscodec: (?P<codec>\w+)", re.MULTILINE
)  # fmt: skip


def dump_batches(case: Case) -> list[re.Match[str]]:
    texts = [case.expected_path(name).read_text() for name in case.expected_with(".log.shallow.txt")]
    return [found for text in texts for found in BATCH.finditer(text)]


def headers(directory: Path) -> list[Any]:
    """Those of all batches in the files, also below the log start."""
    tables = [scan(path.read_bytes(), file_mode=True) for path in sorted(directory.glob("*.log"))]
    return [table[row] for table in tables for row in range(len(table))]


def first_time(header: Any) -> int:
    """The base timestamp, or the largest one where the base is something else (format.md section 2)."""
    states_it = header.magic == 2 and not header.attributes & 0x48
    return header.base_timestamp if states_it and 0 <= header.base_timestamp <= header.max_timestamp else (
        header.max_timestamp
    )  # fmt: skip


@each_partition("logdir", where=lambda case: "lat" not in case.name)
def test_counts_are_those_that_kafka_dumped(case: Case) -> None:
    lines = dump_batches(case)
    data = [line for line in lines if line["control"] == "false"]
    with kafkalog.open(case.directory) as log:
        stats = log.stats()
        ends = log.start_offset, log.end_offset
    assert (stats.start_offset, stats.end_offset) == ends and stats.problems == ()
    assert stats.size == sum(int(line["size"]) for line in lines) and stats.sample.is_whole
    assert stats.records == sum(int(line["count"]) for line in data)
    assert (stats.batches, stats.control_batches) == (len(data), len(lines) - len(data))
    codecs = Counter(line["codec"].lower() for line in data)
    assert {one.codec: one.batches for one in stats.codecs} == codecs
    times = [int(line["time"]) for line in data if int(line["time"]) >= 0]
    assert stats.last_ms == max(times, default=-1)
    first_times = [first_time(header) for header in headers(case.directory) if not header.attributes & 0x20]
    assert stats.first_ms == min((time for time in first_times if time >= 0), default=-1)
    assert stats.batch_sizes.count == len(data)
    assert stats.batch_sizes.largest == max((int(line["size"]) for line in data), default=0)
    assert round(sum(span.records for span in stats.spans)) == sum(int(line["count"]) for line in data
                                                                   if int(line["time"]) >= 0)  # fmt: skip


@pytest.mark.parametrize("sample_bytes", [None, 0])
def test_one_batch_of_a_uniform_hour_takes_an_hour(tmp_path: Path, sample_bytes: int | None) -> None:
    begin, hour = 1_795_176_000_000, 3_600_000
    with kafkalog.open(tmp_path / "t-0", "a") as log:
        log.append([(None, b"v", begin + 1000 * n) for n in range(3601)])
        stats = log.stats(sample_bytes=sample_bytes)
    assert (stats.first_ms, stats.last_ms, stats.span_ms) == (begin, begin + hour, hour)
    assert "2026-11-20T12:00:00Z to 2026-11-20T13:00:00Z (1 h)" in repr(stats) and "0 ms" not in repr(stats)
    series = rates(stats.spans, steps=10)
    assert series is not None and series.records == pytest.approx([1.0] * 10, rel=0.2)


def test_a_batch_with_append_time_or_a_delete_horizon_begins_at_its_largest_time(tmp_path: Path) -> None:
    """Their base timestamps are not when their records were written."""
    for attributes in (0x08, 0x40):
        data = built([R(b"v", timestamp=1000), R(b"v", timestamp=5000)], attributes=attributes)
        (tmp_path / f"t-{attributes}").mkdir()
        (tmp_path / f"t-{attributes}" / f"{0:020d}.log").write_bytes(data)
        with kafkalog.open(tmp_path / f"t-{attributes}") as log:
            stats = log.stats()
        assert (stats.records, stats.first_ms, stats.last_ms) == (2, 5000, 5000)


@each_partition("logdir", "legacy")
def test_keys_and_sizes_are_those_of_the_records(case: Case) -> None:
    with kafkalog.open(case.directory) as log:
        stats = log.stats(keys=True, sizes=True)
        if log.start_offset != log.segments[0].base_offset:
            return  # it begins within a segment, and what lies below counts too
        records = list(log)
    assert stats.keys is not None and stats.key_sizes is not None and stats.value_sizes is not None
    counts = Counter(record.key for record in records)
    assert stats.keys.records == len(records) and stats.keys.null_records == counts.pop(None, 0)
    assert stats.keys.distinct == len(counts) and stats.keys.is_whole
    shown = [(one.key, one.records) for one in stats.keys.top if one.key is not None]
    assert sorted(count for _, count in shown) == sorted(count for _, count in counts.most_common(20))
    assert all(counts[key] == count for key, count in shown)
    sizes = [len(record.value) for record in records if record.value is not None]
    assert (stats.value_sizes.count, stats.value_sizes.total) == (len(sizes), sum(sizes))
    assert stats.tombstones == len(records) - len(sizes)
    assert stats.key_sizes.total == sum(len(key) * count for key, count in counts.items())
    assert not counts or stats.keys.curve[-1] == (1.0, 1.0)


@each_partition("crash", "legacy")
def test_what_a_killed_broker_left_is_looked_into(case: Case) -> None:
    with kafkalog.open(case.directory) as log:
        stats = log.stats(keys=True, sizes=True)
        assert stats.records == sum(1 for _ in log) or case.name.endswith(("-gaps-0", "-shuffled-0"))
        assert len(stats.problems) >= bool(log.problems)
    json.dumps(stats.as_dict())
    assert all(repr(stats)) and "</table>" in stats._repr_html_()


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """60 segments of some 37 KB, indexed each 512 bytes."""
    path = tmp_path / "data" / "orders-0"
    for base in range(0, 60_000, 1000):
        write_segment(path, base, batches(base, 100, 10, timestamp=1_795_176_000_000), interval=512)
    return path


def test_records_are_not_decoded_unless_asked_for(folder: Path) -> None:
    """Bytes of records are overwritten; the headers are unchanged, and a decoder finds it."""
    with kafkalog.open(folder) as log:
        before = log.stats()
    for path in folder.glob("*.log"):
        data = bytearray(path.read_bytes())
        size = int.from_bytes(data[8:12], "big") + 12
        data[61:size] = b"\xff" * (size - 61)
        data[17:21] = crc32c(data[21:size]).to_bytes(4, "big")
        path.write_bytes(data)
    with kafkalog.open(folder) as log:
        after = log.stats()
        assert (after.records, after.batches, after.problems) == (before.records, before.batches, ())
        assert after.keys is None and after.key_sizes is None
        assert "malformed" in log.stats(keys=True).problems[0] or log.stats(keys=True).problems


def test_a_large_log_is_sampled_and_says_so(folder: Path) -> None:
    with kafkalog.open(folder) as log:
        whole, part = log.stats(keys=True), log.stats(keys=True, sample_bytes=600 << 10)
        assert whole.sample.is_whole and whole.sampled() == "" and "~" not in repr(whole)
        assert not part.sample.is_whole and 0.1 < part.sample.share < 0.5
        assert part.sampled().startswith("sampled: ") and "sampled: " in repr(part) and "~60,000" in repr(part)
        assert "sampled: " in part._repr_html_() and part.as_dict()["exact"] is False
        assert (part.size, part.start_offset, part.end_offset) == (whole.size, 0, 60_000)
        assert part.records == pytest.approx(whole.records, rel=0.02)
        assert part.batches == pytest.approx(whole.batches, rel=0.05)
        assert (part.first_ms, part.last_ms) == (whole.first_ms, whole.last_ms)
        assert part.keys is not None and not part.keys.is_whole and "at least" in repr(part)
        assert sum(span.records for span in part.spans) == pytest.approx(60_000, rel=0.1)
        assert any(one.records is None for one in part.segments) or part.sample.places >= 60
        exact = log.stats(sample_bytes=None)
        assert exact.sample.is_whole and exact.records == 60_000


def test_a_sample_reads_little(tmp_path: Path) -> None:
    """Of a log whose segments have holes of gigabytes only so much is read as was allowed."""
    path = tmp_path / "data" / "huge-0"
    for base in range(0, 40_000, 1000):
        file = write_segment(path, base, batches(base, 100, 10), interval=512)
        with file.open("r+b") as data:
            data.truncate(2_000_000_000 if base < 39_000 else file.stat().st_size)
    before = read_bytes()
    with kafkalog.open(path) as log:
        stats = log.stats(sample_bytes=4 << 20)
    assert stats.size > 70 << 30 and stats.end_offset == 40_000
    assert read_bytes() - before < 64 << 20
    assert stats.problems  # zeros are no batches


def read_bytes() -> int:
    found = re.search(r"^rchar: (\d+)$", Path("/proc/self/io").read_text(), re.MULTILINE)
    assert found is not None
    return int(found[1])


def test_batches_larger_than_a_window_are_seen(tmp_path: Path) -> None:
    parts = [batch(n, [b"x" * 300_000]) for n in range(20)]
    write_segment(tmp_path / "data" / "big-0", 0, parts)
    with kafkalog.open(tmp_path / "data" / "big-0") as log:
        stats = log.stats(sample_bytes=1 << 20)
    assert not stats.sample.is_whole and stats.records == 20 and stats.batches == 20


@settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(data=st.data())
def test_damage_anywhere_is_looked_into(tmp_path: Path, data: st.DataObject) -> None:
    path = tmp_path / "t-0"
    parts = batches(0, 30, 5)
    whole = bytearray(b"".join(parts))
    for _ in range(data.draw(st.integers(1, 6))):
        at = data.draw(st.integers(0, len(whole) - 1))
        whole[at : at + 8] = data.draw(st.binary(min_size=8, max_size=8))
    write_segment(path, 0, parts).write_bytes(whole)
    (path / f"{0:020d}.index").write_bytes(data.draw(st.binary(max_size=40)))
    write_segment(path, 150, batches(150, 3, 5))
    with kafkalog.open(path) as log:
        for most in (None, 0, 1000):
            stats = log.stats(keys=True, sizes=True, sample_bytes=most)
            json.dumps(stats.as_dict())
            for table in stats.tables():
                assert table.text(60)
            assert stats._repr_html_()


def test_an_empty_log(tmp_path: Path) -> None:
    with kafkalog.open(tmp_path / "data" / "t-0", "a") as log:
        stats = log.stats(keys=True, sizes=True)
        assert (stats.records, stats.batches, stats.size) == (0, 0, 0)
        assert (stats.ratio, stats.records_per_second) == (None, None)
        assert "\nrecords      0\n" in repr(stats) and stats.as_dict()["first"] is None
        assert [rows.title for rows in stats.tables()] == ["t-0", "t-0: segments"]


def test_the_dirty_part_of_a_compacted_log(tmp_path: Path) -> None:
    (tmp_path / "data").mkdir()
    (tmp_path / "data" / "cleaner-offset-checkpoint").write_text("0\n0\n")
    with kafkalog.open(tmp_path / "data" / "t-0", "a", cleanup_policy="compact", segment_bytes=1 << 20) as log:
        for n in range(6):
            log.append([(b"k%d" % (i % 50), b"v" * 100) for i in range(100)])
            log.roll()
            if n == 3:
                log.compact()
        dirty = log.stats().dirty
        assert dirty is not None and dirty.first_dirty_offset == 400
        assert dirty.dirty_bytes > dirty.clean_bytes > 0 and 0.5 < dirty.ratio < 1
        assert "dirty" in repr(log.stats())
    with kafkalog.open(tmp_path / "data" / "t-0") as log:
        assert log.stats().dirty == dirty


def test_wrong_arguments(folder: Path) -> None:
    with kafkalog.open(folder) as log:
        with pytest.raises(IllegalArgument, match="sample_bytes"):
            log.stats(sample_bytes=-2)
        with pytest.raises(TypeError, match="did you mean keys"):
            log.stats(key=True)
    with pytest.raises(LogClosed):
        log.stats()


def test_a_log_in_an_object_store_has_the_same_figures(folder: Path) -> None:
    fsspec = pytest.importorskip("fsspec")
    store = fsspec.filesystem("memory")
    store.put(str(folder), "/inspected/orders-0", recursive=True)
    try:
        with kafkalog.open(folder) as here, kafkalog.open("memory://inspected/orders-0") as there:
            for most in (None, 600 << 10):
                found, expected = there.stats(keys=True, sample_bytes=most), here.stats(keys=True, sample_bytes=most)
                assert (found.records, found.batches, found.size) == (expected.records, expected.batches, expected.size)
                assert found.sample == expected.sample and found.indexes == expected.indexes
                assert found.problems == ()
            assert there.index == here.index and there.epochs == here.epochs
            assert there.producers == here.producers and there.aborted_txns == here.aborted_txns
    finally:
        store.rm("/inspected", recursive=True)


def test_progress_goes_up_to_the_whole(tmp_path: Path) -> None:
    """Of what is read, a sample or all; a report counts bytes that come to those of its logs."""
    write_segment(tmp_path / "data" / "t-0", 0, batches(0, 300, 10, size=2000))
    for most in (None, 1 << 20):
        seen: list[float] = []
        with kafkalog.open(tmp_path / "data" / "t-0") as log:
            log.stats(sample_bytes=most, progress=seen.append)
        assert seen == sorted(seen) and len(seen) > 1 and 0 < seen[0] < seen[-1] <= 1
    progress: list[int] = []
    make_report([str(tmp_path / "data")], tell=progress.append)
    assert len(progress) > 1 and sum(progress) == total_bytes([str(tmp_path / "data")])
