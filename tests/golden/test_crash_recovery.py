"""A killed broker's directory, recovered by kafkalog: what is read, found and on disk is as after its own recovery.

The reading broker did more than recover: it ran retention, its boots made leader epochs, and a controller wrote on. Our
partition may therefore begin with segments that are not there any more, and lack epochs above the last one of the log.
"""

import io
import json
import shutil
from pathlib import Path

import pytest

import kafkalog
from kafkalog._core.batch.scan import scan
from kafkalog.config.topic import LogConfig
from kafkalog.storage.log import UnifiedLog
from kafkalog.tools.dump.files import dump_files
from kafkalog.util.checkpoint import RECOVERY_POINT_FILE, OffsetCheckpoint
from tests import golden_cases
from tests.golden.test_consume import both_levels, check_listed_offsets, expected, is_consumed, shown
from tests.golden.test_dump_logdir import DEEP, RUNS, as_printed, runs_of
from tests.golden_cases import Case
from tests.mock_time import MockClock

pytestmark = pytest.mark.golden
AFTER = "dump-after-recovery"
EXPIRATION_MS = 604_800_000
"""`producer.id.expiration.ms` of the broker."""


def copied(case: Case, tmp_path: Path) -> Path:
    """The partition in a data directory of its own, with the checkpoints of the one it lay in."""
    for path in case.directory.parent.iterdir():
        if path.is_file() and path.name != ".lock":
            shutil.copy2(path, tmp_path / path.name)
    return Path(shutil.copytree(case.directory, tmp_path / case.name))


def beside(case: Case, name: str) -> Path:
    """A file of the expected archive that is about all partitions."""
    path = case.expected_path(name)
    if not path.is_file():
        pytest.skip(f"the capture has no {name}")
    return path


def settings_of(case: Case) -> dict[str, str]:
    told: dict[str, dict[str, str]] = json.loads(beside(case, "topic-configs.json").read_text(encoding="utf-8"))
    return told.get(case.topic, {})


@both_levels
@golden_cases.each_partition("crash", where=is_consumed)
def test_a_consumer_reads_the_same_after_recovery(case: Case, level: str, tmp_path: Path) -> None:
    """LOAD-10, TXN-2: mode "a" recovers; also from the files alone once it was closed."""
    rows = expected(case, level)
    path = copied(case, tmp_path)
    with kafkalog.open(path, "a") as log:
        first = rows[0]["offset"] if rows else log.end_offset
        heads = [next(log.records(one.base_offset, isolation=level), None) for one in log.segments]
        assert not rows or first in [head.offset for head in heads if head], "retention takes whole segments"
        assert [shown(record) for record in log.records(first, isolation=level)] == rows
        assert [shown(record) for record in log.slice(first, isolation=level)] == rows
        for row in rows[:: max(1, len(rows) // 20)]:
            assert shown(log[row["offset"]]) == row
    with kafkalog.open(path) as log:
        assert [shown(record) for record in log.records(first, isolation=level)] == rows
        assert log.problems == ()


@both_levels
@golden_cases.each_partition("logdir", "crash", where=is_consumed)
def test_offsets_by_time_are_the_same_in_a_log_open_for_writing(case: Case, level: str, tmp_path: Path) -> None:
    """LOG-57: of the directory that was closed well, and of the killed one after its recovery."""
    with kafkalog.open(copied(case, tmp_path), "a") as log:
        check_listed_offsets(log, case, level)


def recovered(case: Case, tmp_path: Path) -> Path:
    """The directory after our recovery and a clean end, at the time of its last record."""
    path = copied(case, tmp_path)
    tables = [scan(log.read_bytes(), file_mode=True) for log in path.glob("*.log")]
    newest = max((batch.max_timestamp for table in tables for batch in table), default=0)
    points = OffsetCheckpoint(str(tmp_path / RECOVERY_POINT_FILE)).read()
    UnifiedLog.open(
        path,
        LogConfig.from_stored(settings_of(case)),
        clock=MockClock(newest + 1000),
        recovery_point=next((o for p, o in points.items() if str(p) == case.name), 0),
        had_clean_shutdown=False,
        producer_expiration_ms=EXPIRATION_MS,
    ).close()
    return path


def sizes_after(case: Case) -> dict[str, int]:
    """Name -> size of the partition's files after the broker was stopped again."""
    lines = beside(case, "files-after-clean-stop.txt").read_text(encoding="utf-8").splitlines()
    rows = [line.rsplit(" ", 1) for line in lines if line.startswith(f"{case.name}/")]
    return {name.partition("/")[2]: int(size) for name, size in rows}


def written_on(case: Case, path: Path) -> bool:
    """True where the broker appended after its recovery: then its log is longer than the one it recovered."""
    after = sizes_after(case)
    return any(after.get(log.name, 0) > log.stat().st_size for log in path.glob("*.log"))


@golden_cases.each_partition("crash")
def test_the_files_are_those_of_the_reference_s_recovery(case: Case, tmp_path: Path) -> None:
    """LOAD-1, LOAD-10, LOAD-24, LOAD-29, SEG-22: names and sizes; retention may have taken segments at the front."""
    path = recovered(case, tmp_path)
    after = sizes_after(case)
    first = min(int(name[:20]) for name in after if name.endswith(".log"))
    ours = {file.name: file.stat().st_size for file in path.iterdir()}
    epochs, theirs = "leader-epoch-checkpoint", after.pop("leader-epoch-checkpoint", 0)
    assert ours.pop(epochs, 0) <= theirs
    kept = {name: size for name, size in ours.items() if not name[:20].isdecimal() or int(name[:20]) >= first}
    if not written_on(case, path):
        assert kept == after
    else:
        assert kept.keys() <= after.keys() and all(size <= after[name] for name, size in kept.items())


@golden_cases.each_partition("crash")
def test_the_dump_tool_prints_the_same_of_them(
    case: Case, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """SEG-20 to SEG-24: each batch, record, index entry, aborted transaction and producer of every file."""
    path = recovered(case, tmp_path)
    names = [name for name in case.expected if Path(name).parts[0] == AFTER and name.endswith((DEEP, *RUNS))]
    if not names:
        pytest.skip("the capture has no dump of what was recovered")
    monkeypatch.chdir(tmp_path)
    grown = written_on(case, path)
    compared = 0
    for run in runs_of(case, (AFTER,)):
        if grown:
            break
        out = io.BytesIO()
        dump_files([run.file], out, run.options, err=io.BytesIO())
        told, theirs = as_printed(out.getvalue()), case.expected_path(run.expected).read_bytes()
        if run.file.endswith(".snapshot"):  # entries of a snapshot have no order
            assert sorted(told.splitlines()) == sorted(theirs.splitlines()), run.expected
        else:
            assert told == theirs, run.expected
        compared += 1
    assert compared or grown
