"""Schedulers: order, repetition, cancelling, failures, shutdown."""

import itertools
import logging
import threading
from functools import partial

import pytest

import kafkalog.util.scheduler
from kafkalog.errors import IllegalState
from kafkalog.util.scheduler import Scheduler
from tests.gates import wait_until
from tests.interruptions import interrupted_at
from tests.mock_time import MockClock, MockScheduler

SCHEDULER = kafkalog.util.scheduler.__file__


def test_mock_runs_in_the_order_of_time() -> None:
    scheduler = MockScheduler(MockClock())
    seen: list[str] = []
    scheduler.schedule("late", lambda: seen.append("late"), delay_ms=20)
    scheduler.schedule("early", lambda: seen.append("early"), delay_ms=10)
    scheduler.schedule("early too", lambda: seen.append("early too"), delay_ms=10)
    scheduler.schedule("now", lambda: seen.append("now"))
    assert seen == ["now"]
    assert scheduler.pending == ["early", "early too", "late"]
    assert scheduler.advance(9) == 0
    assert scheduler.advance(1) == 2
    assert scheduler.advance(100) == 1
    assert seen == ["now", "early", "early too", "late"]


def test_mock_repeats_as_often_as_the_time_allows() -> None:
    scheduler = MockScheduler(MockClock())
    seen: list[int] = []
    task = scheduler.schedule("tick", lambda: seen.append(1), delay_ms=10, period_ms=10)
    assert scheduler.advance(35) == 3
    task.cancel()
    assert scheduler.pending == []
    scheduler.advance(100)
    assert len(seen) == 3


def test_a_period_of_zero_does_not_run_for_ever() -> None:
    """KAFKA-16588: there is at least 1 ms between two rounds."""
    scheduler = MockScheduler(MockClock())
    seen: list[int] = []
    scheduler.schedule("tick", lambda: seen.append(1), period_ms=0)
    assert seen == [1]
    scheduler.advance(3)
    assert len(seen) == 4


def test_mock_refuses_after_shutdown() -> None:
    scheduler = MockScheduler(MockClock())
    scheduler.schedule("never", lambda: pytest.fail("ran"), delay_ms=1)
    scheduler.shutdown()
    assert scheduler.advance(10) == 0
    with pytest.raises(IllegalState, match="shut down"):
        scheduler.schedule("x", lambda: None)


def test_threaded_runs_and_repeats() -> None:
    scheduler = Scheduler()
    once, thrice = threading.Event(), threading.Semaphore(0)
    order: list[str] = []
    later = scheduler.schedule("later", lambda: (order.append("later"), once.set()), delay_ms=500)
    soon = scheduler.schedule("soon", lambda: order.append("soon"), delay_ms=1)
    expected = [task.name for task in sorted([later, soon], key=lambda task: task.at_ms)]  # a busy machine is late
    scheduler.schedule("again", thrice.release, period_ms=1)
    assert once.wait(30)
    assert all(thrice.acquire(timeout=30) for _ in range(3))
    wait_until(lambda: order == expected)
    scheduler.shutdown()


def test_a_failure_is_logged_and_stops_nothing(caplog: pytest.LogCaptureFixture) -> None:
    scheduler = Scheduler()
    ran = threading.Semaphore(0)

    def fails() -> None:
        ran.release()
        raise RuntimeError("no luck")

    with caplog.at_level(logging.ERROR):
        scheduler.schedule("fails", fails, period_ms=1)
        assert all(ran.acquire(timeout=30) for _ in range(2))
        scheduler.shutdown()
    assert "background task fails failed" in caplog.text
    assert "no luck" in caplog.text


def test_shutdown_waits_for_the_running_task_and_drops_the_others() -> None:
    scheduler = Scheduler()
    started, go, ended = threading.Event(), threading.Event(), threading.Event()
    scheduler.schedule("long", lambda: (started.set(), go.wait(30), ended.set()))
    scheduler.schedule("never", lambda: pytest.fail("ran"), delay_ms=10_000_000)
    assert started.wait(30)
    closer = threading.Thread(target=scheduler.shutdown)
    closer.start()
    go.set()
    closer.join(30)
    assert ended.is_set()
    with pytest.raises(IllegalState):
        scheduler.schedule("x", lambda: None)
    scheduler.shutdown()


def test_a_task_may_shut_its_scheduler_down() -> None:
    scheduler, done = Scheduler(), threading.Event()
    scheduler.schedule("stop", lambda: (scheduler.shutdown(), done.set()))
    assert done.wait(30)


def test_cancelled_tasks_do_not_run() -> None:
    scheduler, cancelled, done = Scheduler(), threading.Event(), threading.Event()
    scheduler.schedule("occupy the thread", lambda: cancelled.wait(30))
    task = scheduler.schedule("never", lambda: pytest.fail("ran"))
    task.cancel()
    scheduler.schedule("after", done.set)
    cancelled.set()
    assert done.wait(30)
    scheduler.shutdown()


def test_several_threads_run_tasks_side_by_side() -> None:
    scheduler = Scheduler(threads=2)
    meet = threading.Barrier(2)
    done = threading.Semaphore(0)
    for name in ("a", "b"):
        scheduler.schedule(name, lambda: (meet.wait(30), done.release()))
    assert all(done.acquire(timeout=30) for _ in range(2))
    scheduler.shutdown()


def test_threads_end_when_there_are_too_many() -> None:
    scheduler = Scheduler("resized", threads=3)
    meet, done = threading.Barrier(3), threading.Semaphore(0)
    for _ in range(3):
        scheduler.schedule("meet", lambda: (meet.wait(30), done.release()))
    assert all(done.acquire(timeout=30) for _ in range(3))
    threads = [thread for thread in threading.enumerate() if thread.name.startswith("resized")]
    assert len(threads) == 3
    scheduler.resize(1)
    scheduler.schedule("more", done.release)
    assert done.acquire(timeout=30)
    while sum(thread.is_alive() for thread in threads) > 1:
        threading.Event().wait(0.001)
    scheduler.shutdown()


def test_a_far_away_time_fits_the_system_s_wait() -> None:
    scheduler, done = Scheduler(), threading.Event()
    scheduler.schedule("in 292 million years", lambda: pytest.fail("ran"), delay_ms=2**63 - 1)
    scheduler.schedule("now", done.set, period_ms=2**63 - 1)
    assert done.wait(30)
    scheduler.shutdown()


def test_where_no_thread_can_be_started_the_next_call_starts_one(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    scheduler, ran = Scheduler(), threading.Semaphore(0)

    def refuse(thread: threading.Thread) -> None:
        raise RuntimeError("can't start new thread")

    with monkeypatch.context() as patch:
        patch.setattr(threading.Thread, "start", refuse)
        scheduler.schedule("first", ran.release)
    assert "can't start new thread" in caplog.text
    scheduler.schedule("second", ran.release)
    assert ran.acquire(timeout=60) and ran.acquire(timeout=60)
    scheduler.shutdown()


def test_a_ctrl_c_leaves_no_lock_taken_and_no_task_asleep() -> None:
    """Wherever it comes, the scheduler runs what is scheduled afterwards, and stops."""
    for moment in itertools.count(1):
        scheduler, ran = Scheduler(), threading.Semaphore(0)
        scheduler.schedule("before", ran.release)
        assert ran.acquire(timeout=60)
        ended = interrupted_at(moment, partial(scheduler.schedule, "struck", int), (SCHEDULER, threading.__file__))
        scheduler.schedule("after", ran.release)
        assert ran.acquire(timeout=60), f"nothing runs after a Ctrl-C at moment {moment}"
        scheduler.shutdown()
        if ended is None:
            break


def test_a_scheduler_that_ends_when_idle_starts_its_thread_again() -> None:
    scheduler = Scheduler("kafkalog-idle", ends_when_idle=True)
    for _ in range(2):
        ran = threading.Event()
        scheduler.schedule("now", ran.set)
        assert ran.wait(30)
        for thread in threading.enumerate():
            if thread.name == "kafkalog-idle":
                thread.join(30)
                assert not thread.is_alive()


def test_discarded_tasks_leave_the_queue() -> None:
    scheduler = Scheduler("kafkalog-discards", ends_when_idle=True)
    task = scheduler.schedule("never", lambda: pytest.fail("ran"), delay_ms=3_600_000)
    threads = [thread for thread in threading.enumerate() if thread.name == "kafkalog-discards"]
    assert len(threads) == 1
    scheduler.discard([task])
    threads[0].join(30)
    assert task.cancelled and not threads[0].is_alive()


def test_mock_discards_tasks() -> None:
    scheduler = MockScheduler(MockClock())
    seen: list[str] = []
    tasks = [scheduler.schedule(name, partial(seen.append, name), delay_ms=5) for name in ("a", "b", "c")]
    scheduler.discard(tasks[:2])
    assert scheduler.pending == ["c"]
    scheduler.advance(5)
    assert seen == ["c"]
