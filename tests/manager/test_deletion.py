"""Deleting partitions: renamed at once, forgotten, removed later, gone on with after a restart."""

import errno
import os
import shutil
import subprocess
from pathlib import Path

import pytest

from kafkalog.errors import LogClosed, StorageError
from kafkalog.manager.checkpoints import write_log_starts
from kafkalog.manager.new_partitions import NewPartitions
from kafkalog.manager.topics import TopicStore
from kafkalog.storage.names import parse_dir
from kafkalog.storage.partition_metadata import new_topic_id
from kafkalog.types import TopicPartition
from kafkalog.util.checkpoint import LOG_START_FILE
from kafkalog.util.fileio import OS, FileSystem
from tests.faults import FaultFS, each_failure
from tests.manager.managers import MARKER, T0, T1, OpenManager, append, find_only, list_names, read_checkpoint


def test_delete_renames_at_once_and_removes_after_the_delay(tmp_path: Path) -> None:
    """MGR-10, LOG-71."""
    with OpenManager(tmp_path) as held:
        log = held.create_log()
        held.create_log(T1)
        assert held.manager.delete(T0) is log
        assert held.manager.get(T0) is None and list(held.manager.logs) == [T1]
        path = find_only(tmp_path, "-delete")
        assert parse_dir(path.name).topic_partition == T0 and len(path.name) == len("t-0.") + 32 + len("-delete")
        assert log.path == str(path) and "t-0" not in list_names(tmp_path)
        assert held.delete_after(59_999) == 0 and path.exists()
        assert held.delete_after(1) == 1 and not path.exists()
        assert held.manager.delete_logs() == 0


def test_a_deleted_log_can_be_read_until_it_is_removed_but_not_written(tmp_path: Path) -> None:
    """MGR-10, LOG-72."""
    with OpenManager(tmp_path) as held:
        log = held.create_log()
        held.manager.delete(T0)
        assert len(bytes(log.read(0, 1000).records.read())) == 300
        with pytest.raises(StorageError, match="the partition t-0 was deleted"):
            append(log)
        held.delete_after(60_000)
        with pytest.raises(LogClosed):
            log.read(0, 1000)


def test_a_deleted_partition_is_in_no_checkpoint_and_its_topic_goes_with_the_last_one(tmp_path: Path) -> None:
    """MGR-10, MGR-18: a topic that is created again must not find the old one's recovery point."""
    with OpenManager(tmp_path) as held:
        first = held.create_log(T0, 3)
        held.create_log(T1, 2)
        old_id = TopicStore(tmp_path).topics()["t"].topic_id
        for job in held.manager.jobs:
            if "checkpoint" in job.name:
                job.run()
        assert read_checkpoint(tmp_path, "replication-offset-checkpoint") == {"t-0": 3, "t-1": 2}
        held.manager.delete(T0)
        assert read_checkpoint(tmp_path, "replication-offset-checkpoint") == {"t-1": 2}
        assert read_checkpoint(tmp_path, "recovery-point-offset-checkpoint").keys() == {"t-1"}
        assert TopicStore(tmp_path).topics()["t"].topic_id == old_id
        held.manager.delete(T1)
        assert TopicStore(tmp_path).topics() == {}
        again = held.create_log(T0, 1)
        assert again.log_end_offset == 1 and again is not first
        assert TopicStore(tmp_path).topics()["t"].topic_id != old_id


def test_each_delete_has_a_name_of_its_own(tmp_path: Path) -> None:
    """MGR-27: so that one made again and deleted again never collides."""
    with OpenManager(tmp_path) as held:
        for _ in range(3):
            held.create_log()
            held.manager.delete(T0)
        assert len([name for name in list_names(tmp_path) if name.endswith("-delete")]) == 3
        assert held.delete_after(60_000) == 3


@pytest.mark.parametrize("length", [213, 214, 249])
def test_names_of_deleted_partitions_fit_the_file_system(tmp_path: Path, length: int) -> None:
    """MGR-10, MGR-27: a topic of 249 characters gives exactly 255."""
    topic_partition = TopicPartition("x" * length, 5)
    with OpenManager(tmp_path) as held:
        held.create_log(topic_partition)
        held.manager.delete(topic_partition)
        path = find_only(tmp_path, "-delete")
        assert len(path.name) == min(255, length + 42)
        assert held.delete_after(60_000) == 1 and not path.exists()


def test_a_deleted_directory_is_queued_again_at_the_next_start(tmp_path: Path) -> None:
    """MGR-11, LOAD-18: it is not opened, and not in the list of logs; one without a marker neither."""
    for clean in (True, False):
        with OpenManager(tmp_path) as held:
            held.create_log()
            held.manager.delete(T0)
        path = find_only(tmp_path, "-delete")
        (path / "00000000000000000000.log").write_bytes(b"garbage that no loader would take")
        if not clean:
            (tmp_path / MARKER).unlink()
        with OpenManager(tmp_path) as held:
            assert not held.manager.logs and path.exists()
            assert held.manager.delete_delay_ms() == 60_000
            assert held.delete_after(60_000) == 1 and not path.exists()


def test_of_a_link_only_the_link_is_removed(tmp_path: Path) -> None:
    """As in the reference: a directory that came from elsewhere may name any other as one that is deleted."""
    precious = tmp_path / "precious"
    (precious / "inside").mkdir(parents=True)
    (precious / "inside" / "file").write_bytes(b"of another")
    data = tmp_path / "data"
    with OpenManager(data) as held:
        held.create_log()
    (data / f"x-0.{'a' * 32}-delete").symlink_to(precious)
    with OpenManager(data) as held:
        assert held.delete_after(60_000) == 1
    assert (precious / "inside" / "file").read_bytes() == b"of another"
    assert not any(name.endswith("-delete") for name in os.listdir(data))


def test_of_a_link_inside_a_partition_only_the_link_is_removed(tmp_path: Path) -> None:
    precious = tmp_path / "precious"
    (precious / "inside").mkdir(parents=True)
    (precious / "file").write_bytes(b"of another")
    with OpenManager(tmp_path / "data") as held:
        log = held.create_log()
        (Path(log.path) / "link").symlink_to(precious)
        (Path(log.path) / "own" / "deeper").mkdir(parents=True)
        held.manager.delete(T0)
        assert held.delete_after(60_000) == 1
    assert (precious / "file").read_bytes() == b"of another" and (precious / "inside").is_dir()
    assert not any(name.endswith("-delete") for name in list_names(tmp_path / "data"))


def test_a_disk_that_fails_a_rename_takes_the_directory_offline(tmp_path: Path) -> None:
    fs = FaultFS()
    with OpenManager(tmp_path, fs=fs) as held:
        held.create_log()
        fs.fail("rename", path="/t-0", code=errno.EIO)
        with pytest.raises(StorageError, match="rename"):
            held.manager.delete(T0)
        assert not held.manager.directories[0].is_online
    assert "t-0" in list_names(tmp_path)


def test_what_a_crash_within_a_delete_left_in_the_checkpoints_is_dropped(tmp_path: Path) -> None:
    with OpenManager(tmp_path) as held:
        held.create_log(T0)
        held.create_log(T1)
    path = tmp_path / "t-0"
    path.rename(tmp_path / f"t-0.{'a' * 32}-delete")
    with OpenManager(tmp_path):
        assert read_checkpoint(tmp_path, "recovery-point-offset-checkpoint").keys() == {"t-1"}
        assert read_checkpoint(tmp_path, "replication-offset-checkpoint").keys() == {"t-1"}


@pytest.mark.parametrize("at_once", [False, True])
def test_checkpoint_entries_that_a_full_disk_kept_are_removed_before_the_name_is_used_again(
    tmp_path: Path, at_once: bool
) -> None:
    """Else a crash soon after would restart the new log at the start of the deleted one, above its end."""
    fs = FaultFS()
    held = OpenManager(tmp_path, fs=fs)
    log = held.create_log(T0, 9)
    log.delete_before(5)
    write_log_starts(os.fspath(tmp_path), [log])
    fs.fail("open", path="offset-checkpoint")
    held.manager.delete_topic("t")
    fs.heal()
    assert read_checkpoint(tmp_path, LOG_START_FILE) == {"t-0": 5}
    if at_once:
        held.manager.create_partitions([NewPartitions("t", new_topic_id(), [0])])
    else:
        held.manager.get_or_create(T0)
    append(held.manager.logs[T0], 3)
    assert not read_checkpoint(tmp_path, LOG_START_FILE)
    held.manager.logs[T0].flush()
    shutil.copytree(tmp_path, tmp_path.parent / f"{tmp_path.name}-crashed")
    held.manager.close()
    with OpenManager(tmp_path.parent / f"{tmp_path.name}-crashed") as after:
        assert (after.manager.logs[T0].log_start_offset, after.manager.logs[T0].log_end_offset) == (0, 3)


def test_a_stray_directory_stays(tmp_path: Path) -> None:
    """MGR-11: it is neither opened nor deleted; without a marker it is recovered with the others."""
    stray = tmp_path / f"t-0.{'c' * 32}-stray"
    with OpenManager(tmp_path) as held:
        held.create_log(T0)
        held.create_log(T1)
    (tmp_path / "t-0").rename(stray)
    with OpenManager(tmp_path) as held:
        assert list(held.manager.logs) == [T1]
        assert held.delete_after(10**9) == 0
    before = (stray / "00000000000000000000.log").read_bytes()
    (stray / "00000000000000000000.log").write_bytes(before + b"\x00" * 5)
    (tmp_path / MARKER).unlink()
    with OpenManager(tmp_path) as held:
        assert list(held.manager.logs) == [T1]
    assert (stray / "00000000000000000000.log").read_bytes() == before
    assert MARKER in list_names(tmp_path)


def test_deleting_what_is_not_there(tmp_path: Path) -> None:
    """MGR-12."""
    with OpenManager(tmp_path / "a") as held:
        assert held.manager.delete(T0) is None
    (tmp_path / "b").write_text("")
    with OpenManager(tmp_path / "a", tmp_path / "b") as held, pytest.raises(StorageError, match="offline"):
        held.manager.delete(T0)


def test_a_failed_rename_leaves_the_log_as_it_was(tmp_path: Path) -> None:
    fs = FaultFS()
    with OpenManager(tmp_path, fs=fs) as held:
        log = held.create_log()
        fs.fail("rename", path="/t-0", code=errno.ENOSPC)
        with pytest.raises(StorageError, match="rename"):
            held.manager.delete(T0)
        fs.heal()
        assert held.manager.get(T0) is log
        append(log)
        assert log.log_end_offset == 4
    assert MARKER in list_names(tmp_path)


def test_a_removal_that_fails_is_tried_again(tmp_path: Path) -> None:
    fs = FaultFS()
    with OpenManager(tmp_path, fs=fs) as held:
        held.create_log()
        held.manager.delete(T0)
        fs.fail("unlink", path=".log", code=errno.ENOSPC)
        with pytest.raises(StorageError, match="remove the deleted partition"):
            held.delete_after(60_000)
        fs.heal()
        assert held.manager.delete_logs() == 0
        assert held.delete_after(60_000) == 1
        assert not [name for name in list_names(tmp_path) if name.endswith("-delete")]


class LosesEntries(FileSystem):
    """Notes which names of a directory were changed since it was last synced."""

    def __init__(self) -> None:
        self.unsynced: set[str] = set()

    def rename(self, old: str, new: str) -> None:  # type: ignore[override]
        os.replace(old, new)
        self.unsynced |= {os.path.dirname(old), os.path.dirname(new)}

    def rmdir(self, path: str) -> None:  # type: ignore[override]
        os.rmdir(path)
        self.unsynced.add(os.path.dirname(path))

    def fsync_dir(self, path: str | os.PathLike[str]) -> None:
        super().fsync_dir(path)
        self.unsynced.discard(os.fspath(path))


def test_renames_and_removals_are_synced(tmp_path: Path) -> None:
    """MGR-10: a power loss must bring no deleted partition back once `delete` has returned."""
    fs = LosesEntries()
    with OpenManager(tmp_path, fs=fs) as held:
        held.create_log()
        held.manager.delete(T0)
        assert str(tmp_path) not in fs.unsynced
        held.delete_after(60_000)
        assert str(tmp_path) not in fs.unsynced


def test_a_delete_that_fails_at_any_call_leaves_the_partition_there_or_deleted(tmp_path: Path) -> None:
    """Whatever call fails, the next start finds the partition whole, or as one that waits for its delete."""
    for nth in each_failure():
        path = tmp_path / str(nth)
        fs = FaultFS()
        held = OpenManager(path, fs=fs)
        held.create_log()
        rule = fs.fail(nth=nth, times=1, code=errno.EIO)
        try:
            held.manager.delete(T0)
        except StorageError:
            pass
        fs.heal()
        held.manager.close()
        with OpenManager(path) as again:
            log = again.manager.get(T0)
            waiting = [name for name in list_names(path) if name.endswith("-delete")]
            assert (log is not None and log.log_end_offset == 3) != bool(waiting), nth
        if not rule.fired:
            break
    assert OS.exists(path)


class PutsOneBack(FileSystem):
    """Makes a file in a directory that is about to be removed, as an append that was under way may; once."""

    def __init__(self) -> None:
        self.left = 1

    def rmdir(self, path: str) -> None:  # type: ignore[override]
        if self.left and path.endswith("-delete"):
            self.left -= 1
            Path(path, "leader-epoch-checkpoint.tmp").write_text("")
        os.rmdir(path)


def test_a_file_that_appears_while_a_directory_is_removed_goes_with_it(tmp_path: Path) -> None:
    fs = PutsOneBack()
    with OpenManager(tmp_path, fs=fs) as held:
        held.create_log()
        held.manager.delete(T0)
        assert held.delete_after(60_000) == 1 and not fs.left
        assert held.manager.directories[0].is_online
        held.create_log()
        held.manager.delete(T0)
        fs.left = 10
        with pytest.raises(StorageError, match="not empty"):
            held.delete_after(60_000)
        assert held.manager.directories[0].is_online
        fs.left = 0
        assert held.delete_after(60_000) == 1


@pytest.mark.slow
def test_a_tree_as_deep_as_a_path_may_be_is_removed(tmp_path: Path) -> None:
    """Deeper than Python calls may nest: it is no partition's, but it lies in one that is deleted."""
    try:
        with OpenManager(tmp_path) as held:
            log = held.create_log()
            held.create_log(T1)
            held.manager.delete(T0)
            deep = Path(log.path)
            for _ in range((4000 - len(os.fsencode(deep))) // 2):
                deep /= "d"
                os.mkdir(deep)
            held.manager.delete(T1)
            assert held.delete_after(60_000) == 2
        assert not [name for name in list_names(tmp_path) if name.endswith("-delete")]
    finally:
        subprocess.run(["rm", "-rf", tmp_path], check=True)  # what is left is too deep for who cleans up after tests
