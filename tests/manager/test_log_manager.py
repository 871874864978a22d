"""LogManager: directories taken, logs opened, found, made and closed."""

import errno
import shutil
import threading
from pathlib import Path

import pytest

from kafkalog.config.broker import BrokerConfig
from kafkalog.errors import (
    ConfigError,
    DirectoryLocked,
    IllegalState,
    InconsistentTopicId,
    LogClosed,
    NotAPartition,
    StorageError,
    UnknownTopicOrPartition,
)
from kafkalog.log.open_writable import open_for_append
from kafkalog.manager.log_dir import LogDir
from kafkalog.manager.log_manager import LoadProgress, LogManager
from kafkalog.manager.new_partitions import NewPartitions
from kafkalog.storage.log import UnifiedLog
from kafkalog.storage.partition_metadata import new_topic_id, read_partition_metadata
from kafkalog.types import TopicPartition
from kafkalog.util.fileio import OS
from tests.faults import FaultFS
from tests.manager.managers import MARKER, T0, list_names
from tests.storage.logs import run


def open_one(*paths: Path, **more: object) -> LogManager:
    return LogManager.open(paths, **more)  # type: ignore[arg-type]


def make_logs(path: Path, count: int, topic: str = "t") -> None:
    """`count` partitions with a record each in a directory that is closed well."""
    with open_one(path) as manager:
        for number in range(count):
            manager.get_or_create(TopicPartition(topic, number)).append_as_leader(bytearray(run(0, 1)))


def test_a_log_is_made_in_its_directory_and_get_makes_none(tmp_path: Path) -> None:
    """MGR-1."""
    with open_one(tmp_path) as manager:
        assert manager.get(T0) is None and "t-0" not in list_names(tmp_path)
        log = manager.get_or_create(T0)
        assert log.path == str(tmp_path / "t-0") and manager.get(T0) is log and manager.logs == {T0: log}
        assert "00000000000000000000.log" in list_names(tmp_path / "t-0")
        assert manager.get_or_create(T0) is log


def test_what_was_appended_is_there_after_a_close_and_an_open(tmp_path: Path) -> None:
    """MGR-19: each directory has its checkpoints and its marker after a close."""
    with open_one(tmp_path / "a", tmp_path / "b") as manager:
        for number in range(4):
            log = manager.get_or_create(TopicPartition("t", number), settings={"retention.ms": 77})
            log.append_batches(bytearray(run(0, number + 1)))
        assert MARKER not in list_names(tmp_path / "a") | list_names(tmp_path / "b")
    assert MARKER in list_names(tmp_path / "a") and MARKER in list_names(tmp_path / "b")
    points = (tmp_path / "a" / "recovery-point-offset-checkpoint").read_text()
    assert points == "0\n2\nt 0 1\nt 2 3\n"
    with open_one(tmp_path / "a", tmp_path / "b") as manager:
        assert {key.partition: log.log_end_offset for key, log in manager.logs.items()} == {0: 1, 1: 2, 2: 3, 3: 4}
        assert {log.config.retention_ms for log in manager.logs.values()} == {77}


def test_a_closed_manager_makes_nothing_and_closes_twice(tmp_path: Path) -> None:
    manager = open_one(tmp_path)
    manager.close()
    manager.close()
    uses = (
        lambda: manager.get_or_create(T0), lambda: manager.delete(T0), lambda: manager.delete_topics(["t"]),
        lambda: manager.replace_with_future(T0), lambda: manager.cutting({T0: 0}).__enter__(),
        lambda: manager.create_partitions([NewPartitions("t", new_topic_id(), range(1))]),
        lambda: manager.alter_topic("t", {}), lambda: manager.alter_config({}),
    )  # fmt: skip
    for use in uses:
        with pytest.raises(LogClosed):
            use()
    assert not manager.logs


def test_one_manager_at_a_time(tmp_path: Path) -> None:
    """MGR-2: in this process too, and beside no partition that is open by itself."""
    data = tmp_path / "data"
    with open_one(data):
        with pytest.raises(DirectoryLocked, match="as a whole"):
            open_one(data)
        with pytest.raises(DirectoryLocked, match="as a whole"):
            open_for_append(data / "t-0")
    opened = open_for_append(data / "t-0")
    with pytest.raises(DirectoryLocked, match="partitions of the data directory open"):
        open_one(tmp_path / "other", data)
    LogDir.acquire(tmp_path / "other").release()  # the one that was taken first is free again
    opened.close()
    with open_one(data) as manager:
        assert list(manager.logs) == [T0]


def test_a_lock_file_that_cannot_be_opened_takes_the_directory_offline(tmp_path: Path) -> None:
    """MGR-2, MGR-3."""
    fs = FaultFS()
    fs.fail("open", path="a/.lock", code=errno.EIO)
    with open_one(tmp_path / "a", tmp_path / "b", fs=fs) as manager:
        assert [one.is_online for one in manager.directories] == [False, True]
        assert isinstance(manager.directories[0].offline_error, StorageError)
        assert manager.get_or_create(T0).path == str(tmp_path / "b" / "t-0")
    with pytest.raises(StorageError, match=r"lock file.*Input/output error"):
        open_one(tmp_path / "a", fs=fs)


def test_directories_given_twice_are_one_and_an_empty_path_is_refused(tmp_path: Path) -> None:
    """MGR-3."""
    (tmp_path / "link").symlink_to(tmp_path / "a")
    with open_one(tmp_path / "a", tmp_path / "b" / ".." / "a", tmp_path / "link") as manager:
        assert [one.path for one in manager.directories] == [str(tmp_path / "a")]
    for empty in ([""], [str(tmp_path), " "], []):
        with pytest.raises(ConfigError):
            LogManager.open(empty)


def test_all_directories_offline_is_an_error_that_names_each(tmp_path: Path) -> None:
    """MGR-3: a file is no data directory."""
    (tmp_path / "a").write_text("")
    (tmp_path / "b").write_text("")
    with pytest.raises(StorageError) as caught:
        open_one(tmp_path / "a", tmp_path / "b")
    assert str(tmp_path / "a") in str(caught.value) and str(tmp_path / "b") in str(caught.value)
    with open_one(tmp_path / "a", tmp_path / "c") as manager:
        assert [one.is_online for one in manager.directories] == [False, True]


def test_a_relative_path_is_made_absolute(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """MGR-22."""
    monkeypatch.chdir(tmp_path)
    with open_one(Path("data")) as manager:
        log = manager.get_or_create(T0)
        assert (log.path, manager.directories[0].path) == (str(tmp_path / "data" / "t-0"), str(tmp_path / "data"))


def test_a_file_named_as_a_partition_is_ignored_with_a_warning(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """MGR-22."""
    (tmp_path / "t-0").write_text("no directory")
    (tmp_path / "notes.txt").write_text("")
    with open_one(tmp_path) as manager:
        assert not manager.logs
    assert [record.message for record in caplog.records if record.levelname == "WARNING"] == [
        f"ignoring {tmp_path / 't-0'}: a file with the name of a partition directory"
    ]


@pytest.mark.parametrize("name", ["nodash", "foo-bar", "t-0-delete", "lost+found"])
def test_a_directory_with_another_name_ends_the_start_before_anything_changes(tmp_path: Path, name: str) -> None:
    """MGR-22: the marker stays, and the lock is free."""
    make_logs(tmp_path, 1)
    (tmp_path / name).mkdir()
    with pytest.raises(NotAPartition, match="is not a partition directory"):
        open_one(tmp_path)
    assert MARKER in list_names(tmp_path)
    (tmp_path / name).rmdir()
    with open_one(tmp_path) as manager:
        assert list(manager.logs) == [T0]


def test_a_partition_in_two_directories_ends_the_start_before_anything_changes(tmp_path: Path) -> None:
    make_logs(tmp_path / "a", 1)
    make_logs(tmp_path / "b", 1)
    with pytest.raises(IllegalState, match="t-0") as caught:
        open_one(tmp_path / "a", tmp_path / "b")
    assert str(tmp_path / "a") in str(caught.value) and str(tmp_path / "b") in str(caught.value)
    assert MARKER in list_names(tmp_path / "a") and MARKER in list_names(tmp_path / "b")


def test_a_new_partition_goes_to_the_directory_with_the_fewest(tmp_path: Path) -> None:
    """MGR-4: the difference is never above 1."""
    with open_one(*(tmp_path / name for name in "abc")) as manager:
        for number in range(10):
            manager.get_or_create(TopicPartition("t", number))
            counts = [len(one.logs) for one in manager.directories]
            assert max(counts) - min(counts) <= 1 and sum(counts) == number + 1


def test_a_cordoned_directory_takes_nothing_new(tmp_path: Path) -> None:
    config = BrokerConfig(cordoned_log_dirs=[str(tmp_path / "a")])
    with open_one(tmp_path / "a", tmp_path / "b", config=config) as manager:
        for number in range(3):
            manager.get_or_create(TopicPartition("t", number))
        assert [len(one.logs) for one in manager.directories] == [0, 3]
    config = BrokerConfig(cordoned_log_dirs=[str(tmp_path / "a"), str(tmp_path / "b")])
    with open_one(tmp_path / "a", tmp_path / "b", config=config) as manager:
        assert len(manager.logs) == 3
        with pytest.raises(StorageError, match="cordoned"):
            manager.get_or_create(TopicPartition("t", 3))


def test_a_disk_that_refuses_a_new_partition_goes_offline_and_the_next_takes_it(tmp_path: Path) -> None:
    """MGR-5."""
    fs = FaultFS()
    with open_one(tmp_path / "a", tmp_path / "b", fs=fs) as manager:
        fs.fail("mkdir", path="a/t-0", code=errno.EIO)
        assert manager.get_or_create(T0).path == str(tmp_path / "b" / "t-0")
        assert [one.is_online for one in manager.directories] == [False, True]
        fs.fail("mkdir", path="b/t-1", code=errno.EIO)
        with pytest.raises(StorageError, match="no data directory accepts t-1"):
            manager.get_or_create(TopicPartition("t", 1))
    assert MARKER not in list_names(tmp_path / "a")


def test_a_full_disk_refuses_a_new_partition_and_stays_in_use(tmp_path: Path) -> None:
    """MGR-5: the reference gives the directory up; then retention could never make room in it."""
    fs = FaultFS()
    with open_one(tmp_path / "a", tmp_path / "b", fs=fs) as manager:
        fs.fail("open", path="a/t-0", code=errno.ENOSPC)
        assert manager.get_or_create(T0).path == str(tmp_path / "b" / "t-0")
        assert [one.is_online for one in manager.directories] == [True, True]
        assert "t-0" not in list_names(tmp_path / "a")
        fs.heal()
        assert manager.get_or_create(TopicPartition("t", 1)).path == str(tmp_path / "a" / "t-1")
    assert MARKER in list_names(tmp_path / "a") and MARKER in list_names(tmp_path / "b")


def test_a_partition_that_should_be_there_is_not_made_while_a_directory_is_offline(tmp_path: Path) -> None:
    """MGR-6."""
    (tmp_path / "a").write_text("")
    with open_one(tmp_path / "a", tmp_path / "b") as manager:
        with pytest.raises(StorageError, match="may be in an offline directory"):
            manager.get_or_create(T0, is_new=False)
        assert manager.get_or_create(T0, is_new=True).path == str(tmp_path / "b" / "t-0")
        assert manager.get_or_create(T0, is_new=False) is manager.get(T0)
    with open_one(tmp_path / "b") as manager:
        assert manager.get_or_create(TopicPartition("t", 1), is_new=False).log_end_offset == 0


def test_a_directory_can_be_chosen_by_path(tmp_path: Path) -> None:
    """MGR-7."""
    with open_one(tmp_path / "a", tmp_path / "b") as manager:
        for number in range(3):
            log = manager.get_or_create(TopicPartition("t", number), directory=tmp_path / "b")
            assert log.path == str(tmp_path / "b" / f"t-{number}")
        with pytest.raises(ValueError, match="not a data directory of this manager"):
            manager.get_or_create(TopicPartition("t", 3), directory=tmp_path / "c")


def test_all_partitions_of_a_topic_have_one_id(tmp_path: Path) -> None:
    topic_id = new_topic_id()
    with open_one(tmp_path / "a", tmp_path / "b") as manager:
        paths = [manager.get_or_create(TopicPartition("t", n), topic_id=topic_id).path for n in range(3)]
        assert {read_partition_metadata(OS, path) for path in paths} == {topic_id}
        with pytest.raises(InconsistentTopicId):
            manager.get_or_create(T0, topic_id=new_topic_id())
    with open_one(tmp_path / "b", tmp_path / "a") as manager:
        path = manager.get_or_create(TopicPartition("t", 9)).path
        assert read_partition_metadata(OS, path) == topic_id


def test_loading_tells_how_far_it_is(tmp_path: Path) -> None:
    """MGR-21: what remains counts down to nothing."""
    make_logs(tmp_path / "a", 5)
    make_logs(tmp_path / "b", 3, "u")
    reports: list[LoadProgress] = []
    threads: set[str] = set()

    def progress(one: LoadProgress) -> None:
        reports.append(one)
        threads.add(threading.current_thread().name)

    with open_one(tmp_path / "a", tmp_path / "b", progress=progress):
        pass
    for name, count in (("a", 5), ("b", 3)):
        mine = [one for one in reports if one.directory == str(tmp_path / name)]
        assert [one.logs - one.logs_done for one in mine] == list(reversed(range(count)))
    assert all(name.startswith("kafkalog-load") for name in threads)


@pytest.mark.parametrize("threads", [1, 3])
def test_each_directory_loads_in_so_many_threads(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, threads: int
) -> None:
    """MGR-21: both directories at once, `num.recovery.threads.per.data.dir` logs of each at a time, to be recovered."""
    for name, topic in (("a", "t"), ("b", "u")):
        make_logs(tmp_path / name, 2 * threads, topic)
        (tmp_path / name / MARKER).unlink()
    together = threading.Barrier(2 * threads)
    real = UnifiedLog.open.__func__  # type: ignore[attr-defined]

    def meet(cls: type[UnifiedLog], *args: object, **more: object) -> UnifiedLog:
        together.wait(30)
        log: UnifiedLog = real(cls, *args, **more)
        return log

    monkeypatch.setattr(UnifiedLog, "open", classmethod(meet))
    config = BrokerConfig(num_recovery_threads_per_data_dir=threads)
    with open_one(tmp_path / "a", tmp_path / "b", config=config) as manager:
        assert len(manager.logs) == 4 * threads


def test_partitions_that_belong_to_no_topic_are_set_aside_by_their_id(tmp_path: Path) -> None:
    """MGR-26, MGR-27: the name of the directory says nothing, a copy under another name with a live id stays."""
    make_logs(tmp_path, 1, "known")
    make_logs(tmp_path, 1, "x" * 249)
    shutil.copytree(tmp_path / "known-0", tmp_path / "copy-0")
    make_logs(tmp_path, 1, "ghost")
    (tmp_path / "ghost-0" / "partition.metadata").unlink()
    live = read_partition_metadata(OS, tmp_path / "known-0")
    asked: list[tuple[TopicPartition, str | None]] = []

    def is_stray(key: TopicPartition, topic_id: str | None) -> bool:
        asked.append((key, topic_id))
        return topic_id != live

    with open_one(tmp_path, is_stray=is_stray) as manager:
        assert {key.topic for key in manager.logs} == {"known", "copy"}
        strays = sorted(name for name in list_names(tmp_path) if name.endswith("-stray"))
        assert [len(name) for name in strays] == [len("ghost-0.") + 38, 255]
    assert (TopicPartition("ghost", 0), None) in asked and len(asked) == 4
    with open_one(tmp_path) as manager:
        assert {key.topic for key in manager.logs} == {"known", "copy"}
        assert strays == sorted(name for name in list_names(tmp_path) if name.endswith("-stray"))


def test_a_stray_partition_that_cannot_be_closed_ends_no_start(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """It is recovered after an unclean stop, and again at the next start: its directory gets no marker."""
    make_logs(tmp_path, 1, "ghost")
    make_logs(tmp_path, 1, "known")
    (tmp_path / MARKER).unlink()
    (tmp_path / "ghost-0").rename(tmp_path / f"ghost-0.{'0' * 32}-stray")
    fs = FaultFS()
    fs.fail("ftruncate", path="-stray/00000000000000000000.timeindex", nth=2)  # as it is closed
    with open_one(tmp_path, fs=fs) as manager:
        assert {key.topic for key in manager.logs} == {"known"}
    assert [message for message in caplog.messages if "-stray was recovered, but not closed well: " in message]
    assert MARKER not in list_names(tmp_path)


def test_a_change_of_settings_reaches_current_and_future_logs_and_stays(tmp_path: Path) -> None:
    """MGR-24."""
    a, b = tmp_path / "a", tmp_path / "b"
    with open_one(a, b) as manager:
        first = manager.get_or_create(T0, directory=a, settings={"retention.ms": 5})
        other = manager.get_or_create(TopicPartition("t", 1), directory=b)
        future = manager.get_or_create(T0, is_future=True, directory=b)
        unlike = manager.get_or_create(TopicPartition("u", 0))
        manager.alter_topic("t", {"retention.ms": None, "flush.ms": 7})
        assert {log.config.flush_ms for log in (first, other, future)} == {7}
        assert {log.config.retention_ms for log in (first, other, future)} == {unlike.config.retention_ms}
        with pytest.raises(ConfigError):
            manager.alter_topic("t", {"flush.ms": -1})
        with pytest.raises(UnknownTopicOrPartition):
            manager.alter_topic("none", {"flush.ms": 1})
        late = manager.get_or_create(TopicPartition("t", 2))
        assert late.config.flush_ms == 7
    for order in ((a, b), (b, a)):
        with open_one(*order) as manager:
            assert {log.config.flush_ms for key, log in manager.logs.items() if key.topic == "t"} == {7}


def test_a_change_while_a_log_is_being_made_is_not_lost(tmp_path: Path) -> None:
    """MGR-24."""
    fs = FaultFS()
    with open_one(tmp_path, fs=fs) as manager:
        manager.get_or_create(T0)
        reached, changed = threading.Event(), threading.Event()
        real = fs.mkdir

        def slow(path: str, *rest: object) -> None:
            reached.set()
            changed.wait(0.2)  # the change has to wait for the log, so this never comes
            real(path, *rest)  # type: ignore[arg-type]

        fs.mkdir = slow  # type: ignore[method-assign]
        made: list[object] = []
        thread = threading.Thread(target=lambda: made.append(manager.get_or_create(TopicPartition("t", 1))))
        thread.start()
        assert reached.wait(30)
        manager.alter_topic("t", {"flush.ms": 7})
        changed.set()
        thread.join(30)
        assert {log.config.flush_ms for log in manager.logs.values()} == {7} and len(manager.logs) == 2


def test_a_cut_through_the_manager_lowers_what_the_checkpoints_say(tmp_path: Path) -> None:
    """MGR-25: nothing is cleaned while the manager's lock is held; the cleaner's offset goes down with the log."""
    with open_one(tmp_path) as manager:
        log = manager.get_or_create(T0)
        log.append_batches(bytearray(run(0, 5)))
        log.flush()
        for job in manager.jobs:
            if "checkpoint" in job.name:
                job.run()
        (tmp_path / "cleaner-offset-checkpoint").write_text("0\n2\nt 0 4\nu 0 9\n")
        assert manager.truncate_to(T0, 2) and log.log_end_offset == 2
        assert (tmp_path / "cleaner-offset-checkpoint").read_text() == "0\n2\nt 0 2\nu 0 9\n"
        for name in ("recovery-point", "replication"):
            assert (tmp_path / f"{name}-offset-checkpoint").read_text() == "0\n1\nt 0 2\n"
        assert not manager.truncate_to(T0, 2)
        with pytest.raises(UnknownTopicOrPartition):
            manager.truncate_to(TopicPartition("t", 1), 0)


def test_a_cut_below_the_log_start_outlives_a_crash(tmp_path: Path) -> None:
    """MGR-25: the checkpoint of log starts would give up what was appended behind the cut."""
    with open_one(tmp_path) as manager:
        log = manager.get_or_create(T0)
        log.append_batches(bytearray(run(0, 5)))
        log.maybe_increment_log_start_offset(4)
        for job in manager.jobs:
            if "checkpoint" in job.name:
                job.run()
        assert "t 0 4" in (tmp_path / "log-start-offset-checkpoint").read_text()
        assert manager.truncate_to(T0, 1)
        log.append_batches(bytearray(run(1, 2)))
        crashed = tmp_path.with_name("crashed")
        shutil.copytree(tmp_path, crashed)
    with open_one(crashed) as manager:
        log = manager.logs[T0]
        assert (log.log_start_offset, log.log_end_offset) == (1, 3)


def test_all_checkpoints_may_be_missing(tmp_path: Path) -> None:
    """CKPT-5: and bootstrap.checkpoint and meta.properties beside them are no partitions (CKPT-10)."""
    make_logs(tmp_path, 2)
    for name in list_names(tmp_path):
        if name.endswith("-checkpoint"):
            (tmp_path / name).unlink()
    (tmp_path / "bootstrap.checkpoint").write_bytes(b"\x00" * 100)
    (tmp_path / "cleaner-offset-checkpoint").write_bytes(b"")
    with open_one(tmp_path) as manager:
        assert {log.log_end_offset for log in manager.logs.values()} == {1}


@pytest.mark.parametrize("name", ["recovery-point-offset-checkpoint", "log-start-offset-checkpoint"])
def test_a_damaged_checkpoint_takes_its_directory_offline(tmp_path: Path, name: str) -> None:
    """CKPT-5: the reference takes the marker away first; ours leaves everything as it was."""
    make_logs(tmp_path / "a", 1)
    make_logs(tmp_path / "b", 1, "u")
    (tmp_path / "a" / name).write_text("0\n5\nx 0 1\n")
    with open_one(tmp_path / "a", tmp_path / "b") as manager:
        assert [key.topic for key in manager.logs] == ["u"]
        assert name in str(manager.directories[0].offline_error)
    assert MARKER in list_names(tmp_path / "a")
    with pytest.raises(StorageError, match="the count is 5"):
        open_one(tmp_path / "a")
    (tmp_path / "a" / name).unlink()
    with open_one(tmp_path / "a") as manager:
        assert len(manager.logs) == 1


def test_only_a_log_start_above_the_first_segment_is_checkpointed(tmp_path: Path) -> None:
    """CKPT-10, MGR-17."""
    make_logs(tmp_path, 2)
    with open_one(tmp_path) as manager:
        log = manager.logs[T0]
        log.append_batches(bytearray(run(0, 5)))
        log.delete_before(3)
    assert (tmp_path / "log-start-offset-checkpoint").read_text() == "0\n1\nt 0 3\n"
    with open_one(tmp_path) as manager:
        assert [manager.logs[TopicPartition("t", n)].log_start_offset for n in (0, 1)] == [3, 0]


def test_a_partition_opened_by_itself_has_what_the_manager_wrote(tmp_path: Path) -> None:
    """One partition, all partitions: the same topics file, checkpoints and marker."""
    with open_one(tmp_path) as manager:
        log = manager.get_or_create(T0, settings={"retention.ms": 5})
        log.append_batches(bytearray(run(0, 4)))
        log.delete_before(2)
    opened = open_for_append(tmp_path / "t-0")
    assert (opened.log.log_start_offset, opened.log.log_end_offset) == (2, 4)
    assert opened.log.config.retention_ms == 5
    opened.close()
    with open_one(tmp_path) as manager:
        assert manager.logs[T0].log_start_offset == 2
        log_dir = manager.directories[0].log_dir
        assert log_dir is not None and log_dir.marker_found
