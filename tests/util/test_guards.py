"""A log that the garbage collector drops in the middle of a call closes without waiting for the caller's own lock."""

from __future__ import annotations

import gc
import os
import threading
import time
import warnings
from pathlib import Path

import pytest

import kafkalog
from kafkalog.log.log import Log
from kafkalog.log.open_writable import open_for_append
from kafkalog.manager import checkpoints, log_dir, topics
from kafkalog.util.fileio import FileSystem
from kafkalog.util.guards import THREADS, guard, run_finalizer


def dropped_in_a_cycle(path: Path) -> None:
    log = kafkalog.open(path, "a")
    log.append(b"v")
    cycle: list[object] = [log]
    cycle.append(cycle)


@pytest.mark.parametrize(
    "lock", [checkpoints._write_lock, log_dir._registry_lock, log_dir._state_lock, topics._write_lock]
)
def test_a_collection_inside_a_guard_does_not_wait_for_it(tmp_path: Path, lock: object) -> None:
    gc.collect()
    dropped_in_a_cycle(tmp_path / "t-0")
    ended = threading.Event()

    def collect() -> None:
        with warnings.catch_warnings(), lock:  # type: ignore[attr-defined]
            warnings.simplefilter("ignore", ResourceWarning)
            gc.collect()
        ended.set()

    threading.Thread(target=collect, daemon=True).start()
    assert ended.wait(60), "the collection waits for a lock that its own thread holds"
    for _ in range(600):
        if not any(one.name == "kafkalog-finalizer" for one in threading.enumerate()):
            break
        time.sleep(0.1)
    with kafkalog.open(tmp_path / "t-0", "a") as log:
        assert log.end_offset == 1


def test_outside_of_guards_it_is_done_at_once() -> None:
    done: list[int] = []
    run_finalizer(lambda: done.append(threading.get_ident()))
    assert done == [threading.get_ident()]
    held = guard()
    other: list[bool] = []
    with held:
        thread = threading.Thread(target=lambda: run_finalizer(lambda: other.append(True)))
        thread.start()  # another thread's guard is independent
        thread.join()
    assert other == [True]


@pytest.mark.filterwarnings("ignore::DeprecationWarning")
def test_a_guard_is_free_in_a_forked_child() -> None:
    held = guard()
    taken, let_go = threading.Event(), threading.Event()

    def hold() -> None:
        with held:
            taken.set()
            let_go.wait()

    thread = threading.Thread(target=hold)
    thread.start()
    taken.wait()
    child = os.fork()
    if child == 0:
        os._exit(0 if held.acquire(timeout=60) else 1)  # type: ignore[attr-defined]
    _, status = os.waitpid(child, 0)
    let_go.set()
    thread.join()
    assert os.waitstatus_to_exitcode(status) == 0


def test_a_log_in_a_cycle_is_closed_well(tmp_path: Path) -> None:
    """Its files are garbage too, but are not let go before the log."""
    gc.collect()
    dropped_in_a_cycle(tmp_path / "t-0")
    assert not (tmp_path / ".kafka_cleanshutdown").exists()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ResourceWarning)
        gc.collect()
    assert (tmp_path / ".kafka_cleanshutdown").exists()
    with kafkalog.open(tmp_path / "t-0") as log:
        assert log[0].value == b"v"


def test_in_a_thread_of_ours_it_is_done_in_another_one() -> None:
    """A collection in a flush or a writer's thread may drop the log whose lock that thread holds."""
    done: list[str] = []
    ended = threading.Event()

    def end() -> None:
        done.append(threading.current_thread().name)
        ended.set()

    thread = threading.Thread(target=lambda: run_finalizer(end), name="kafkalog-flush-t-0")
    thread.start()
    thread.join()
    assert ended.wait(60) and done == ["kafkalog-finalizer"]


def test_a_log_dropped_by_its_own_writer_s_thread_has_all_that_was_given(tmp_path: Path) -> None:
    """The collection begins inside the write, under the log's lock; closing waits for that thread to end."""
    gc.collect()
    written = threading.Event()

    class Collecting(FileSystem):
        def __init__(self) -> None:
            self.pwrite = self._pwrite  # type: ignore[method-assign]

        def _pwrite(self, fd: int, data: object, position: int) -> int:
            if threading.current_thread().name.startswith("kafkalog-writer") and not written.is_set():
                with warnings.catch_warnings():
                    warnings.simplefilter("ignore", ResourceWarning)
                    gc.collect()
                written.set()
            return os.pwrite(fd, data, position)  # type: ignore[arg-type]

    def use() -> None:
        opened = open_for_append(tmp_path / "t-0", fs=Collecting())
        log = Log(opened.log, opened)
        writer = log.writer(linger_ms=50)
        cycle: list[object] = [log, writer]
        cycle.append(cycle)
        writer.append(b"v")

    use()
    assert written.wait(60)
    for _ in range(600):
        if not any(one.name.startswith(THREADS) for one in threading.enumerate()):
            break
        time.sleep(0.1)
    with kafkalog.open(tmp_path / "t-0", "a") as log:
        assert log.end_offset == 1
    assert (tmp_path / ".kafka_cleanshutdown").exists()
