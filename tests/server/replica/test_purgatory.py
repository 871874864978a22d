"""Requests that wait: woken by their keys, answered once, ended by their limits."""

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kafkalog.server.replica.purgatory import DelayedOperation, Purgatory, WaitingRequests
from kafkalog.types import TopicPartition
from tests.server.replica.partitions import Timer, settle

KEY = TopicPartition("t", 1)


class Waiting(DelayedOperation):
    """Done when `ready` is set; notes what happened to it."""

    def __init__(self, delay_ms: int = 1_000) -> None:
        super().__init__(delay_ms)
        self.ready = False
        self.happened: list[str] = []
        self.error: Exception | None = None

    def try_complete(self) -> bool:
        self.happened.append("look")
        if self.error is not None:
            raise self.error
        return self.ready and self.force_complete()

    def on_complete(self) -> None:
        self.happened.append("answer")


class Clock:
    def __init__(self) -> None:
        self.now_ms = 50_000
        self.timers: list[Timer] = []
        self.errors: list[Exception] = []
        self.purgatory = Purgatory(self.later, lambda _, error: self.errors.append(error), 10)

    def later(self, delay_ms: float, callback: Callable[[], object]) -> Any:
        self.timers.append(Timer(self.now_ms + delay_ms, callback))
        return self.timers[-1]

    def passes(self, ms: int) -> None:
        self.now_ms += ms
        for timer in self.timers:
            if timer.callback is not None and timer.due_ms <= self.now_ms:
                timer.callback()

    @property
    def pending(self) -> int:
        """Number of timers that are neither expired nor cancelled."""
        return sum(timer.callback is not None for timer in self.timers)


@pytest.fixture
def clock() -> Clock:
    return Clock()


def test_what_is_ready_never_waits(clock: Clock) -> None:
    one = Waiting()
    one.ready = True
    assert clock.purgatory.try_complete_else_watch(one, ["a"])
    assert one.happened == ["look", "answer"]
    assert (clock.purgatory.delayed, clock.purgatory.watched, clock.pending) == (0, 0, 0)


def test_woken_by_any_of_its_keys_and_answered_once(clock: Clock) -> None:
    one = Waiting()
    assert not clock.purgatory.try_complete_else_watch(one, ["a", "b"])
    assert clock.purgatory.check_and_complete("c") == clock.purgatory.check_and_complete("a") == 0
    assert (clock.purgatory.delayed, clock.purgatory.watched) == (1, 2)
    one.ready = True
    assert clock.purgatory.check_and_complete("b") == 1
    assert clock.purgatory.check_and_complete("a") == 0
    clock.passes(5_000)
    assert one.happened == ["look", "look", "look", "answer"]
    assert (clock.purgatory.delayed, clock.purgatory.watched, clock.pending) == (0, 0, 0)


def test_the_limit_answers_with_what_there_is(clock: Clock) -> None:
    one, at_once = Waiting(1_000), Waiting(0)
    clock.purgatory.try_complete_else_watch(one, ["a"])
    assert clock.purgatory.try_complete_else_watch(at_once, ["a"])
    assert at_once.happened == ["look", "answer"]
    clock.passes(999)
    shortest = Waiting(1)
    assert not clock.purgatory.try_complete_else_watch(shortest, ["a"])
    assert not one.is_completed
    clock.passes(1)
    assert one.happened == shortest.happened == ["look", "answer"] and clock.purgatory.delayed == 0
    assert not one.force_complete() and one.happened == ["look", "answer"], "it is answered once"


def test_an_error_in_one_reaches_nobody_else(clock: Clock) -> None:
    """PART-17: the error is logged, the others under the key are checked, and its own timeout still answers it."""
    bad, good = Waiting(), Waiting()
    clock.purgatory.try_complete_else_watch(bad, ["a"])
    clock.purgatory.try_complete_else_watch(good, ["a"])
    bad.error, good.ready = RuntimeError("broken"), True
    assert clock.purgatory.check_and_complete("a") == 1
    assert clock.errors == [bad.error] and good.is_completed and not bad.is_completed
    clock.passes(1_000)
    assert bad.is_completed and clock.purgatory.delayed == 0


def test_an_answer_that_fails_at_the_limit_is_reported_and_does_not_wait_on() -> None:
    noted: list[tuple[DelayedOperation, Exception]] = []

    class Failing(Waiting):
        def on_complete(self) -> None:
            raise RuntimeError("broken")

    clock, one = Clock(), Failing()
    clock.purgatory = Purgatory(clock.later, lambda *failure: noted.append(failure), 10)
    clock.purgatory.try_complete_else_watch(one, ["a"])
    clock.passes(1_000)
    [(failed, error)] = noted
    assert failed is one and str(error) == "broken"
    assert one.is_completed and clock.purgatory.delayed == 0


def test_what_comes_in_while_a_key_is_looked_at_is_kept(clock: Clock) -> None:
    second = Waiting()

    class Adding(Waiting):
        def on_complete(self) -> None:
            clock.purgatory.try_complete_else_watch(second, ["a"])

    first, third = Adding(), Waiting()
    clock.purgatory.try_complete_else_watch(first, ["a"])
    clock.purgatory.try_complete_else_watch(third, ["a"])
    first.ready = True
    assert clock.purgatory.check_and_complete("a") == 1
    second.ready = third.ready = True
    assert clock.purgatory.check_and_complete("a") == 2


def test_a_stop_answers_all(clock: Clock) -> None:
    waiting = [Waiting() for _ in range(4)]  # fewer entries than a sweep waits for
    for number, one in enumerate(waiting):
        clock.purgatory.try_complete_else_watch(one, [number, number + 1])
    clock.purgatory.complete_all()
    assert all(one.happened == ["look", "answer"] for one in waiting)
    assert (clock.purgatory.delayed, clock.purgatory.watched, clock.pending) == (0, 0, 0)


@given(st.lists(st.tuples(st.sampled_from("wcp"), st.integers(0, 5), st.integers(0, 400)), max_size=80))
def test_each_is_answered_once_and_what_is_done_is_swept(steps: list[tuple[str, int, int]]) -> None:
    clock, all_of_them = Clock(), []
    for what, key, number in steps:
        if what == "w":
            one = Waiting(number)
            all_of_them.append((one, clock.now_ms + number))
            clock.purgatory.try_complete_else_watch(one, [key, key + 1, "all"])
        elif what == "c":
            for one, _ in all_of_them[:: key + 1]:
                one.ready = True
            clock.purgatory.check_and_complete(key)
        else:
            clock.passes(number)
        for one, limit in all_of_them:
            assert one.happened.count("answer") == one.is_completed
            assert one.is_completed or limit > clock.now_ms
        waiting = sum(not one.is_completed for one, _ in all_of_them)
        assert clock.purgatory.delayed == waiting == clock.pending
        assert clock.purgatory.watched <= 3 * (waiting + 10)


class Large(Waiting):
    """Notes that it dropped what it remembers."""

    def release(self) -> None:
        self.happened.append("let go")


def test_what_is_done_keeps_nothing_and_few_entries_under_keys_that_are_quiet(clock: Clock) -> None:
    """A fetch over many partitions of which one is busy lies under all the others until they are swept."""
    for number in range(50):
        one = Large()
        assert not clock.purgatory.try_complete_else_watch(one, ["busy", *range(8)])
        one.ready = True
        if number % 2:
            assert clock.purgatory.check_and_complete("busy") == 1
            assert one.happened == ["look", "look", "answer", "let go"]
        else:
            clock.purgatory.cancel(one)
            assert one.happened == ["look", "let go"]
        assert clock.purgatory.watched < 10 + 9
    assert clock.purgatory.delayed == 0


def test_a_sweep_comes_with_the_last_entry_of_its_interval(clock: Clock) -> None:
    for swept in ([2, 4, 6, 8, 0], [1, 2, 3, 4, 5, 6, 7, 8, 9, 0]):
        for left in swept:
            one = Large()
            assert not clock.purgatory.try_complete_else_watch(one, range(swept[0]))
            clock.purgatory.cancel(one)
            assert clock.purgatory.watched == left


def test_a_sweep_waits_until_it_pays(clock: Clock) -> None:
    """As many entries as wait may be stale: else each answer would look at all that wait."""
    rest = [Large() for _ in range(100)]
    for one in rest:
        assert not clock.purgatory.try_complete_else_watch(one, ["quiet"])
    for count in range(99):
        one = Large()
        assert not clock.purgatory.try_complete_else_watch(one, ["quiet"])
        clock.purgatory.cancel(one)
        assert clock.purgatory.watched == 100 + count + 1
    one = Large()
    assert not clock.purgatory.try_complete_else_watch(one, ["quiet"])
    clock.purgatory.cancel(one)
    assert clock.purgatory.watched == clock.purgatory.delayed == 100


class Answering(Waiting):
    def __init__(self, send: Callable[[str], object]) -> None:
        super().__init__()
        self.send = send

    def on_complete(self) -> None:
        super().on_complete()
        self.send("answer")


class Requests:
    """A request of each kind that waits for one partition."""

    def __init__(self, clock: Clock) -> None:
        self.kinds = WaitingRequests(clock.later)
        self.purgatories = self.kinds.produce, self.kinds.fetch, self.kinds.deletion
        self.operations: list[Waiting] = []
        self.waits = 0
        self.tasks = [asyncio.create_task(self.answered(one)) for one in self.purgatories]

    async def answered(self, purgatory: Purgatory) -> str:
        def delay(send: Callable[[str], object]) -> Waiting:
            self.operations.append(Answering(send))
            return self.operations[-1]

        def on_wait() -> None:
            self.waits += 1

        return await self.kinds.answer(purgatory, delay, [KEY], on_wait)

    @property
    def delayed(self) -> list[int]:
        return [one.delayed for one in self.purgatories]


def with_requests(clock: Clock, body: Callable[[Requests], Awaitable[None]]) -> None:
    async def run() -> None:
        requests = Requests(clock)
        await asyncio.sleep(0)
        assert (requests.waits, requests.delayed) == (3, [1, 1, 1])
        await body(requests)
        assert requests.delayed == [0, 0, 0] and clock.pending == 0

    asyncio.run(run())


def test_a_partition_wakes_the_requests_of_each_kind(clock: Clock) -> None:
    async def body(requests: Requests) -> None:
        for number, task in enumerate(requests.tasks):
            requests.kinds.wake(TopicPartition("t", 2))
            requests.operations[number].ready = True
            requests.kinds.wake(KEY)
            await settle()
            assert task.done() and task.result() == "answer"
            assert requests.delayed == [0] * (number + 1) + [1] * (2 - number)
            assert [one.happened.count("look") for one in requests.operations[number:]] == [number + 2] * (3 - number)

    with_requests(clock, body)


def test_a_stop_answers_the_requests_of_each_kind(clock: Clock) -> None:
    async def body(requests: Requests) -> None:
        requests.kinds.stop()
        await settle()
        assert [task.done() and task.result() for task in requests.tasks] == ["answer"] * 3

    with_requests(clock, body)


def test_a_request_that_is_cancelled_is_dropped_and_a_failed_one_logged(
    clock: Clock, caplog: pytest.LogCaptureFixture
) -> None:
    async def body(requests: Requests) -> None:
        for one in requests.operations:
            one.error = ValueError("broken")
        requests.kinds.wake(KEY)
        for task in requests.tasks:
            task.cancel()
        await asyncio.wait(requests.tasks)
        assert not any("answer" in one.happened for one in requests.operations)

    with_requests(clock, body)
    assert [(one.getMessage(), str(one.exc_info[1])) for one in caplog.records if one.exc_info] == [
        ("Answering failed", "broken")
    ] * 3
