"""Cleaning state of each partition: in progress, aborted, or paused with a count (CLN-34).

    none -> in progress -> none                    a clean, or the retention of a compacted log
            in progress -> aborted -> paused(1)    a caller needs the log: the cleaner stops at its next check
    none -> paused(1) -> paused(2) -> ... -> none  pauses nest; each is resumed once
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable
from typing import Final, Literal, NamedTuple

from kafkalog.errors import CleaningAborted, IllegalState
from kafkalog.types import TopicPartition
from kafkalog.util.interrupts import deferred_interrupts

Kind = Literal["in progress", "aborted", "paused"]
_CHECK_INTERVAL_S: Final = 0.1  # a waiter checks again after this time, in case a wake-up is missed


class State(NamedTuple):
    """The state of a partition: its kind, the pauses held or waited for, and the cleaning `thread`."""

    kind: Kind
    pauses: int = 0
    thread: int = 0

    def __str__(self) -> str:
        return f"paused({self.pauses})" if self.kind == "paused" else self.kind


def _always() -> bool:
    return True


class CleaningStates:
    """The states of all partitions. Threads: all methods, from any; a Ctrl-C waits for the end of a call."""

    def __init__(self) -> None:
        self._changed = threading.Condition()
        self._states: dict[TopicPartition, State] = {}  # guarded by self._changed
        self._touched: set[TopicPartition] = set()  # guarded by self._changed; since `watch`
        self.stopped = False  # guarded by self._changed
        """True after `stop`."""

    def of(self, partition: TopicPartition) -> State | None:
        """Return the state of a partition; None if it has none."""
        return self._states.get(partition)

    def _set_locked(self, partition: TopicPartition, state: State | None) -> None:
        if state is None:
            self._states.pop(partition, None)
        else:
            self._states[partition] = state
        self._touched.add(partition)
        self._changed.notify_all()

    def watch(self) -> frozenset[TopicPartition]:
        """Return the partitions that have a state; from now on record which ones change theirs."""
        with deferred_interrupts(), self._changed:
            self._touched.clear()
            return frozenset(self._states)

    # The cleaner

    def begin(
        self, partition: TopicPartition, is_current: Callable[[], bool] = _always, *, watched: bool = False
    ) -> bool:
        """Mark the partition as in progress by this thread and return True; the caller calls `done` later.

        Return False if it has a state or if `is_current`, which takes no lock, returns False. With `watched`, also
        return False if its state changed since `watch`: what was read of it may be wrong.
        """
        with deferred_interrupts(), self._changed:
            if self.stopped or partition in self._states or (watched and partition in self._touched):
                return False
            if not is_current():
                return False
            self._set_locked(partition, State("in progress", thread=threading.get_ident()))
            return True

    def check(self, partition: TopicPartition) -> None:
        """Raise CleaningAborted if the cleaner must stop its work on the partition."""
        state = self._states.get(partition)
        if self.stopped or state is None or state.kind != "in progress":
            raise CleaningAborted(f"the clean of {partition} was aborted")

    def is_aborted(self, partition: TopicPartition) -> bool:
        """Return True if the clean of a partition must stop. IllegalState if the partition is not being cleaned."""
        return self._active_state(partition).kind == "aborted"

    def done(self, partition: TopicPartition) -> None:
        """End the work on a partition: it is paused if it was aborted, else has no state.

        IllegalState if no thread works on it.
        """
        with deferred_interrupts(), self._changed:
            state = self._active_state(partition)
            self._set_locked(partition, State("paused", state.pauses) if state.kind == "aborted" else None)

    def _active_state(self, partition: TopicPartition) -> State:
        state = self._states.get(partition)
        if state is None or state.kind == "paused":
            raise IllegalState(f"no thread cleans {partition}: it {'has no state' if state is None else f'is {state}'}")
        return state

    def wait_for(self, partition: TopicPartition, check_interrupts: Callable[[], object] = _always) -> None:
        """Wait until no thread cleans the partition; call `check_interrupts`, which may raise, meanwhile, unlocked."""
        while True:
            with deferred_interrupts(), self._changed:
                state = self._states.get(partition)
                if state is None or state.kind == "paused":
                    return
                self._reject_own_thread(partition, state)
                self._changed.wait(_CHECK_INTERVAL_S)
            check_interrupts()

    # Others

    def abort_and_pause(self, partition: TopicPartition) -> None:
        """Abort a clean of the partition, wait for its end, and prevent cleans until `resume` (CLN-35).

        IllegalState if this thread does the cleaning: it would wait for itself.
        """
        with deferred_interrupts(), self._changed:
            state = self._states.get(partition)
            if state is None or state.kind == "paused":
                self._set_locked(partition, State("paused", 1 if state is None else state.pauses + 1))
                return
            self._reject_own_thread(partition, state)
            self._set_locked(partition, State("aborted", state.pauses + 1, state.thread))
            while self._states[partition].kind == "aborted":
                self._changed.wait(_CHECK_INTERVAL_S)

    def _reject_own_thread(self, partition: TopicPartition, state: State) -> None:
        if state.thread == threading.get_ident():
            raise IllegalState(
                f"{partition} is being cleaned by this thread, which cannot wait for itself: a hook may not do this"
            )

    def resume(self, partition: TopicPartition) -> None:
        """Release one pause. IllegalState if the partition is not paused."""
        with deferred_interrupts(), self._changed:
            state = self._states.get(partition)
            if state is None or state.kind != "paused":
                what = "has no state" if state is None else f"is {state}"
                raise IllegalState(f"the cleaning of {partition} cannot be resumed: it {what}, not paused")
            self._set_locked(partition, None if state.pauses == 1 else State("paused", state.pauses - 1))

    def abort(self, partition: TopicPartition) -> None:
        """Abort a clean of the partition and wait for its end; later cleans are allowed."""
        with deferred_interrupts():
            self.abort_and_pause(partition)
            self.resume(partition)

    def pause_idle(self, partitions: Iterable[TopicPartition]) -> frozenset[TopicPartition]:
        """Pause the partitions that have no state and return them: retention may work on them (CLN-38)."""
        with deferred_interrupts(), self._changed:
            idle = frozenset(one for one in partitions if one not in self._states)
            for one in idle:
                self._set_locked(one, State("paused", 1))
            return idle

    def stop(self) -> None:
        """Wait until no other thread cleans a partition, and prevent all further cleans."""
        with deferred_interrupts(), self._changed:
            self.stopped = True
            while any(
                state.kind != "paused" and state.thread != threading.get_ident() for state in self._states.values()
            ):
                self._changed.wait(_CHECK_INTERVAL_S)
