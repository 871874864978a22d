"""The timer wheel beside a sorted list: whatever is added, cancelled and waited for, both say the same."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kafkalog.server.replica.timer import TimerTask, TimerWheel

STEPS = st.lists(
    st.one_of(
        st.tuples(st.just("add"), st.one_of(st.integers(-5, 300), st.integers(0, 2**40))),
        st.tuples(st.just("cancel"), st.integers(0, 50)),
        st.tuples(st.just("advance"), st.one_of(st.integers(0, 200), st.integers(0, 10**9))),
        st.tuples(st.just("next"), st.just(0)),
    ),
    max_size=60,
)


@given(STEPS, st.integers(2, 70), st.integers(0, 2**45))
def test_the_same_as_a_sorted_list(steps: list[tuple[str, int]], size: int, start_ms: int) -> None:
    wheel, now_ms = TimerWheel(start_ms, size=size), start_ms
    waiting: dict[TimerTask, int] = {}
    tasks: list[TimerTask] = []
    for what, number in steps:
        if what == "add":
            task = TimerTask()
            assert wheel.add(task, now_ms + number) == (number > 0)
            if number > 0:
                waiting[task] = now_ms + number
                tasks.append(task)
        elif what == "cancel" and tasks:
            task = tasks[number % len(tasks)]
            assert wheel.cancel(task) == (waiting.pop(task, None) is not None)
        elif what == "advance":
            now_ms += number
            due = wheel.advance_to(now_ms)
            assert {id(task) for task in due} == {id(task) for task, when in waiting.items() if when <= now_ms}
            assert [task.due_ms for task in due] == sorted(task.due_ms for task in due)
            for task in due:
                del waiting[task]
                assert not task.is_scheduled
        elif what == "next":
            when = wheel.next_due_ms()
            assert (when is None) == (not waiting)
            if when is not None:
                assert now_ms < when <= min(waiting.values())
        assert len(wheel) == len(waiting)


@pytest.mark.parametrize("due_ms", [5, 100, 5000])
def test_a_time_that_was_given_up_can_be_waited_for_again(due_ms: int) -> None:
    wheel, given_up, task = TimerWheel(0, size=10), TimerTask(), TimerTask()
    assert wheel.add(given_up, due_ms) and wheel.cancel(given_up)
    assert wheel.next_due_ms() is None
    assert wheel.add(task, due_ms)
    when = wheel.next_due_ms()
    assert when is not None and 0 < when <= due_ms
    assert wheel.advance_to(due_ms) == [task]


def test_what_is_far_away_is_reached_in_few_steps() -> None:
    """Who waits by `next_due_ms` is called a few times for a limit of days, not once a tick."""
    wheel, task, calls = TimerWheel(0), TimerTask(), 0
    assert wheel.add(task, 7 * 86_400_000 + 1)
    due: list[TimerTask] = []
    while not due:
        when = wheel.next_due_ms()
        assert when is not None
        due = wheel.advance_to(when)
        calls += 1
    assert due == [task] and calls <= 7


def test_a_task_is_in_one_wheel_once() -> None:
    wheel, task = TimerWheel(0), TimerTask()
    wheel.add(task, 5)
    with pytest.raises(ValueError, match="already"):
        wheel.add(task, 6)
    assert wheel.cancel(task) and not wheel.cancel(task)
    assert wheel.add(task, 6)


def test_a_wheel_of_one_bucket_cannot_turn() -> None:
    with pytest.raises(ValueError, match="needs 2"):
        TimerWheel(0, 1)
