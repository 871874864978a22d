"""`kafkalog.open_dirs`: topics of several directories as one object, in both modes."""

import gc
import os
import shutil
import subprocess
import sys
import threading
import warnings
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

import kafkalog
from kafkalog.config.broker import BrokerConfig
from kafkalog.dirs.log_dirs import LogDirs
from kafkalog.errors import (
    ConfigError,
    DirectoryLocked,
    IllegalArgument,
    IllegalState,
    InvalidPartitions,
    InvalidTopic,
    LogClosed,
    PartitionNotFound,
    PolicyViolation,
    ReadOnlyLog,
    StorageError,
    TopicExists,
    UnknownConfig,
    UnknownTopicOrPartition,
)
from tests.held_store import ANY_TIME, DAY, NOW, Held

CONTRADICTION = {"min.compaction.lag.ms": 2, "max.compaction.lag.ms": 1}


@pytest.fixture
def held(tmp_path: Path) -> Iterator[Held]:
    with Held(tmp_path / "a", tmp_path / "b") as made:
        yield made


# Topics and partitions


def test_from_nothing_to_records_and_back(tmp_path: Path) -> None:
    """Partitions are spread (MGR-4); what was written is there after a close, in both modes, and by itself."""
    paths = [tmp_path / "a", tmp_path / "b"]
    with kafkalog.open_dirs(paths, "a") as dirs:
        topic = dirs.create_topic("orders", 4, {"retention.ms": -1, "segment_ms": 1000})
        assert (topic.name, topic.partitions) == ("orders", (0, 1, 2, 3))
        assert topic.settings == {"retention.ms": "-1", "segment.ms": "1000"}
        assert dirs.topics == {"orders": topic}
        assert [one.partitions for one in dirs.directories] == [2, 2]
        for number in range(4):
            dirs["orders", number].append([b"%d" % number] * (number + 1))
        assert [log.value for log in dirs["orders", 3]] == [b"3"] * 4
        assert dirs.logs("orders") == [dirs["orders", number] for number in range(4)]
        with pytest.raises(UnknownTopicOrPartition, match="topics here: orders"):
            dirs.logs("order")
    for mode in ("r", "a"):
        with kafkalog.open_dirs(paths, mode) as dirs:  # type: ignore[arg-type]
            assert dirs.mode == mode and len(dirs) == 4 and dirs
            assert dirs.topics == {"orders": topic}
            assert list(dirs) == [("orders", number) for number in range(4)]
            assert [dirs[key].end_offset for key in dirs] == [1, 2, 3, 4]
            assert ("orders", 3) in dirs and ("orders", 4) not in dirs and "orders" not in dirs
    assert (tmp_path / "a" / ".kafka_cleanshutdown").exists()
    with kafkalog.open(tmp_path / "a" / "orders-0") as log:
        assert [record.value for record in log] == [b"0"]
    assert kafkalog.verify(paths).ok


def test_a_log_is_the_same_object_and_closed_with_the_directories(held: Held) -> None:
    dirs = held.dirs
    dirs.create_topic("t")
    log = dirs["t", 0]
    assert dirs["t", 0] is log and dirs.get("t") is log and dirs.get("t", 1) is None
    with log:
        log.append(b"v")
    log.close()
    assert not log.closed
    writer = log.writer()
    pending = writer.append(b"w")
    dirs.close()
    assert pending.result() == 1
    assert log.closed
    for call in (lambda: log.append(b"x"), lambda: writer.append(b"x"), lambda: log[0]):
        with pytest.raises(LogClosed):
            call()


def test_all_that_a_log_can_do(held: Held) -> None:
    held.dirs.create_topic("t", settings=ANY_TIME)
    log = held.dirs["t", 0]
    log.append([b"a", b"b"], compression="lz4")
    with log.writer() as writer:
        assert writer.append(b"c").result() == 2
    log.roll()
    log.append([(b"k", b"d", NOW)])
    assert log.offset_for_time(NOW).offset == 0  # type: ignore[union-attr]
    assert len(log.table()) == 4
    log.delete_before(3)
    assert (log.start_offset, log.end_offset, len(log.segments)) == (3, 4, 1)
    log.flush()
    log.truncate_to(3)
    assert log.end_offset == 3 and log.verify().ok


def test_sync(tmp_path: Path) -> None:
    with kafkalog.open_dirs(tmp_path, "a", sync=True) as dirs:
        dirs.create_topic("t")
        dirs["t", 0].append(b"v")
        with dirs["t", 0].writer() as writer:
            assert writer.append(b"w").result() == 1
    with pytest.raises(IllegalArgument, match="sync"):
        kafkalog.open_dirs(tmp_path, "a", sync=-1)


def test_flush_puts_all_on_disk_and_says_so(held: Held, tmp_path: Path) -> None:
    held.dirs.create_topic("t", 2)
    for key in held.dirs:
        held.dirs[key].append([b"v"] * 3)
    held.dirs.flush()
    assert (tmp_path / "a" / "recovery-point-offset-checkpoint").read_text() == "0\n1\nt 0 3\n"
    assert (tmp_path / "b" / "recovery-point-offset-checkpoint").read_text() == "0\n1\nt 1 3\n"


def test_a_log_that_cannot_be_flushed_stops_no_other(held: Held, tmp_path: Path) -> None:
    held.dirs.create_topic("t", 2)
    for key in held.dirs:
        held.dirs[key].append(b"v")
    held.fs.fail("fsync", "fdatasync", path="/t-0")
    with pytest.raises(StorageError, match="t-0"):
        held.dirs.flush()
    assert held.store._manager.logs["t", 1].recovery_point == 1  # type: ignore[index]
    held.fs.heal()
    assert [one.offline_error is None for one in held.dirs.directories] == [False, True]
    held.dirs.close()
    assert not (tmp_path / "a" / ".kafka_cleanshutdown").exists()
    assert (tmp_path / "b" / ".kafka_cleanshutdown").exists()


@pytest.mark.parametrize("key", [b"orders", ("orders",), ("orders", "0"), (b"orders", 0), 0, ("t", 0, 0), ("t", None)])
def test_what_is_no_partition(held: Held, key: object) -> None:
    with pytest.raises(IllegalArgument, match='dirs\\["orders", 0\\]'):
        held.dirs[key]  # type: ignore[index]


def test_what_is_not_there(held: Held) -> None:
    with pytest.raises(UnknownTopicOrPartition, match="there are no topics here"):
        held.dirs["t", 0]
    held.dirs.create_topic("t", 2)
    with pytest.raises(UnknownTopicOrPartition, match="topic t has no partition 2.*it has 0, 1"):
        held.dirs["t", 2]
    for call in (lambda: held.dirs["u", 0], lambda: held.dirs.delete_topic("u"), lambda: held.dirs.alter_topic("u")):
        with pytest.raises(UnknownTopicOrPartition, match="there is no topic 'u'.*topics here: t"):
            call()


# Topics that come, change and go


@pytest.mark.parametrize(
    ("call", "error"),
    [
        (lambda dirs: dirs.create_topic("a b"), InvalidTopic),
        (lambda dirs: dirs.create_topic("t"), TopicExists),
        (lambda dirs: dirs.create_topic("a_b"), TopicExists),
        (lambda dirs: dirs.create_topic("n", 0), InvalidPartitions),
        (lambda dirs: dirs.create_topic("n", True), InvalidPartitions),
        (lambda dirs: dirs.create_topic("n", 2**31 + 1), InvalidPartitions),
        (lambda dirs: dirs.create_topic("n", 2**70), InvalidPartitions),
        (lambda dirs: dirs.create_topic("n", 10_001), InvalidPartitions),
        (lambda dirs: dirs.create_topic("n", 1, 5), IllegalArgument),
        (lambda dirs: dirs.alter_topic("t", "retention.ms"), IllegalArgument),
        (lambda dirs: dirs.alter(5), IllegalArgument),
        (lambda dirs: dirs.alter_topic("t", partitions=10_003), InvalidPartitions),
        (lambda dirs: dirs.alter_topic("t", partitions=2**31 + 1), InvalidPartitions),
        (lambda dirs: dirs.create_topic("n", settings={"retention.mss": 1}), UnknownConfig),
        (lambda dirs: dirs.create_topic("n", settings={"retention.ms": -2}), ConfigError),
        (lambda dirs: dirs.create_topic("n", settings=CONTRADICTION), ConfigError),
        (lambda dirs: dirs.create_topic("n", directory="/elsewhere"), IllegalArgument),
        (lambda dirs: dirs.create_topic("n", partition=3), TypeError),
        (lambda dirs: dirs.alter_topic("t", partitions=1), InvalidPartitions),
        (lambda dirs: dirs.alter_topic("t", {"segment.mss": 1}), UnknownConfig),
        (lambda dirs: dirs.alter_topic("t", setting={}), TypeError),
    ],
)  # fmt: skip
def test_refused_topics_leave_nothing(held: Held, call: Callable[[LogDirs], object], error: type[Exception]) -> None:
    held.dirs.create_topic("t", 2)
    held.dirs.create_topic("a.b")
    before = held.dirs.topics
    with pytest.raises(error):
        call(held.dirs)
    assert held.dirs.topics == before
    assert not [name for path in held.paths for name in os.listdir(path) if name.startswith("n-")]


def test_a_topic_that_cannot_be_made_whole_is_taken_away(held: Held) -> None:
    held.fs.fail("mkdir", path="/t-1", times=9)
    with pytest.raises(StorageError):
        held.dirs.create_topic("t", 3)
    held.fs.heal()
    assert not held.dirs.topics
    assert not [name for path in held.paths for name in os.listdir(path) if name in ("t-0", "t-1", "t-2")]
    assert held.dirs.create_topic("t", 3).partitions == (0, 1, 2)


def test_where_a_topic_goes(held: Held, tmp_path: Path) -> None:
    """Into the directory that is named, or none that is cordoned; so many partitions as num.partitions says."""
    held.dirs.create_topic("named", 3, directory=tmp_path / "b")
    assert [one.partitions for one in held.dirs.directories] == [0, 3]
    held.dirs.alter({"cordoned.log.dirs": str(tmp_path / "a")})
    held.dirs.create_topic("other", 1)
    assert [one.partitions for one in held.dirs.directories] == [0, 4]
    with pytest.raises(ConfigError, match=r"cordoned\.log\.dirs names /elsewhere"):
        held.dirs.alter({"cordoned.log.dirs": "/elsewhere"})
    held.dirs.close()
    with Held(tmp_path / "a", num_partitions=3) as made:
        assert made.dirs.create_topic("three").partitions == (0, 1, 2)


def test_delete(held: Held) -> None:
    """MGR-10: gone at once, the files after log.segment.delete.delay.ms; the name is free again."""
    held.dirs.create_topic("t", 2)
    log = held.dirs["t", 0]
    log.append(b"v")
    held.dirs.delete_topic("t")
    assert not held.dirs.topics and ("t", 0) not in held.dirs
    with pytest.raises(LogClosed):
        log.append(b"v")
    waiting = [name for path in held.paths for name in os.listdir(path) if name.endswith("-delete")]
    assert len(waiting) == 2
    first_id = held.dirs.create_topic("t").topic_id
    assert held.dirs["t", 0].end_offset == 0
    held.pass_time(120_000, 1000)
    assert not [name for path in held.paths for name in os.listdir(path) if name.endswith("-delete")]
    assert held.dirs.topics["t"].topic_id == first_id


def test_delete_may_be_forbidden(tmp_path: Path) -> None:
    with Held(tmp_path / "a", delete_topic_enable=False) as held:
        held.dirs.create_topic("t")
        with pytest.raises(PolicyViolation, match=r"delete\.topic\.enable"):
            held.dirs.delete_topic("t")
        assert ("t", 0) in held.dirs


def test_alter(held: Held, tmp_path: Path) -> None:
    """MGR-24, LOG-76: settings count for logs that are open and stay; None goes back to the store's."""
    held.dirs.create_topic("t", 1, {"retention.ms": 5})
    log = held.store._manager.logs["t", 0]  # type: ignore[index]
    changed = held.dirs.alter_topic("t", {"retention.ms": None, "segment_ms": 9}, partitions=3)
    assert (changed.partitions, changed.settings) == ((0, 1, 2), {"segment.ms": "9"})
    assert (log.config.retention_ms, log.config.segment_ms) == (7 * DAY, 9)
    assert held.store._manager.logs["t", 2].config.segment_ms == 9  # type: ignore[index]
    held.dirs.close()
    with kafkalog.open_dirs(held.paths) as dirs:
        assert dirs.topics["t"] == changed


# Settings of the store


def test_topics_follow_the_store(held: Held) -> None:
    held.dirs.create_topic("own", settings={"retention.ms": 5})
    held.dirs.create_topic("follows")
    held.dirs.alter({"log.retention.ms": 77, "log_segment_bytes": 1 << 20})
    assert held.dirs.config == BrokerConfig(log_retention_ms=77, log_segment_bytes=1 << 20)
    assert {key.topic: log.config.retention_ms for key, log in held.store._manager.logs.items()} == {
        "own": 5, "follows": 77,
    }  # fmt: skip
    held.dirs.create_topic("later")
    assert held.store._manager.logs["later", 0].config.segment_bytes == 1 << 20  # type: ignore[index]
    held.dirs.alter({"log.retention.ms": None})
    assert held.store._manager.logs["follows", 0].config.retention_ms == 7 * DAY  # type: ignore[index]
    for given in ({"log.retention.hours": 3}, {"log.retention.ms": 0}, {"num.io.threads": 3}, {"log.retention.mms": 3}):
        with pytest.raises(ConfigError):
            held.dirs.alter(given)
    assert held.dirs.config == BrokerConfig(log_segment_bytes=1 << 20)


@pytest.mark.parametrize(
    ("arguments", "settings", "error", "said"),
    [
        (("a",), {"log_retention_mss": 1}, TypeError, r"did you mean log\.retention\.ms"),
        (("a",), {"num_io_threads": 1}, TypeError, "no server runs here"),
        (("a",), {"log_dirs": "/x"}, TypeError, "first argument of open_dirs"),
        (("a",), {"log_retention_ms": "soon"}, ConfigError, "whole number"),
        (("a",), {"log_retention_ms": 0}, ConfigError, r"log\.retention\.ms=0"),
        (("a",), {"snyc": True}, TypeError, "did you mean sync"),
        (("a",), {"cordoned_log_dirs": "/elsewhere"}, ConfigError, "not a data directory here"),
        (("r",), {"log_retention_ms": 5}, TypeError, "settings are for mode 'a'"),
        (("r",), {"sync": True}, TypeError, "settings are for mode 'a'"),
        (("r",), {"mod": "a"}, TypeError, "did you mean mode"),
        (("r",), {"progress": print}, TypeError, "settings are for mode 'a'"),
        (("w",), {}, IllegalArgument, "mode is 'w'"),
    ],
)
def test_wrong_calls(
    tmp_path: Path, arguments: tuple[str], settings: dict[str, object], error: type[Exception], said: str
) -> None:
    with pytest.raises(error, match=said):
        kafkalog.open_dirs(tmp_path, *arguments, **settings)  # type: ignore[arg-type]
    with kafkalog.open_dirs(tmp_path, "a"):  # nothing was left locked
        pass


def test_the_node_is_that_of_the_directories(tmp_path: Path) -> None:
    """As a broker refuses directories of another node."""
    ids = "Er3uhoIpQAyT3-6BGQRyUA"
    (tmp_path / "meta.properties").write_text(f"version=1\nnode.id=7\ncluster.id={ids}\ndirectory.id={ids}\n")
    with pytest.raises(ConfigError, match=r"node\.id is 3.*node 7"):
        kafkalog.open_dirs(tmp_path, "a", node_id=3)
    with kafkalog.open_dirs(tmp_path, "a", node_id=7) as dirs:
        assert dirs.directories[0].directory_id == ids


@pytest.mark.parametrize("dirs", [[], "", [""], b"x", [" "]])
def test_no_directory(dirs: object) -> None:
    with pytest.raises((IllegalArgument, TypeError)):
        kafkalog.open_dirs(dirs)  # type: ignore[arg-type]


def test_directories_that_are_missing(tmp_path: Path) -> None:
    with pytest.raises(PartitionNotFound):
        kafkalog.open_dirs(tmp_path / "none")
    with kafkalog.open_dirs([tmp_path / "none", tmp_path / "none"], "a") as dirs:
        assert len(dirs.directories) == 1
    assert (tmp_path / "none").is_dir()


# Disks that fail


def test_a_directory_that_goes_offline(tmp_path: Path) -> None:
    """MGR-23: its logs are gone, the others continue, and both are reported."""
    with Held(tmp_path / "a", tmp_path / "b") as held:
        held.dirs.create_topic("t", 2)
        log, other = held.dirs["t", 0], held.dirs["t", 1]
        held.store._manager.fail_directory(tmp_path / "a", OSError(5, "Input/output error"))
        assert [one.offline_error is None for one in held.dirs.directories] == [False, True]
        assert list(held.dirs) == [("t", 1)]
        for call in (lambda: held.dirs["t", 0], lambda: held.dirs.alter_topic("u")):
            with pytest.raises(StorageError, match="offline"):
                call()
        with pytest.raises((LogClosed, StorageError)):
            log.append(b"v")
        other.append(b"v")
    assert (tmp_path / "b" / ".kafka_cleanshutdown").exists()
    assert not (tmp_path / "a" / ".kafka_cleanshutdown").exists()


# One owner


def test_locked(held: Held, tmp_path: Path) -> None:
    held.dirs.create_topic("t")
    with pytest.raises(DirectoryLocked):
        kafkalog.open_dirs(tmp_path / "b", "a")
    with pytest.raises(DirectoryLocked):
        kafkalog.open(tmp_path / "a" / "t-0", "a")
    command = f"import kafkalog; kafkalog.open_dirs({str(tmp_path / 'a')!r}, 'a')"
    done = subprocess.run([sys.executable, "-c", command], capture_output=True, text=True)
    assert "DirectoryLocked" in done.stderr
    with kafkalog.open_dirs(held.paths) as dirs:
        held.dirs["t", 0].append(b"v")
        assert [record.value for record in dirs["t", 0]] == [b"v"]
        held.dirs.create_topic("u")
        assert ("u", 0) in dirs


def test_reading_changes_nothing_and_refuses_to(tmp_path: Path) -> None:
    with kafkalog.open_dirs(tmp_path, "a") as dirs:
        dirs.create_topic("t")
    before = sorted(str(path) for path in tmp_path.rglob("*"))
    with kafkalog.open_dirs(tmp_path) as dirs:
        assert dirs.jobs == ()
        calls: list[Callable[[], object]] = [
            lambda: dirs.create_topic("u"), lambda: dirs.delete_topic("t"), lambda: dirs.alter_topic("t"),
            lambda: dirs.alter({}), dirs.flush, lambda: dirs["t", 0].append(b"v"),
        ]  # fmt: skip
        for call in calls:
            with pytest.raises(ReadOnlyLog, match="mode 'a'"):
                call()
        log = dirs["t", 0]
        assert dirs["t", 0] is log
        log.close()
        assert dirs["t", 0] is not log
    assert sorted(str(path) for path in tmp_path.rglob("*")) == before


def test_closed(held: Held) -> None:
    dirs = held.dirs
    assert repr(dirs) == f"<LogDirs 0 topics 0 partitions a {', '.join(held.paths)}>"
    dirs.close()
    dirs.close()
    assert dirs.closed and repr(dirs).startswith("<LogDirs closed ")
    for call in (lambda: dirs["t", 0], lambda: dirs.topics, lambda: dirs.jobs, lambda: list(dirs), dirs.__enter__):
        with pytest.raises(LogClosed):
            call()


@pytest.mark.parametrize("mode", ["r", "a"])
def test_dropped_without_a_close(tmp_path: Path, mode: str) -> None:
    with pytest.warns(ResourceWarning, match="never closed"):
        kafkalog.open_dirs(tmp_path, mode)  # type: ignore[call-overload]
        gc.collect()
    with kafkalog.open_dirs(tmp_path, "a"):
        pass


def test_a_log_that_is_dropped_is_no_warning(held: Held) -> None:
    held.dirs.create_topic("t")
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        held.dirs["t", 0].append(b"v")
        gc.collect()


def test_left_open_at_the_end_of_the_interpreter(tmp_path: Path) -> None:
    """The records are there, the directory is clean, and the log says so."""
    command = (
        f"import kafkalog; dirs = kafkalog.open_dirs({str(tmp_path)!r}, 'a'); dirs.create_topic('t');"
        "dirs['t', 0].append(b'v')"
    )
    done = subprocess.run([sys.executable, "-W", "default", "-c", command], capture_output=True, text=True)
    assert (done.returncode, done.stderr.count("ResourceWarning")) == (0, 1), done.stderr
    assert (tmp_path / ".kafka_cleanshutdown").exists()
    with kafkalog.open_dirs(tmp_path) as dirs:
        assert dirs["t", 0].end_offset == 1


def test_a_fork_s_child_is_refused_and_harms_nothing(held: Held) -> None:
    held.dirs.create_topic("t")
    log = held.dirs["t", 0]
    child = os.fork()
    if child == 0:
        status = 1
        try:
            for call in (lambda: held.dirs["t", 0], lambda: log.append(b"v"), lambda: held.dirs.topics):
                with pytest.raises(IllegalState):
                    call()
            held.dirs.close()
            status = 0
        finally:
            os._exit(status)
    assert os.waitpid(child, 0)[1] == 0
    log.append(b"v")
    held.dirs.delete_topic("t")


def test_threads_make_and_fill_topics_side_by_side(tmp_path: Path) -> None:
    with kafkalog.open_dirs([tmp_path / "a", tmp_path / "b"], "a") as dirs:
        failures: list[BaseException] = []

        def work(number: int) -> None:
            try:
                dirs.create_topic(f"t{number}", 2)
                for partition in range(2):
                    for _ in range(50):
                        dirs[f"t{number}", partition].append(b"v")
                if number % 2:
                    dirs.delete_topic(f"t{number}")
            except BaseException as error:
                failures.append(error)

        threads = [threading.Thread(target=work, args=(number,)) for number in range(8)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert not failures
        assert sorted(dirs.topics) == ["t0", "t2", "t4", "t6"]
        assert {dirs[key].end_offset for key in dirs} == {50}


def test_progress_is_told(tmp_path: Path) -> None:
    with kafkalog.open_dirs(tmp_path, "a") as dirs:
        dirs.create_topic("t", 5)
    progress: list[int] = []
    with kafkalog.open_dirs(tmp_path, "a", progress=lambda one: progress.append(one.logs_done)):
        pass
    assert max(progress) == 5


def test_a_copy_of_what_is_open_opens_by_itself(held: Held, tmp_path: Path) -> None:
    """After a crash: the directories lack their marker; no flushed record is lost."""
    held.dirs.create_topic("t", 2)
    for key in held.dirs:
        held.dirs[key].append([b"v"] * 10)
    held.dirs.flush()
    for name in ("a", "b"):
        shutil.copytree(tmp_path / name, tmp_path / f"{name}2", ignore=shutil.ignore_patterns(".lock"))
    with kafkalog.open_dirs([tmp_path / "a2", tmp_path / "b2"], "a") as dirs:
        assert [dirs[key].end_offset for key in dirs] == [10, 10]
