"""A commit shared by threads, of which a signal's handler stops one: the others go on, with one leader at a time."""

import signal
import sys
import threading
from collections.abc import Iterator
from linecache import getline
from types import FrameType
from typing import Any

import pytest

from kafkalog.storage import group_commit
from kafkalog.storage.group_commit import GroupSync
from tests.gates import wait_until

PATIENCE_S = 60


class Stopped(Exception):
    pass


class Commit:
    """Threads that sync in turns. What the handler of a signal raises strikes the main one before its n-th line."""

    def __init__(self, stopped_before: int) -> None:
        self.group = GroupSync(self.flush)
        self.left = stopped_before
        self.was_stopped = self.main_is_through = False
        self.others: list[threading.Thread] = []
        self.flushing = threading.Lock()
        self.overlaps = 0

    def flush(self) -> None:
        if not self.flushing.acquire(blocking=False):
            self.overlaps += 1
            return
        try:
            if threading.current_thread() is threading.main_thread():
                self.start()
                self.start()
                wait_until(lambda: self.group.waiting >= 2)
            elif not self.main_is_through:
                wait_until(lambda: self.group.waiting > 0 or self.main_is_through)
        finally:
            self.flushing.release()

    def start(self) -> None:
        self.others.append(threading.Thread(target=self.sync_beside, daemon=True))
        self.others[-1].start()

    def sync_beside(self) -> None:
        try:
            self.group.commit(lambda: self)
        except Exception:  # what stopped the main thread while it flushed for this one
            pass

    def trace(self, frame: FrameType, event: str, argument: Any) -> Any:
        if frame.f_code.co_filename != group_commit.__file__ or frame.f_code.co_name == "waiting":
            return None
        # a tracer may raise between the block of a `with` and its end, where Python runs no handler
        if event == "line" and not getline(group_commit.__file__, frame.f_lineno).lstrip().startswith("with "):
            self.left -= 1
            if self.left == 0:
                self.was_stopped = True
                raise Stopped
        return self.trace

    def run(self) -> None:
        before = sys.gettrace()
        sys.settrace(self.trace)
        try:
            self.group.sync()
        except Stopped:
            pass
        finally:
            sys.settrace(before)
            self.main_is_through = True

    def finish(self) -> None:
        self.start()
        for thread in self.others:
            thread.join(PATIENCE_S)


@pytest.fixture
def interrupts() -> Iterator[None]:
    """A tracer also raises where no handler of a signal can run: on the lines of `try` and `return` inside a `with`.

    What the end of that block was to do is not done then, so the handler of Ctrl-C is put back here.
    """
    before = signal.getsignal(signal.SIGINT)
    yield
    signal.signal(signal.SIGINT, before)


@pytest.mark.usefixtures("interrupts")
@pytest.mark.parametrize("follows", [False, True])
def test_a_commit_may_be_stopped_at_any_line(follows: bool) -> None:
    """The thread leads from the first, or follows another and leads then."""
    for line in range(1, 1000):
        commit = Commit(line)
        if follows:
            commit.start()
            wait_until(commit.flushing.locked)
        commit.run()
        commit.finish()
        assert not any(thread.is_alive() for thread in commit.others), line
        assert commit.overlaps == 0, line
        if not commit.was_stopped:
            assert line > 40
            return
    pytest.fail("the commit never came to its end")
