"""Exclusive work on a partition: cleaners, retention, and those who delete, truncate or move it."""

from __future__ import annotations

import threading
from collections.abc import Callable

import pytest

from kafkalog.cleaner.states import CleaningStates
from kafkalog.errors import CleaningAborted, IllegalState
from kafkalog.types import TopicPartition

T0, T1 = TopicPartition("t", 0), TopicPartition("t", 1)


def state_text(states: CleaningStates, partition: TopicPartition = T0) -> str:
    return str(states.of(partition))


def in_thread(work: Callable[[], object]) -> threading.Thread:
    thread = threading.Thread(target=work, daemon=True)
    thread.start()
    return thread


def wait_until(condition: Callable[[], bool]) -> None:
    waiting = threading.Event()
    for _ in range(8000):
        if condition():
            return
        waiting.wait(0.005)
    raise AssertionError("it does not come about")


def test_a_clean_begins_and_ends() -> None:
    """CLN-34: none, in progress, none; no one else begins meanwhile."""
    states = CleaningStates()
    assert states.of(T0) is None
    assert states.begin(T0)
    assert not states.begin(T0)
    assert states.begin(T1)
    assert state_text(states) == "in progress"
    states.check(T0)
    states.done(T0)
    assert states.of(T0) is None
    assert states.begin(T0)


def test_what_is_gone_does_not_begin() -> None:
    states = CleaningStates()
    assert not states.begin(T0, lambda: False)
    assert states.of(T0) is None


def test_done_needs_somebody_who_works() -> None:
    """CLN-34: an error without a state, or while paused."""
    states = CleaningStates()
    with pytest.raises(IllegalState, match="has no state"):
        states.done(T0)
    states.abort_and_pause(T0)
    with pytest.raises(IllegalState, match=r"paused\(1\)"):
        states.done(T0)


def test_pauses_nest_and_are_taken_back_one_by_one() -> None:
    """CLN-34: resume below none is an error, and so is resume of what is being cleaned."""
    states = CleaningStates()
    states.abort_and_pause(T0)
    states.abort_and_pause(T0)
    assert state_text(states) == "paused(2)"
    assert not states.begin(T0)
    states.resume(T0)
    assert state_text(states) == "paused(1)"
    assert not states.begin(T0)
    states.resume(T0)
    assert states.begin(T0)
    with pytest.raises(IllegalState, match="in progress, not paused"):
        states.resume(T0)
    with pytest.raises(IllegalState, match="has no state, not paused"):
        states.resume(T1)


def test_an_abort_waits_until_the_cleaner_lets_go() -> None:
    """CLN-34, CLN-35: CleaningAborted at the next check, then paused(1)."""
    states = CleaningStates()
    let_go, begun, seen = threading.Event(), threading.Event(), list[str]()

    def clean() -> None:
        states.begin(T0)
        begun.set()
        try:
            while True:
                states.check(T0)
        except CleaningAborted:
            seen.append("aborted")
        let_go.wait()
        seen.append("let go")
        states.done(T0)

    cleaner = in_thread(clean)
    begun.wait()
    aborter = in_thread(lambda: (states.abort_and_pause(T0), seen.append("paused")))
    wait_until(lambda: seen == ["aborted"])
    assert state_text(states) == "aborted"
    with pytest.raises(CleaningAborted, match="t-0"):
        states.check(T0)
    let_go.set()
    aborter.join()
    cleaner.join()
    assert seen == ["aborted", "let go", "paused"]
    assert state_text(states) == "paused(1)"


def test_two_aborts_at_once_both_wait_and_both_count() -> None:
    """CLN-35: the reference refuses the second one; here it waits as well."""
    states = CleaningStates()
    states.begin(T0)
    seen: list[int] = []
    aborters = [in_thread(lambda: _paused_by_another_thread(states, seen)) for _ in range(2)]
    wait_until(lambda: (states.of(T0) or (0, 0))[1] == 2)
    states.done(T0)
    for aborter in aborters:
        aborter.join()
    assert seen == [1, 1]
    assert state_text(states) == "paused(2)"


def _paused_by_another_thread(states: CleaningStates, seen: list[int]) -> None:
    states.abort_and_pause(T0)
    seen.append(1)


def test_abort_is_pause_and_resume() -> None:
    states = CleaningStates()
    states.abort(T0)
    assert states.of(T0) is None
    states.abort_and_pause(T0)
    states.abort(T0)
    assert state_text(states) == "paused(1)"


def test_a_cleaner_does_not_wait_for_itself() -> None:
    """A hook that deletes what its own thread cleans gets an error, and does not hang."""
    states = CleaningStates()
    states.begin(T0)
    with pytest.raises(IllegalState, match="thread"):
        states.abort_and_pause(T0)
    with pytest.raises(IllegalState, match="thread"):
        states.wait_for(T0)
    states.done(T0)


def test_retention_takes_what_nobody_works_on() -> None:
    """CLN-38: and while it has it, no one else begins."""
    states = CleaningStates()
    states.begin(T0)
    assert states.pause_idle([T0, T1]) == {T1}
    assert not states.begin(T1)
    states.abort_and_pause(T1)  # it is deleted meanwhile: no thread waits
    states.resume(T1)
    assert state_text(states, T1) == "paused(1)"
    states.resume(T1)
    states.done(T0)
    assert states.begin(T1)


def test_what_had_a_state_since_it_was_looked_at_is_not_begun() -> None:
    """It may have been cleaned or cut in the meantime."""
    states = CleaningStates()
    states.begin(T0)
    assert states.watch() == {T0}
    states.done(T0)
    states.abort(T1)
    assert not states.begin(T0, watched=True)
    assert not states.begin(T1, watched=True)
    assert states.watch() == set()
    assert states.begin(T0, watched=True)


def test_stop_waits_and_lets_nothing_begin() -> None:
    states = CleaningStates()
    begun = threading.Event()

    def clean() -> None:
        states.begin(T0)
        begun.set()
        with pytest.raises(CleaningAborted):
            while True:
                states.check(T0)
        states.done(T0)

    cleaner = in_thread(clean)
    begun.wait()
    states.stop()
    assert states.of(T0) is None
    assert not states.begin(T1)
    assert states.stopped
    cleaner.join()


def test_stop_waits_for_nobody_who_cleans_nothing() -> None:
    """Nor for the thread that stops: it would wait for itself."""
    states = CleaningStates()
    states.abort_and_pause(T0)
    assert states.begin(T1)
    states.stop()
    assert [str(states.of(one)) for one in (T0, T1)] == ["paused(1)", "in progress"]
    states.done(T1)
    states.resume(T0)
    assert states.of(T0) is states.of(T1) is None


def test_waiting_ends_with_the_clean() -> None:
    states = CleaningStates()
    states.wait_for(T0)
    begun, may_end = threading.Event(), threading.Event()

    def clean() -> None:
        states.begin(T0)
        begun.set()
        may_end.wait()
        states.done(T0)

    cleaner = in_thread(clean)
    begun.wait()
    waiter = in_thread(lambda: states.wait_for(T0))
    may_end.set()
    waiter.join()
    cleaner.join()
    assert states.of(T0) is None
