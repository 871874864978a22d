"""Making, moving and closing with each file call failing in turn, and from many threads at once."""

import errno
import threading
from pathlib import Path

import pytest

from kafkalog.errors import IllegalState, KafkalogError, LogClosed, StorageError
from kafkalog.storage.log import UnifiedLog
from kafkalog.types import TopicPartition
from tests.faults import FaultFS, each_failure
from tests.manager.managers import MARKER, T0, T1, OpenManager, append, list_names
from tests.manager.test_moving import copy_to_future

pytestmark = pytest.mark.in_memory


@pytest.mark.parametrize("code", [errno.EIO, errno.ENOSPC])
def test_a_partition_is_made_whole_in_one_directory_whatever_call_fails(tmp_path: Path, code: int) -> None:
    """MGR-5: in the other directory where one failed; the next start finds it once."""
    for nth in each_failure():
        a, b = tmp_path / f"{nth}a", tmp_path / f"{nth}b"
        fs = FaultFS()
        with OpenManager(a, b, fs=fs) as held:
            held.create_log(T1, directory=b)  # so that `a` is the emptier one
            rule = fs.fail(nth=nth, times=1, code=code)
            log = held.manager.get_or_create(T0)
            fs.heal()
            append(log, 2)
            online = [one.is_online for one in held.manager.directories]
            assert all(online) if code == errno.ENOSPC else online[1]
        with OpenManager(a, b) as held:
            assert held.manager.logs[T0].log_end_offset == 2 and held.manager.logs[T1].log_end_offset == 3
        if not rule.fired:
            return


@pytest.mark.parametrize("code", [errno.EIO, errno.ENOSPC])
def test_a_move_that_fails_at_any_call_loses_nothing(tmp_path: Path, code: int) -> None:
    """MGR-9: the partition is in one of the two directories, whole, or in both, which the next start resolves."""
    for nth in each_failure():
        a, b = tmp_path / f"{nth}a", tmp_path / f"{nth}b"
        fs = FaultFS()
        held = OpenManager(a, b, fs=fs)
        held.create_log(T0, directory=a)
        copy_to_future(held, b)
        rule = fs.fail(nth=nth, times=1, code=code)
        try:
            held.manager.replace_with_future(T0)
        except StorageError:
            pass
        fs.heal()
        held.manager.close()
        live = [path for path in (a, b) if "t-0" in list_names(path)]
        assert live, nth
        try:
            with OpenManager(a, b) as again:
                assert again.manager.logs[T0].log_end_offset == 3, nth
        except IllegalState:
            assert live == [a, b], nth
            for path in live:
                with OpenManager(path) as again:
                    assert again.manager.logs[T0].log_end_offset == 3, nth
        if not rule.fired:
            assert live == [b]
            return


def test_a_close_that_fails_at_any_call_loses_nothing(tmp_path: Path) -> None:
    """MGR-20: a directory with a marker after it was closed well."""
    for nth in each_failure():
        a, b = tmp_path / f"{nth}a", tmp_path / f"{nth}b"
        fs = FaultFS()
        held = OpenManager(a, b, fs=fs)
        held.create_log(T0, directory=a)
        held.create_log(T1, directory=b)
        rule = fs.fail(nth=nth, times=1, code=errno.EIO)
        try:
            held.manager.close()
        except (KafkalogError, OSError):
            assert rule.fired
        fs.heal()
        with OpenManager(a, b) as held:
            assert {log.log_end_offset for log in held.manager.logs.values()} == {3}
        if not rule.fired:
            assert MARKER in list_names(a) and MARKER in list_names(b)
            return


def test_threads_that_ask_for_one_partition_get_one_log(tmp_path: Path) -> None:
    with OpenManager(tmp_path / "a", tmp_path / "b") as held:
        got: list[UnifiedLog] = []
        barrier = threading.Barrier(8)

        def ask() -> None:
            barrier.wait()
            for number in range(5):
                log = held.manager.get_or_create(TopicPartition("t", number))
                append(log)
                got.append(log)

        threads = [threading.Thread(target=ask) for _ in range(8)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(60)
        assert len(got) == 40 and len(set(map(id, got))) == 5
        assert {log.log_end_offset for log in held.manager.logs.values()} == {8}


def test_making_and_deleting_beside_appends_and_jobs(tmp_path: Path) -> None:
    """An append is stored or refused; no other error is ever raised."""
    with OpenManager(tmp_path / "a", tmp_path / "b") as held:
        failures: list[BaseException] = []
        done = threading.Event()

        def write() -> None:
            try:
                while not done.is_set():
                    log = held.manager.get_or_create(T0)
                    try:
                        append(log)
                        log.read(0, 100)
                    except (StorageError, LogClosed) as error:
                        assert "deleted" in str(error) or "closed" in str(error)
            except BaseException as error:
                failures.append(error)

        threads = [threading.Thread(target=write) for _ in range(3)]
        for thread in threads:
            thread.start()
        for _ in range(40):
            held.manager.delete(T0)
            for job in held.manager.jobs:
                job.run()
            held.delete_after(60_000)
        done.set()
        for thread in threads:
            thread.join(60)
        assert not failures, failures[0]
        assert all(one.is_online for one in held.manager.directories)


@pytest.mark.parametrize("undone", [True, False])
def test_a_directory_with_a_half_made_partition_does_not_count_as_closed_well(tmp_path: Path, undone: bool) -> None:
    fs = FaultFS()
    with OpenManager(tmp_path, fs=fs) as held:
        held.create_log(T1)
        fs.fail("open", path="t-0/", times=1)
        if not undone:
            fs.fail("unlink", "rmdir", path="t-0")
        with pytest.raises(StorageError):
            held.manager.get_or_create(T0)
        fs.heal()
    assert ("t-0" in list_names(tmp_path), MARKER in list_names(tmp_path)) == (not undone, undone)
