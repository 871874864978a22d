"""`kafkalog.metrics`: what is counted, and the three ways to read it."""

import errno
import gc
import json
import re
from collections.abc import Iterator, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest

import kafkalog
from kafkalog import metrics
from kafkalog.errors import CorruptRecord, InvalidRecord, StorageError
from kafkalog.manager.job import Job
from kafkalog.manager.log_manager import LogManager
from kafkalog.metrics.definitions import sources
from kafkalog.records.builder import RecordsBuilder
from tests.faults import FaultFS
from tests.mock_time import MockClock
from tests.storage.logs import NOW, append_batches, log, sized_batch

NAME = re.compile(r"kafkalog_[a-z]+(_[a-z]+)*\Z")
SAMPLE = re.compile(r'(?P<name>\w+)(?:\{(?P<labels>(?:[^"{}]|"(?:\\.|[^"\\])*")*)\})? (?P<value>\S+)\Z')
LABEL = re.compile(r'(\w+)="((?:\\.|[^"\\])*)"(?:,|\Z)')


@pytest.fixture(autouse=True)
def _no_others() -> None:
    """Logs that earlier tests left to the garbage collector are not counted here."""
    gc.collect()


def parse_metrics(text: str) -> dict[str, list[tuple[dict[str, str], float]]]:
    """The samples of a text, checked as a strict reader does: HELP, TYPE, then samples, each series once."""
    found: dict[str, list[tuple[dict[str, str], float]]] = {}
    kinds: dict[str, str] = {}
    assert text.endswith("\n")
    for line in text.splitlines():
        if line.startswith("# HELP "):
            assert line.split()[2] not in kinds
        elif line.startswith("# TYPE "):
            _, _, name, kind = line.split()
            kinds[name] = kind
        else:
            match = SAMPLE.match(line)
            assert match, line
            labels = dict(LABEL.findall(match["labels"] or ""))
            base = re.sub("_(bucket|sum|count)$", "", match["name"])
            assert match["name"] in kinds or kinds[base] == "histogram", line
            series = found.setdefault(match["name"], [])
            assert labels not in [others for others, _ in series], line
            series.append((labels, float(match["value"])))
    return found


def value_of(name: str, of: Any, **labels: str) -> Any:
    """The one value of a log's metric with these labels."""
    rows = [row["value"] for row in metrics.snapshot(of)[name] if labels.items() <= row["labels"].items()]
    assert len(rows) == 1, rows
    return rows[0]


def test_names_follow_the_conventions() -> None:
    for one in sources():
        assert NAME.match(one.name) and one.help.endswith("."), one
        assert (one.kind == "counter") == one.name.endswith("_total"), one
        assert one.unit in ("1", "bytes", "seconds"), one
        if one.unit != "1":
            assert one.unit in one.name.removesuffix("_total"), one
    assert len({one.name for one in sources()}) == len(sources())


def test_appends_reads_and_places(tmp_path: Path) -> None:
    with kafkalog.open(tmp_path / "t-3", "a") as a_log:
        a_log.append([b"a", b"b"])
        info = a_log.append(b"c")
        with a_log.writer() as writer:
            for number in range(10):
                writer.append(b"%d" % number)
        assert value_of("kafkalog_append_records_total", a_log) == 13 == a_log.end_offset
        assert value_of("kafkalog_append_bytes_total", a_log) == a_log.size > info.valid_bytes
        assert value_of("kafkalog_append_batches_total", a_log) >= 3 <= value_of("kafkalog_appends_total", a_log)
        assert value_of("kafkalog_read_bytes_total", a_log) == 0
        assert len(list(a_log)) == 13
        assert value_of("kafkalog_read_bytes_total", a_log) == a_log.size
        assert value_of("kafkalog_log_end_offset", a_log) == 13 and value_of("kafkalog_log_segments", a_log) == 1
        assert value_of("kafkalog_recovery_point", a_log) == 0
        a_log.flush()
        assert value_of("kafkalog_recovery_point", a_log) == 13
        with kafkalog.open(a_log.path) as view:
            assert value_of("kafkalog_log_end_offset", view) == 13 and list(view.records(12))
            assert 0 < value_of("kafkalog_read_bytes_total", view) <= a_log.size
            assert metrics.snapshot(view)["kafkalog_appends_total"] == []  # a reader appends nothing
            rows = metrics.snapshot()["kafkalog_log_end_offset"]
            mine = [row["labels"] for row in rows if row["labels"]["directory"] == str(tmp_path)]
            common = {"topic": "t", "partition": "3", "directory": str(tmp_path)}
            assert sorted(mine, key=str) == [{**common, "mode": "a"}, {**common, "mode": "r"}]
    appends = metrics.snapshot()["kafkalog_appends_total"]
    assert [row for row in appends if row["labels"]["directory"] == str(tmp_path)] == []


def test_counts_outlive_rolls_and_cuts(tmp_path: Path) -> None:
    a_log = log(tmp_path)
    append_batches(a_log, times=4)
    a_log.roll()
    append_batches(a_log, times=2)
    a_log.truncate_to(5)
    append_batches(a_log, times=1)
    a_log.truncate_fully_and_start_at(0)
    assert value_of("kafkalog_append_records_total", a_log) == 7
    assert value_of("kafkalog_append_bytes_total", a_log) == 700
    assert value_of("kafkalog_segment_rolls_total", a_log) == 1 and value_of("kafkalog_truncations_total", a_log) == 2
    a_log.close()


def test_records_of_a_follower_leave_out_the_gap(tmp_path: Path) -> None:
    a_log = log(tmp_path)
    a_log.append_as_follower(sized_batch(200, 3, base=100, epoch=0), 0)
    assert (value_of("kafkalog_append_records_total", a_log), a_log.log_end_offset) == (3, 103)
    a_log.close()


def test_retention_by_reason(tmp_path: Path) -> None:
    clock = MockClock(NOW)
    a_log = log(tmp_path, clock=clock, internal_segment_bytes=500, retention_bytes=1100, retention_ms=10_000)
    append_batches(a_log, times=30)
    a_log.maybe_increment_log_start_offset(11)
    assert a_log.delete_old_segments() == 3
    for reason, count in (("log_start", 2), ("size", 1), ("time", 0)):
        assert value_of("kafkalog_deleted_segments_total", a_log, reason=reason) == count
        assert value_of("kafkalog_deleted_bytes_total", a_log, reason=reason) == count * 500
    clock.advance(20_000)
    assert a_log.delete_old_segments() == 3
    assert value_of("kafkalog_deleted_segments_total", a_log, reason="time") == 3
    a_log.close()


def test_flushes_are_timed(tmp_path: Path) -> None:
    fs = FaultFS()
    a_log = log(tmp_path, fs=fs)
    for _ in range(3):
        append_batches(a_log)
        a_log.flush()
    found = value_of("kafkalog_flush_seconds", a_log)
    assert found["count"] == 3 == found["buckets"]["+Inf"] and found["sum"] > 0
    counts = list(found["buckets"].values())
    assert counts == sorted(counts)
    assert value_of("kafkalog_failed", a_log) == 0
    fs.fail("fdatasync", "fsync", code=errno.EIO)
    append_batches(a_log)
    with pytest.raises(StorageError):
        a_log.flush()
    fs.heal()
    assert (value_of("kafkalog_flush_failures_total", a_log), value_of("kafkalog_failed", a_log)) == (1, 1)
    a_log.close_handlers()


def test_what_validation_refuses(tmp_path: Path) -> None:
    a_log = log(tmp_path, cleanup_policy=("compact",))
    builder = RecordsBuilder(0)
    builder.append(NOW, None, b"v")
    with pytest.raises(InvalidRecord):
        a_log.append_as_leader(builder.build())
    assert value_of("kafkalog_rejected_appends_total", a_log, reason="no_key_compacted_topic") == 1
    bad = bytearray(sized_batch(100))
    bad[-1] ^= 1
    with pytest.raises(CorruptRecord):
        a_log.append_as_leader(bad)
    assert value_of("kafkalog_append_records_total", a_log) == 0
    a_log.close()


def test_recovery_is_told(tmp_path: Path) -> None:
    a_log = log(tmp_path)
    append_batches(a_log, times=3)
    a_log.close_handlers()
    a_log = log(tmp_path, had_clean_shutdown=False)
    assert value_of("kafkalog_recovered", a_log) == 1 and value_of("kafkalog_load_seconds", a_log) > 0
    a_log.close()
    a_log = log(tmp_path)
    assert value_of("kafkalog_recovered", a_log) == 0
    a_log.close()


def test_prometheus_text(tmp_path: Path) -> None:
    folder = tmp_path / 'a "b"\\c\nd'
    folder.mkdir()
    path = folder / "t-0"
    with kafkalog.open(path, "a") as a_log, kafkalog.open(path) as one, kafkalog.open(path) as two:
        a_log.append([b"x"] * 5)
        a_log.flush()
        assert list(one) and list(two)
        found = parse_metrics(metrics.prometheus_text())
        directory = str(folder).replace("\\", "\\\\").replace("\n", "\\n").replace('"', '\\"')
        mine = {name: [row for row in rows if row[0].get("directory") == directory] for name, rows in found.items()}
        assert [row[1] for row in mine["kafkalog_append_records_total"]] == [5.0]
        reads = {row[0]["mode"]: row[1] for row in mine["kafkalog_read_bytes_total"]}
        assert reads == {"a": 0.0, "r": 2.0 * a_log.size}  # two readers are one series: their counts add up
        buckets = mine["kafkalog_flush_seconds_bucket"]
        assert buckets[-1][0]["le"] == "+Inf" and buckets[-1][1] == mine["kafkalog_flush_seconds_count"][0][1] == 1.0
        assert parse_metrics(metrics.prometheus_text(a_log)).keys() <= found.keys()


def test_bytes_that_are_no_text_in_a_path(tmp_path: Path) -> None:
    folder = tmp_path / b"\xff\xfe".decode(errors="surrogateescape")
    folder.mkdir()
    with kafkalog.open(folder / "t-0", "a") as a_log:
        assert "udcff" in metrics.prometheus_text(a_log)
        metrics.prometheus_text().encode()


def test_snapshots_are_plain(tmp_path: Path) -> None:
    with kafkalog.open(tmp_path / "t-0", "a") as a_log:
        a_log.append(b"v")
        a_log.flush()
        assert json.loads(json.dumps(metrics.snapshot(a_log))) == metrics.snapshot(a_log)
    assert set(metrics.snapshot()) == {one.name for one in sources()}


class Meter:
    """A meter of OpenTelemetry's shape: instruments are made with callbacks, which are called at each collection."""

    def __init__(self) -> None:
        self.made: dict[str, Any] = {}

    def create_observable_counter(self, name: str, callbacks: Any, unit: str = "", description: str = "") -> None:
        self.made[name] = callbacks

    create_observable_gauge = create_observable_counter

    def collect(self, name: str) -> Iterator[tuple[Any, Mapping[str, str]]]:
        for callback in self.made[name]:
            yield from callback(None)


def test_instruments_fit_observable_ones(tmp_path: Path) -> None:
    meter = Meter()
    for one in metrics.instruments():
        if one.kind != "histogram":
            create = getattr(meter, f"create_observable_{one.kind}")
            create(one.name, callbacks=[lambda options, read=one.read: read()], unit=one.unit, description=one.help)
    with kafkalog.open(tmp_path / "otel-0", "a") as a_log:
        a_log.append([b"x"] * 5)
        found = {labels["topic"]: number for number, labels in meter.collect("kafkalog_append_records_total")}
        assert found["otel"] == 5


def test_jobs_and_cursors(tmp_path: Path) -> None:
    clock = MockClock(NOW)

    def fails() -> None:
        clock.advance(250)
        raise ZeroDivisionError

    job = Job("metrics-test", fails, delay_ms=0, period_ms=10, clock=clock)

    def of_job(name: str) -> list[float]:
        return [row["value"] for row in metrics.snapshot()[name] if row["labels"] == {"job": "metrics-test"}]

    assert of_job("kafkalog_job_runs_total") == [0] and of_job("kafkalog_job_last_run_seconds") == []
    with pytest.raises(ZeroDivisionError):
        job.run()
    assert of_job("kafkalog_job_runs_total") == [1] == of_job("kafkalog_job_failed")
    assert of_job("kafkalog_job_last_run_seconds") == [0.25]
    assert of_job("kafkalog_job_last_run_timestamp_seconds") == [NOW / 1000]
    with kafkalog.open(tmp_path / "t-0", "a") as a_log:
        a_log.append([b"x"] * 5)
        with a_log.cursor("c") as cursor:
            cursor.poll(2)
            assert value_of("kafkalog_cursor_position", a_log, cursor="c") == 2
            assert value_of("kafkalog_cursor_lag", a_log, cursor="c") == 3
            assert value_of("kafkalog_cursor_committed_offset", a_log, cursor="c") == 0
        assert metrics.snapshot(a_log)["kafkalog_cursor_lag"] == []


def test_directories_of_a_store(tmp_path: Path) -> None:
    def offline() -> dict[str, int]:
        rows = metrics.snapshot()["kafkalog_directory_offline"]
        return {Path(row["labels"]["directory"]).name: row["value"] for row in rows}

    with LogManager.open([tmp_path / "a", tmp_path / "b"]) as manager:
        assert offline() == {"a": 0, "b": 0}
        manager.fail_directory(tmp_path / "b", OSError(errno.EIO, "the disk"))
        assert offline() == {"a": 0, "b": 1}
    assert offline() == {}


def test_a_failed_job_shows_beside_a_good_one_of_the_same_name() -> None:
    """Two stores of a process have jobs of the same names."""
    def fails() -> None:
        raise ValueError

    jobs = [Job("metrics-twice", run, delay_ms=0, period_ms=10) for run in (fails, int, fails, int)]
    for job in jobs:
        with suppress(ValueError):
            job.run()
    found = {name: [row["value"] for row in rows if row["labels"] == {"job": "metrics-twice"}]
             for name, rows in metrics.snapshot().items()}  # fmt: skip
    assert (found["kafkalog_job_failed"], found["kafkalog_job_runs_total"]) == ([1], [4])
    assert found["kafkalog_job_last_run_timestamp_seconds"] == [max(job.last_run_ms or 0 for job in jobs) / 1000]


def test_logs_and_jobs_of_data_directories(tmp_path: Path) -> None:
    with kafkalog.open_dirs(tmp_path, "a") as dirs:
        dirs.create_topic("t")
        dirs["t", 0].append(b"v")
        assert value_of("kafkalog_append_records_total", dirs["t", 0]) == 1
        with dirs["t", 0].cursor("c") as cursor:
            assert [record.value for record in cursor] == [b"v"]
        names = {row["labels"]["job"] for row in metrics.snapshot()["kafkalog_job_runs_total"]}
        assert {job.name for job in dirs.jobs} <= names and "kafka-log-retention" in names


def test_open_logs(tmp_path: Path) -> None:
    def count() -> dict[str, int]:
        return {row["labels"]["mode"]: row["value"] for row in metrics.snapshot()["kafkalog_open_logs"]}

    before = count()
    with kafkalog.open(tmp_path / "t-0", "a") as a_log, kafkalog.open(a_log.path):
        assert count() == {"a": before["a"] + 1, "r": before["r"] + 1}
    assert count() == before
