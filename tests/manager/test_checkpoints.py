"""The checkpoint of log starts: who stands in it, and what a damaged one does."""

import os
import threading
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

import kafkalog
from kafkalog.errors import CorruptCheckpoint, StorageError
from kafkalog.manager.checkpoints import (
    forget,
    read_cleaner_offsets,
    read_offset,
    record_cleaner_offset,
    record_close,
    record_log_start,
    write_high_watermarks,
    write_log_starts,
    write_recovery_points,
)
from kafkalog.storage.log import UnifiedLog
from kafkalog.types import TopicPartition
from kafkalog.util.checkpoint import LOG_START_FILE
from kafkalog.util.fileio import FileSystem
from tests.faults import FaultFS
from tests.manager.managers import OpenManager
from tests.storage.logs import append_batches, config

A, B = TopicPartition("a", 0), TopicPartition("b-c", 3)
NAME = "log-start-offset-checkpoint"


def make_log(topic_partition: TopicPartition, start: int, base: int) -> Any:
    """Return a stand-in for a log that begins at `start` with a segment of `base`."""
    state = SimpleNamespace(log_start_offset=start, segments=(SimpleNamespace(base_offset=base),))
    return SimpleNamespace(topic_partition=topic_partition, name=str(topic_partition), state=state)


def test_only_starts_above_the_first_segment_are_named(tmp_path: Path) -> None:
    record_log_start(str(tmp_path), make_log(A, 0, 0))
    assert not (tmp_path / NAME).exists()
    record_log_start(str(tmp_path), make_log(A, 7, 0))
    record_log_start(str(tmp_path), make_log(B, 20, 5))
    assert (tmp_path / NAME).read_text() == "0\n2\na 0 7\nb-c 3 20\n"
    assert (read_offset(str(tmp_path), LOG_START_FILE, A), read_offset(str(tmp_path), LOG_START_FILE, B)) == (7, 20)
    record_log_start(str(tmp_path), make_log(A, 7, 7))
    assert (tmp_path / NAME).read_text() == "0\n1\nb-c 3 20\n"
    assert read_offset(str(tmp_path), LOG_START_FILE, A) == 0


def test_an_unchanged_start_writes_nothing(tmp_path: Path) -> None:
    record_log_start(str(tmp_path), make_log(A, 7, 0))
    before = (tmp_path / NAME).stat().st_mtime_ns
    record_log_start(str(tmp_path), make_log(A, 7, 0))
    assert (tmp_path / NAME).stat().st_mtime_ns == before


def test_a_full_disk_leaves_the_old_file(tmp_path: Path) -> None:
    record_log_start(str(tmp_path), make_log(A, 7, 0))
    fs = FaultFS()
    fs.fail("pwrite")
    with pytest.raises(StorageError):
        record_log_start(str(tmp_path), make_log(A, 9, 0), fs=fs)
    assert read_offset(str(tmp_path), LOG_START_FILE, A) == 7


def test_a_damaged_checkpoint_is_named_and_nothing_opened(tmp_path: Path) -> None:
    kafkalog.open(tmp_path / "a-0", "a").close()
    (tmp_path / NAME).write_text("0\n1\na 0 seven\n")
    with pytest.raises(CorruptCheckpoint) as refused:
        kafkalog.open(tmp_path / "a-0", "a")
    assert refused.value.path == str(tmp_path / NAME)
    (tmp_path / NAME).unlink()
    kafkalog.open(tmp_path / "a-0", "a").close()


class TestWholeDirectory:
    """MGR-17, MGR-18: what the jobs write for all logs of a directory at once."""

    def logs(self, path: Path, *names: str) -> list[UnifiedLog]:
        made = []
        for name in names:
            (path / name).mkdir()
            made.append(UnifiedLog.open(path / name, config(), high_watermark_follows_end=False))
            append_batches(made[-1], times=3)
        return made

    def test_each_file_has_its_offsets(self, tmp_path: Path) -> None:
        logs = self.logs(tmp_path, "a-0", "b-1")
        logs[0].flush()
        logs[0].update_high_watermark(2)
        logs[0].maybe_increment_log_start_offset(1)
        for write in (write_recovery_points, write_log_starts, write_high_watermarks):
            write(str(tmp_path), logs)
        assert (tmp_path / "recovery-point-offset-checkpoint").read_text() == "0\n2\na 0 3\nb 1 0\n"
        assert (tmp_path / NAME).read_text() == "0\n1\na 0 1\n"
        assert (tmp_path / "replication-offset-checkpoint").read_text() == "0\n2\na 0 2\nb 1 0\n"
        for log in logs:
            log.close()

    def test_partitions_that_went_vanish_and_those_of_others_stay(self, tmp_path: Path) -> None:
        logs = self.logs(tmp_path, "a-0")
        (tmp_path / "other-0").mkdir()
        (tmp_path / "recovery-point-offset-checkpoint").write_text("0\n3\na 0 9\ngone 0 5\nother 0 7\n")
        write_recovery_points(str(tmp_path), logs)
        assert (tmp_path / "recovery-point-offset-checkpoint").read_text() == "0\n2\na 0 0\nother 0 7\n"
        logs[0].close()

    def test_a_file_is_made_even_for_nothing_and_written_only_where_it_changes(self, tmp_path: Path) -> None:
        path = tmp_path / NAME
        write_log_starts(str(tmp_path), [])
        assert path.read_text() == "0\n0\n"
        fs = FaultFS()
        write_log_starts(str(tmp_path), [], fs=fs)
        assert not fs.named("pwrite", "rename")

    def test_a_damaged_file_is_written_anew(self, tmp_path: Path) -> None:
        (tmp_path / NAME).write_text("damage")
        logs = self.logs(tmp_path, "a-0")
        write_log_starts(str(tmp_path), logs)
        assert (tmp_path / NAME).read_text() == "0\n0\n"
        logs[0].close()

    def test_a_cut_inside_a_batch_is_not_promised(self, tmp_path: Path) -> None:
        """LOG-53: the batch went whole, so the next opening ends below the offset of the cut."""
        (tmp_path / "a-0").mkdir()
        log = UnifiedLog.open(tmp_path / "a-0", config())
        append_batches(log, 300, 5)
        append_batches(log, 300, 5)
        log.flush()
        log.truncate_to(7)
        assert log.log_end_offset == 7
        write_recovery_points(str(tmp_path), [log])
        write_high_watermarks(str(tmp_path), [log])
        assert (tmp_path / "recovery-point-offset-checkpoint").read_text() == "0\n1\na 0 5\n"
        assert (tmp_path / "replication-offset-checkpoint").read_text() == "0\n1\na 0 5\n"
        log.close()


def test_a_partition_is_forgotten_while_another_s_offset_is_put_on_disk(tmp_path: Path) -> None:
    """Both change one file: neither undoes the other."""
    record_log_start(str(tmp_path), make_log(A, 7, 0))
    record_log_start(str(tmp_path), make_log(B, 8, 0))
    other = threading.Thread(target=record_log_start, args=(str(tmp_path), make_log(B, 9, 0)))

    class Meanwhile(FileSystem):
        def __init__(self) -> None:
            self.rename = self._rename  # type: ignore[method-assign]

        def _rename(self, source: str, target: str) -> None:
            if os.path.basename(target) == NAME:
                other.start()
                other.join(0.3)  # it waits for us, or is through
            os.replace(source, target)

    forget(str(tmp_path), [A], fs=Meanwhile())
    other.join()
    assert (tmp_path / NAME).read_text() == "0\n1\nb-c 3 9\n"


def test_a_partition_that_was_deleted_meanwhile_gets_no_line_again(tmp_path: Path) -> None:
    with OpenManager(tmp_path) as held:
        log = held.create_log(TopicPartition("a", 0))
        logs = [log]  # what a job has just begun with
        write_recovery_points(str(tmp_path), logs)
        held.manager.delete(TopicPartition("a", 0))
        write_recovery_points(str(tmp_path), logs)
        assert (tmp_path / "recovery-point-offset-checkpoint").read_text() == "0\n0\n"


class StopsBefore(FileSystem):
    """The first thread to write the checkpoint stops before it reads it, until another is through."""

    def __init__(self, between: Callable[[], object]) -> None:
        self.between: Callable[[], object] | None = between

    def open(self, path: str, flags: int, mode: int = 0o777) -> int:  # type: ignore[override]
        if os.path.basename(path) == NAME and self.between is not None:
            between, self.between = self.between, None
            between()
        return os.open(path, flags, mode)


@pytest.mark.parametrize("of_later", ["start", "delete"])
def test_a_log_start_that_another_thread_has_moved_on_is_not_put_back(tmp_path: Path, of_later: str) -> None:
    """Two threads give up records of one log: what the later call has put on disk stays when the first goes on."""
    log = make_log(A, 5, 0)

    def meanwhile() -> None:
        if of_later == "start":
            log.state.log_start_offset = 9
            record_log_start(str(tmp_path), log)
        else:
            log.name = "a-0.5c1f-delete"
            forget(str(tmp_path), [A])

    record_log_start(str(tmp_path), make_log(B, 20, 5))
    record_log_start(str(tmp_path), log, fs=StopsBefore(meanwhile))
    left = {"start": "0\n2\na 0 9\nb-c 3 20\n", "delete": "0\n1\nb-c 3 20\n"}
    assert (tmp_path / NAME).read_text() == left[of_later]


def test_up_to_where_a_partition_is_clean(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """CLN-33: lines of partitions that are gone are removed; a damaged file is rewritten."""
    (tmp_path / str(A)).mkdir()
    assert read_cleaner_offsets(str(tmp_path)) == {}
    record_cleaner_offset(str(tmp_path), A, 7)
    record_cleaner_offset(str(tmp_path), B, 9)
    assert read_cleaner_offsets(str(tmp_path)) == {A: 7, B: 9}
    record_cleaner_offset(str(tmp_path), A, 8)
    assert (tmp_path / "cleaner-offset-checkpoint").read_text() == "0\n1\na 0 8\n"
    (tmp_path / "cleaner-offset-checkpoint").write_text("no checkpoint")
    assert read_cleaner_offsets(str(tmp_path)) == {}
    assert "from the beginning" in caplog.text
    record_cleaner_offset(str(tmp_path), A, 9)
    assert read_cleaner_offsets(str(tmp_path)) == {A: 9}
    (tmp_path / "cleaner-offset-checkpoint").write_text("0\n2\n%s 0 5\nt\0 0 5\n" % ("n" * 300))
    record_cleaner_offset(str(tmp_path), A, 10)  # those names are no partition's
    assert read_cleaner_offsets(str(tmp_path)) == {A: 10}


def test_a_cut_that_fails_half_way_leaves_nothing_behind_it_marked_as_clean(tmp_path: Path) -> None:
    """MGR-25: what is appended in place of what may be gone was never cleaned."""
    fs = FaultFS()
    with OpenManager(tmp_path, fs=fs) as held:
        log = held.manager.get_or_create(A)
        append_batches(log, 200, 5)
        (tmp_path / "cleaner-offset-checkpoint").write_text("0\n2\na 0 4\nb-c 3 9\n")
        rule = fs.fail("ftruncate", path="a-0", times=1)
        with pytest.raises((OSError, StorageError)):
            held.manager.truncate_to(A, 0)
        assert rule.fired and read_cleaner_offsets(str(tmp_path)) == {A: 0, B: 9}


def test_what_someone_else_has_written_since_is_kept(tmp_path: Path) -> None:
    """The content that was written last is not parsed again, unless it is another one."""
    file = tmp_path / "recovery-point-offset-checkpoint"
    record_close(str(tmp_path), A, 5, 5)
    file.write_text("0\n2\na 0 3\nb-c 3 9\n")  # as long as before
    record_close(str(tmp_path), TopicPartition("d", 0), 7, 7)
    assert file.read_text() == "0\n3\na 0 3\nb-c 3 9\nd 0 7\n"
    file.write_text("0\n9\n")
    with pytest.raises(CorruptCheckpoint, match="the count is 9"):
        record_close(str(tmp_path), A, 5, 5)


def test_many_directories_are_written_in_turns(tmp_path: Path) -> None:
    """More directories than those whose files are remembered."""
    for number in range(2):
        for name in "abcdefghij":
            (tmp_path / name).mkdir(exist_ok=True)
            record_close(str(tmp_path / name), TopicPartition(name, number), number, number)
    for name in "abcdefghij":
        assert (tmp_path / name / "replication-offset-checkpoint").read_text() == f"0\n2\n{name} 0 0\n{name} 1 1\n"
