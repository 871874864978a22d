"""Copies that follow a source until they are stopped: new records, topics and offsets of groups, whole at the end."""

import signal
import subprocess
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

import kafkalog
from kafkalog.backup import create_backup
from kafkalog.copy import copy_topics, follow_topics
from kafkalog.copy.sources import LogFiles
from kafkalog.errors import IllegalArgument, OffsetOutOfRange
from kafkalog.server.groups.stored import commit_all, committed_offsets
from kafkalog.storage.segment_reader import Chunk
from kafkalog.testing import kafka_server
from tests import commands
from tests.copy.test_runs_again import append, rows
from tests.copy.topics import SERVER, cluster_on, records_in


def until(condition: Callable[[], bool], process: subprocess.Popen[bytes] | None = None) -> None:
    deadline = time.monotonic() + 60
    while not condition():
        assert time.monotonic() < deadline and (process is None or process.poll() is None)
        time.sleep(0.02)


def offset_of(directory: Path, group: str) -> int | None:
    return committed_offsets([str(directory)]).get(group, {}).get("t", {}).get(0)


def test_new_records_topics_and_offsets_of_groups(tmp_path: Path) -> None:
    data, copied = tmp_path / "data", tmp_path / "copied"
    append(data, rows(0, 3))
    commit_all(str(data), {"readers": {"t": {0: 1}}})
    stop: list[bool] = []
    reports = follow_topics(str(data), str(copied), poll_every_s=0.01, is_stopped=lambda: bool(stop))
    assert next(reports).records == 3
    append(data, rows(3, 2))
    assert next(reports).records == 2
    commit_all(str(data), {"readers": {"t": {0: 4}}})
    report = next(reports)
    assert (report.records, report.groups) == (0, 1)
    append(data, rows(0, 2), topic="u")
    assert next(reports).records == 2
    stop.append(True)
    assert list(reports) == []
    assert offset_of(copied, "readers") == 4
    assert records_in(copied / "u-0") == records_in(data / "u-0")
    assert copy_topics(str(data), str(copied), apply=True).records == 0


@pytest.mark.parametrize("kind", ["directory", "cluster"])
def test_a_stop_ends_with_whole_batches(tmp_path: Path, kind: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """The partition's report, its marker and the groups say what is there; the next run adds the rest."""
    data = tmp_path / "data"
    append(data, *(rows(5 * n, 3) for n in range(20)))
    commit_all(str(data), {"readers": {"t": {0: 97}}})
    written: list[int] = []
    with cluster_on(tmp_path / "cluster") as server:
        files = tmp_path / "cluster" if kind == "cluster" else tmp_path / "copied"
        target = f"kafka://{server.bootstrap}" if kind == "cluster" else str(files)
        monkeypatch.setattr("kafkalog.copy.directory_target._APPEND_BYTES", 100)
        (report,) = follow_topics(str(data), target, progress=written.append, is_stopped=lambda: len(written) >= 7)
        (one,) = report.partitions
        assert one.records == len(records_in(files / "t-0")) == 21 and one.stop in (33, 35)
        assert offset_of(files, "readers") == one.end
        report = copy_topics(str(data), target, apply=True)
        assert report.records == 39
    assert [one.value for one in records_in(files / "t-0")] == [one.value for one in records_in(data / "t-0")]
    assert offset_of(files, "readers") == (59 if kind == "cluster" else 97)


def test_sigterm_ends_the_command_whole(tmp_path: Path) -> None:
    data, copied = tmp_path / "data", tmp_path / "copied"
    append(data, rows(0, 3))
    with kafka_server(directory=data, settings=SERVER) as server:
        place = f"kafka://{server.bootstrap}"
        arguments = ("copy", "--from", place, "--to", copied, "--apply", "--follow", "--poll-every", "0.05")
        with commands.started(*arguments) as process:
            until(lambda: (copied / "t-0").is_dir() and len(records_in(copied / "t-0")) == 3, process)
            process.send_signal(signal.SIGTERM)
            out, error = process.communicate(timeout=60)
    assert process.returncode == 0 and b"Traceback" not in error, error
    assert b"3 records copied now" in out
    with kafkalog.open_dirs(copied, "a") as dirs:  # the lock is free
        assert dirs["t", 0].end_offset == 3
    assert (copied / ".kafka_cleanshutdown").exists()


def test_a_source_that_deletes_what_is_copied_next(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The copy ends with an error, and the same call goes on where the source begins by then."""
    data = tmp_path / "data"
    append(data, *(rows(3 * n, 3) for n in range(20)))
    whole = LogFiles._chunks

    def overtaken(source: LogFiles, *place: Any) -> Iterator[Chunk]:
        for chunk in whole(source, *place):
            yield chunk._replace(last=chunk.first + 7)
            raise OffsetOutOfRange("it was deleted", offset=21)

    with cluster_on(tmp_path / "cluster") as server:
        target = f"kafka://{server.bootstrap}"
        with monkeypatch.context() as broken:
            broken.setattr(LogFiles, "_chunks", overtaken)
            with pytest.raises(OffsetOutOfRange):
                next(follow_topics(str(data), target))
        with kafkalog.open_dirs(data, "a", log_cleaner_enable=False) as dirs:
            dirs["t", 0].delete_before(30)
        report = copy_topics(str(data), target, apply=True)
        assert "records of offsets 21 to 30" in [row.what for row in report.not_kept] and report.records == 30
    values = [one.value for one in records_in(tmp_path / "cluster" / "t-0")]
    with kafkalog.open(data / "t-0") as log:
        assert values[21:] == [one.value for one in log] and len(values) == 51


def test_backups_are_not_followed(tmp_path: Path) -> None:
    data, backups = tmp_path / "data", tmp_path / "backups"
    append(data, rows(0, 3))
    create_backup(data, backups)
    for source, target in ((backups, tmp_path / "copied"), (data, backups), (data, f"backup:{tmp_path / 'new'}")):
        with pytest.raises(IllegalArgument, match="does not grow"):
            next(follow_topics(str(source), str(target)))
    with pytest.raises(IllegalArgument, match="poll_every_s"):
        next(follow_topics(str(data), str(tmp_path / "copied"), poll_every_s=0))
    assert not (tmp_path / "new").exists() and not (tmp_path / "copied").exists()
