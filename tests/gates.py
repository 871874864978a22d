"""A file system whose syncs wait at a gate, and which knows what each of them covered."""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Callable

from kafkalog.util.fileio import FileSystem

PATIENCE_S = 60


class SyncGate(FileSystem):
    """Counts the syncs of `.log` files; while `shut`, each waits in front of the disk.

    `look` is called when a sync begins; `covered` holds its result for the last finished sync.
    """

    def __init__(self) -> None:
        self.syncs = 0
        self.covered = 0
        self.look: Callable[[], int] = lambda: 0
        self.error: OSError | None = None
        self.inside = threading.Semaphore(0)
        self._gate = threading.Event()
        self._gate.set()

    def shut(self) -> None:
        self._gate.clear()

    def open_gate(self) -> None:
        self._gate.set()

    def wait_inside(self) -> None:
        """Returns when one more thread has come to a sync."""
        assert self.inside.acquire(timeout=PATIENCE_S), "no thread came to a sync"

    def fdatasync(self, fd: int) -> None:  # type: ignore[override]
        if not os.readlink(f"/proc/self/fd/{fd}").endswith(".log"):
            os.fdatasync(fd)
            return
        seen = self.look()
        self.syncs += 1
        self.inside.release()
        assert self._gate.wait(PATIENCE_S), "the gate stayed shut"
        if self.error is not None:
            raise self.error
        os.fdatasync(fd)
        self.covered = max(self.covered, seen)


def wait_until(true: Callable[[], bool]) -> None:
    """Returns when the condition holds; AssertionError after a minute."""
    end = time.monotonic() + PATIENCE_S
    while not true():
        assert time.monotonic() < end, "waited in vain"
        time.sleep(0.001)


class Threads:
    """Runs calls in separate threads; `join` gives results and errors in their order."""

    def __init__(self) -> None:
        self._threads: list[threading.Thread] = []
        self.outcomes: list[object] = []

    def start(self, call: Callable[[], object]) -> None:
        at = len(self.outcomes)
        self.outcomes.append(None)

        def run() -> None:
            try:
                self.outcomes[at] = call()
            except BaseException as error:
                self.outcomes[at] = error

        self._threads.append(threading.Thread(target=run, daemon=True))
        self._threads[-1].start()

    def join(self) -> list[object]:
        for thread in self._threads:
            thread.join(PATIENCE_S)
            assert not thread.is_alive(), "a thread does not come back"
        return self.outcomes
