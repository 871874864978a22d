"""Moving a partition to another data directory: a future log, and its taking the place of the current one."""

import errno
import logging
from pathlib import Path

import pytest

from kafkalog.errors import IllegalState, StorageError
from kafkalog.manager.jobs import flush_dirty_logs
from kafkalog.manager.retention import cleanup_logs, expire_producers
from kafkalog.manager.topics import TopicStore
from kafkalog.storage.append import append_copied
from kafkalog.storage.log import UnifiedLog
from kafkalog.types import TopicPartition
from tests.faults import FaultFS
from tests.manager.managers import MARKER, T0, T1, OpenManager, append, find_only, list_names, read_checkpoint


def copy_to_future(held: OpenManager, path: Path, topic_partition: TopicPartition = T0) -> UnifiedLog:
    """A future log in `path` with all that the current one has."""
    current = held.manager.get(topic_partition)
    assert current is not None
    future = held.manager.get_or_create(topic_partition, is_future=True, directory=path)
    future.append_as_follower(bytearray(current.read(0, 1 << 20).records.read()), 0)
    return future


def test_a_future_log_is_made_in_another_directory(tmp_path: Path) -> None:
    """MGR-8."""
    a, b = tmp_path / "a", tmp_path / "b"
    with OpenManager(a, b) as held:
        held.create_log(T0, directory=a)
        with pytest.raises(IllegalState, match="no directory is given"):
            held.manager.get_or_create(T0, is_future=True)
        with pytest.raises(IllegalState, match="is already in that directory"):
            held.manager.get_or_create(T0, is_future=True, directory=a)
        with pytest.raises(IllegalState, match="does not exist"):
            held.manager.get_or_create(T1, is_future=True, directory=a)
        held.manager.prefer(T0, b)
        future = held.manager.get_or_create(T0, is_future=True)
        assert future.path == str(find_only(b, "-future")) and held.manager.future_logs == {T0: future}
        assert held.manager.get(T0, is_future=True) is future
        assert held.manager.get(T0) is not future
    with OpenManager(a, b) as held:
        assert list(held.manager.future_logs) == [T0] and list(held.manager.logs) == [T0]


def test_the_preferred_directory_counts_before_the_emptiest(tmp_path: Path) -> None:
    """MGR-8."""
    with OpenManager(tmp_path / "a", tmp_path / "b") as held:
        for number in range(3):
            held.manager.prefer(TopicPartition("t", number), tmp_path / "b")
            assert held.create_log(TopicPartition("t", number)).path == str(tmp_path / "b" / f"t-{number}")


def test_the_future_log_takes_the_place_of_the_current_one(tmp_path: Path) -> None:
    """MGR-9: high watermark kept, cleaner checkpoint moved, the old one renamed and removed later."""
    a, b = tmp_path / "a", tmp_path / "b"
    with OpenManager(a, b) as held:
        current = held.create_log(T0, directory=a)
        held.create_log(T1, directory=a)
        (a / "cleaner-offset-checkpoint").write_text("0\n2\nt 0 2\nt 1 1\n")
        current.update_high_watermark(2)
        future = copy_to_future(held, b)
        assert held.manager.replace_with_future(T0) is future
        assert held.manager.get(T0) is future and not held.manager.future_logs
        assert future.path == str(b / "t-0") and future.high_watermark == 2
        assert read_checkpoint(a, "cleaner-offset-checkpoint") == {"t-1": 1}
        assert read_checkpoint(b, "cleaner-offset-checkpoint") == {"t-0": 2}
        append(future)
        assert future.read(3, 1000).records.size == 100
        with pytest.raises(StorageError, match="is moving to another directory"):
            append(current)
        old = find_only(a, "-delete")
        assert held.delete_after(60_000) == 1 and not old.exists()
        assert TopicStore(b).topics()["t"].topic_id == TopicStore(a).topics()["t"].topic_id
    assert MARKER in list_names(a) and MARKER in list_names(b)
    with OpenManager(a, b) as held:
        assert {key: Path(log.path).parent for key, log in held.manager.logs.items()} == {T0: b, T1: a}
        assert held.manager.logs[T0].log_end_offset == 4


def test_records_that_were_deleted_stay_so_after_a_move_and_a_crash(tmp_path: Path) -> None:
    """MGR-9: the log's start is on disk in its new directory before the old one has forgotten it."""
    a, b = tmp_path / "a", tmp_path / "b"
    with OpenManager(a, b) as held:
        current = held.create_log(T0, directory=a)
        future = copy_to_future(held, b)
        future.update_high_watermark(3)
        for log in (current, future):
            log.maybe_increment_log_start_offset(2)
        held.manager.replace_with_future(T0)
        assert read_checkpoint(b, "log-start-offset-checkpoint") == {"t-0": 2}


@pytest.mark.parametrize(("call", "failing", "offline"), [
    (None, "", []),
    ("fsync", "a", ["a"]),
    ("rename", "b/cleaner-offset-checkpoint", ["b"]),
    ("open_read", "a/cleaner-offset-checkpoint", ["a"]),
])  # fmt: skip
def test_what_fails_once_the_logs_have_changed_places_takes_its_disk_offline(
    tmp_path: Path, call: str | None, failing: str, offline: list[str], caplog: pytest.LogCaptureFixture
) -> None:
    """MGR-9: it is logged with its directory, and the new log is the current one."""
    a, b = tmp_path / "a", tmp_path / "b"
    fs = FaultFS()
    with OpenManager(a, b, fs=fs) as held:
        held.create_log(T0, directory=a)
        held.create_log(T1, directory=a)
        (a / "cleaner-offset-checkpoint").write_text("0\n1\nt 0 2\n")
        future = copy_to_future(held, b)
        if call is not None:
            fs.fail(call, path=str(tmp_path / failing), code=errno.EIO)
        with caplog.at_level(logging.WARNING):
            assert held.manager.replace_with_future(T0) is future
        assert [Path(one.path).name for one in held.manager.directories if not one.is_online] == offline
        warned = [one.getMessage() for one in caplog.records if one.levelno == logging.WARNING]
        assert len(warned) == len(offline) and all(
            message.startswith(f"{tmp_path / name}: ") for message, name in zip(warned, offline, strict=True)
        )
        assert (b / "t-0").is_dir() and not (a / "t-0").exists()
        assert (held.manager.get(T0) is future) == (offline != ["b"])
        fs.heal()


def test_a_log_without_a_future_one_cannot_be_replaced(tmp_path: Path) -> None:
    """MGR-9."""
    with OpenManager(tmp_path / "a", tmp_path / "b") as held:
        held.create_log()
        with pytest.raises(IllegalState, match="no future log"):
            held.manager.replace_with_future(T0)
        with pytest.raises(IllegalState, match="no current log"):
            held.manager.replace_with_future(T1)


def test_a_future_log_that_lags_does_not_take_the_place(tmp_path: Path) -> None:
    """MGR-9: the reference's caller has to look after that; ours loses nothing."""
    a, b = tmp_path / "a", tmp_path / "b"
    with OpenManager(a, b) as held:
        current = held.create_log(T0, directory=a)
        copy_to_future(held, b)
        append(current)
        with pytest.raises(IllegalState, match="ends at 3, the current one at 4"):
            held.manager.replace_with_future(T0)
        append(current)
        assert held.manager.get(T0) is current and current.log_end_offset == 5


@pytest.mark.parametrize("failing", ["-future", "a/t-0"])
@pytest.mark.parametrize("code", [errno.EIO, errno.ENOSPC])
def test_a_rename_that_fails_leaves_one_copy_in_use(tmp_path: Path, failing: str, code: int) -> None:
    """MGR-9: whichever of the two renames it is; a disk that failed is offline."""
    a, b = tmp_path / "a", tmp_path / "b"
    fs = FaultFS()
    with OpenManager(a, b, fs=fs) as held:
        held.create_log(T0, directory=a)
        copy_to_future(held, b)
        fs.fail("rename", path=failing, code=code, times=1)
        with pytest.raises(StorageError):
            held.manager.replace_with_future(T0)
        assert [one.is_online for one in held.manager.directories] == (
            [True, True] if code == errno.ENOSPC else [failing != "a/t-0", failing != "-future"]
        )
        if failing == "-future" or code == errno.ENOSPC:
            append(held.manager.logs[T0])
            assert held.manager.logs[T0].log_end_offset == 4
    live = [path for path in (a, b) if "t-0" in list_names(path)]
    assert live == [a]


def test_a_name_that_is_too_long_for_a_future_directory_is_an_error(tmp_path: Path) -> None:
    """MGR-27: `-future` names are not cut, 249 characters of topic would give 291."""
    long = TopicPartition("x" * 249, 0)
    with OpenManager(tmp_path / "a", tmp_path / "b") as held:
        held.create_log(long, directory=tmp_path / "a")
        with pytest.raises(StorageError, match="File name too long"):
            held.manager.get_or_create(long, is_future=True, directory=tmp_path / "b")
        assert [one.is_online for one in held.manager.directories] == [True, True]


def test_deleting_a_partition_deletes_its_future_log_first(tmp_path: Path) -> None:
    with OpenManager(tmp_path / "a", tmp_path / "b") as held:
        held.create_log(T0, directory=tmp_path / "a")
        copy_to_future(held, tmp_path / "b")
        held.manager.delete(T0)
        assert not held.manager.logs and not held.manager.future_logs
        assert held.delete_after(60_000) == 2


def test_a_future_directory_beside_its_current_one_is_kept_and_not_renamed(tmp_path: Path) -> None:
    """MGR-29: the reference renames onto the current one and does not start; ours serves the current one."""
    with OpenManager(tmp_path) as held:
        held.create_log()
    future = tmp_path / f"t-0.{'b' * 32}-future"
    future.mkdir()
    with OpenManager(tmp_path) as held:
        assert held.manager.logs[T0].log_end_offset == 3
        assert held.manager.future_logs[T0].path == str(future)
    assert {"t-0", future.name, MARKER} <= list_names(tmp_path)


@pytest.mark.parametrize("how", ["moved", "deleted"])
def test_jobs_skip_a_log_that_is_gone_since_they_listed_the_logs(
    tmp_path: Path, how: str, caplog: pytest.LogCaptureFixture
) -> None:
    """Nothing failed: no warning, and no failed run of the job."""
    a, b = tmp_path / "a", tmp_path / "b"
    with OpenManager(a, b) as held:
        current = held.create_log(T0, directory=a)
        held.manager.alter_topic("t", {"retention.bytes": 1, "internal.segment.bytes": 150, "flush.ms": 0})
        for _ in range(5):
            append(current)
        current.update_high_watermark(current.log_end_offset)
        assert len(current.segments) > 2
        listed = [current]
        if how == "moved":
            future = held.manager.get_or_create(T0, is_future=True, directory=b)
            while future.log_end_offset < current.log_end_offset:
                append_copied(future, bytearray(current.read(future.log_end_offset, 1).records.read()))
            held.manager.replace_with_future(T0)
        else:
            held.manager.delete(T0)
        with pytest.raises(StorageError):
            append(current)
        with caplog.at_level(logging.WARNING):
            assert cleanup_logs(listed, 2**60) == 0
            assert expire_producers(listed, 2**60, 1) == 0
            assert flush_dirty_logs(listed, 2**60) == 0
        assert not caplog.records
