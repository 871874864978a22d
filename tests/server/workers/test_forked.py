"""Workers that the command forks: what they share with the main process, and what becomes of them."""

from __future__ import annotations

import os
import signal
import subprocess
import threading
from pathlib import Path

from kafkalog.server.workers.forked import forked_workers
from tests.gates import wait_until
from tests.server.test_serve_cmd import COMMAND, run_server, send_request


def children_of(pid: int) -> list[int]:
    return [int(one) for one in Path(f"/proc/{pid}/task/{pid}/children").read_text().split()]


def command_of(pid: int) -> bytes:
    return Path(f"/proc/{pid}/cmdline").read_bytes()


def two_directories(tmp_path: Path) -> list[str]:
    return [word for name in ("a", "b") for word in ("-d", str(tmp_path / name))]


def test_the_command_forks_its_worker_and_replaces_one_that_ends_by_a_new_interpreter(tmp_path: Path) -> None:
    with run_server(tmp_path, *two_directories(tmp_path), "--workers", "2") as (process, port):
        (worker,) = children_of(process.pid)
        assert command_of(worker) == command_of(process.pid)
        assert os.getpgid(worker) == worker  # Ctrl-C at the terminal is for the main process alone
        assert os.readlink(f"/proc/{worker}/fd/0") == os.devnull
        os.kill(worker, signal.SIGKILL)
        wait_until(lambda: children_of(process.pid) not in ([], [worker]))
        (second,) = children_of(process.pid)
        wait_until(lambda: b"workers.child" in command_of(second))
        assert send_request(port)
        process.terminate()
        assert process.wait(timeout=60) == 0
        assert not Path(f"/proc/{second}").exists()


def test_a_forked_worker_ends_with_its_main_process_and_stops_in_order(tmp_path: Path) -> None:
    for number, is_clean in ((signal.SIGKILL, False), (signal.SIGTERM, True)):
        with run_server(tmp_path, *two_directories(tmp_path), "--workers", "2") as (process, _):
            (worker,) = children_of(process.pid)
            process.send_signal(number)
            process.wait(timeout=60)
            wait_until(lambda pid=worker: not Path(f"/proc/{pid}").exists())  # type: ignore[misc]
        (tmp_path / "ready").unlink(missing_ok=True)
        assert (tmp_path / "b/.kafka_cleanshutdown").exists() is is_clean


def test_a_server_whose_starter_ignores_ended_children_stops_in_order(tmp_path: Path) -> None:
    earlier = signal.signal(signal.SIGCHLD, signal.SIG_IGN)  # it stays ignored in a program that is started
    try:
        with run_server(tmp_path, *two_directories(tmp_path), "--workers", "2") as (process, _):
            signal.signal(signal.SIGCHLD, earlier)
            process.terminate()
            assert process.wait(timeout=60) == 0
    finally:
        signal.signal(signal.SIGCHLD, earlier)
    assert (tmp_path / "b/.kafka_cleanshutdown").exists()


def test_no_worker_is_left_by_a_start_that_fails(tmp_path: Path) -> None:
    command = [*COMMAND, "-d", str(tmp_path / "a"), "--workers", "3", "--listen", "127.0.0.1:0"]
    ended = subprocess.run(command, capture_output=True, text=True, timeout=60)  # also waits for what has its stderr
    assert ended.returncode == 2 and "3 workers need at least 3 data directories" in ended.stderr
    assert not (tmp_path / "a").exists()


def test_a_process_with_threads_forks_nothing() -> None:
    may_end = threading.Event()
    thread = threading.Thread(target=may_end.wait)
    thread.start()
    try:
        with forked_workers(2, str) as found:
            assert found == {}
    finally:
        may_end.set()
        thread.join()
