"""When appended data is forced to disk: `sync=False`, `True` or a number of milliseconds."""

from __future__ import annotations

import copy
import threading
import time
from collections.abc import Callable
from typing import Final

from kafkalog.errors import IllegalArgument, IllegalState, KafkalogError
from kafkalog.util.interrupts import deferred_interrupts

Sync = bool | int | float
MOST_GATHERING_S: Final = 0.01
"""A sync waits no longer than this for others to join it, however slow the disk is."""
WAKING_S: Final = 25e-6
"""What a thread takes to wake up, append and wait again."""


def check_sync(sync: Sync) -> Sync:
    """`sync` itself: False, True, or a positive number of milliseconds; IllegalArgument otherwise."""
    if isinstance(sync, bool):
        return sync
    if isinstance(sync, int | float) and 0 < sync < 2**31:
        return sync
    raise IllegalArgument(
        f"sync is {sync!r}", hint="use False (page cache), True (every append on disk) or milliseconds"
    )


def again(error: BaseException) -> BaseException:
    """A fresh copy of `error`, for raising it once more in another call or thread."""
    if isinstance(error, KafkalogError):
        fresh: BaseException = copy.copy(error)
    else:
        fresh = IllegalState(f"an earlier write failed: {error!r}")
    fresh.__cause__ = error
    return fresh


def open_gate(gate: threading.Lock) -> None:
    """Releases a lock that a thread waits for, or will; one that is free already stays so.

    This, not a condition or an event, is how threads are woken here: the methods of those are Python code
    that a Ctrl-C can stop half-way, and the next wake-up is then lost.
    """
    if gate.locked():
        try:
            gate.release()
        except RuntimeError:  # another thread was faster
            pass


def shut_gate() -> threading.Lock:
    """A gate to wait at: `gate.acquire()` returns once it is opened."""
    gate = threading.Lock()
    gate.acquire()
    return gate


class Gathering:
    """How long a sync waits for the threads that the last one let go: most come back at once with the next record.

    At most half of what the last sync took, and the time that so many threads need to wake up, but not longer than
    that sync, counted from its end; and not once as many are there as were then. A thread that is alone never waits.
    Threads: belongs to its owner's lock.
    """

    __slots__ = ("_until", "wanted")

    def __init__(self) -> None:
        self.wanted = 1
        self._until = 0.0

    def synced(self, began: float, ended: float, threads: int) -> None:
        """Notes a sync (monotonic seconds) and how many threads it let go, or found waiting when it was over."""
        took = ended - began
        self.wanted = threads
        self._until = ended + min(took, took / 2 + threads * WAKING_S, MOST_GATHERING_S)

    def seconds(self, present: int) -> float:
        """How long to wait while `present` threads are there; 0.0: not at all."""
        return 0.0 if present >= self.wanted else max(0.0, self._until - time.monotonic())


class _Group:
    """Threads that share one sync, which is yet to begin or goes on; `gates` are those of all but the leader."""

    __slots__ = ("done", "error", "gates", "members")

    def __init__(self) -> None:
        self.members = 0
        self.gates: list[threading.Lock] = []
        self.error: BaseException | None = None
        self.done = False


class GroupSync:
    """One sync for all threads that appended before it began: group commit.

    The first thread that comes leads: it flushes for itself and for those who joined until then. Whoever comes while
    it flushes is in the next group, which one of its own threads leads afterwards. A sync that failed fails its whole
    group; nothing here tries it again (the log refuses what comes later). A Ctrl-C waits until the commit is decided.
    The handler of another signal may raise at any step: what the thread was to do for others is then done (`_leave`).

    Threads: `sync` from any thread, which is known by its gate. No lock is held while `flush` runs.
    """

    def __init__(self, flush: Callable[[], object]) -> None:
        self._flush = flush
        self._lock = threading.Lock()
        self._forming = _Group()  # guarded by self._lock; who comes now joins it
        self._syncing: _Group | None = None  # guarded by self._lock; the last one that was closed
        self._leader: threading.Lock | None = None  # guarded by self._lock; who leads, or was told to
        self._gathering = Gathering()  # guarded by self._lock
        self._complete: threading.Lock | None = None  # guarded by self._lock; where the leader waits for others

    def sync(self) -> None:
        """Returns when all that the log held at the call is on disk; raises what the sync met."""
        with deferred_interrupts():
            me = shut_gate()
            try:
                group = self._joined(me)
                if self._leader is not me:
                    me.acquire()
                if not group.done:
                    self._lead(group, me)
                    return
            except BaseException:
                self._leave(me)
                raise
            if group.error is not None:
                raise again(group.error)

    @property
    def waiting(self) -> int:
        """How many threads wait for the sync after the one that goes on."""
        with self._lock:
            return len(self._forming.gates)

    def _joined(self, me: threading.Lock) -> _Group:
        """The group of the calling thread, which leads where nobody else does."""
        with self._lock:
            group = self._forming
            group.members += 1
            if self._leader is None:
                self._leader = me
                return group
            group.gates.append(me)
            if self._complete is not None and group.members >= self._gathering.wanted:
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
        """Give those who are about to join the time for it, then close the group: who comes now is too late."""
        with self._lock:
            self._leader = me  # who told this thread may have been stopped before it noted that
            _take_out(group, me)
            seconds = self._gathering.seconds(group.members)
            if seconds:
                self._complete = gate = shut_gate()
        if seconds:
            gate.acquire(timeout=seconds)
        with self._lock:
            self._complete = None
            self._syncing = group
            if self._forming is group:  # not so where the one who led before was stopped behind this
                self._forming = _Group()

    def _settle_locked(self, group: _Group) -> None:
        """Let the group go, and have one of the next lead that; done again where a signal stopped it half-way."""
        group.done = True
        for gate in group.gates:
            open_gate(gate)
        self._hand_over_locked(self._forming)

    def _hand_over_locked(self, group: _Group) -> None:
        """Have the first who waits in a group lead it; nobody leads where none does."""
        heir = group.gates[0] if group.gates else None
        if heir is not None:
            open_gate(heir)
        self._leader = heir
        if heir is not None:
            _take_out(group, heir)

    def _leave(self, me: threading.Lock) -> None:
        """Have the others go on without the calling thread: its group is let go where that was synced, or failed."""
        with self._lock:
            syncing, forming = self._syncing or self._forming, self._forming
            for group in (syncing, forming):
                if _take_out(group, me):
                    group.members -= 1
            if self._leader is not me:
                return
            if syncing.done or syncing.error is not None:
                self._settle_locked(syncing)
            else:
                self._hand_over_locked(syncing if syncing.gates else forming)


def _take_out(group: _Group, gate: threading.Lock) -> bool:
    """True where the gate was one of the group's."""
    if gate not in group.gates:
        return False
    group.gates.remove(gate)
    return True


class BackgroundFlush:
    """Flushes a log within `delay_ms` of the first append that is not on disk yet.

    Threads: `touch` from any thread, after each append; one daemon thread calls `flush`. A flush that
    failed fails every later `touch`: what the disk lost is not known after that.
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
        """Notes that there is data to flush; raises what an earlier flush met."""
        if self._failure is not None:
            raise again(self._failure)
        open_gate(self._wake)

    def close(self) -> None:
        """Ends the thread without a last flush: closing the log flushes."""
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
