"""util.readahead: results in order from several threads, bounded, and no thread left behind."""

import os
import signal
import threading
from collections.abc import Iterator
from types import FrameType
from typing import Any

import pytest

from kafkalog.errors import IllegalState
from kafkalog.util.readahead import THREAD_NAME, map_ahead, usable_cores
from tests.cycles import left_to_collector


def working_threads() -> list[threading.Thread]:
    return [thread for thread in threading.enumerate() if thread.name.startswith(THREAD_NAME)]


@pytest.fixture(autouse=True)
def _no_threads_left() -> Iterator[None]:
    yield
    assert working_threads() == []


class Items:
    """Yield the numbers from 0 on; record how many were taken, and fail on request."""

    def __init__(self, count: int, fail_at: int = -1) -> None:
        self.count = count
        self.fail_at = fail_at
        self.taken = 0

    def __iter__(self) -> Iterator[int]:
        for number in range(self.count):
            if number == self.fail_at:
                raise LookupError(f"item {number}")
            self.taken += 1
            yield number


@pytest.mark.parametrize("threads", [0, 1, 2, 5, None])
@pytest.mark.parametrize("count", [0, 1, 2, 100])
def test_results_come_in_the_order_of_the_items(threads: int | None, count: int) -> None:
    gate = threading.Event()

    def work(number: int) -> int:
        if number % 7 == 3:
            gate.wait(0.002)  # later ones overtake it
        return number * number

    assert list(map_ahead(work, range(count), threads=threads)) == [n * n for n in range(count)]


def test_work_is_done_by_several_threads_at_once() -> None:
    together = threading.Barrier(3, timeout=60)

    def work(number: int) -> str:
        if number:
            together.wait()  # passes only when three are in it
        return threading.current_thread().name

    names = list(map_ahead(work, range(7), threads=3))
    assert names[0] == threading.current_thread().name
    assert len(set(names[1:])) == 3


@pytest.mark.parametrize("ahead", [1, 2, 5])
def test_no_more_items_are_taken_than_may_wait(ahead: int) -> None:
    items = Items(50)
    for done, _ in enumerate(map_ahead(lambda number: number, items, threads=2, ahead=ahead), 1):
        assert items.taken <= done + ahead


def test_nothing_is_taken_before_the_first_result_is_asked_for_and_one_item_starts_no_thread() -> None:
    items = Items(50)
    results = map_ahead(lambda number: number, items, threads=2)
    assert items.taken == 0
    assert next(results) == 0
    assert items.taken == 1
    assert working_threads() == []
    results.close()


@pytest.mark.parametrize("threads", [1, 3])
@pytest.mark.parametrize("at", [0, 1, 2, 9])
def test_an_exception_comes_after_the_results_before_it(threads: int, at: int) -> None:
    def work(number: int) -> int:
        if number >= at:
            raise ArithmeticError(f"work {number}")
        return number

    assert _results_before(ArithmeticError, map_ahead(work, range(20), threads=threads)) == list(range(at))


def _results_before(error: type[Exception], results: Iterator[int]) -> list[int]:
    """The results before the error, which must come."""
    got = []
    with pytest.raises(error):
        for result in results:
            got.append(result)
    return got


@pytest.mark.parametrize("threads", [1, 3])
@pytest.mark.parametrize("at", [0, 1, 4, 9])
def test_an_exception_of_the_items_comes_after_the_results_before_it(threads: int, at: int) -> None:
    results = map_ahead(lambda n: n, Items(20, fail_at=at), threads=threads)
    assert _results_before(LookupError, results) == list(range(at))


def test_the_earlier_of_two_exceptions_is_raised() -> None:
    def work(number: int) -> int:
        if number == 5:
            raise ArithmeticError("work")
        return number

    with pytest.raises(ArithmeticError):
        list(map_ahead(work, Items(20, fail_at=6), threads=4, ahead=10))
    with pytest.raises(LookupError):
        list(map_ahead(work, Items(20, fail_at=5), threads=4, ahead=10))


def test_closing_drops_what_has_not_begun_and_waits_for_what_has() -> None:
    begun, go_on = [], threading.Event()
    is_in = threading.Semaphore(0)

    def work(number: int) -> int:
        begun.append(number)
        if number > 2:
            is_in.release()
            go_on.wait(60)
        return number

    results = map_ahead(work, range(100), threads=2, ahead=20)
    assert [next(results) for _ in range(3)] == [0, 1, 2]
    for _ in range(2):
        assert is_in.acquire(timeout=60)
    threading.Timer(0.01, go_on.set).start()
    results.close()
    assert working_threads() == []
    assert len(begun) <= 7
    assert list(results) == []


def test_a_dropped_iterator_leaves_no_thread() -> None:
    results = map_ahead(lambda number: number, range(100), threads=2)
    assert [next(results) for _ in range(3)] == [0, 1, 2]
    assert working_threads() != []
    del results
    assert working_threads() == []


@pytest.mark.skipif(not hasattr(signal, "raise_signal"), reason="needs signals")
def test_ctrl_c_while_waiting_for_a_result_ends_the_threads() -> None:
    main = threading.get_ident()
    go_on = threading.Event()

    def work(number: int) -> int:
        if number == 4:
            signal.pthread_kill(main, signal.SIGINT)
            go_on.wait(0.05)
        return number

    got = []
    with pytest.raises(KeyboardInterrupt):
        for result in map_ahead(work, range(1000), threads=2):
            got.append(result)
    assert got == list(range(len(got))) and len(got) < 1000
    assert working_threads() == []


@pytest.mark.skipif(not hasattr(os, "fork"), reason="needs fork")
@pytest.mark.filterwarnings("ignore:.*multi-threaded.*fork:DeprecationWarning")
def test_a_forked_child_is_told_that_the_threads_are_not_there() -> None:
    results: Any = map_ahead(lambda number: number, range(100), threads=2)
    assert [next(results) for _ in range(3)] == [0, 1, 2]
    child = os.fork()
    if child == 0:
        try:
            next(results)
        except IllegalState:
            os._exit(0)
        finally:
            os._exit(1)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
    assert list(results) == list(range(3, 100))


def test_usable_cores_are_at_least_one() -> None:
    assert usable_cores() >= 1


def test_failures_leave_no_cycle() -> None:
    def work(number: int) -> None:
        if number:
            raise ValueError(number)

    with left_to_collector() as left:
        for _ in range(3):
            try:
                list(map_ahead(work, range(5), threads=2))
            except ValueError:
                pass
    assert [one for one in left if isinstance(one, FrameType | ValueError)] == []
