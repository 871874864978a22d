"""Ctrl-C in the middle of any call leaves a good log: what was answered is there, the rest is whole or absent."""

from __future__ import annotations

import gc
import itertools
import random
import signal
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Any

import pytest

import kafkalog
from kafkalog.util.fileio import OS
from kafkalog.util.interrupts import deferred_interrupts
from tests.interruptions import interrupted_at

# an interrupted open ends in a finalizer, where Python reports, and drops, a further interrupt
pytestmark = [
    pytest.mark.in_memory,
    pytest.mark.filterwarnings("ignore::ResourceWarning"),
    pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning"),
]


class Storm:
    """Sends this process SIGINT at a random moment inside a block; `hits` counts the blocks that it stopped."""

    def __init__(self, seed: int) -> None:
        self.random = random.Random(seed)
        self.hits = 0
        self._armed = False

    def strike(self, signum: int, frame: object) -> None:
        if self._armed:
            signal.raise_signal(signal.SIGINT)

    def run(self, call: Callable[[], Any], within_s: float) -> tuple[bool, Any]:
        """(True, result) where the call came to its end, (False, None) where it was stopped."""
        result, finished = None, False
        try:
            try:
                self._armed = True
                signal.setitimer(signal.ITIMER_REAL, max(1e-6, self.random.random() * within_s))
                result = call()
                finished = True
            finally:
                self._armed = False
        except KeyboardInterrupt:
            self.hits += 1
        signal.setitimer(signal.ITIMER_REAL, 0)
        return finished, result


@contextmanager
def storm(seed: int) -> Iterator[Storm]:
    made = Storm(seed)
    before = signal.signal(signal.SIGALRM, made.strike)
    interrupt = signal.signal(signal.SIGINT, signal.default_int_handler)
    try:
        yield made
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)
        signal.signal(signal.SIGINT, interrupt)


def read_contents(path: str | Path) -> list[tuple[int, bytes | None]]:
    with kafkalog.open(path) as log:
        return [(record.offset, record.value) for record in log]


@pytest.mark.parametrize("seed", range(4))
def test_appends_rolls_cuts_and_closes_are_whole_or_absent(tmp_path: Path, seed: int) -> None:
    path = tmp_path / "t-0"
    settings = {"internal_segment_bytes": 2000, "index_interval_bytes": 200}
    log = kafkalog.open(path, "a", **settings)
    with storm(seed) as weather:
        for turn in range(600):
            kind = weather.random.random()
            before = log.end_offset
            values = [b"%d-%d" % (turn, n) for n in range(weather.random.randint(1, 5))]
            if kind < 0.7:
                finished, _ = weather.run(partial(log.append, values), 0.0001)
                assert log.end_offset == before + len(values) or (not finished and log.end_offset == before)
                if log.end_offset > before:
                    assert [record.value for record in log.records(before)] == values
            elif kind < 0.8:
                weather.run(log.roll, 0.0006)
                assert log.end_offset == before
            elif kind < 0.85:
                target = weather.random.randint(log.start_offset, before)
                finished, _ = weather.run(partial(log.truncate_to, target), 0.0006)
                assert log.end_offset == target or (not finished and log.end_offset == before)
            elif kind < 0.9:
                weather.run(log.flush, 0.0006)
            elif kind < 0.95:
                target = min(log.start_offset + weather.random.randint(0, 3), log.end_offset)
                weather.run(partial(log.delete_before, target), 0.0006)
            else:
                weather.run(log.close, 0.001)
                log.close()
                assert (tmp_path / ".kafka_cleanshutdown").exists()
                weather.run(lambda: kafkalog.open(path, "a").close(), 0.002)
                log = kafkalog.open(path, "a")
            if turn % 25 == 0:
                assert [(record.offset, record.value) for record in log] == read_contents(path)
        stored = [(record.offset, record.value) for record in log]
    log.close()
    gc.collect()
    assert read_contents(path) == stored
    assert weather.hits > 20


@pytest.mark.parametrize("seed", range(3))
def test_a_writer_keeps_what_it_took(tmp_path: Path, seed: int) -> None:
    path = tmp_path / "t-0"
    handles = []
    with kafkalog.open(path, "a") as log, storm(seed) as weather:
        writer = log.writer(linger_ms=1, batch_bytes=300, buffer_memory=2000)
        for turn in range(1500):
            value = b"%d" % turn
            finished, handle = weather.run(partial(writer.append, value), 0.00005)
            if finished:
                handles.append((handle, value))
            if turn % 100 == 0:
                weather.run(writer.flush, 0.0005)
        weather.run(writer.close, 0.0005)
        writer.close()
    stored = dict(read_contents(path))
    assert list(stored) == list(range(len(stored)))
    assert all(stored[handle.result(0)] == value for handle, value in handles)
    assert len(stored) - len(handles) <= weather.hits
    assert weather.hits > 20


@pytest.mark.parametrize("seed", range(2))
def test_reading_is_not_spoiled(tmp_path: Path, seed: int) -> None:
    with kafkalog.open(tmp_path / "t-0", "a") as log:
        for number in range(0, 1000, 10):
            log.append([b"%d" % n for n in range(number, number + 10)])
        with kafkalog.open(tmp_path / "t-0") as view, storm(seed) as weather:
            for _ in range(200):
                for reader in (log, view):
                    weather.run(lambda reader=reader: [r.value for r in reader.records(500)], 0.001)
                    weather.run(lambda reader=reader: reader[weather.random.randrange(1000)], 0.0002)
            for reader in (log, view):
                assert [record.value for record in reader] == [b"%d" % n for n in range(1000)]
    assert weather.hits > 20


def test_a_file_is_opened_and_closed_once(tmp_path: Path) -> None:
    """A descriptor closed twice would be another file's by then."""
    path = tmp_path / "file"
    path.write_bytes(b"x")
    with storm(1) as weather:
        for _ in range(3000):
            weather.run(lambda: OS.open_file(path, "r").close(), 0.00002)
    assert weather.hits > 20


@pytest.fixture
def usual_handler() -> Iterator[None]:
    """Ctrl-C as an interactive interpreter has it: a runner in the background is started without."""
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    yield
    signal.signal(signal.SIGINT, before)


@pytest.mark.usefixtures("usual_handler")
def test_a_deferred_interrupt_comes_after_the_block() -> None:
    steps = []
    with pytest.raises(KeyboardInterrupt), deferred_interrupts():
        with deferred_interrupts():
            signal.raise_signal(signal.SIGINT)
            steps.append("inner")
        steps.append("outer")
    assert steps == ["inner", "outer"]
    assert signal.getsignal(signal.SIGINT) is signal.default_int_handler


def test_deferring_leaves_other_threads_and_other_handlers_alone() -> None:
    failures = []

    def run() -> None:
        try:
            with deferred_interrupts():
                pass
        except BaseException as error:
            failures.append(error)

    thread = threading.Thread(target=run)
    thread.start()
    thread.join()
    assert not failures
    before = signal.signal(signal.SIGINT, signal.SIG_IGN)
    try:
        with deferred_interrupts():
            signal.raise_signal(signal.SIGINT)
        assert signal.getsignal(signal.SIGINT) is signal.SIG_IGN
    finally:
        signal.signal(signal.SIGINT, before)


@pytest.mark.usefixtures("usual_handler")
def test_an_error_inside_is_not_lost_to_the_interrupt() -> None:
    with pytest.raises(KeyboardInterrupt) as caught, deferred_interrupts():
        signal.raise_signal(signal.SIGINT)
        raise ValueError("inside")
    assert isinstance(caught.value.__context__, ValueError)


def test_a_recovery_can_be_interrupted_and_begun_again(tmp_path: Path) -> None:
    """LOAD-30: Ctrl-C ends it between two pieces of work; the directory is free, and the next opening recovers it."""
    path = tmp_path / "t-0"
    with kafkalog.open(path, "a") as log:
        log.append([b"v" * 100 for _ in range(1000)])
    (tmp_path / ".kafka_cleanshutdown").unlink()
    seen: list[object] = []

    def progress(one: object) -> None:
        seen.append(one)
        signal.raise_signal(signal.SIGINT)

    with pytest.raises(KeyboardInterrupt):
        kafkalog.open(path, "a", progress=progress)
    assert len(seen) == 1, "the second call lets it through"
    assert not (tmp_path / ".kafka_cleanshutdown").exists()
    with kafkalog.open(path, "a") as log:
        assert log.end_offset == 1000
    with pytest.raises(TypeError, match="progress"):
        kafkalog.open(path, progress=progress)


def test_an_interrupt_is_let_through_once_and_in_the_main_thread_only() -> None:
    block = deferred_interrupts()
    with block:
        block.run_pending()  # none waits
        signal.raise_signal(signal.SIGINT)
        thread = threading.Thread(target=block.run_pending)
        thread.start()
        thread.join()
        with pytest.raises(KeyboardInterrupt):
            block.run_pending()
        block.run_pending()


_API_FILES = tuple(
    str(Path(kafkalog.__file__).parent / name)
    for name in ("log/log.py", "log/open.py", "log/writable.py", "log/open_writable.py", "util/interrupts.py")
)


def test_a_log_can_be_opened_again_wherever_its_opening_and_closing_was_interrupted(tmp_path: Path) -> None:
    """At each place where Python looks for a Ctrl-C; the one between opening and handing over too."""
    path = tmp_path / "t-0"
    kafkalog.open(path, "a").close()
    hits = 0
    for moment in itertools.count(1):
        ended = interrupted_at(moment, lambda: kafkalog.open(path, "a").close(), (*_API_FILES, __file__))
        if ended is None:
            break
        hits += ended
        kafkalog.open(path, "a").close()
    assert hits > 20


def test_a_log_that_was_not_handed_over_is_closed_by_dropping_it(tmp_path: Path) -> None:
    kept: list[kafkalog.Log] = []
    path = tmp_path / "t-0"
    for moment in itertools.count(1):
        ended = interrupted_at(moment, lambda: kept.append(kafkalog.open(path, "a")), (*_API_FILES, __file__))
        if ended is None:
            break
        if kept:  # it came after the opening
            kept.pop().close()
        kafkalog.open(path, "a").close()
    kept.pop().close()
