"""The manifest of an export: what is in its directory, through every crash, once."""

import json
import os
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kafkalog.errors import DirectoryLocked, FormatError, IllegalArgument, StorageError
from kafkalog.exchange.intervals import OffsetSet
from kafkalog.exchange.manifest import (
    ExportDirectory,
    ExportedFile,
    ExportedRange,
    ExportSettings,
    is_export,
    write_done,
)
from tests.faults import WRITING_CALLS, FaultFS

SETTINGS = ExportSettings(("value", "offset"), "read_committed", True)


def stage(directory: ExportDirectory, start: int, stop: int, attempt: str = "a", topic: str = "t") -> ExportedRange:
    """Return what a task leaves: one file and its description."""
    name = f"{topic}-0-{start}-{attempt}"
    Path(directory.staging, f"{name}.parquet").write_text(f"{start} {stop} {attempt}")
    place = f"topic={topic}/date=2026-01-02/{topic}-0-{start:020d}-{stop - 1:020d}.parquet"
    file = ExportedFile(place, f"{directory.run}/{name}.parquet", stop - start, 10)
    done = ExportedRange(topic, 0, start, stop, 1000, None, (file,))
    write_done(directory.staging, name, done)
    return done


def tables(path: Path) -> dict[str, str]:
    """The files that a reader of the table sees."""
    return {p.name: p.read_text() for p in path.rglob("*.parquet") if "_kafkalog_export" not in p.parts}


@given(st.lists(st.tuples(st.integers(0, 40), st.integers(0, 8))), st.integers(0, 50), st.integers(0, 50))
def test_a_set_of_offsets_is_what_a_set_of_numbers_is(adds: list[tuple[int, int]], start: int, stop: int) -> None:
    known, model = OffsetSet(), set[int]()
    for first, length in adds:
        new = set(range(first, first + length))
        assert known.overlaps(first, first + length) == bool(new & model)
        if new & model:
            with pytest.raises(ValueError):
                known.add(first, first + length)
        else:
            known.add(first, first + length)
            model |= new
    missing = list(known.missing(start, stop))
    assert [n for first, last in missing for n in range(first, last)] == sorted(set(range(start, stop)) - model)
    assert known.end == max(model, default=-1) + 1
    assert all(first < last for first, last in missing)


def test_what_tasks_finished_is_in_the_table_and_known_by_the_next_run(tmp_path: Path) -> None:
    out = tmp_path / "out"
    with ExportDirectory(str(out), SETTINGS) as export:
        second, first = stage(export, 5, 9), stage(export, 0, 5)
        assert not tables(out)
        assert export.commit_staged() == [first, second]
        assert export.commit_staged() == []
    assert sorted(tables(out).values()) == ["0 5 a", "5 9 a"]
    with ExportDirectory(str(out), SETTINGS) as export:
        assert export.ranges == [first, second]
        assert list(export.exported[("t", 0)]) == [(0, 5), (5, 9)]  # type: ignore[index]
    assert os.listdir(out / "_kafkalog_export" / "staging") == []


def test_of_two_attempts_at_a_range_one_counts(tmp_path: Path) -> None:
    with ExportDirectory(str(tmp_path), SETTINGS) as export:
        stage(export, 0, 5, "1")
        stage(export, 0, 5, "2")
        stage(export, 4, 7, "late")  # a task of a dead driver, whose ranges were cut otherwise
        assert len(export.commit_staged()) == 1
    assert tables(tmp_path) == {"t-0-00000000000000000000-00000000000000000004.parquet": "0 5 1"}


def test_the_next_run_takes_up_what_tasks_of_a_killed_one_finished(tmp_path: Path) -> None:
    killed = ExportDirectory(str(tmp_path), SETTINGS)
    done = stage(killed, 0, 5)
    Path(killed.staging, "half.parquet").write_text("half")
    killed._lock.close()  # as the end of the process does
    with ExportDirectory(str(tmp_path), SETTINGS) as export:
        assert export.ranges == [done]
        assert os.listdir(tmp_path / "_kafkalog_export" / "staging") == [export.run]
    assert list(tables(tmp_path).values()) == ["0 5 a"]


@pytest.mark.parametrize("nth", range(1, 16))
def test_a_crash_at_any_call_leaves_nothing_double_and_nothing_lost(tmp_path: Path, nth: int) -> None:
    with ExportDirectory(str(tmp_path), SETTINGS) as export:
        stage(export, 0, 3)
        export.commit_staged()
    fs = FaultFS()
    killed = ExportDirectory(str(tmp_path), SETTINGS, fs=fs)
    stage(killed, 3, 5)
    stage(killed, 5, 9)
    fs.fail(*WRITING_CALLS, nth=nth)
    try:
        killed.commit_staged()
    except StorageError:
        pass
    killed._lock.close()
    with ExportDirectory(str(tmp_path), SETTINGS) as export:
        assert [(one.start, one.stop) for one in export.ranges] == [(0, 3), (3, 5), (5, 9)]
    assert sorted(tables(tmp_path).values()) == ["0 3 a", "3 5 a", "5 9 a"]


@pytest.mark.parametrize("nth", range(1, 9))
def test_a_commit_that_failed_is_made_good_by_the_next_one(tmp_path: Path, nth: int) -> None:
    fs = FaultFS()
    with ExportDirectory(str(tmp_path), SETTINGS, fs=fs) as export:
        stage(export, 0, 3)
        stage(export, 3, 5)
        fs.fail(*WRITING_CALLS, nth=nth, times=1)
        with pytest.raises(StorageError):
            export.commit_staged()
        stage(export, 5, 9)
        export.commit_staged()
    assert sorted(tables(tmp_path).values()) == ["0 3 a", "3 5 a", "5 9 a"]


@pytest.mark.parametrize("cut", range(1, 60, 7))
def test_a_line_that_was_cut_off_was_never_committed(tmp_path: Path, cut: int) -> None:
    with ExportDirectory(str(tmp_path), SETTINGS) as export:
        stage(export, 0, 3)
        export.commit_staged()
        manifest = Path(export.manifest)
    with manifest.open("ab") as file:
        file.write(json.dumps({"topic": "t", "partition": 0, "start": 3, "stop": 9, "files": []}).encode()[:cut])
    with ExportDirectory(str(tmp_path), SETTINGS) as export:
        assert len(export.ranges) == 1
        stage(export, 3, 5)
        export.commit_staged()
    with ExportDirectory(str(tmp_path), SETTINGS) as export:
        assert [one.start for one in export.ranges] == [0, 3]


def test_a_directory_with_something_else_is_refused(tmp_path: Path) -> None:
    (tmp_path / "thesis.odt").write_text("mine")
    with pytest.raises(IllegalArgument, match=r"has thesis\.odt.*missing or empty"):
        ExportDirectory(str(tmp_path), SETTINGS)
    assert not is_export(str(tmp_path))
    assert os.listdir(tmp_path) == ["thesis.odt"]


def test_a_file_where_a_directory_is_meant_is_refused(tmp_path: Path) -> None:
    (tmp_path / "out").write_text("")
    with pytest.raises(StorageError, match="out"):
        ExportDirectory(str(tmp_path / "out"), SETTINGS)


@pytest.mark.parametrize(
    ("other", "message"),
    [
        (ExportSettings(("value",), "read_committed", True), "columns value, offset, not value"),
        (ExportSettings(("value", "offset"), "read_uncommitted", True), "isolation read_committed, not"),
        (ExportSettings(("value", "offset"), "read_committed", False), "by_date true, not false"),
    ],
)
def test_an_export_with_other_settings_is_refused(tmp_path: Path, other: ExportSettings, message: str) -> None:
    ExportDirectory(str(tmp_path), SETTINGS).close()
    with pytest.raises(IllegalArgument, match=message):
        ExportDirectory(str(tmp_path), other)


def test_one_driver_at_a_time(tmp_path: Path) -> None:
    with ExportDirectory(str(tmp_path), SETTINGS):
        with pytest.raises(DirectoryLocked, match="another job is exporting"):
            ExportDirectory(str(tmp_path), SETTINGS)
    ExportDirectory(str(tmp_path), SETTINGS).close()


@pytest.mark.parametrize(
    "line",
    [
        b"nonsense", b"[]", b"1", b'{"published": 7}', b'{"published": true}', b"{}", b"\xff",
        b'{"topic":"t","partition":0,"start":5,"stop":5,"log_bytes":1,"topic_id":null,"files":[]}',
        b'{"topic":"t","partition":-1,"start":0,"stop":5,"log_bytes":1,"topic_id":null,"files":[]}',
        b'{"topic":"../t","partition":0,"start":0,"stop":5,"log_bytes":1,"topic_id":null,"files":[]}',
        b'{"topic":"t","partition":0,"start":0,"stop":5,"log_bytes":1,"topic_id":null,"files":'
        b'[{"place":"topic=../../x.parquet","staged":"a/b.parquet","records":1,"bytes":1}]}',
        b'{"topic":"t","partition":0,"start":0,"stop":5,"log_bytes":1,"topic_id":null,"files":'
        b'[{"place":"topic=t/x.parquet","staged":"../../b.parquet","records":1,"bytes":1}]}',
    ],
)  # fmt: skip
def test_a_manifest_that_is_none_is_named_with_its_line(tmp_path: Path, line: bytes) -> None:
    with ExportDirectory(str(tmp_path), SETTINGS) as export:
        manifest = Path(export.manifest)
    with manifest.open("ab") as file:
        file.write(line + b"\n")
    with pytest.raises(FormatError, match=r"line 2 .*manifest\.jsonl"):
        ExportDirectory(str(tmp_path), SETTINGS)


def test_a_staged_file_that_somebody_took_away_is_no_silent_loss(tmp_path: Path) -> None:
    fs = FaultFS()
    killed = ExportDirectory(str(tmp_path), SETTINGS, fs=fs)
    stage(killed, 0, 5)
    fs.fail("rename", path=".parquet")
    with pytest.raises(StorageError):
        killed.commit_staged()
    killed._lock.close()
    for path in (tmp_path / "_kafkalog_export" / "staging").rglob("*.parquet"):
        path.unlink()
    with pytest.raises(FormatError, match="is missing"):
        ExportDirectory(str(tmp_path), SETTINGS)
