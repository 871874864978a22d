"""Work in several threads, and in one where no other can be started."""

import subprocess
import sys
import threading
from types import FrameType

import pytest

from kafkalog.util.side_by_side import side_by_side
from tests.cycles import left_to_collector


def test_results_come_in_order_from_several_threads() -> None:
    meet = threading.Barrier(3)

    def step(number: int) -> tuple[int, str]:
        meet.wait(30)
        return number, threading.current_thread().name

    found = side_by_side(step, range(3), 3, "worker")
    assert [number for number, _ in found] == [0, 1, 2]
    assert {name for _, name in found} == {threading.current_thread().name, "worker-0", "worker-1"}
    assert side_by_side(step, (), 3, "worker") == []


def test_no_more_threads_than_asked_for() -> None:
    assert set(side_by_side(lambda _: threading.current_thread().name, range(50), 1, "worker")) == {
        threading.current_thread().name
    }


def test_the_first_failure_is_raised_when_all_had_their_turn() -> None:
    done: list[int] = []

    def step(number: int) -> None:
        done.append(number)
        if number == 1:
            raise ValueError("one")

    with pytest.raises(ValueError, match="one"):
        side_by_side(step, range(5), 2, "worker")
    assert sorted(done) == [0, 1, 2, 3, 4]


def test_without_other_threads(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(self: threading.Thread) -> None:
        raise RuntimeError("can't start new thread")

    monkeypatch.setattr(threading.Thread, "start", refuse)
    assert side_by_side(lambda number: number * 2, range(5), 4, "worker") == [0, 2, 4, 6, 8]


def test_when_the_interpreter_ends() -> None:
    command = (
        "import atexit; from kafkalog.util.side_by_side import side_by_side;"
        "atexit.register(lambda: print(side_by_side(str, range(3), 4, 'w')))"
    )
    done = subprocess.run([sys.executable, "-c", command], capture_output=True, text=True)
    assert (done.stdout, done.stderr) == ("['0', '1', '2']\n", "")


def test_failures_leave_no_cycle() -> None:
    def step(number: int) -> None:
        raise ValueError(number)

    with left_to_collector() as left:
        try:
            side_by_side(step, range(3), 2, "worker")
        except ValueError:
            pass
    assert [one for one in left if isinstance(one, FrameType | ValueError)] == []
