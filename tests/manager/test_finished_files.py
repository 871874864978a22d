"""Files of open logs as a clean close leaves them, and closing without a write."""

import os
import shutil
from pathlib import Path

import pytest

from kafkalog.config.broker import BrokerConfig
from kafkalog.manager.log_manager import LogManager
from kafkalog.storage.leader_epoch import EpochEntry, read_epochs
from kafkalog.storage.log_parts.core import LogCore
from kafkalog.types import TopicPartition
from tests.manager.managers import MARKER, T0, T1, append

FEW = BrokerConfig.from_mapping({"log.index.interval.bytes": 50})
"""So several batches make several entries of an index."""


def contents_of(path: Path) -> dict[str, bytes]:
    return {
        str(one.relative_to(path)): one.read_bytes()
        for one in path.rglob("*") if one.is_file() and one.name not in (MARKER, ".lock")
    }  # fmt: skip


def make_logs(manager: LogManager) -> None:
    """One log with two segments, one with a single batch, one without a record."""
    append(log := manager.get_or_create(T0), 20)
    log.roll()
    append(log, 20)
    append(manager.get_or_create(T1))
    manager.get_or_create(TopicPartition("empty", 0))


def test_they_equal_those_of_a_close(tmp_path: Path) -> None:
    with LogManager.open([tmp_path / "data"], FEW) as manager:
        make_logs(manager)
        for _ in range(2):
            with manager.finished_files():
                found = contents_of(tmp_path / "data")
    assert found == contents_of(tmp_path / "data")


def test_epochs_that_an_append_has_not_written_yet_are_in_their_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with LogManager.open([tmp_path / "data"], FEW) as manager:
        make_logs(manager)
        begun: list[tuple[str, EpochEntry]] = []

        def append_of_another_thread(core: LogCore) -> None:
            monkeypatch.undo()
            with core.lock:  # after the log was flushed, and up to where the append releases the lock
                core.epochs.assign(5, core.state.log_end_offset)
                begun.append((core.path, EpochEntry(5, core.state.log_end_offset)))

        monkeypatch.setattr(LogCore, "write_epochs", append_of_another_thread)
        with manager.finished_files():
            [(path, wanted)] = begun
            assert read_epochs(path)[-1] == wanted


def test_logs_go_on_afterwards(tmp_path: Path) -> None:
    with LogManager.open([tmp_path / "data"], FEW) as manager:
        make_logs(manager)
        with manager.finished_files():
            assert not (tmp_path / "data" / MARKER).exists()
        for log in manager.logs.values():
            append(log, 30)
        ends = {key: log.log_end_offset for key, log in manager.logs.items()}
        entries = sum(os.stat(one).st_size for one in (tmp_path / "data" / "t-1").glob("*.index"))
    assert entries > 0, "the index has room for entries again"
    with LogManager.open([tmp_path / "data"], FEW) as again:
        assert {key: log.log_end_offset for key, log in again.logs.items()} == ends
        assert ends == {T0: 70, T1: 31, TopicPartition("empty", 0): 30}


def test_the_files_are_complete_after_an_error_in_the_block(tmp_path: Path) -> None:
    with LogManager.open([tmp_path / "data"], FEW) as manager:
        make_logs(manager)
        with pytest.raises(OSError, match="the copy"), manager.finished_files():
            raise OSError("the copy fails")
        append(manager.logs[T1])
        assert manager.logs[T1].log_end_offset == 2


def test_a_directory_is_replaced_after_a_close_without_a_write(tmp_path: Path) -> None:
    with LogManager.open([tmp_path / "data"], FEW) as manager:
        make_logs(manager)
        with manager.finished_files():
            shutil.copytree(tmp_path / "data", tmp_path / "copy")
        append(manager.logs[T1], 5)
        before = {name: one.stat().st_mtime_ns for name in os.listdir(tmp_path / "data")
                  if (one := tmp_path / "data" / name).is_file()}  # fmt: skip
        manager.close(discards=True)
    after = {name: (tmp_path / "data" / name).stat().st_mtime_ns for name in os.listdir(tmp_path / "data")
             if (tmp_path / "data" / name).is_file()}  # fmt: skip
    assert after == before and MARKER not in after
    shutil.rmtree(tmp_path / "data")
    (tmp_path / "copy" / MARKER).touch()
    with LogManager.open([tmp_path / "copy"], FEW) as restored:
        assert {key: log.log_end_offset for key, log in restored.logs.items()} == {
            T0: 40, T1: 1, TopicPartition("empty", 0): 0,
        }  # fmt: skip


def test_a_log_that_does_not_close_keeps_no_directory_locked(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail() -> None:
        raise OSError("it does not close")

    with LogManager.open([tmp_path / "data"], FEW) as manager:
        make_logs(manager)
        monkeypatch.setattr(manager.logs[T0], "close_handlers", fail)
        with pytest.raises(OSError, match="it does not close"):
            manager.close(discards=True)
        with LogManager.open([tmp_path / "data"], FEW) as again:
            assert again.logs[T1].log_end_offset == 1
