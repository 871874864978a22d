"""examples/spark_pipeline.py: killed twice, its checkpoint lost once, and every total is what the events say."""

import json
import os
import signal
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

import kafkalog
from tests.commands import environment
from tests.examples.programs import EXAMPLES
from tests.spark.conftest import why_not
from tests.spark.quick_java import quick_java, submitted
from tests.spark.warm_python import warm_python

REASON = why_not()
EVENTS = 6000
DEADLINE_S = 600
MONDAY_MS, STEP_MS, HALF_HOUR_MS = 1_767_571_200_000, 20_000, 1_800_000
HOUR_MS = 2 * HALF_HOUR_MS
SUMS = ("orders", "cents", "largest")


@pytest.fixture
def run(tmp_path: Path) -> Iterator[Callable[..., "subprocess.Popen[str]"]]:
    """Starts the pipeline in a separate process group; no process of any of them outlives the test."""
    begun: list[subprocess.Popen[str]] = []

    def start(*arguments: str | Path) -> "subprocess.Popen[str]":
        program = [sys.executable, str(EXAMPLES / "spark_pipeline.py"), "--data", str(tmp_path / "shop")]
        begun.append(
            subprocess.Popen(
                [*program, *map(str, arguments)], stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, text=True,
                stderr=subprocess.STDOUT, start_new_session=True,
                env=environment(JDK_JAVA_OPTIONS=quick_java(), TMPDIR=str(tmp_path), PYSPARK_SUBMIT_ARGS=submitted(),
                                PYSPARK_PYTHON=python),
            )  # fmt: skip
        )
        return begun[-1]

    with warm_python() as python:
        yield start
        for program in begun:
            end_group(program)


def end_group(program: "subprocess.Popen[str]") -> None:
    """Kills a program with all that it started."""
    try:
        os.killpg(program.pid, signal.SIGKILL)
    except ProcessLookupError:
        pass
    program.wait()
    assert program.stdout is not None
    program.stdout.close()


def killed_when(program: "subprocess.Popen[str]", there: Path) -> None:
    """Kills the program as soon as a file or directory is there, and waits until its Java has noticed."""
    until = time.monotonic() + DEADLINE_S
    while not there.exists():
        assert program.poll() is None, program.communicate()[0]
        assert time.monotonic() < until, f"{there} never came"
        time.sleep(0.005)
    program.kill()
    program.wait()
    while time.monotonic() < until:
        try:
            os.killpg(program.pid, 0)
        except ProcessLookupError:
            return
        time.sleep(0.05)
    raise AssertionError("the driver's Java lives on")


def events_of(log_dir: Path) -> Iterator[tuple[int, dict[str, Any], int]]:
    """The events: how late each is (ms), its value, its time (ms)."""
    with kafkalog.open_dirs(log_dir) as dirs:
        for log in dirs.logs("orders"):
            for record in log.records():
                yield MONDAY_MS + record.offset * STEP_MS - record.timestamp, json.loads(record.value), record.timestamp


def expected_totals(log_dir: Path) -> dict[tuple[int, str], tuple[int, ...]]:
    """Orders, cents and the largest one by half hour and product, of all events that are not much too late."""
    orders: Counter[tuple[int, str]] = Counter()
    cents: Counter[tuple[int, str]] = Counter()
    largest: dict[tuple[int, str], int] = {}
    for late_ms, order, time_ms in events_of(log_dir):
        if late_ms < 6 * HOUR_MS:
            key = time_ms - time_ms % HALF_HOUR_MS, order["product"]
            orders[key] += 1
            cents[key] += order["cents"]
            largest[key] = max(largest.get(key, 0), order["cents"])
    return {key: (orders[key], cents[key], largest[key]) for key in orders}


def table_totals(table: Path) -> dict[tuple[int, str], tuple[int, ...]]:
    """Return the table's totals: the row of the last batch for each half hour and product."""
    import pyarrow.parquet as pq

    found = {}
    for batch in sorted(table.glob("batch=*")):
        for file in batch.glob("*.parquet"):
            for row in pq.ParquetFile(file).read().to_pylist():
                key = int(row["start"].timestamp() * 1000), row["product"]
                found[key] = tuple(row[name] for name in SUMS)
    return found


def topic_records(log_dir: Path) -> dict[str, dict[str, Any]]:
    """The newest value of each key in the topic of totals."""
    with kafkalog.open_dirs(log_dir) as dirs:
        assert dirs.topics["totals"].settings["cleanup.policy"] == "compact"
        return {record.key.decode(): json.loads(record.value) for record in dirs["totals", 0].records()}


@pytest.mark.spark
@pytest.mark.slow
@pytest.mark.skipif(REASON is not None, reason=str(REASON))
def test_totals_are_exact_through_kills_and_without_the_checkpoint(
    tmp_path: Path, run: Callable[..., "subprocess.Popen[str]"]
) -> None:
    pytest.importorskip("matplotlib", reason="the extra viz is not installed")
    shop = tmp_path / "shop"
    killed_when(run("--events", str(EVENTS)), shop / "checkpoint/spark/offsets/1")  # planned, not run
    killed_when(run("--events", str(EVENTS)), shop / "totals.parquet/batch=000002")  # in the table, not in the topic
    picture = tmp_path / "report.png"
    last = run("--events", str(EVENTS), "--lose-checkpoint", "--report", picture)
    said, _ = last.communicate(timeout=DEADLINE_S)
    assert last.returncode == 0, said
    expected = expected_totals(shop / "log")
    assert table_totals(shop / "totals.parquet") == expected
    in_topic = topic_records(shop / "log")
    progress = in_topic.pop("progress")
    found = {(one["start"], one["product"]): tuple(one[name] for name in SUMS) for one in in_topic.values()}
    assert found == {(iso(start), product): total for (start, product), total in expected.items()}
    assert progress["offsets"] == {"0": EVENTS // 2, "1": EVENTS // 2}
    counted = sum(orders for orders, _, _ in expected.values())
    assert 0 < EVENTS - counted < EVENTS // 100
    assert f"{EVENTS} orders, {counted} counted in {len(expected)} totals, {EVENTS - counted} came too late" in said
    assert "no checkpoint: on after batch" in said
    assert picture.read_bytes().startswith(b"\x89PNG")


def iso(time_ms: int) -> str:
    """A time as the topic's JSON has it."""
    return time.strftime("%Y-%m-%dT%H:%M:%S.000Z", time.gmtime(time_ms / 1000))
