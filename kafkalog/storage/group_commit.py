"""Group commit and background flushes, which sync appended data: `sync=True` and `sync=` milliseconds."""

from __future__ import annotations

import copy
import threading
import time
from collections.abc import Callable
from typing import Final, Generic, TypeVar

from kafkalog.errors import IllegalArgument, IllegalState, KafkalogError
from kafkalog.util.interrupts import deferred_interrupts

T = TypeVar("T")
T_co = TypeVar("T_co", covariant=True)
Sync = bool | int | float
MOST_GATHERING_S: Final = 0.01
"""Longest wait of a sync for other threads to join it, however slow the disk is."""
WAKING_S: Final = 25e-6
"""Time that a thread takes to wake up, append and wait again."""


def check_sync(sync: Sync) -> Sync:
    """Return `sync` if it is False, True, or a positive number of milliseconds; else raise IllegalArgument."""
    if isinstance(sync, bool):
        return sync
    if isinstance(sync, int | float) and 0 < sync < 2**31:
        return sync
    raise IllegalArgument(
        f"invalid value for sync: {sync!r}", hint="use False (page cache), True (every append on disk) or milliseconds"
    )


def again(error: BaseException) -> BaseException:
    """Return a new copy of `error`, to be raised in another call or thread."""
    if isinstance(error, KafkalogError):
        fresh: BaseException = copy.copy(error)
    else:
        fresh = IllegalState(f"an earlier write failed: {error!r}")
    fresh.__cause__ = error
    return fresh


def open_gate(gate: threading.Lock) -> None:
    """Release a lock on which a thread waits or will wait; do nothing if it is free.

    Threads are woken with a lock, not with a condition or an event: the methods of those are Python code that a Ctrl-C
    can interrupt half-way, which loses the next wake-up.
    """
    if gate.locked():
        try:
            gate.release()
        except RuntimeError:  # another thread was faster
            pass


def shut_gate() -> threading.Lock:
    """Return a closed gate: `gate.acquire()` returns once it is opened."""
    gate = threading.Lock()
    gate.acquire()
    return gate


class Gathering:
    """The wait of a sync for threads that the last one released: most return at once with the next record.

    The wait is at most half the duration of the last sync plus the time that so many threads need to wake up, but not
    longer than that sync, counted from its end. It ends once as many threads are present as then. A single thread never
    waits. Threads: guarded by the owner's lock.
    """

    __slots__ = ("_until", "expected")

    def __init__(self) -> None:
        self.expected = 1
        self._until = 0.0

    def synced(self, began: float, ended: float, threads: int) -> None:
        """Record a sync (monotonic seconds) and the number of threads that it released or found waiting at its end."""
        took = ended - began
        self.expected = threads
        self._until = ended + min(took, took / 2 + threads * WAKING_S, MOST_GATHERING_S)

    def seconds(self, present: int) -> float:
        """Return the seconds to wait while `present` threads are waiting; 0.0: do not wait."""
        return 0.0 if present >= self.expected else max(0.0, self._until - time.monotonic())


class _Group:
    """Threads that share one sync, pending or in progress; `gates` are those of all but the leader."""

    __slots__ = ("done", "error", "gates", "members")

    def __init__(self) -> None:
        self.members = 0
        self.gates: list[threading.Lock] = []
        self.error: BaseException | None = None
        self.done = False


class _Work(Generic[T_co]):
    """An append that the leader of a group runs for another thread, and its result or error."""

    __slots__ = ("_append", "_error", "_result")

    def __init__(self, append: Callable[[], T_co | None]) -> None:
        self._append = append
        self._result: T_co | None = None
        self._error: BaseException | None = None

    def run(self) -> None:
        try:
            self._result = self._append()
        except BaseException as error:
            self._error = error

    def result(self) -> T_co | None:
        if self._error is not None:
            raise self._error
        return self._result


class GroupSync:
    """Group commit: threads share one sync.

    The first thread leads its group: it flushes for all threads that joined before its flush. Threads that arrive
    during the flush form the next group, and one of them leads it afterwards. A failed sync fails its whole group;
    nothing here retries it (the log rejects later appends). A Ctrl-C waits until the commit is decided. The handler of
    another signal may raise at any step: `_leave` then does what the thread still had to do for others.

    While a leader waits for others to join, it takes over their appends (`commit`): each thread then needs the
    interpreter once for a commit, not again after its write. The main thread as leader does not: an error that a signal
    handler raises in it would pass for an error of another thread's append.

    Threads: `sync` and `commit` may be called from any thread; a thread is identified by its gate. No lock is held
    while `flush` runs.
    """

    def __init__(self, flush: Callable[[], object]) -> None:
        self._flush = flush
        self._lock = threading.Lock()
        self._forming = _Group()  # guarded by self._lock; new threads join it
        self._syncing: _Group | None = None  # guarded by self._lock; the last one that was closed
        self._leader: threading.Lock | None = None  # guarded by self._lock; the leader, or the one chosen to lead
        self._gathering = Gathering()  # guarded by self._lock
        self._complete: threading.Lock | None = None  # guarded by self._lock; where the leader waits for others
        self._works: list[_Work[object]] | None = None  # guarded by self._lock; None while a leader takes none

    def sync(self) -> None:
        """Wait until all data in the log at the call is on disk; raise the error of a failed sync."""
        with deferred_interrupts():
            self._sync(None)

    def commit(self, append: Callable[[], T | None]) -> T | None:
        """Call `append` and return its result once it is on disk; if it returns None (nothing written), skip the sync.

        Another thread may make the call. Raises the errors of `append` and of the sync.
        """
        work = _Work(append)
        with deferred_interrupts():
            if self._works is None or not self._sync(work):
                work.run()
                if work.result() is not None:
                    self._sync(None)
        return work.result()

    def _sync(self, work: _Work[object] | None) -> bool:
        """Join a group and wait for its sync; return False at once if no leader accepts the work."""
        me = shut_gate()
        try:
            group = self._joined(me, work)
            if group is None:
                return False
            if self._leader is not me:
                me.acquire()
            if not group.done:
                self._lead(group, me)
                return True
        except BaseException:
            self._leave(me)
            raise
        if group.error is not None:
            raise again(group.error)
        return True

    @property
    def waiting(self) -> int:
        """Number of threads that wait for the next sync."""
        with self._lock:
            return len(self._forming.gates)

    def _joined(self, me: threading.Lock, work: _Work[object] | None) -> _Group | None:
        """Join a group, as leader if there is none, and return it; return None if no leader accepts the work."""
        with self._lock:
            group = self._forming
            if work is not None:
                if self._works is None:
                    return None
                self._works.append(work)
            group.members += 1
            if self._leader is None:
                self._leader = me
                return group
            group.gates.append(me)
            if self._complete is not None and group.members >= self._gathering.expected:
                open_gate(self._complete)
            return group

    def _lead(self, group: _Group, me: threading.Lock) -> None:
        self._gather(group, me)
        began = time.monotonic()
        try:
            self._flush()
        except BaseException as error:
            group.error = error
            raise
        ended = time.monotonic()
        with self._lock:
            self._gathering.synced(began, ended, group.members + self._forming.members)
            self._settle_locked(group)

    def _gather(self, group: _Group, me: threading.Lock) -> None:
        """Wait briefly for threads that are about to join, then close the group."""
        with self._lock:
            self._leader = me  # the thread that chose this one may have been interrupted before it set the leader
            _remove_gate(group, me)
            seconds = self._gathering.seconds(group.members)
            if seconds:
                self._complete = gate = shut_gate()
                if self._works is None and threading.current_thread() is not threading.main_thread():
                    self._works = []
        if seconds:
            gate.acquire(timeout=seconds)
        with self._lock:
            self._complete = None
            works, self._works = self._works, None
            self._syncing = group
            if self._forming is group:  # false if the previous leader was interrupted after this step
                self._forming = _Group()
        for work in works or ():
            work.run()

    def _settle_locked(self, group: _Group) -> None:
        """Release the group and choose a leader of the next one; safe to repeat after an interrupt."""
        group.done = True
        for gate in group.gates:
            open_gate(gate)
        self._hand_over_locked(self._forming)

    def _hand_over_locked(self, group: _Group) -> None:
        """Make the first waiting thread of a group its leader; without one there is no leader."""
        successor = group.gates[0] if group.gates else None
        if successor is not None:
            open_gate(successor)
        self._leader = successor
        if successor is not None:
            _remove_gate(group, successor)

    def _leave(self, me: threading.Lock) -> None:
        """Remove the calling thread so that others can continue; release its group if that was synced or failed."""
        with self._lock:
            syncing, forming = self._syncing or self._forming, self._forming
            for group in (syncing, forming):
                if _remove_gate(group, me):
                    group.members -= 1
            if self._leader is not me:
                return
            if syncing.done or syncing.error is not None:
                self._settle_locked(syncing)
            else:
                self._hand_over_locked(syncing if syncing.gates else forming)


def _remove_gate(group: _Group, gate: threading.Lock) -> bool:
    """Remove the gate from the group; return True if it was there."""
    if gate not in group.gates:
        return False
    group.gates.remove(gate)
    return True


class BackgroundFlush:
    """Flushes a log within `delay_ms` of the first append that is not yet on disk.

    Threads: `touch` may be called from any thread, after each append; one daemon thread calls `flush`. After a failed
    flush every later `touch` fails: it is unknown which data the disk lost.
    """

    def __init__(self, flush: Callable[[], object], delay_ms: float, name: str) -> None:
        self._flush = flush
        self._delay = min(delay_ms / 1000, threading.TIMEOUT_MAX)
        self._wake = shut_gate()
        self._stop = shut_gate()
        self._failure: BaseException | None = None
        self._thread = threading.Thread(target=self._run, name=f"kafkalog-flush-{name}", daemon=True)
        self._thread.start()

    def touch(self) -> None:
        """Schedule a flush; raise the error of an earlier failed flush."""
        if self._failure is not None:
            raise again(self._failure)
        open_gate(self._wake)

    def close(self) -> None:
        """End the thread without a last flush: closing the log flushes."""
        with deferred_interrupts():
            open_gate(self._stop)
            open_gate(self._wake)
            if threading.current_thread() is not self._thread:
                self._thread.join()

    def _run(self) -> None:
        while True:
            self._wake.acquire()
            if self._stop.acquire(timeout=self._delay):
                return
            try:
                self._flush()
            except BaseException as error:
                self._failure = error
                return
