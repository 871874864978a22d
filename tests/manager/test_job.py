"""A job: when it runs, what it says of its last run, and how it follows a period that changes."""

import threading

import pytest

from kafkalog.manager.job import FAR_MS, Job
from kafkalog.util.scheduler import Scheduler
from tests.mock_time import MockClock, MockScheduler


def test_what_the_last_run_came_to() -> None:
    clock = MockClock(5000)
    fails = [False]

    def work() -> None:
        clock.advance(7)
        if fails[0]:
            raise RuntimeError("no luck")

    job = Job("a-job", work, delay_ms=10, period_ms=20, clock=clock)
    assert (job.last_run_ms, job.last_duration_ms, job.last_error, job.runs) == (None, None, None, 0)
    assert repr(job) == "<Job a-job every 20 ms, not run yet>"
    job.run()
    assert (job.last_run_ms, job.last_duration_ms, job.last_error, job.runs) == (5000, 7, None, 1)
    fails[0] = True
    with pytest.raises(RuntimeError):
        job.run()
    assert (job.last_run_ms, job.runs, str(job.last_error)) == (5007, 2, "no luck")
    assert repr(job) == "<Job a-job every 20 ms, 2 runs, the last took 7 ms and failed: no luck>"
    fails[0] = False
    job.run()
    assert job.last_error is None


def test_delay_then_period_and_a_failure_stops_neither_it_nor_others() -> None:
    clock = MockClock()
    scheduler = MockScheduler(clock)
    ran: list[str] = []

    def fails() -> None:
        ran.append("fails")
        raise RuntimeError

    Job("fails", fails, delay_ms=30, period_ms=40, clock=clock).start(scheduler)
    Job("works", lambda: ran.append("works"), delay_ms=0, period_ms=50, clock=clock).start(scheduler)
    assert ran == ["works"]
    scheduler.advance(29)
    assert ran == ["works"]
    scheduler.advance(50)
    assert ran == ["works", "fails", "works", "fails"]


@pytest.mark.parametrize("period_ms", [0, -1])
def test_no_period_means_one_run(period_ms: int) -> None:
    """As the reference's scheduler has it."""
    scheduler = MockScheduler(MockClock())
    ran: list[int] = []
    Job("once", lambda: ran.append(1), delay_ms=5, period_ms=period_ms).start(scheduler)
    scheduler.advance(100)
    assert ran == [1]
    assert scheduler.pending == []


def test_a_period_that_changes_is_followed() -> None:
    clock = MockClock()
    scheduler = MockScheduler(clock)
    ran: list[int] = []
    period = [FAR_MS]

    def pass_time(ms: int) -> None:
        for _ in range(ms // 10):
            scheduler.advance(10)

    def work() -> None:
        ran.append(clock.monotonic_ms())

    job = Job("follows", work, delay_ms=30, period_ms=lambda: period[0], clock=clock)
    job.start(scheduler)
    pass_time(1000)
    assert ran == [30]
    assert "<Job follows once, 1 runs" in repr(job)
    period[0] = 100
    job.reschedule()
    job.reschedule()
    pass_time(250)
    assert ran == [30, 1100, 1200]
    period[0] = 10
    pass_time(50)
    assert ran == [30, 1100, 1200, 1300]
    pass_time(20)
    assert ran == [30, 1100, 1200, 1300, 1310, 1320]
    job.stop()
    pass_time(1000)
    assert len(ran) == 6
    assert scheduler.pending == []


def test_stop_waits_for_the_run_that_goes_on() -> None:
    scheduler = Scheduler()
    began, go, ended = threading.Event(), threading.Event(), threading.Event()
    job = Job("slow", lambda: (began.set(), go.wait(30), ended.set()), delay_ms=0, period_ms=FAR_MS)
    job.start(scheduler)
    assert began.wait(30)
    stopper = threading.Thread(target=job.stop)
    stopper.start()
    assert stopper.is_alive()
    go.set()
    stopper.join(30)
    assert ended.is_set()
    scheduler.shutdown()
