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
from kafkalog.manager import checkpoints, log_dir, topics
from kafkalog.util.guards import finish, guard


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
        if not any(one.name == "kafkalog-finish" for one in threading.enumerate()):
            break
        time.sleep(0.1)
    with kafkalog.open(tmp_path / "t-0", "a") as log:
        assert log.end_offset == 1


def test_outside_of_guards_it_is_done_at_once() -> None:
    done: list[int] = []
    finish(lambda: done.append(threading.get_ident()))
    assert done == [threading.get_ident()]
    held = guard()
    other: list[bool] = []
    with held:
        thread = threading.Thread(target=lambda: finish(lambda: other.append(True)))
        thread.start()  # another thread's guard is none of ours
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
        os._exit(0 if held.acquire(timeout=20) else 1)  # type: ignore[attr-defined]
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
