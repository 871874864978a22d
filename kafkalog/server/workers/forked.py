"""Workers that the command forks before it has threads and an event loop: modules are imported once, and shared.

A worker that starts again later is a new interpreter (`worker_process.py`), since a process with threads must not fork.
"""

from __future__ import annotations

import gc
import os
import signal
import socket
import subprocess
import sys
import threading
import time
import traceback
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from typing import Final, NoReturn

from kafkalog.server.node.parts import import_parts
from kafkalog.server.running import loop_factory
from kafkalog.server.workers.child import main
from kafkalog.server.workers.layout import MAIN

_POLL_S: Final = 0.002
_MOST_POLL_S: Final = 0.05


class ForkedWorker:
    """A forked process, waited for and ended like a `subprocess.Popen`. Threads: any."""

    def __init__(self, pid: int, sock: socket.socket) -> None:
        self.sock = sock
        """This process's end of the link. The worker does nothing until it is configured, and ends with it."""
        self._pid = pid
        self._lock = threading.Lock()
        self._is_reaped = False  # guarded by self._lock

    def _reap(self) -> bool:
        with self._lock:
            if not self._is_reaped:
                try:
                    self._is_reaped = os.waitpid(self._pid, os.WNOHANG)[0] != 0
                except ChildProcessError:  # the kernel did it: what started this process ignores SIGCHLD
                    self._is_reaped = True
            return self._is_reaped

    def wait(self, timeout: float | None = None) -> None:
        """Wait for the end of the process. subprocess.TimeoutExpired after that many seconds."""
        deadline, pause = time.monotonic() + (timeout or 0.0), _POLL_S
        while not self._reap():
            if timeout is not None and time.monotonic() >= deadline:
                raise subprocess.TimeoutExpired("worker", timeout)
            time.sleep(pause)
            pause = min(2 * pause, _MOST_POLL_S)

    def kill(self) -> None:
        """End the process at once; nothing if it has ended."""
        with self._lock:
            if not self._is_reaped:  # until then no other process gets its id
                with suppress(ProcessLookupError):
                    os.kill(self._pid, signal.SIGKILL)


@contextmanager
def forked_workers(count: int, log_metrics: Callable[[], str]) -> Iterator[dict[int, ForkedWorker]]:
    """Fork the workers 1 to `count` - 1 and end those at the end of the block that are left in the mapping.

    None with one worker, in a process that has threads, and on macOS. OSError.
    """
    found: dict[int, ForkedWorker] = {}
    try:
        if count > 1 and threading.active_count() == 1 and sys.platform != "darwin":  # whose libraries have threads
            loop_factory()
            import_parts()
            gc.freeze()  # the collector then leaves the pages of what is shared alone
            for number in range(MAIN + 1, count):
                found[number] = _fork([one.sock for one in found.values()], log_metrics)
        yield found
    finally:
        for one in found.values():
            one.sock.close()
        for one in found.values():
            one.wait()


def _fork(others: list[socket.socket], log_metrics: Callable[[], str]) -> ForkedWorker:
    """Fork a worker; `others` are this process's ends of links that the worker must not have."""
    ours, theirs = socket.socketpair()
    for stream in (sys.stdout, sys.stderr):
        with suppress(OSError):
            stream.flush()  # or both processes would write what is buffered
    with theirs:
        try:
            pid = os.fork()
        except OSError:
            ours.close()
            raise
        if pid == 0:
            _become_worker([ours, *others], theirs, log_metrics)
    return ForkedWorker(pid, ours)


def _become_worker(others: list[socket.socket], sock: socket.socket, log_metrics: Callable[[], str]) -> NoReturn:
    """Run as a worker, and never return to what the process that forked it was about to do."""
    status = 1
    try:
        os.setpgid(0, 0)  # Ctrl-C is for the main process, which then stops its workers
        for number in (signal.SIGTERM, signal.SIGALRM):
            signal.signal(number, signal.SIG_DFL)
        sys.unraisablehook = sys.__unraisablehook__
        for one in others:
            one.close()
        nothing = os.open(os.devnull, os.O_RDONLY)
        os.dup2(nothing, 0)
        os.close(nothing)
        main(sock.detach(), log_metrics)
        status = 0
    except BaseException:
        traceback.print_exc()
    finally:
        with suppress(OSError, ValueError):
            sys.stderr.flush()
        os._exit(status)
